"""The page of `validate serve`: mean errors by system, engine and model, rows left out, predicted against measured."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from loadfactor.catalog.constants import read_serving_errors
from loadfactor.catalog.engines import describe_measured, list_engine_constants, list_factors
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
    sources = table(
        v.sources,
        col("source", "source"),
        col("quantity", lambda s: NAMES[s.quantity]),
        col("rows", "rows", "number"),
        col("in the fit", "in_fit", "percent"),
        col("left out", "left_out", "percent"),
        col("in range", "range_coverage", "percent"),
    )
    return Section(
        "Mean absolute error, as a share of the measured value",
        "TPOT: time per output token; TTFT: time to first token; speed-up: throughput at the highest concurrency over the lowest.",
        charts=(chart,) if used else (),
        tables=(errors, sources),
    )


def build_serving() -> Document:
    constants = list_engine_constants()
    rows = [
        (name, entry["meaning"], entry["prior"], entry["value"], _write_factors(entry), entry["source"])
        for name, entry in constants["constant"].items()
    ]
    fitted = table(
        rows,
        col("constant", lambda row: row[0].replace("_", " ")),
        col("meaning", lambda row: row[1]),
        col("prior", lambda row: number(row[2])),
        col("fitted", lambda row: number(row[3])),
        col("times", lambda row: row[4]),
        col("prior's source", lambda row: row[5]),
        note="fitted: on Hopper and older, with vLLM; times: factors elsewhere",
    )
    kept = [(name, block) for name, block in (("every engine", constants["default"]), *constants["engine"].items())]
    settings = table(
        [(name, key, value) for name, block in kept for key, value in block.items()],
        col("engine", lambda row: row[0]),
        col("setting", lambda row: row[1].replace("_", " ")),
        col("value", lambda row: number(row[2]) if isinstance(row[2], float) else str(row[2]).lower()),
    )
    values = sum(1 + len(list_factors(entry)) for entry in constants["constant"].values())
    measured = "; ".join(describe_measured(row) for row in constants["measured"])
    return Document(
        f"{values} fitted values, each from a prior by `python -m benchmarks.fit_serving CSV`; measured: {measured}.",
        (
            *_tabulate_left_out(),
            Section("Constants", tables=(fitted,)),
            Section("How engines schedule, as they ship", tables=(settings,)),
        ),
        notes=_write_ranges(),
        data=constants,
    )


def _write_factors(entry: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in list_factors(entry).items())


NAMES = {"tpot": "time per token", "tokens_per_s": "tokens per second", "ttft": "time to first token"}


def _tabulate_left_out() -> Iterator[Section]:
    errors = read_serving_errors()
    sources = table(
        errors.sources,
        col("source", "source"),
        col("rows", "rows", "number"),
        col("TPOT, in the fit", lambda s: s.in_fit.get("tpot"), "percent"),
        col("left out", lambda s: s.left_out.get("tpot"), "percent"),
        col("in range", lambda s: s.range_coverage.get("tpot"), "percent"),
        col("tok/s, in the fit", lambda s: s.in_fit.get("tokens_per_s"), "percent"),
        col("left out", lambda s: s.left_out.get("tokens_per_s"), "percent"),
        col("TTFT, in the fit", lambda s: s.in_fit.get("ttft"), "percent"),
        col("left out", lambda s: s.left_out.get("ttft"), "percent"),
        col("in range", lambda s: s.range_coverage.get("ttft"), "percent"),
        note="in range: inside the range that the other sources give, which should hold 80 %",
    )
    yield Section("Each source left out in turn", tables=(sources,))


def _write_ranges() -> list[str]:
    errors, found = read_serving_errors(), []
    for word, ranges in errors.ranges.items():
        for quantity, name in NAMES.items():
            low, high = ranges[quantity]
            found.append(
                f"{word.capitalize()}: {name} {percent(errors.errors[word][quantity])} off on average, "
                f"{number(low)} to {number(high)} times the prediction in four of five cases "
                f"({percent(errors.covered_shares[word][quantity])} of the rows)."
            )
    return found
