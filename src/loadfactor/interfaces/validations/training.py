"""Pages of the validations of training: speed by file, memory, published MFU, and the constants that were fitted."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from loadfactor.base.units import BYTES_PER_GIB, PERCENT
from loadfactor.catalog.constants import read_constants, read_left_out_errors
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Cell, DataTable, Document, Section
from loadfactor.interfaces.formats import counted, number, percent
from loadfactor.interfaces.progress import show_progress
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.training.distance import MEANINGS
from loadfactor.planner.validation.memory import MemoryValidation, validate_memory
from loadfactor.planner.validation.mfu_claims import MfuClaim, MfuValidation, validate_mfu
from loadfactor.planner.validation.request import MemoryValidationRequest, MfuRequest, TrainingValidationRequest
from loadfactor.planner.validation.training import (
    Comparison,
    SkippedRow,
    TrainingValidation,
    validate_training,
)

ROWS_SHOWN = 12  # of a file, on the page; the JSON has them all
FORMULA = "MFU = tokens/s × (6N + 12·L·H·Q·T) ÷ (chips × peak)"
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
    """The page of a request: errors by file, the cost of choosing a layout by prediction, and the worst rows."""
    result = validate_training(request, partial(show_progress, what="predicting"))
    sections = [
        Section("Errors", charts=_draw_times(result), tables=(_tabulate_errors(result), *_tabulate_choices(result)))
    ]
    for file in result.files:
        rows = [row for row in result.rows if row.file == file.file]
        compared = [row for row in rows if isinstance(row, Comparison)]
        tables = [_tabulate_rows(compared, request.all_rows)] if compared else []
        unread = Counter(words for row in compared for words in row.unread)
        if unread:
            title = "What rows say and the prediction knows nothing of"
            tables.append(table(unread.items(), "technique", col("rows", style="number"), title=title))
        reasons: dict[str, list[int]] = {}
        for row in rows:
            if isinstance(row, SkippedRow):
                reasons.setdefault(row.skipped, []).append(row.row)
        if reasons:
            skipped = [(f"{len(at)} (first: row {at[0]})", reason) for reason, at in reasons.items()]
            tables.append(table(skipped, "rows", "why", title="Rows skipped"))
        sections.append(Section(file.file, tables=tables))
    if result.ignored:
        sections.append(Section("Files left out", tables=(table(result.ignored.items(), "file", "why"),)))
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
    compared = Counter(row.file for row in result.rows if isinstance(row, Comparison))
    rows = [(f, f.file.removesuffix(".csv"), compared[f.file]) for f in result.files]
    if len(rows) > 1:
        rows.append((result.whole, "all", compared.total()))
    return table(
        rows,
        col("file", lambda row: row[1]),
        col("numbers", lambda row: row[2], "number"),
        col("mean error", lambda row: row[0].mean_abs_error, "percent"),
        col("median", lambda row: row[0].median_abs_error, "percent"),
        col("max", lambda row: row[0].max_abs_error, "percent"),
        col("bias", lambda row: row[0].bias, "percent"),
        col("left out", lambda row: row[0].left_out if row[0].file else None, "percent"),
        col("in range", lambda row: row[0].range_coverage if row[0].file else None, "percent"),
        title="Errors by file",
        note="absolute errors as shares of the measured value; bias keeps the sign; left out: the mean error without the file in"
        " the fit; in range: its rows inside the range that other files give, which is to hold 80 %",
    )


def _tabulate_choices(result: TrainingValidation) -> list[DataTable]:
    """For files that measured several layouts of one job: what the predicted choice would have cost."""
    swept = [f for f in result.files if f.regret_mean is not None]
    choices = table(
        swept,
        col("file", lambda f: f.file.removesuffix(".csv")),
        col("mean regret", "regret_mean", "percent"),
        col("worst", "regret_max", "percent"),
        col("rank correlation", "rank_correlation", "number"),
        title="Choosing a layout",
        note="regret: how much slower the layout predicted fastest was measured than the one measured fastest",
    )
    return [choices] if swept else []


def _tabulate_rows(compared: Sequence[Comparison], all_rows: bool) -> DataTable:
    quantities = list(dict.fromkeys(r.quantity for r in compared))
    alike = len(quantities) == 1
    shown, which = compared, ""
    if not all_rows and len(compared) > ROWS_SHOWN:
        shown = sorted(compared, key=lambda r: -abs(r.error))[:ROWS_SHOWN]
        which = f", the {len(shown)} worst of {len(compared)} (--all shows every row)"

    def layout(r: Comparison) -> str:
        x = r.predicted_layout
        return f"t{x.tensor} p{x.pipeline}{f'×{x.interleave}' if x.interleave > 1 else ''} d{x.data} b{x.micro_batch}"

    def part(r: Comparison) -> str:
        return r.quantity.removesuffix("_gib").replace("_", " ")

    unit = UNITS.get(quantities[0], quantities[0]) if alike else "GiB"
    return table(
        shown,
        col("model, GPUs", lambda r: f"{r.model.split(' ')[0]} on {r.gpus}"),
        col("layout", layout) if alike else col("part", part),
        col("measured", "measured", "number"),
        col("predicted", "predicted", "number"),
        col("error", "error", "percent"),
        col("HFU", "hfu_share", "percent"),
        col("MFU", "mfu_share", "percent"),
        title=f"Measured and predicted in {unit}{which}",
    )


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


def build_memory_document(request: MemoryValidationRequest) -> Document:
    """The page of a request: runs that are judged wrongly, the layouts that would be chosen, and published peaks."""
    result = validate_memory(request, partial(show_progress, what="predicting"))
    wrong = [row for row in result.rows if not row.is_right]
    wrong.sort(key=lambda row: -abs(row.predicted_bytes / row.usable_bytes - 1))
    known = sorted((row for row in result.rows if row.error is not None), key=lambda row: -abs(row.error or 0.0))
    name = col("model, GPUs", lambda r: f"{r.model.split(' ')[0]} on {r.gpus} {r.accelerator}")
    sections = []
    if result.jobs:
        chosen = table(
            result.jobs,
            col("job", "job"),
            col("layouts tried", "layouts", "number"),
            col("recommended", "recommended"),
            col("ran", lambda j: "yes" if j.ran else "ran out of memory"),
            col("regret", "regret", "percent"),
            note="regret: how much slower than the fastest that ran; 100 % where it ran out of memory",
        )
        sections.append(Section("Choosing a layout", tables=(chosen,)))
    for title, rows, columns in (
        (
            "Said to fit and ran out of memory, or the other way round",
            wrong,
            (
                col("ran", lambda r: "yes" if r.ran else "no"),
                col("fits with", "fits_probability", "percent"),
                col("needs (GiB)", lambda r: r.predicted_bytes / BYTES_PER_GIB, "number"),
                col("usable (GiB)", lambda r: r.usable_bytes / BYTES_PER_GIB, "number"),
                col("largest part", "largest_part"),
            ),
        ),
        (
            "Published peaks",
            known,
            (
                col("measured (GiB)", lambda r: (r.measured_bytes or 0.0) / BYTES_PER_GIB, "number"),
                col("predicted (GiB)", lambda r: r.predicted_bytes / BYTES_PER_GIB, "number"),
                col("error", "error", "percent"),
            ),
        ),
    ):
        shown = rows if request.all_rows else rows[:ROWS_SHOWN]
        note = "" if len(shown) == len(rows) else f"{len(shown)} of {len(rows)}; --all shows every row"
        if rows:
            sections.append(Section(title, tables=(table(shown, name, col("layout", "layout"), *columns, note=note),)))
    return Document(
        _write_memory_headline(result),
        sections,
        assumptions=(
            Assumption("what a row does not give of the layout", "as `plan train` chooses", "layout search"),
            Assumption("recommended", "the least time with the risk of memory", "as `plan train` chooses"),
        ),
        data=result,
        is_no=not result.rows,
    )


def _write_memory_headline(result: MemoryValidation) -> str:
    if not result.rows:
        return "No row could be compared."
    out = sum(not row.ran for row in result.rows)
    runs = counted(len(result.rows), "run")
    head = f"Of {runs}, {out:,} of which ran out of memory, {result.right:,} are judged rightly"
    if result.jobs:
        ran = sum(job.ran for job in result.jobs)
        head += f"; of {counted(len(result.jobs), 'recommended layout')} {ran:,} ran"
        if result.mean_regret is not None:
            head += f", {percent(result.mean_regret)} slower than the best on average"
    if result.mean_abs_error is None:
        return f"{head}; none has a published peak."
    return f"{head}; published peaks are predicted within {percent(result.mean_abs_error)} on average."


def build_mfu_document(_request: MfuRequest) -> Document:
    """The page of the published table: the MFU that papers print beside what their own formula gives."""
    claims = validate_mfu().claims
    shares = table(
        claims,
        col("model", "model"),
        col("chips", "chips", "number"),
        col("chip", "chip"),
        col("published", "published_share", "percent"),
        col("recomputed", "recomputed_share", "percent"),
        col("verdict", lambda c: "follows" if c.follows else "does not follow"),
        title="MFU published and recomputed",
    )
    otherwise = table(
        claims,
        col("model", "model"),
        col("without attention", "without_attention_share", "percent"),
        col("HFU", "hfu_share", "percent"),
        col("over every chip-hour paid", "paid_share", "percent"),
        title="The same runs counted otherwise",
        note="HFU adds recomputed work",
    )
    notes = table([c for c in claims if c.note], col("model", "model"), col("note", "note"))
    published = Series("published", [c.published_share * PERCENT for c in claims])
    recomputed = Series("recomputed", [c.recomputed_share * PERCENT for c in claims])
    names = [c.model for c in claims]
    chart = Chart("MFU published and recomputed (%)", "bar", names, (published, recomputed), x_label="MFU (%)")
    return Document(
        headline=_write_mfu_headline(claims),
        sections=(Section(FORMULA, charts=(chart,), tables=(shares, otherwise)), Section("Notes", tables=(notes,))),
        assumptions=[Assumption(c.model, percent(c.published_share), c.source) for c in claims],
        data=MfuValidation(claims),
    )


def _write_mfu_headline(claims: Sequence[MfuClaim]) -> str:
    follow = ", ".join(c.model for c in claims if c.follows)
    others = (
        f"{c.model} does not: printed {percent(c.published_share)}, its inputs give {percent(c.recomputed_share)}"
        for c in claims
        if not c.follows
    )
    return "; ".join((f"{follow} follow from their own formula", *others)) + "."


def build_training() -> Document:
    errors = read_left_out_errors()
    ranges = table(
        [
            (name, meaning, *(" to ".join(map(number, ends[name])) for ends in errors.ranges.values()))
            for name, meaning in MEANINGS.items()
        ],
        "distance",
        "what it says",
        *errors.ranges,
        title="Ranges by distance",
        note="four of five runs take so many times the predicted seconds",
    )
    sources: list[tuple[Cell, ...]] = [
        (s.file.removesuffix(".csv"), s.rows, s.fitted_error, s.left_out_error, s.covered_share) for s in errors.sources
    ]
    errors_fitted = [s.fitted_error for s in errors.sources if s.fitted_error is not None]
    fitted = sum(errors_fitted) / len(errors_fitted)
    sources.append(("mean of the sources", None, fitted, errors.left_out_error, errors.covered_share))
    by_source = table(
        sources,
        "source",
        col("rows", style="number"),
        col("error, fitted", style="percent"),
        col("error, left out", style="percent"),
        col("in range", style="percent"),
        note="errors are of seconds of a step; in range: inside the range that the other sources give, which should hold 80 %",
    )
    constants = table(
        read_constants("training.toml").items(),
        col("constant", lambda row: row[0].replace("_", " ")),
        col("value", lambda row: float(row[1]["value"]), "number"),
        col("before", lambda row: float(row[1]["prior"]) if "prior" in row[1] else None, "number"),
        col("meaning", lambda row: row[1]["meaning"]),
        col("fitted on", lambda row: row[1]["fitted_on"]),
        note="before: what physics and papers say, which the fit starts from and is held to",
    )
    return Document(
        f"On sources that the constants were not fitted to, the mean error is {percent(errors.left_out_error)}; the stated range "
        f"of four in five holds {percent(errors.covered_share)} of the rows.",
        (
            Section("Each source left out in turn", tables=(ranges, by_source)),
            Section("Constants", tables=(constants,)),
        ),
        notes=(f"Leads of a layout below {percent(errors.layout_spread)} are too small to tell."),
        data=errors,
    )
