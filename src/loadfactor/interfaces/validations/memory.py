"""Page of the validation of memory: runs that ran and are said not to fit, and published peaks beside predicted ones."""

from functools import partial

from loadfactor.base.units import BYTES_PER_GIB
from loadfactor.interfaces.document import Assumption, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import counted, percent
from loadfactor.interfaces.progress import show_progress
from loadfactor.planner.validation.request import MemoryValidationRequest
from loadfactor.planner.validation.training_memory import MemoryComparison, MemoryValidation, validate_memory

ROWS_SHOWN = 12  # on the page; the JSON has them all


def build_document(request: MemoryValidationRequest) -> Document:
    """The page of a request."""
    result = validate_memory(request, partial(show_progress, what="predicting"))
    wrong = [row for row in result.rows if not row.fits]
    known = sorted((row for row in result.rows if row.error is not None), key=lambda row: -abs(row.error or 0.0))
    sections = []
    if wrong:
        sections.append(Section("Said not to fit, though it ran", tables=(_tabulate_wrong(wrong, request.all_rows),)))
    if known:
        sections.append(Section("Published peaks", tables=(_tabulate_peaks(known, request.all_rows),)))
    return Document(
        _write_headline(result),
        sections,
        assumptions=(
            Assumption("what a row does not give of the layout", "the fastest that fits", "layout search"),
            Assumption("usable", "96 % of what the driver shows", "the rest is the driver, NCCL and fragmentation"),
        ),
        data=result,
        is_no=not result.rows,
    )


def _write_headline(result: MemoryValidation) -> str:
    if not result.rows:
        return "No row could be compared."
    said = f"Of {counted(len(result.rows), 'run')} that ran, {result.fitting:,} are said to fit"
    if result.mean_abs_error is None:
        return f"{said}; none of them has a published peak."
    return f"{said}; published peaks are predicted within {percent(result.mean_abs_error)} on average."


def _tabulate_wrong(wrong: list[MemoryComparison], all_rows: bool) -> DataTable:
    columns = (
        TableColumn("model, GPUs"), TableColumn("layout"), TableColumn("needs (GiB)", "number"),
        TableColumn("usable (GiB)", "number"), TableColumn("largest part"),
    )  # fmt: skip
    shown = wrong if all_rows else wrong[:ROWS_SHOWN]
    rows = [
        (_name(r), r.layout, r.predicted_bytes / BYTES_PER_GIB, r.usable_bytes / BYTES_PER_GIB, r.largest_part)
        for r in shown
    ]
    return DataTable(columns, rows, note=_say_more(len(shown), len(wrong)))


def _tabulate_peaks(known: list[MemoryComparison], all_rows: bool) -> DataTable:
    columns = (
        TableColumn("model, GPUs"), TableColumn("layout"), TableColumn("measured (GiB)", "number"),
        TableColumn("predicted (GiB)", "number"), TableColumn("error", "percent"),
    )  # fmt: skip
    shown = known if all_rows else known[:ROWS_SHOWN]
    rows = [
        (_name(r), r.layout, (r.measured_bytes or 0.0) / BYTES_PER_GIB, r.predicted_bytes / BYTES_PER_GIB, r.error)
        for r in shown
    ]
    return DataTable(columns, rows, note=_say_more(len(shown), len(known)))


def _name(row: MemoryComparison) -> str:
    return f"{row.model.split(' ')[0]} on {row.gpus} {row.accelerator}"


def _say_more(shown: int, every: int) -> str:
    return "" if shown == every else f"{shown} of {every}; --all shows every row"
