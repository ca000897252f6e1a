"""`loadfactor validate train`: predicted training speed and memory beside what was measured, published or your own."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from loadfactor.catalog.measurements import TRAINING, read_published_rows
from loadfactor.faces.answer import Answer, Assumption, Column, Table, present
from loadfactor.faces.charts import Chart, Series
from loadfactor.faces.cli.options import Format, Output
from loadfactor.faces.cli.validate.rows import Row, read_files, repeated
from loadfactor.faces.formats import number, percent
from loadfactor.validation.memory_rows import compare_memory, has_memory
from loadfactor.validation.training_errors import Comparison, TrainingErrors, compare_runs, summarize_errors
from loadfactor.validation.training_rows import MeasuredRun, RowRefused, explain_not_a_measurement, read_row

ROWS_SHOWN = 12  # of a file, in the terminal; the JSON has them all
Skipped = tuple[int, str]


def add_to(app: typer.Typer) -> None:
    """Hang the command under `validate`."""
    app.command("train", help=__doc__)(run)


def run(
    rows: Annotated[
        list[Path] | None,
        typer.Option(
            "--rows", help="A CSV file of measurements, or a folder of them; repeatable. Published tables otherwise."
        ),
    ] = None,
    all_rows: Annotated[
        bool, typer.Option("--all", help="Show every row in the terminal, not only the worst.")
    ] = False,
    output_format: Format = "terminal",
    output: Output = None,
) -> None:
    """Predicted training speed and memory beside what was measured."""
    given = read_files(rows) if rows else [(name, repeated(read_published_rows(name)), True) for name in TRAINING]
    checked: list[tuple[str, list[Comparison], list[Skipped], int]] = []
    ignored: list[str] = []
    screen = Console(stderr=True)
    for i in track(range(len(given)), "predicting", console=screen, transient=True, disable=not screen.is_terminal):
        name, lines, named = given[i]
        reason = explain_not_a_measurement(lines[0]) if lines else "no rows"
        if reason and not named and not any(has_memory(line) for line in lines):
            ignored.append(f"{name} ({reason})")
            continue
        checked.append((name, *check(lines), len(lines)))
    present(_answer(checked, ignored, all_rows), output_format, output)


def check(lines: list[Row]) -> tuple[list[Comparison], list[Skipped]]:
    """Every row of a file compared, or skipped with the reason."""
    results: list[Comparison] = []
    skipped: list[Skipped] = []
    speeds: list[tuple[int, MeasuredRun]] = []
    for position, line in enumerate(lines, 1):
        try:
            if has_memory(line):
                results += compare_memory(position, line)
            else:
                speeds.append((position, read_row(line)))
        except RowRefused as reason:
            skipped.append((position, str(reason)))
    return sorted(results + compare_runs(speeds), key=lambda r: r.row), skipped


def _file_json(name: str, results: list[Comparison], skipped: list[Skipped], total: int) -> dict[str, Any]:
    e = summarize_errors(results)
    return {
        "file": name,
        "rows": total,
        "skipped": len(skipped),
        "mean_abs_error": e.mean_abs_error,
        "median_abs_error": e.median_abs_error,
        "max_abs_error": e.max_abs_error,
        "bias": e.bias,
        "regret_mean": e.regret_mean,
        "regret_max": e.regret_max,
        "rank_correlation": e.rank_correlation,
    }


def _rows_json(name: str, results: list[Comparison], skipped: list[Skipped]) -> list[dict[str, Any]]:
    compared = [
        {
            "file": name,
            "row": r.row,
            "model": r.measured.label,
            "gpus": r.measured.layout.gpus,
            "layout": str(r.layout),
            "quantity": r.measured.quantity,
            "measured": r.measured.value,
            "predicted": r.predicted,
            "error": r.error,
            "fits": r.fits,
            "hfu_share": _shares(r)[0],
            "mfu_share": _shares(r)[1],
            "skipped": None,
        }
        for r in results
    ]
    return compared + [{"file": name, "row": n, "skipped": reason} for n, reason in skipped]


def _shares(r: Comparison) -> tuple[float | None, float | None]:
    """Predicted HFU and MFU of a row of speed; nothing for memory."""
    if r.measured.quantity.endswith("_gib"):
        return None, None
    shares = r.measured.utilization(r.layout, r.predicted)
    return shares.hfu_share, shares.mfu_share


def _answer(
    checked: list[tuple[str, list[Comparison], list[Skipped], int]], ignored: list[str], all_rows: bool
) -> Answer:
    files = [_file_json(*one) for one in checked]
    results = [r for _, rs, _, _ in checked for r in rs]
    whole: TrainingErrors = summarize_errors(results)
    tables = [_summary(files), *_choices(files)]
    for name, rs, skipped, _ in checked:
        if rs:
            tables.append(_details(name, rs, all_rows))
        if skipped:
            tables.append(_skipped(name, skipped))
    sentence = (
        f"{len(results)} measured numbers in {len(files)} files are predicted within {percent(whole.mean_abs_error)} on average "
        f"(median {percent(whole.median_abs_error)}, worst {percent(whole.max_abs_error)})."
        if results
        else "No row could be compared; the reasons are below."
    )
    if ignored:
        sentence += f" Not training measurements: {', '.join(ignored)}."
    return Answer(
        sentence=sentence,
        tables=tables,
        charts=_charts(results),
        assumptions=(
            Assumption("constants", "one set for every row", "constants.toml of planner/training, by benchmarks/fit_training.py"),
            Assumption("knobs a row does not give", "the fastest that fits", "layout search over the free knobs"),
            Assumption(
                "attention kernel", "unfused before June 2022 on Ampere and older, else flash",
                "the row's source, GPU and framework, unless it has an `attention` column",
            ),
        ),
        data={"files": files, "rows": [row for n, rs, sk, _ in checked for row in _rows_json(n, rs, sk)]},
    )  # fmt: skip


def _summary(files: list[dict[str, Any]]) -> Table:
    columns = [Column("file"), Column("rows", "number")]
    columns += [Column(c, "percent") for c in ("mean", "median", "max", "bias")]
    keys = ("mean_abs_error", "median_abs_error", "max_abs_error", "bias")
    rows = [(f["file"].removesuffix(".csv"), f["rows"] - f["skipped"], *(f[k] for k in keys)) for f in files]
    return Table(
        "TrainingErrors by file", columns, rows, "absolute errors as shares of the measured value; bias keeps the sign"
    )


def _choices(files: list[dict[str, Any]]) -> list[Table]:
    """For files that measured several layouts of one job: what the predicted choice would have cost."""
    swept = [f for f in files if f["regret_mean"] is not None]
    if not swept:
        return []
    columns = (Column("file"), Column("mean regret", "percent"), Column("worst", "percent"), Column("rank correlation"))
    keys = ("regret_mean", "regret_max")
    rows = [(f["file"].removesuffix(".csv"), *(f[k] for k in keys), f"{f['rank_correlation']:.2f}") for f in swept]
    note = "regret: how much slower the layout predicted fastest was measured than the one measured fastest"
    return [Table("Choosing a layout", columns, rows, note)]


def _details(name: str, results: list[Comparison], all_rows: bool) -> Table:
    worst = sorted(results, key=lambda r: -abs(r.error))
    shown = results if all_rows or len(results) <= ROWS_SHOWN else worst[:ROWS_SHOWN]
    rows = []
    quantities = list(dict.fromkeys(r.measured.quantity for r in results))
    for r in shown:
        hfu, mfu = _shares(r)
        model = f"{r.measured.label.split(' ')[0]} on {r.measured.layout.gpus}"
        what = _cut(r.layout) if len(quantities) == 1 else r.measured.quantity.removesuffix("_gib").replace("_", " ")
        rows.append((model, what, number(r.measured.value), number(r.predicted), r.error, hfu, mfu))
    quantity = quantities[0] if len(quantities) == 1 else "GiB"
    columns = [
        Column("model, GPUs"),
        Column("layout" if len(quantities) == 1 else "part"),
        Column("measured", "number"),
        Column("predicted", "number"),
    ]
    columns += [Column(c, "percent") for c in ("error", "HFU", "MFU")]
    which = "" if len(shown) == len(results) else f", the {len(shown)} worst of {len(results)} (--all shows every row)"
    return Table(f"{name}: {quantity}{which}", columns, rows)


def _cut(x: Any) -> str:
    chunks = f"×{x.interleave}" if x.interleave > 1 else ""
    return f"t{x.tensor} p{x.pipeline}{chunks} d{x.data} b{x.micro_batch}"


def _skipped(name: str, skipped: list[Skipped]) -> Table:
    reasons: dict[str, list[int]] = {}
    for position, reason in skipped:
        reasons.setdefault(reason, []).append(position)
    rows = [(f"{len(where)} (first: row {where[0]})", reason) for reason, where in reasons.items()]
    return Table(f"{name}: rows skipped", (Column("rows"), Column("why")), rows)


def _charts(results: list[Comparison]) -> tuple[Chart, ...]:
    timed = [r for r in results if not r.measured.quantity.endswith("_gib")]
    if len(timed) < 2:
        return ()
    x = [r.measured.step_s for r in timed]
    y = [r.measured.seconds(r.predicted) for r in timed]
    line = Series("exact", (min(x), max(x)), (min(x), max(x)), kind="line", dashed=True)
    return (
        Chart(
            "Predicted against measured step time", "scatter", x, (Series("rows", y), line),
            x_label="measured (s)", y_label="predicted (s)", x_log=True, y_log=True,
        ),
    )  # fmt: skip
