"""The page of `validate serve`: mean errors by system, engine and model, rows left out, predicted against measured."""

from collections import Counter
from collections.abc import Iterator

from loadfactor.catalog.constants import read_serving_errors
from loadfactor.catalog.engines import list_engine_constants
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Cell, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import number, percent
from loadfactor.planner.validation.request import ServingValidationRequest
from loadfactor.planner.validation.serving import ServingErrors, ServingValidation, validate_serving

COLUMNS = (
    *(TableColumn(title) for title in ("system", "backend", "model")),
    *(TableColumn(title, "number") for title in ("rows", "skipped")),
    *(TableColumn(title, "percent") for title in ("TPOT", "TTFT", "tok/s", "speed-up")),
)


def build_document(request: ServingValidationRequest) -> Document:
    """Predict the rows and lay out their errors."""
    v = validate_serving(request)
    return Document(
        headline=_write_headline(v),
        sections=(_draw_errors(v), *_draw_skipped(v)),
        assumptions=(
            Assumption("measurements", v.source, "the file"),
            *(
                Assumption("engine constants", text, "catalog/engines/constants.toml")
                for text in sorted({row.constants for row in v.list_predicted()})
            ),
        ),
        data=v,
        is_no=not v.overall.rows,
    )


def _write_headline(v: ServingValidation) -> str:
    if not v.overall.rows:
        return f"No row of {v.source} could be predicted."
    parts = (("time per token", v.overall.tpot_mean_abs_error), ("throughput", v.overall.throughput_mean_abs_error))
    said = " and ".join(f"{name} to {percent(error)}" for name, error in parts if error is not None)
    said = said or "no such measurement"
    return f"{v.overall.rows} measured rows are predicted: {said} on average; {v.overall.skipped} skipped."


def _draw_errors(v: ServingValidation) -> Section:
    used = v.list_predicted()
    chart = Chart(
        "Time per token: predicted against measured",
        "scatter",
        tuple(row.measured_tpot_s or 0.0 for row in used),
        (Series("rows", tuple(row.predicted_tpot_s for row in used)),),
        x_label="measured (s)",
        y_label="predicted (s)",
        x_log=True,
        y_log=True,
    )
    return Section(
        "Mean absolute error, as a share of the measured value",
        "TPOT: time per output token; TTFT: time to first token; speed-up: throughput at the highest concurrency over the lowest.",
        charts=(chart,) if used else (),
        tables=(DataTable(COLUMNS, [_write_row(e) for e in (*v.groups, v.overall)]),),
    )


def _draw_skipped(v: ServingValidation) -> tuple[Section, ...]:
    reasons = Counter(row.skipped for row in v.rows if row.skipped)
    rows: list[tuple[Cell, ...]] = [(float(count), why) for why, count in reasons.items()]
    table = DataTable((TableColumn("rows", "number"), TableColumn("why")), rows)
    return (Section("Rows left out", tables=(table,)),) if rows else ()


def _write_row(e: ServingErrors) -> tuple[Cell, ...]:
    numbers = (e.tpot_mean_abs_error, e.ttft_mean_abs_error, e.throughput_mean_abs_error, e.speedup_mean_abs_error)
    return (e.system, e.backend, e.model.rpartition("/")[2], float(e.rows), float(e.skipped), *numbers)


NOT_CONSTANTS = ("accelerator", "engine", "fitted_on")


def build_serving() -> Document:
    """The constants of the serving equations by accelerator and engine."""
    said = list_engine_constants()
    columns = (TableColumn("constant"), TableColumn("value"))
    sections = []
    for block in (said["default"], *said["fitted"]):
        where = f"{block['engine']} on {block['accelerator']}" if "engine" in block else "Elsewhere"
        rows = [(name.replace("_", " "), _write(value)) for name, value in block.items() if name not in NOT_CONSTANTS]
        sections.append(Section(where, tables=(DataTable(columns, rows, note=f"fitted on {block['fitted_on']}"),)))
    fitted = len(said["fitted"])
    return Document(
        f"{fitted} pairs of accelerator and engine have constants of their own; others take those of their kin, then the medians.",
        (*_tabulate_left_out(), *sections),
        notes=_write_ranges(),
        data=said,
    )


LEFT_OUT = {"fitted": "Each network left out in turn", "borrowed": "Each accelerator and engine left out in turn"}
QUANTITIES = {"tpot": "time per token", "tokens_per_s": "tokens per second", "ttft": "time to first token"}


def _tabulate_left_out() -> Iterator[Section]:
    errors = read_serving_errors()
    columns = (
        *(TableColumn(name) for name in ("accelerator", "engine", "network")), TableColumn("rows", "number"),
        *(TableColumn(name, "percent") for name in ("TPOT, fitted", "left out", "in range", "TTFT, left out", "in range")),
    )  # fmt: skip
    for kind, title in LEFT_OUT.items():
        rows = [
            (n.accelerator, n.engine, n.model.rpartition("/")[2], n.rows, n.fitted_error["tpot"],
             n.left_out_error["tpot"], n.covered_share["tpot"], n.left_out_error["ttft"], n.covered_share["ttft"])
            for n in errors.networks
            if n.kind == kind
        ]  # fmt: skip
        note = "in range: inside the range that the other networks give, which should hold 80 %"
        yield Section(title, tables=(DataTable(columns, rows, note=note),))


def _write_ranges() -> list[str]:
    errors, found = read_serving_errors(), []
    for kind, title in LEFT_OUT.items():
        for quantity, name in QUANTITIES.items():
            low, high = errors.ranges[kind][quantity]
            found.append(
                f"{title}: {name} {percent(errors.mean(kind, 'left_out_error', quantity))} off on average, "
                f"{number(low)} to {number(high)} times the prediction in four of five cases "
                f"({percent(errors.mean(kind, 'covered_share', quantity))} of the rows)."
            )
    return found


def _write(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value).lower()
