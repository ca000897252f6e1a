"""Readings as a document: a row a metric, or a row a group with a column a metric; units and coverage beside the values."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from loadfactor.base.errors import InputError
from loadfactor.base.units import ONES_PER_MILLION
from loadfactor.books.unheld_work import UnheldWork, say_log
from loadfactor.interfaces.document import (
    Cell,
    DataTable,
    Document,
    Section,
    Style,
    Suggestion,
    TableColumn,
    write_cell,
)
from loadfactor.interfaces.formats import UNKNOWN, draw_bins, instant, percent
from loadfactor.interfaces.notices import write_notice
from loadfactor.interfaces.pages.energy import ENERGY, list_terms
from loadfactor.interfaces.requests import ShowRequest
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics import metric
from loadfactor.metrics.metric import PerUnit, Speed
from loadfactor.metrics.query.reading import Reading, Value
from loadfactor.metrics.work import AT_PEAK
from loadfactor.settings.config import settings
from loadfactor.tables.schema import DEFAULT_CURRENCY

if TYPE_CHECKING:
    from loadfactor.books.job_summary import HeldPart, ReportedUse

NO_NAME = "(none)"
DIGITS = 4
DIVIDED = "What jobs serve is divided by tokens of gateways' logs, by days (UTC); idle time and what no log has are the holder's."
BY_PARTS = "Time and cost of a GPU that several hold go by these parts, not by what each computed."
MOST_NAMED = 3
"""Metrics named in a headline."""
SMALLEST_COST = 0.01
"""Of one unit; less is shown for a million of them, as a price of tokens always is."""
STYLES: dict[str, Style] = {"share": "percent", "s": "duration"}
BASIS_NAMES = {
    "sm_active": "SM active",
    "engine_active": "engine active",
    "gpu_util": "GPU_UTIL",
    "effective": "effective prices",
    "contracted": "contracted prices",
    "owned": "own costs",
    "list": "list prices",
    "rate": "amounts estimated by a rate × time",
    "estimate": "estimated prices (the catalog's dated list prices: none were imported)",
}


def build_page(request: ShowRequest) -> Document:
    """The readings of a request."""
    if not request.by and (request.sort or request.reverse or request.limit):
        raise InputError("--sort, --reverse and --limit order groups; say which with --by")
    if request.without_idle:
        _say_what_ignores_idle(request.metrics)
    books = request.books
    start, end = request.window(books)
    readings = books.show(
        request.metrics,
        request.by,
        start,
        end,
        timezone=request.zone,
        basis=request.basis,
        where=request.filters,
        without_idle=request.without_idle,
    )
    if not readings:
        with books.snapshot() as snapshot:
            alone = [work for work in snapshot.list_unheld_work() if work.is_unheld]
        if alone:
            return build_unheld(alone, readings, books.store.name)
    by = request.sort or ""
    descending = by.startswith("-") != request.reverse
    page = build_document(readings.arrange(by.removeprefix("-"), descending, request.limit))
    with books.snapshot() as snapshot:
        page = replace(page, notes=snapshot.list_remarks(start, end))
    if {*ENERGY[1:]}.intersection(reading.metric for reading in readings):
        page = replace(page, assumptions=list_terms(settings().energy))
    of = request.by or tuple(name for name in ("job", "user") if name in request.filters)[:1]
    if "utilization" in request.metrics and of in (("job",), ("user",)):
        with books.snapshot() as snapshot:
            reported = snapshot.sum_reported(of[0], start, end, request.filters)
        shown = [name for reading in page.data if (name := {**request.filters, **reading.by}.get(of[0])) in reported]
        page = replace(page, sections=(*page.sections, *list_reported(of[0], shown, reported)))
    if of == ("job",) and {"allocated_gpu_hours", "cost"}.intersection(request.metrics):
        with books.snapshot() as snapshot:
            parts = snapshot.list_parts(start, end, request.filters)
        shown = [name for reading in page.data if (name := {**request.filters, **reading.by}.get("job")) in parts]
        page = replace(page, sections=(*page.sections, *show_parts(shown, parts)))
    if "cost" in request.metrics and "team" in request.by and not request.filters:
        from loadfactor.interfaces.pages.bridge import link_bridge  # slow to import

        link = link_bridge(f" --store {quote(books.store.name)}")
        return replace(page, sections=(*page.sections, Section(suggestions=(link,))))
    return page


def list_reported(by: str, shown: Sequence[str], reported: "Mapping[str, ReportedUse]") -> tuple[Section, ...]:
    """What summaries of whole runs say of the jobs or users shown, which is in no reading; nothing where there is none."""
    rows = table(
        [(name, reported[name]) for name in dict.fromkeys(shown)],
        col(by, lambda of: of[0]),
        col("Reported busy", lambda of: of[1].utilization, "percent"),
        col("memory up to", lambda of: of[1].mem_peak_share, "percent"),
        col("of its GPU-hours", lambda of: of[1].coverage, "percent"),
    )
    lead = next((f"{of.basis}; in no other number." for of in reported.values()), "")
    return (Section("Reported at the end of jobs", tables=(rows,), lead=lead),) if shown else ()


def show_parts(shown: Sequence[str], parts: "Mapping[str, HeldPart]") -> tuple[Section, ...]:
    """Which parts of GPUs the jobs shown held, and how that is known; nothing where all held whole ones."""
    rows = table(
        [(name, parts[name]) for name in dict.fromkeys(shown)],
        col("job", lambda of: of[0]),
        col("part of a GPU", lambda of: of[1].smallest, "percent"),
        col("at most", lambda of: of[1].largest, "percent"),
        col("basis", lambda of: of[1].word),
        col("by", lambda of: of[1].basis),
    )
    return (Section("Parts of GPUs", tables=(rows,), lead=BY_PARTS),) if shown else ()


def build_unheld(work: Sequence[UnheldWork], readings: Sequence[Reading], store: str) -> Document:
    """The answer where the books know what jobs made, and none of their GPUs."""
    many = f" and {len(work) - 1:,} more jobs" if len(work) > 1 else ""
    return Document(
        f"The books know what {work[0].name}{many} made and no GPU that it ran on, so nothing has a cost.",
        (
            Section(
                lead="Record its GPUs while it runs, or import what was recorded, before or after its progress.",
                suggestions=(
                    Suggestion(f"{say_log(work[0])} --store {quote(store)}", "a log of nvidia-smi from its machine"),
                    Suggestion("loadfactor record -- COMMAND", "runs it and samples its GPUs"),
                ),
            ),
        ),
        data=readings,
    )


def say_unknown_work(readings: Sequence[Reading]) -> str:
    """Why metrics of work are not known of anybody, and what says more; nothing of many metrics, as nobody asks for all of them."""
    sentences, lacks = [], ""
    names = list(dict.fromkeys(r.metric for r in readings))
    for name in names if len(names) <= MOST_NAMED else ():
        of, kind = [r for r in readings if r.metric == name], metric(name).kind
        if any(r.value is not None for r in of):
            continue
        if name in ENERGY[1:] and not settings().energy.is_given:
            sentences.append(f"{metric(name).title} is unknown: loadfactor.toml has no table [energy].")
        if not isinstance(kind, PerUnit | Speed):
            continue
        if any(r.coverage == 0 for r in of):
            why = "no price of the GPUs is known"
        elif kind.unit in AT_PEAK.values():
            why = "of no job tokens, network, datatype and accelerator are all known"
        else:
            why = f"no job says its {kind.unit.replace('_', ' ')}s"
        sentences.append(f"{metric(name).title} is unknown: {why}.")
        lacks = "`loadfactor report --job JOB` says what a job lacks."
    return " ".join(filter(None, (*sentences, lacks)))


def _say_what_ignores_idle(names: Sequence[str]) -> None:
    """Say on stderr which of the metrics are no unit costs. Raises InputError where none of those named is one."""
    others = [name for name in names if not isinstance(metric(name).kind, PerUnit)]
    if names and len(others) == len(names):
        raise InputError(
            f"--without-idle changes unit costs alone, and {', '.join(others)} is none; ask for a cost_per_… as well"
        )
    if others:
        line = f"--without-idle changes unit costs alone; as without it: {', '.join(others)}"
        write_notice(line)


def build_document(readings: Sequence[Reading]) -> Document:
    """The readings as a page. Its data, and so its JSON and CSV, are the readings themselves."""
    if not readings:
        table = DataTable([TableColumn(name) for name in ("metric", "unit", "value", "from", "to", "coverage")], ())
        headline = "Nothing in this window; widen --from and --to."
        return Document(headline, (Section(tables=(table,)),), data=readings)
    by = list(readings[0].by)
    table = _group_table(by, readings) if by else _metric_table(readings)
    start, end = min(r.start for r in readings), max(r.end for r in readings)
    told = (basis_text(readings), _say_division(by), say_unknown_work(readings))
    subtitle = " ".join((f"{instant(start)} to {instant(end)}.", *told))
    subtitle = " ".join(subtitle.split())
    return Document(_headline(by, readings), (Section(tables=(table,)),), subtitle, data=readings)


def value_text(reading: Reading) -> str:
    """A reading's value as a person writes it; a list (a histogram) as a row of bars."""
    return write_cell(_cell(reading, _counts_millions([reading])), _column([reading]))


def write_row(readings: Sequence[Reading]) -> tuple[str, list[str]]:
    """The title of readings of one metric, and each of them as a person writes it, all in one unit."""
    column, millions = _column(readings), _counts_millions(readings)
    return column.title, [write_cell(_cell(reading, millions), column) for reading in readings]


def is_per_million(unit: str, values: Sequence[Value]) -> bool:
    """True where costs of one unit are too small to read: they are shown for a million."""
    known = [value for value in values if isinstance(value, float)]
    if "per million" in unit:
        return False
    return "token" in unit or (bool(known) and max(known) < SMALLEST_COST)


def coverage_text(reading: Reading) -> str:
    """Coverage where something was missing; nothing where everything was known."""
    return "" if reading.coverage == 1 else percent(reading.coverage)


def currency_of(readings: Sequence[Reading]) -> str:
    """The currency of the amounts among these readings; the default currency where there is none."""
    return next((r.currency for r in readings if r.currency), DEFAULT_CURRENCY)


def basis_text(readings: Sequence[Reading], with_shares: bool = False) -> str:
    """The bases of the readings, once for all of them: activity signals and the kind of money.

    Where groups differ in the shares of the signals, the shares are left out (`with_shares` keeps them).
    """
    activity = [part for r in readings for part in (r.activity_basis or "").split(", ")]
    if not with_shares:
        activity = [part.rsplit(" ", 1)[0] if part.endswith("%") else part for part in activity]
    cost = [part for r in readings if r.value is not None for part in (r.cost_basis or "").split(", ")]
    bases = [", ".join(dict.fromkeys(_spell(part) for part in parts if part)) for parts in (activity, cost)]
    return f"Based on: {'; '.join(part for part in bases if part)}." if any(bases) else ""


def _say_division(by: Sequence[str]) -> str:
    """How what jobs serve is divided by who used it, where it is."""
    charged = settings().chargeback.served == "users" and not {"team", "user"}.isdisjoint(by)
    return DIVIDED if charged or "tenant" in by else ""


def _spell(basis: str) -> str:
    """A basis in words: "gpu_util (optimistic) 4%" is "GPU_UTIL (optimistic) 4 %"."""
    name, _, rest = basis.partition(" ")
    return f"{BASIS_NAMES.get(name.rstrip(','), name)} {rest.replace('%', ' %')}".strip()


def _headline(by: Sequence[str], readings: Sequence[Reading]) -> str:
    names = list(dict.fromkeys(r.metric for r in readings))
    titles = list(dict.fromkeys(metric(name).title for name in names))
    if not by and len(names) == 1:
        return f"{titles[0]}: {value_text(readings[0])}{_unit_beside(readings[0])}."
    rest = len(titles) - MOST_NAMED
    named = ", ".join(titles[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    return f"{named} by {', '.join(by)}" if by else named


def _metric_table(readings: Sequence[Reading]) -> DataTable:
    columns = [TableColumn("metric"), TableColumn("value", "number"), TableColumn("unit")]
    rows: list[list[Cell]] = [[r.metric, value_text(r), _unit_beside(r).strip()] for r in readings]
    if any(map(coverage_text, readings)):
        columns.append(TableColumn("coverage", "percent"))
        rows = [[*row, coverage_text(r)] for row, r in zip(rows, readings, strict=True)]
    return DataTable(columns, rows)


def _group_table(by: Sequence[str], readings: Sequence[Reading]) -> DataTable:
    """A row a group: its names, a value a metric, and the least coverage where any is missing."""
    groups: dict[tuple[str | None, ...], list[Reading]] = {}
    for reading in readings:
        groups.setdefault(tuple(reading.by.values()), []).append(reading)
    of_metrics = list(zip(*groups.values(), strict=True))
    stays = len(of_metrics) <= MOST_NAMED
    columns = [*(TableColumn(name) for name in by), *(replace(_column(of), stays=stays) for of in of_metrics)]
    millions = [_counts_millions(column) for column in of_metrics]
    rows: list[list[Cell]] = [
        [*(part or NO_NAME for part in key), *map(_cell, row, millions)] for key, row in groups.items()
    ]
    # of a row the least of what is known; what is not has a dash
    least = [
        min(row, key=lambda r: (r.value is None, 1 if r.coverage is None else r.coverage)) for row in groups.values()
    ]
    if any(map(coverage_text, least)):
        columns.append(TableColumn("coverage", "percent"))
        rows = [[*row, coverage_text(worst)] for row, worst in zip(rows, least, strict=True)]
    return DataTable(columns, rows)


def _column(readings: Sequence[Reading]) -> TableColumn:
    """The column of one metric, its unit in the heading where the cells do not show it."""
    reading = readings[0]
    title, hint = metric(reading.metric).title, metric(reading.metric).meaning
    if any(isinstance(r.value, list) for r in readings):
        return TableColumn(f"{title}, 0 to 100 %", hint=hint)
    if reading.currency:
        if _counts_millions(readings):
            one = _per(reading)
            title = title.replace(f"per {one}", f"per million {one}s")
        return TableColumn(f"{title} ({reading.currency})", "money", reading.currency, hint=hint)
    style = STYLES.get(reading.unit, "number")
    return TableColumn(
        title if reading.unit in STYLES else f"{title} ({reading.unit})", style, digits=DIGITS, hint=hint
    )


def _cell(reading: Reading, counts_millions: bool) -> Cell:
    if isinstance(reading.value, list):
        return draw_bins(reading.value)
    if reading.value is None:
        return UNKNOWN
    return reading.value * ONES_PER_MILLION if counts_millions else reading.value


def _counts_millions(readings: Sequence[Reading]) -> bool:
    """True where these readings of one metric are costs shown for a million units."""
    return bool(_per(readings[0])) and is_per_million(readings[0].unit, [r.value for r in readings])


def _per(reading: Reading) -> str:
    """The unit of a unit cost; empty where it is none."""
    return reading.unit.partition(" per ")[2] if reading.currency else ""


def _unit_beside(reading: Reading) -> str:
    """The unit where the value itself does not say it; what one amount of money buys, always."""
    if reading.currency:
        per = _per(reading)
        return f" per million {per}s" if _counts_millions([reading]) else f" per {per}" if per else ""
    return "" if reading.unit in STYLES else f" {reading.unit}"
