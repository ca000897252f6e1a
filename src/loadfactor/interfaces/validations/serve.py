"""The page of `validate serve`: mean errors by system, engine and model, rows left out, predicted against measured."""

from collections import Counter
from collections.abc import Iterator

from loadfactor.catalog.constants import read_serving_errors
from loadfactor.catalog.engines import list_engine_constants
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Document, Section
from loadfactor.interfaces.formats import number, percent
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.validation.request import ServingValidationRequest
from loadfactor.planner.validation.serving import ServingValidation, validate_serving


def build_document(request: ServingValidationRequest) -> Document:
    v = validate_serving(request)
    reasons = Counter(row.skipped for row in v.rows if row.skipped)
    skipped = table(reasons.items(), col("rows", lambda row: float(row[1]), "number"), col("why", lambda row: row[0]))
    return Document(
        headline=_write_headline(v),
        sections=(_draw_errors(v), *((Section("Rows left out", tables=(skipped,)),) if reasons else ())),
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
    errors = " and ".join(f"{name} to {percent(error)}" for name, error in parts if error is not None)
    errors = errors or "no such measurement"
    return f"{v.overall.rows} measured rows are predicted: {errors} on average; {v.overall.skipped} skipped."


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
    errors = table(
        (*v.groups, v.overall),
        col("system", "system"),
        col("backend", "backend"),
        col("model", lambda e: e.model.rpartition("/")[2]),
        col("rows", lambda e: float(e.rows), "number"),
        col("skipped", lambda e: float(e.skipped), "number"),
        col("TPOT", "tpot_mean_abs_error", "percent"),
        col("TTFT", "ttft_mean_abs_error", "percent"),
        col("tok/s", "throughput_mean_abs_error", "percent"),
        col("speed-up", "speedup_mean_abs_error", "percent"),
    )
    return Section(
        "Mean absolute error, as a share of the measured value",
        "TPOT: time per output token; TTFT: time to first token; speed-up: throughput at the highest concurrency over the lowest.",
        charts=(chart,) if used else (),
        tables=(errors,),
    )


NOT_CONSTANTS = ("accelerator", "engine", "fitted_on")


def build_serving() -> Document:
    constants = list_engine_constants()
    sections = []
    for block in (constants["default"], *constants["fitted"]):
        where = f"{block['engine']} on {block['accelerator']}" if "engine" in block else "Elsewhere"
        values = table(
            [(name, value) for name, value in block.items() if name not in NOT_CONSTANTS],
            col("constant", lambda row: row[0].replace("_", " ")),
            col("value", lambda row: number(row[1]) if isinstance(row[1], float) else str(row[1]).lower()),
            note=f"fitted on {block['fitted_on']}",
        )
        sections.append(Section(where, tables=(values,)))
    fitted = len(constants["fitted"])
    return Document(
        f"{fitted} pairs of accelerator and engine have constants of their own; others take those of their kin, then the medians.",
        (*_tabulate_left_out(), *sections),
        notes=_write_ranges(),
        data=constants,
    )


LEFT_OUT = {"fitted": "Each network left out in turn", "borrowed": "Each accelerator and engine left out in turn"}
QUANTITIES = {"tpot": "time per token", "tokens_per_s": "tokens per second", "ttft": "time to first token"}


def _tabulate_left_out() -> Iterator[Section]:
    errors = read_serving_errors()
    for kind, title in LEFT_OUT.items():
        networks = table(
            [n for n in errors.networks if n.kind == kind],
            col("accelerator", "accelerator"),
            col("engine", "engine"),
            col("network", lambda n: n.model.rpartition("/")[2]),
            col("rows", "rows", "number"),
            col("TPOT, fitted", lambda n: n.fitted_error["tpot"], "percent"),
            col("left out", lambda n: n.left_out_error["tpot"], "percent"),
            col("in range", lambda n: n.covered_share["tpot"], "percent"),
            col("TTFT, left out", lambda n: n.left_out_error["ttft"], "percent"),
            col("in range", lambda n: n.covered_share["ttft"], "percent"),
            note="in range: inside the range that the other networks give, which should hold 80 %",
        )
        yield Section(title, tables=(networks,))


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
