"""Validation of the training planner: files of measurements, published or a user's own, beside its predictions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from loadfactor.catalog.measurements import TRAINING, read_published_rows
from loadfactor.planner.validation.measurement_files import MeasurementFile, fill_sources, read_measurement_files
from loadfactor.planner.validation.memory_rows import compare_memory, has_memory
from loadfactor.planner.validation.request import TrainingValidationRequest
from loadfactor.planner.validation.row_cells import Row, RowRefused
from loadfactor.planner.validation.training_errors import Comparison, TrainingErrors, compare_runs, summarize_errors
from loadfactor.planner.validation.training_rows import MeasuredRun, read_row

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
    """The tables of measurements that come with the package."""
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
            else:
                runs.append((number, read_row(row)))
        except RowRefused as reason:
            skipped.append(SkippedRow(file, number, str(reason)))
    return sorted(compared + compare_runs(runs, file), key=lambda r: r.row), skipped


def _explain_other_file(file: MeasurementFile) -> str | None:
    """Why a file of a folder is not one of training measurements; None when it is, or when it was named by itself."""
    if file.named or any(has_memory(row) for row in file.rows):
        return None
    if not file.rows:
        return "no rows"
    return None if any(k in file.rows[0] for k in ONE_OF) else "no training runs: no column gpus, chips or layers"
