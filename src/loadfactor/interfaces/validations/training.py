"""Page of the training validation: errors by file, the cost of choosing a layout by prediction, and the worst rows."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from loadfactor.base.units import BYTES_PER_GIB, PERCENT
from loadfactor.catalog.constants import LeftOutErrors, read_constants, read_left_out_errors
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import counted, number, percent
from loadfactor.interfaces.progress import show_progress
from loadfactor.planner.training.layout import TrainingLayout
from loadfactor.planner.validation.mfu_claims import MfuValidation, validate_mfu
from loadfactor.planner.validation.request import MemoryValidationRequest, MfuRequest, TrainingValidationRequest
from loadfactor.planner.validation.training import (
    Comparison,
    SkippedRow,
    TrainingValidation,
    validate_training,
)
from loadfactor.planner.validation.training_memory import MemoryComparison, MemoryValidation, validate_memory

FORMULA = "MFU = tokens/s × (6N + 12·L·H·Q·T) ÷ (chips × peak)"


def build_mfu_document(_request: MfuRequest) -> Document:
    """The page of the published table."""
    result = validate_mfu()
    return Document(
        headline=_write_mfu_headline(result),
        sections=(
            Section(FORMULA, charts=(_draw_claims(result),), tables=(_tabulate_shares(result), _tabulate_paid(result))),
            Section("Notes", tables=(_tabulate_notes(result),)),
        ),
        assumptions=[Assumption(c.model, percent(c.published_share), c.source) for c in result.claims],
        data=result,
    )


def _write_mfu_headline(result: MfuValidation) -> str:
    follow = ", ".join(c.model for c in result.claims if c.follows)
    others = (
        f"{c.model} does not: printed {percent(c.published_share)}, its inputs give {percent(c.recomputed_share)}"
        for c in result.claims
        if not c.follows
    )
    return "; ".join((f"{follow} follow from their own formula", *others)) + "."


def _tabulate_shares(result: MfuValidation) -> DataTable:
    columns = [TableColumn("model"), TableColumn("chips", "number"), TableColumn("chip")]
    columns += [TableColumn(c, "percent") for c in ("published", "recomputed")]
    rows = [
        (c.model, c.chips, c.chip, c.published_share, c.recomputed_share, "follows" if c.follows else "does not follow")
        for c in result.claims
    ]
    return DataTable([*columns, TableColumn("verdict")], rows, "MFU published and recomputed")


def _tabulate_paid(result: MfuValidation) -> DataTable:
    columns = [TableColumn("model")]
    columns += [TableColumn(c, "percent") for c in ("without attention", "HFU", "over every chip-hour paid")]
    rows = [(c.model, c.without_attention_share, c.hfu_share, c.paid_share) for c in result.claims]
    return DataTable(columns, rows, "The same runs counted otherwise", "HFU adds recomputed work")


def _tabulate_notes(result: MfuValidation) -> DataTable:
    rows = [(c.model, c.note) for c in result.claims if c.note]
    return DataTable((TableColumn("model"), TableColumn("note")), rows)


def _draw_claims(result: MfuValidation) -> Chart:
    published = Series("published", [c.published_share * PERCENT for c in result.claims])
    recomputed = Series("recomputed", [c.recomputed_share * PERCENT for c in result.claims])
    names = [c.model for c in result.claims]
    return Chart("MFU published and recomputed (%)", "bar", names, (published, recomputed), x_label="MFU (%)")


ROWS_SHOWN = 12  # on the page; the JSON has them all


def build_memory_document(request: MemoryValidationRequest) -> Document:
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
        _write_memory_headline(result),
        sections,
        assumptions=(
            Assumption("what a row does not give of the layout", "the fastest that fits", "layout search"),
            Assumption("usable", "96 % of what the driver shows", "the rest is the driver, NCCL and fragmentation"),
        ),
        data=result,
        is_no=not result.rows,
    )


def _write_memory_headline(result: MemoryValidation) -> str:
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


ROWS_SHOWN = 12  # of a file, on the page; the JSON has them all
UNITS = {
    "iteration_s": "s per step",
    "iteration_ms": "ms per step",
    "tokens_per_s": "tokens/s",
    "tokens_per_s_per_gpu": "tokens/s per GPU",
    "model_tflops_per_gpu": "model TFLOP/s per GPU",
    "tflops_per_gpu": "TFLOP/s per GPU",
    "tflops_per_gpu_published": "TFLOP/s per GPU",
    "mfu_pct": "MFU in %",
}
ASSUMPTIONS = (
    Assumption("constants", "one set for every row", "catalog/constants/training.toml, by benchmarks/fit_training.py"),
    Assumption("what a row does not give of the layout", "the fastest that fits", "layout search"),
    Assumption(
        "software",
        "its age, kernels and what it hides",
        "the row's source, release, precision and techniques; `attention` where it has that column",
    ),
)


def build_document(request: TrainingValidationRequest) -> Document:
    """The page of a request."""
    result = validate_training(request, partial(show_progress, what="predicting"))
    sections = [
        Section("Errors", charts=_draw_times(result), tables=(_tabulate_errors(result), *_tabulate_choices(result)))
    ]
    for file in result.files:
        rows = [row for row in result.rows if row.file == file.file]
        compared = [row for row in rows if isinstance(row, Comparison)]
        skipped = [row for row in rows if isinstance(row, SkippedRow)]
        tables = [_tabulate_rows(compared, request.all_rows)] if compared else []
        tables += [_tabulate_unread(compared)] if any(row.unread for row in compared) else []
        tables += [_tabulate_skipped(skipped)] if skipped else []
        sections.append(Section(file.file, tables=tables))
    if result.ignored:
        columns = (TableColumn("file"), TableColumn("why"))
        sections.append(Section("Files left out", tables=(DataTable(columns, list(result.ignored.items())),)))
    return Document(
        _write_headline(result), sections, assumptions=ASSUMPTIONS, data=result, is_no=not result.whole.rows
    )


def _write_headline(result: TrainingValidation) -> str:
    e = result.whole
    if not e.rows:
        return "No row could be compared; the reasons are below."
    compared = f"{counted(e.rows, 'measured number')} in {counted(len(result.files), 'file')}"
    return (
        f"{compared} {'is' if e.rows == 1 else 'are'} predicted within "
        f"{percent(e.mean_abs_error)} on average (median {percent(e.median_abs_error)}, worst {percent(e.max_abs_error)})."
    )


def _tabulate_errors(result: TrainingValidation) -> DataTable:
    columns = [TableColumn("file"), TableColumn("numbers", "number")]
    columns += [TableColumn(c, "percent") for c in ("mean error", "median", "max", "bias")]
    compared = Counter(row.file for row in result.rows if isinstance(row, Comparison))
    every = [(f, f.file.removesuffix(".csv"), compared[f.file]) for f in result.files]
    if len(every) > 1:
        every.append((result.whole, "all", compared.total()))
    rows = [(name, n, e.mean_abs_error, e.median_abs_error, e.max_abs_error, e.bias) for e, name, n in every]
    note = "absolute errors as shares of the measured value; bias keeps the sign"
    return DataTable(columns, rows, "Errors by file", note)


def _tabulate_choices(result: TrainingValidation) -> list[DataTable]:
    """For files that measured several layouts of one job: what the predicted choice would have cost."""
    swept = [f for f in result.files if f.regret_mean is not None]
    if not swept:
        return []
    columns = (
        TableColumn("file"), TableColumn("mean regret", "percent"), TableColumn("worst", "percent"),
        TableColumn("rank correlation", "number"),
    )  # fmt: skip
    rows = [(f.file.removesuffix(".csv"), f.regret_mean, f.regret_max, f.rank_correlation) for f in swept]
    note = "regret: how much slower the layout predicted fastest was measured than the one measured fastest"
    return [DataTable(columns, rows, "Choosing a layout", note)]


def _tabulate_rows(compared: Sequence[Comparison], all_rows: bool) -> DataTable:
    quantities = list(dict.fromkeys(r.quantity for r in compared))
    one = len(quantities) == 1
    shown = compared
    if not all_rows and len(compared) > ROWS_SHOWN:
        shown = sorted(compared, key=lambda r: -abs(r.error))[:ROWS_SHOWN]
    rows = [
        (
            f"{r.model.split(' ')[0]} on {r.gpus}",
            _write_layout(r.predicted_layout) if one else r.quantity.removesuffix("_gib").replace("_", " "),
            r.measured, r.predicted, r.error, r.hfu_share, r.mfu_share,
        )
        for r in shown
    ]  # fmt: skip
    columns = [TableColumn("model, GPUs"), TableColumn("layout" if one else "part")]
    columns += [TableColumn(c, "number") for c in ("measured", "predicted")]
    columns += [TableColumn(c, "percent") for c in ("error", "HFU", "MFU")]
    unit = UNITS.get(quantities[0], quantities[0]) if one else "GiB"
    which = (
        "" if len(shown) == len(compared) else f", the {len(shown)} worst of {len(compared)} (--all shows every row)"
    )
    return DataTable(columns, rows, f"Measured and predicted in {unit}{which}")


def _write_layout(x: TrainingLayout) -> str:
    chunks = f"×{x.interleave}" if x.interleave > 1 else ""
    return f"t{x.tensor} p{x.pipeline}{chunks} d{x.data} b{x.micro_batch}"


def _tabulate_skipped(skipped: Sequence[SkippedRow]) -> DataTable:
    reasons: dict[str, list[int]] = {}
    for one in skipped:
        reasons.setdefault(one.skipped, []).append(one.row)
    rows = [(f"{len(where)} (first: row {where[0]})", reason) for reason, where in reasons.items()]
    return DataTable((TableColumn("rows"), TableColumn("why")), rows, "Rows skipped")


def _tabulate_unread(compared: Sequence[Comparison]) -> DataTable:
    said = Counter(words for row in compared for words in row.unread)
    columns = (TableColumn("technique"), TableColumn("rows", "number"))
    return DataTable(columns, list(said.items()), "What rows say and the prediction knows nothing of")


def _draw_times(result: TrainingValidation) -> tuple[Chart, ...]:
    timed = [r for r in result.rows if isinstance(r, Comparison) and not r.measures_memory()]
    if len(timed) < 2:
        return ()
    x, y = [r.run.step_s for r in timed], [r.run.step_s_at(r.predicted) for r in timed]
    line = Series("exact", (min(x), max(x)), (min(x), max(x)), kind="line", dashed=True)
    return (
        Chart(
            "Predicted against measured step time", "scatter", x, (Series("rows", y), line),
            x_label="measured (s)", y_label="predicted (s)", x_log=True, y_log=True,
        ),
    )  # fmt: skip


NOT_CONSTANTS = ("accelerator", "engine", "fitted_on")


def build_training() -> Document:
    """The constants of the training equations, and their errors source by source."""
    errors = read_left_out_errors()
    ranges = [
        f"{kind}: {number(low)} to {number(high)} times the predicted seconds"
        for kind, (low, high) in errors.ranges.items()
    ]
    return Document(
        f"On sources that the constants were not fitted to, the mean error is {percent(errors.left_out_error)}; the stated range "
        f"of four in five holds {percent(errors.covered_share)} of the rows.",
        (_tabulate_sources(errors), _tabulate_constants()),
        notes=(*ranges, f"Leads of a layout below {percent(errors.layout_spread)} are too small to tell."),
        data=errors,
    )


def _tabulate_sources(errors: LeftOutErrors) -> Section:
    columns = (
        TableColumn("source"), TableColumn("rows", "number"), TableColumn("error, fitted", "percent"),
        TableColumn("error, left out", "percent"), TableColumn("in range", "percent"),
    )  # fmt: skip
    rows = [
        (s.file.removesuffix(".csv"), s.rows, s.fitted_error, s.left_out_error, s.covered_share) for s in errors.sources
    ]
    total = sum(s.rows for s in errors.sources)
    fitted = sum(s.fitted_error for s in errors.sources) / len(errors.sources)
    rows.append(("mean of the sources", total, fitted, errors.left_out_error, errors.covered_share))
    note = "errors are of seconds of a step; in range: inside the range that the other sources give, which should hold 80 %"
    return Section("Each source left out in turn", tables=(DataTable(columns, rows, note=note),))


def _tabulate_constants() -> Section:
    columns = (
        TableColumn("constant"), TableColumn("value", "number"), TableColumn("before", "number"), TableColumn("meaning"),
        TableColumn("fitted on"),
    )  # fmt: skip
    rows = [
        (
            name.replace("_", " "),
            float(c["value"]),
            float(c["prior"]) if "prior" in c else None,
            c["meaning"],
            c["fitted_on"],
        )
        for name, c in read_constants("training.toml").items()
    ]
    note = "before: what physics and papers say, which the fit starts from and is held to"
    return Section("Constants", tables=(DataTable(columns, rows, note=note),))
