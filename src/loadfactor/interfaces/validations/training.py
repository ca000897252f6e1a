"""Page of the training validation: errors by file, the cost of choosing a layout by prediction, and the worst rows."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import counted, percent
from loadfactor.interfaces.progress import show_progress
from loadfactor.planner.training.layout import TrainingLayout
from loadfactor.planner.validation.request import TrainingValidationRequest
from loadfactor.planner.validation.training import (
    Comparison,
    SkippedRow,
    TrainingValidation,
    validate_training,
)

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
