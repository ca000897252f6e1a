"""Validation of the training planner: files of measured speed and memory, published or a user's own, beside its predictions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from loadfactor.base.units import BYTES_PER_GIB
from loadfactor.catalog.constants import read_left_out_errors
from loadfactor.catalog.measurements import TRAINING, read_published_rows
from loadfactor.planner.hardware.distance import Distance, share_inside
from loadfactor.planner.training.distance import find_distance, find_range
from loadfactor.planner.training.flops import Utilization
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import NONE, SELECTIVE, TrainingLayout
from loadfactor.planner.training.memory import estimate_memory
from loadfactor.planner.training.search import search_layouts
from loadfactor.planner.training.step import estimate_step
from loadfactor.planner.validation.measurement_files import (
    MeasurementFile,
    Row,
    RowRefused,
    fill_sources,
    read_measurement_files,
    read_number,
)
from loadfactor.planner.validation.request import TrainingValidationRequest
from loadfactor.planner.validation.training_rows import MeasuredRun, ran_out_of_memory, read_row

SMALLEST_SWEEP = 3  # layouts of one job that make choosing one a question


@dataclass(frozen=True)
class Comparison:
    """One row of a file: the number measured and the one predicted, in the row's own quantity, for `predicted_layout`."""

    file: str
    row: int
    run: MeasuredRun = field(repr=False)
    predicted_layout: TrainingLayout = field(repr=False)
    predicted: float
    fits: bool
    skipped: None = None

    @property
    def model(self) -> str:
        return self.run.label

    @property
    def gpus(self) -> int:
        return int(self.run.layout.gpus)

    @property
    def layout(self) -> str:
        return str(self.predicted_layout)

    @property
    def quantity(self) -> str:
        return self.run.quantity

    @property
    def unread(self) -> tuple[str, ...]:
        return self.run.unread

    @property
    def measured(self) -> float:
        return self.run.value

    @property
    def error(self) -> float:
        """(predicted − measured) ÷ measured."""
        return self.predicted / self.measured - 1

    def measures_memory(self) -> bool:
        """True for a part of the memory rather than a speed."""
        return self.quantity.endswith("_gib")

    @property
    def distance(self) -> Distance:
        """How far the run is from those that the constants were fitted to (which may be these)."""
        return find_distance(self.run.job, self.gpus)

    @property
    def hfu_share(self) -> float | None:
        """HFU of the prediction; None for memory."""
        return None if self.measures_memory() else self._utilization.hfu_share

    @property
    def mfu_share(self) -> float | None:
        """MFU of the prediction; None for memory."""
        return None if self.measures_memory() else self._utilization.mfu_share

    @property
    def _utilization(self) -> Utilization:
        return self.run.compute_utilization(self.predicted_layout, self.predicted)


@dataclass(frozen=True)
class TrainingErrors:
    """The errors of a file, as shares of the measured values; None where nothing was compared or no job has several layouts.

    `in_fit`, `left_out`: the mean error with the file's rows fitted to and without; a file that was never fitted has the latter
    alone. `range_coverage`: the share of its rows inside the range that other files give.
    """

    file: str
    rows: int
    skipped: int
    mean_abs_error: float | None = None
    median_abs_error: float | None = None
    max_abs_error: float | None = None
    bias: float | None = None
    regret_mean: float | None = None
    regret_max: float | None = None
    rank_correlation: float | None = None
    in_fit: float | None = None
    left_out: float | None = None
    range_coverage: float | None = None


def compare_runs(runs: Sequence[tuple[int, MeasuredRun]], file: str = "") -> list[Comparison]:
    """The prediction of every numbered run; runs of one job are predicted together."""
    same_job: dict[TrainingJob, list[tuple[int, MeasuredRun]]] = {}
    results = []
    for number, run in runs:
        if run.free:
            results.append(_search_free_fields(file, number, run))
        else:
            same_job.setdefault(run.job, []).append((number, run))
    for job, members in same_job.items():
        layouts = TrainingLayout.join([run.layout for _, run in members])
        seconds, fits = estimate_step(job, layouts).step_s, estimate_memory(job, layouts).fits
        for (number, run), s, f in zip(members, seconds, fits, strict=True):
            results.append(Comparison(file, number, run, run.layout, run.value_at(float(s)), bool(f)))
    return sorted(results, key=lambda r: r.row)


def _search_free_fields(file: str, number: int, run: MeasuredRun) -> Comparison:
    """Set what the row does not give as a user would: to the fastest that fits, or to the leanest when nothing does."""
    found = search_layouts(run.job, run.layout.gpus, run.space)
    if not len(found):
        s = float(estimate_step(run.job, run.layout).step_s[0])
        fits = bool(estimate_memory(run.job, run.layout).fits[0])
        return Comparison(file, number, run, run.layout, run.value_at(s), fits)
    i = 0 if found.fits[0] else int(np.argmin(found.memory_bytes))
    return Comparison(
        file, number, run, found.layouts.pick(i), run.value_at(float(found.step_s[i])), bool(found.fits[i])
    )


def summarize_errors(
    results: Sequence[Comparison], file: str = "", rows: int | None = None, skipped: int = 0
) -> TrainingErrors:
    """Mean, median and largest absolute error, bias, and for sweeps over layouts the regret and the rank correlation.

    The regret of a sweep is how much slower the layout predicted fastest was measured than the one measured fastest.
    """
    rows = len(results) if rows is None else rows
    if not results:
        return TrainingErrors(file, rows, skipped)
    e = np.array([r.error for r in results])
    regrets, ranks = [], []
    for real, foretold in _list_sweeps(results):
        regrets.append(float(real[np.argmin(foretold)] / real.min() - 1))
        ranks.append(rank_correlation(real, foretold))
    known = next((source for source in read_left_out_errors().sources if source.file == file), None)
    mean = float(np.abs(e).mean())
    return TrainingErrors(
        file,
        rows,
        skipped,
        mean,
        float(np.median(np.abs(e))),
        float(np.abs(e).max()),
        float(e.mean()),
        float(np.mean(regrets)) if regrets else None,
        float(np.max(regrets)) if regrets else None,
        float(np.mean(ranks)) if ranks else None,
        known.fitted_error if known else None,
        known.left_out_error if known else mean,
        known.covered_share if known else _count_inside(results),
    )


def _count_inside(results: Sequence[Comparison]) -> float | None:
    """Share of the runs that took a time inside the stated range about the predicted one; None where only memory was measured."""
    return share_inside(
        (r.run.step_s / r.run.step_s_at(r.predicted), find_range(r.run.job, r.gpus))
        for r in results
        if not r.measures_memory()
    )


def _list_sweeps(results: Sequence[Comparison]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Measured and predicted seconds of the layouts of one job on as many GPUs, where there are enough of them."""
    sweeps: dict[tuple[TrainingJob, int], list[Comparison]] = {}
    for r in results:
        if not r.measures_memory():
            sweeps.setdefault((r.run.job, r.gpus), []).append(r)
    return [
        (np.array([r.run.step_s for r in rows]), np.array([r.run.step_s_at(r.predicted) for r in rows]))
        for rows in sweeps.values()
        if len({r.run.layout for r in rows}) >= SMALLEST_SWEEP
    ]


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation, ties sharing their mean rank.

    >>> round(rank_correlation(np.array([1.0, 2, 3, 4]), np.array([10.0, 20, 40, 30])), 2)
    0.8
    """
    ranks = []
    for values in (a, b):
        _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[inverse])
    if min(r.std() for r in ranks) == 0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


ONE_OF = ("gpus", "chips", "layers")  # a file without any of these columns measures something else


@dataclass(frozen=True)
class SkippedRow:
    """A row that cannot be compared, and why."""

    file: str
    row: int
    skipped: str


@dataclass(frozen=True)
class TrainingValidation:
    """Errors by file, then every row; `whole` is over all of them, `ignored` says why files of a folder were left out."""

    files: Sequence[TrainingErrors]
    rows: Sequence[Comparison | SkippedRow]
    whole: TrainingErrors = field(repr=False)
    ignored: Mapping[str, str] = field(repr=False)


def validate_training(
    request: TrainingValidationRequest,
    over: Callable[[Sequence[MeasurementFile]], Iterable[MeasurementFile]] = iter,
) -> TrainingValidation:
    """Every usable row of the files compared; `over` goes through the files, for a caller that shows progress."""
    given = read_measurement_files(request.rows) if request.rows else list_published_files()
    files: list[TrainingErrors] = []
    rows: list[Comparison | SkippedRow] = []
    ignored: dict[str, str] = {}
    for file in over(given):
        reason = _explain_other_file(file)
        if reason:
            ignored[file.name] = reason
            continue
        compared, skipped = compare_rows(file.name, file.rows)
        files.append(summarize_errors(compared, file.name, len(file.rows), len(skipped)))
        rows += [*compared, *skipped]
    whole = summarize_errors([row for row in rows if isinstance(row, Comparison)])
    return TrainingValidation(files, rows, whole, ignored)


def list_published_files() -> list[MeasurementFile]:
    return [MeasurementFile(name, fill_sources(read_published_rows(name))) for name in TRAINING]


def compare_rows(file: str, rows: Sequence[Row]) -> tuple[list[Comparison], list[SkippedRow]]:
    """Every row of a file compared, or skipped with the reason; rows are numbered from 1."""
    compared: list[Comparison] = []
    skipped: list[SkippedRow] = []
    runs: list[tuple[int, MeasuredRun]] = []
    for number, row in enumerate(rows, 1):
        try:
            if has_memory(row):
                compared += compare_memory(number, row, file)
            elif ran_out_of_memory(row):
                raise RowRefused("the run ran out of memory, which `validate memory` looks at")
            else:
                runs.append((number, read_row(row)))
        except RowRefused as reason:
            skipped.append(SkippedRow(file, number, str(reason)))
    return sorted(compared + compare_runs(runs, file), key=lambda r: r.row), skipped


def _explain_other_file(file: MeasurementFile) -> str | None:
    if file.named or any(has_memory(row) for row in file.rows):
        return None
    if not file.rows:
        return "no rows"
    return None if any(k in file.rows[0] for k in ONE_OF) else "no training runs: no column gpus, chips or layers"


STATE = ("weights_bytes", "gradients_bytes", "optimizer_bytes")
ACTIVATIONS = ("activations_bytes",)
COLUMNS = ("params_and_optimizer_gib", "activations_none_gib", "activations_seqpar_selective_gib")


def has_memory(row: Row) -> bool:
    return any(name in row for name in COLUMNS)


def compare_memory(number: int, row: Row, file: str = "") -> list[Comparison]:
    """Each part the row gives beside its prediction, for the layout of that name in arXiv:2205.05198 Table 5.

    Raises RowRefused when the name is not one of that table.
    """
    name = (row.get("model") or "").strip()
    known = [r for r in read_published_rows("korthikanti2022_table5.csv") if r["model"] == name]
    if not known:
        raise RowRefused(f"no layout is known for the memory of {name!r}")
    run = read_row(known[0])
    plain = replace(run.layout, recompute=NONE, sequence_parallel=False)
    lean = replace(run.layout, recompute=SELECTIVE, sequence_parallel=True)
    results = []
    for column, layout, parts in zip(COLUMNS, (plain, plain, lean), (STATE, ACTIVATIONS, ACTIVATIONS), strict=True):
        value = read_number(row, column)
        if value is None:
            continue
        needs = estimate_memory(run.job, layout)
        predicted = sum(float(needs.parts[p][0]) for p in parts) / BYTES_PER_GIB
        measured = replace(run, label=name, layout=layout, quantity=column, value=value, free=())
        results.append(Comparison(file, number, measured, layout, predicted, bool(needs.fits[0])))
    return results
