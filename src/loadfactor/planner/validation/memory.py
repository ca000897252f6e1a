"""Validation of the planner's memory: runs that ran or ran out of memory beside its risk, peaks, and the layouts it recommends."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np

from loadfactor.base.units import BYTES_PER_GB, BYTES_PER_GIB
from loadfactor.planner.training.memory import estimate_memory, estimate_risk
from loadfactor.planner.training.search import expect_step_s, rank_by_risk, search_layouts
from loadfactor.planner.training.step import estimate_step
from loadfactor.planner.validation.measurement_files import (
    MeasurementFile,
    Row,
    RowRefused,
    read_measurement_files,
    read_number,
)
from loadfactor.planner.validation.request import MemoryValidationRequest
from loadfactor.planner.validation.training import SkippedRow, has_memory, list_published_files
from loadfactor.planner.validation.training_rows import MeasuredRun, ran_out_of_memory, read_row

SMALLEST_STUDY = 2  # layouts of one job that make choosing one a question


@dataclass(frozen=True)
class MemoryComparison:
    """A run that ran or ran out of memory, and the prediction, bytes of the fullest GPU.

    `recommended`: the plan would choose it among the layouts that were tried of its job.
    """

    file: str
    row: int
    job: str
    model: str
    gpus: int
    accelerator: str
    layout: str
    ran: bool
    fits_probability: float
    recommended: bool
    predicted_bytes: float
    usable_bytes: float
    largest_part: str
    measured_bytes: float | None
    predicted_step_s: float
    measured_step_s: float | None

    @property
    def fits(self) -> bool:
        """True where what is predicted is no more than there is."""
        return self.predicted_bytes <= self.usable_bytes

    @property
    def is_right(self) -> bool:
        """True where it is predicted to fit and ran, or predicted not to and ran out of memory."""
        return self.fits == self.ran

    @property
    def error(self) -> float | None:
        """(predicted − measured) ÷ measured; None where no peak was published."""
        return None if self.measured_bytes is None else self.predicted_bytes / self.measured_bytes - 1


@dataclass(frozen=True)
class ChosenLayout:
    """The layout that the plan would choose among those tried of a job, and what it would have cost.

    `regret`: how much slower it was measured than the fastest that ran; 1 where it ran out of memory, None where no time is known.
    """

    job: str
    layouts: int
    recommended: str
    ran: bool
    regret: float | None


@dataclass(frozen=True)
class MemoryValidation:
    """Every run of the files, the choice of every job that has several, and the rows that could not be read."""

    rows: Sequence[MemoryComparison]
    jobs: Sequence[ChosenLayout]
    skipped: Sequence[SkippedRow] = field(repr=False)

    @property
    def right(self) -> int:
        """Runs that are predicted to fit and ran, or predicted not to and ran out of memory."""
        return sum(row.is_right for row in self.rows)

    @property
    def mean_abs_error(self) -> float | None:
        """Mean absolute error of the peaks that were published; None where none was."""
        errors = [abs(row.error) for row in self.rows if row.error is not None]
        return sum(errors) / len(errors) if errors else None

    @property
    def mean_regret(self) -> float | None:
        """Mean over the jobs whose regret is known."""
        regrets = [job.regret for job in self.jobs if job.regret is not None]
        return sum(regrets) / len(regrets) if regrets else None


def validate_memory(
    request: MemoryValidationRequest,
    over: Callable[[Sequence[MeasurementFile]], Iterable[MeasurementFile]] = iter,
) -> MemoryValidation:
    """Every run of the files whose layout can be read; `over` goes through the files, for a caller that shows progress."""
    files = read_measurement_files(request.rows) if request.rows else list_published_files()
    rows: list[MemoryComparison] = []
    jobs: list[ChosenLayout] = []
    skipped: list[SkippedRow] = []
    for file in over(files):
        compared: list[MemoryComparison] = []
        for number, row in enumerate(file.rows, 1):
            if has_memory(row):
                continue  # parts of a rank's memory, which `validate train` compares
            try:
                compared.append(_compare_run(file.name, number, row, read_row(row)))
            except RowRefused as reason:
                skipped.append(SkippedRow(file.name, number, str(reason)))
        studies: dict[str, list[MemoryComparison]] = {}
        for one in compared:
            studies.setdefault(one.job, []).append(one)
        for members in studies.values():
            chosen = _choose_layout(members)
            rows += [replace(one, recommended=one is chosen) for one in members]
            if len(members) >= SMALLEST_STUDY and any(one.ran for one in members):
                jobs.append(_judge_choice(chosen, members))
    return MemoryValidation(sorted(rows, key=lambda r: (r.file, r.row)), jobs, skipped)


def _compare_run(file: str, number: int, row: Row, run: MeasuredRun) -> MemoryComparison:
    """The prediction for the row's layout; what it leaves free of it is as the plan chooses."""
    layout = run.layout
    if run.free:
        found = search_layouts(run.job, int(run.layout.gpus), run.space)
        layout = (rank_by_risk(run.job, found, run.space) if found.fits.any() else found).layouts.pick(0)
    needs = estimate_memory(run.job, layout)
    parts = {name.removesuffix("_bytes"): float(np.ravel(value)[0]) for name, value in needs.parts.items()}
    gpus, batch = int(run.layout.gpus), run.job.global_batch
    return MemoryComparison(
        file,
        number,
        f"{run.label} on {gpus} {run.job.machine.name}, {batch} × {run.job.seq} tokens",
        run.label,
        gpus,
        run.job.machine.name,
        str(layout),
        not ran_out_of_memory(row),
        1 - float(np.ravel(estimate_risk(run.job, layout))[0]),
        False,
        sum(parts.values()),
        needs.usable_bytes,
        max(parts, key=lambda name: parts[name]),
        _read_peak(row),
        float(np.ravel(estimate_step(run.job, layout).step_s)[0]),
        run.step_s if isfinite(run.value) else None,
    )


def _choose_layout(members: Sequence[MemoryComparison]) -> MemoryComparison:
    """Of those that are predicted to fit the one of least expected time, as the plan chooses; of alike ones the leanest."""
    return min(
        [one for one in members if one.fits] or members,
        key=lambda one: (expect_step_s(one.predicted_step_s, 1 - one.fits_probability), one.predicted_bytes, one.row),
    )


def _judge_choice(chosen: MemoryComparison, members: Sequence[MemoryComparison]) -> ChosenLayout:
    times = [one.measured_step_s for one in members if one.measured_step_s is not None]
    regret = chosen.measured_step_s / min(times) - 1 if chosen.measured_step_s is not None else None
    return ChosenLayout(chosen.job, len(members), chosen.layout, chosen.ran, regret if chosen.ran else 1.0)


def _read_peak(row: Row) -> float | None:
    for name, unit in (("peak_memory_gib", BYTES_PER_GIB), ("peak_memory_gb", BYTES_PER_GB)):
        try:
            value = read_number(row, name)
        except RowRefused:
            return None
        if value is not None:
            return value * unit
    return None
