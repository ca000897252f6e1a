"""Memory of published training runs: whether the equations say that what ran fits, and their peak beside the measured one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from loadfactor.base.units import BYTES_PER_GB, BYTES_PER_GIB
from loadfactor.planner.training.memory import estimate_memory
from loadfactor.planner.validation.measurement_files import (
    MeasurementFile,
    Row,
    RowRefused,
    read_measurement_files,
    read_number,
)
from loadfactor.planner.validation.request import MemoryValidationRequest
from loadfactor.planner.validation.training import Comparison, SkippedRow, compare_rows, list_published_files


@dataclass(frozen=True)
class MemoryComparison:
    """Peak memory of one run that is known to have run, bytes of the fullest GPU; `parts` are the prediction's."""

    file: str
    row: int
    model: str
    gpus: int
    accelerator: str
    layout: str
    predicted_bytes: float
    usable_bytes: float
    largest_part: str
    measured_bytes: float | None

    @property
    def fits(self) -> bool:
        """True where the prediction says that it fits, as it did."""
        return self.predicted_bytes <= self.usable_bytes

    @property
    def error(self) -> float | None:
        """(predicted − measured) ÷ measured; None where no peak was published."""
        return None if self.measured_bytes is None else self.predicted_bytes / self.measured_bytes - 1


@dataclass(frozen=True)
class MemoryValidation:
    """Every run of the files, and the rows that could not be read."""

    rows: Sequence[MemoryComparison]
    skipped: Sequence[SkippedRow] = field(repr=False)

    @property
    def fitting(self) -> int:
        return sum(row.fits for row in self.rows)

    @property
    def mean_abs_error(self) -> float | None:
        """Mean absolute error of the peaks that were published; None where none was."""
        errors = [abs(row.error) for row in self.rows if row.error is not None]
        return sum(errors) / len(errors) if errors else None


def validate_memory(
    request: MemoryValidationRequest,
    over: Callable[[Sequence[MeasurementFile]], Iterable[MeasurementFile]] = iter,
) -> MemoryValidation:
    files = read_measurement_files(request.rows) if request.rows else list_published_files()
    rows: list[MemoryComparison] = []
    skipped: list[SkippedRow] = []
    for file in over(files):
        compared, left = compare_rows(file.name, file.rows)
        runs = {one.row: one for one in compared if not one.measures_memory()}
        rows += [_compare(one, file.rows[one.row - 1]) for one in runs.values()]
        skipped += left
    return MemoryValidation(rows, skipped)


def _compare(one: Comparison, row: Row) -> MemoryComparison:
    needs = estimate_memory(one.run.job, one.predicted_layout)
    parts = {name.removesuffix("_bytes"): float(value[0]) for name, value in needs.parts.items()}
    return MemoryComparison(
        one.file,
        one.row,
        one.model,
        one.gpus,
        one.run.job.machine.name,
        one.layout,
        sum(parts.values()),
        needs.usable_bytes,
        max(parts, key=lambda name: parts[name]),
        _read_peak(row),
    )


def _read_peak(row: Row) -> float | None:
    for name, unit in (("peak_memory_gib", BYTES_PER_GIB), ("peak_memory_gb", BYTES_PER_GB)):
        try:
            value = read_number(row, name)
        except RowRefused:
            return None
        if value is not None:
            return value * unit
    return None
