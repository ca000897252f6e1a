"""Pages of what the planners' equations were fitted to: every constant, and the error on sources that were left out."""

from collections.abc import Iterator

from loadfactor.catalog.constants import LeftOutErrors, read_constants, read_left_out_errors, read_serving_errors
from loadfactor.catalog.engines import list_engine_constants
from loadfactor.interfaces.document import DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import number, percent

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
