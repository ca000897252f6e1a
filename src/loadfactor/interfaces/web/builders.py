"""What each page shows: documents made of the builders of reports and commands. No formula."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Final
from urllib.parse import parse_qsl, unquote

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import InputError, no_such
from loadfactor.insight.alerts.delivery.board import LIVING, belongs_to, read_board
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import DataTable, Document, Section, Style
from loadfactor.interfaces.formats import counted, instant, percent
from loadfactor.interfaces.pages import readings as readings_page
from loadfactor.interfaces.pages.alerts import build_board, name_group
from loadfactor.interfaces.pages.lists import build_metrics
from loadfactor.interfaces.pages.readings import value_text, write_row
from loadfactor.interfaces.pages.waterfall import draw_steps, list_unknown, say_useful
from loadfactor.interfaces.reach import NothingKnownError
from loadfactor.interfaces.reports import sections
from loadfactor.interfaces.reports.inquiry import Group, Inquiry
from loadfactor.interfaces.reports.job import build_job_page
from loadfactor.interfaces.reports.tiles import BEFORE, build_tiles, say_change
from loadfactor.interfaces.requests import AlertsRequest
from loadfactor.interfaces.tables import col, table
from loadfactor.interfaces.web.ask import VIEW, Ask, shift
from loadfactor.interfaces.web.heat import MOST_COLUMNS, MOST_ROWS, read_heat
from loadfactor.interfaces.web.sent import link_statements
from loadfactor.interfaces.web.standing import show_standing
from loadfactor.metrics import METRICS, metric
from loadfactor.metrics.query.calendar import instant as moment
from loadfactor.metrics.query.reading import Reading, Readings

OF_A_GROUP: Final = ("cost", "paid_gpu_hours", "utilization", "idle_cost", "cost_per_effective_gpu_hour")
OF_A_JOB: Final = ("cost", "allocated_gpu_hours", "utilization", "idle_cost")
OF_A_GPU: Final = ("utilization", "allocation", "idle_gpu_hours", "idle_cost")
HEAT_ROWS: Final = {"nodes": ("node",), "GPUs": ("node", "device")}
NO_CELLS: Final = b"{}\n"
BYTES_A_VALUE: Final = 100
"""About so many a value of an answer takes that is kept."""
HEAT_LEAD: Final = "Each cell is what most of that time went into; its colour is how active it was while it worked."
OF_A_WAIT: Final = ("queue_waiting", "queue_wait_s_p50", "queue_wait_s_p90")
OVER_TIME: Final = ("allocation", "utilization", "load_factor")
TIMES: Final = ("hour", "day", "week", "month")
STATES: Final = ("busy", "idle", "unobserved", "unallocated", "down")
HELD: Final = STATES[:3]
"""States of time in which somebody held a GPU."""
OF_A_PLACE: Final = ("pool", "accelerator")
FACET_TITLES: Final = {"state": "By the state of most of their time", "end": "By how they ended"}
MOST_WASTES: Final = 5
MOST_BARS: Final = 12
MOST_FACETS: Final = 8
MOST_LINES: Final = 8
PAGE_ROWS: Final = 50
BY_THE_HOUR: Final = timedelta(days=21)
TILES_BY_THE_HOUR: Final = timedelta(days=3)
ALIKE: Final = "Beside jobs like it"
UNSENT: Final = "Not sent yet"
AGAINST_BEFORE: Final = "Against the period before"
NOT_BEFORE: Final = "The books do not reach back through the period before; a shorter window has one."


def build_fleet(ask: Ask) -> Document:
    """The first page: a sentence, tiles with their change, where it went, when, the largest wastes, and what fires."""
    inquiry = ask.inquire()
    aims = sections.build_targets(inquiry)
    tiles, readings = build_tiles(inquiry, shift(inquiry), over=_step_of_tiles(inquiry))
    wastes = _list_wastes(inquiry, any(r.metric == "idle_cost" and r.value for r in readings))
    built = [_draw_way(inquiry), _over_time(inquiry), aims and aims.section, wastes, _list_firing(ask)]
    headline = f"The fleet {_say_full(readings)}"
    return Document(headline, [s for s in built if s], _say_window(inquiry), tiles, data=readings)


def build_time(ask: Ask) -> Document:
    """Any metrics, split by anything, over time: what `show` prints, and a picture of it."""
    request = ask.request
    inquiry = ask.inquire()
    by, metrics = request.by or (_step(inquiry),), request.metrics or OVER_TIME
    readings = inquiry.ask(*metrics, by=by)
    page = readings_page.build_document(readings)
    if not readings:
        return page
    before = shift(inquiry) if ask.compares else None
    charts = _draw_lines(inquiry, readings, by, before.ask(*metrics, by=by) if before else None)
    lead = NOT_BEFORE if ask.compares and before is None else ""
    first, *rest = page.sections
    return replace(page, sections=[replace(first, lead=lead or first.lead, charts=charts), *rest])


def build_teams(ask: Ask) -> Document:
    """Every team: what it cost, how full it was, what it left idle."""
    return _build_groups(ask, ask.inquire(), "team")


def build_team(ask: Ask) -> Document:
    """One team: the same as of the fleet, its jobs and its projects."""
    inquiry = ask.inquire(team=ask.name)
    jobs = inquiry.ask(*OF_A_JOB, by=("job",), most=PAGE_ROWS)
    projects = inquiry.ask(*OF_A_JOB, by=("project",), most=PAGE_ROWS)
    aims = sections.build_targets(inquiry)
    built = [
        _over_time(inquiry),
        aims and aims.section,
        _draw_way(inquiry),
        _as_section("Its jobs", jobs),
        _as_section("Its projects", projects),
        link_statements(ask, ()),
    ]
    tiles, readings = build_tiles(inquiry, shift(inquiry), over=_step_of_tiles(inquiry))
    headline = f"Team {ask.name} {_say_full(readings)}"
    return Document(headline, [s for s in built if s], _say_window(inquiry), tiles, data=readings)


@dataclass(frozen=True)
class _Jobs:
    """All jobs in an order: their readings, for each job in order its place among these and its name in small letters.

    `facets`: the values that each has of a dimension, by their place; `counted`: how many jobs have each value.
    """

    found: Readings
    order: Sequence[int]
    names: Sequence[str]
    facets: Mapping[str, Sequence[Sequence[str | None]]]
    counted: Sequence[DataTable]


def build_jobs(ask: Ask) -> Document:
    """Jobs by what they cost, or in another order; those whose name holds the text that is searched."""
    inquiry, order = ask.inquire(), ask.request.sort or "-cost"
    jobs = inquiry.keep(("jobs", order), lambda: _list_jobs(inquiry, order), lambda of: len(of.order))
    text, state, end = ask.text("q").lower(), ask.choose("state", HELD), ask.text("end")
    chosen = jobs.order
    if text:
        chosen = [at for at, name in zip(jobs.order, jobs.names, strict=True) if text in name]
    for name, value in (("state", state), ("end", end)):
        chosen = [at for at in chosen if jobs.facets[name][at] == (value,)] if value else chosen
    first = _read_offset(ask)
    page = readings_page.build_document(jobs.found.pick(chosen[first : first + PAGE_ROWS]))
    last = min(first + PAGE_ROWS, len(chosen))
    conditions = [f"match “{text}”"] if text else []
    conditions += [f"were {state} for most of their time"] if state else []
    conditions += [f"ended as {end}"] if end else []
    if not chosen:
        return replace(page, headline=f"No jobs {' and '.join(conditions)}." if conditions else page.headline)
    shown = f"; {first + 1:,} to {last:,} of them" if len(chosen) > PAGE_ROWS else ""
    headline = f"{counted(len(chosen), 'job')} {' and '.join(['held GPUs', *conditions])}{shown}, {_say_order(order)}."
    facets = [_list_facets(name, of, chosen) for name, of in jobs.facets.items()] if conditions else jobs.counted
    return replace(page, headline=headline, sections=[*page.sections, Section("Only some of them", tables=facets)])


def _list_jobs(inquiry: Inquiry, order: str) -> _Jobs:
    """Jobs that have a name, in an order as `--sort` takes it."""
    by = ("job", "team", "user")
    found = inquiry.ask(*dict.fromkeys((*OF_A_JOB, *_hours_of(HELD))), by=by)
    numbers = [
        at for at in found.order(order.removeprefix("-"), order.startswith("-")) if found.keys[at][0] is not None
    ]
    ends = _read_ends(inquiry)
    facets: dict[str, Sequence[Sequence[str | None]]] = {
        "state": [(state,) for state in _name_states(found, HELD)],
        "end": [(ends.get(key[0]),) for key in found.keys],
        **{name: [(key[number],) for key in found.keys] for number, name in enumerate(by) if number},
        **_list_places(inquiry, [key[0] for key in found.keys]),
    }
    names = [(found.keys[at][0] or "").lower() for at in numbers]
    return _Jobs(
        found.of(OF_A_JOB), numbers, names, facets, [_list_facets(name, of, numbers) for name, of in facets.items()]
    )


def _list_places(inquiry: Inquiry, jobs: Sequence[str | None]) -> dict[str, Sequence[Sequence[str | None]]]:
    """The pools and accelerators of each job, each once, where the job stands first."""
    found: list[dict[str | None, dict[str | None, None]]] = [{} for _ in OF_A_PLACE]
    columns, _ = inquiry.tabulate("allocated_gpu_hours", by=("job", *OF_A_PLACE))
    for job, *values in zip(*(column.tolist() for column in columns), strict=True):
        for of, value in zip(found, values, strict=True):
            of.setdefault(job, {})[value] = None
    return {name: [tuple(of.pop(job, ())) for job in jobs] for name, of in zip(OF_A_PLACE, found, strict=True)}


def build_job(ask: Ask) -> Document:
    """The page of a job as `report --job` has it, or beside another; for a team without how many jobs of others are like it."""
    inquiry, other = ask.inquire(job=ask.name), ask.text("beside")
    if other:
        ask.inquire(job=other)  # raises where there is none in this reach
        return _put_beside(inquiry, ask.name, other)
    page = build_job_page(inquiry, ask.name)
    return replace(page, sections=[s for s in page.sections if ask.team is None or s.title != ALIKE])


def _put_beside(inquiry: Inquiry, first: str, second: str) -> Document:
    """Every metric that one of two jobs has, side by side."""
    sides = [{r.metric: r for r in inquiry.ask(job=job)} for job in (first, second)]
    for job, side in zip((first, second), sides, strict=True):
        if side["paid_gpu_hours"].value is None:
            raise InputError(f"job {job!r} held nothing in that time; change --from and --to")
    names = [m.name for m in METRICS if any(_is_number(side[m.name].value) for side in sides)]
    rows = [write_row([side[name] for side in sides]) for name in names]
    listed = table([(title, *cells) for title, cells in rows], col("metric"), col(first), col(second))
    costs = [Group(side).money("cost") for side in sides]
    headline = f"Job {first} cost {costs[0]}, job {second} {costs[1]}."
    data = [reading for side in sides for reading in side.values()]
    return Document(headline, [Section(tables=(listed,))], _say_window(inquiry), data=data)


def _is_number(value: object) -> bool:
    return isinstance(value, float | int)


def build_gpus(ask: Ask) -> Document:
    """GPUs, the idlest first."""
    inquiry = ask.inquire()
    order = ask.request.sort or "-idle_gpu_hours"
    state = ask.choose("state", STATES)
    found = inquiry.ask(*dict.fromkeys((*OF_A_GPU, *_hours_of(STATES))), by=("device", "node", "accelerator"))
    found = found.arrange(order.removeprefix("-"), order.startswith("-"))
    states = _name_states(found, STATES)
    chosen = [n for n, of in enumerate(states) if state in ("", of)]
    first = _read_offset(ask)
    many = len(chosen)
    page = readings_page.build_document(found.of(OF_A_GPU).pick(chosen[first : first + PAGE_ROWS]))
    of_state = f", {state} for most of the time" if state else ""
    if not many:
        return replace(page, headline=f"No GPU was {state} for most of the time.") if state else page
    facets = Section(
        "Only some of them",
        tables=[
            _list_facets("state", [(state,) for state in states], chosen, "GPUs"),
            _list_facets("accelerator", [key[2:] for key in found.keys], chosen, "GPUs"),
            _list_facets("node", [key[1:2] for key in found.keys], chosen, "GPUs"),
        ],
    )
    shown = (
        f"; {first + 1:,} to {min(first + PAGE_ROWS, many):,} of them, {_say_order(order)}" if many > PAGE_ROWS else ""
    )
    rows = _choose_rows(ask, "nodes")
    heat = inquiry.keep(("heat", rows), lambda: _draw_heat(inquiry, rows), lambda _: MOST_ROWS * MOST_COLUMNS)
    drawn = [Section("Where and when", HEAT_LEAD, charts=(heat,))] if heat else []
    over = _over_time(inquiry)
    return replace(
        page,
        headline=f"{counted(many, 'GPU')}{of_state}{shown}.",
        sections=[*drawn, *page.sections, facets, *([over] if over else ())],
    )


def write_heat_cells(ask: Ask) -> bytes:
    """The heat map of `/gpus` as one byte a cell, by GPU, or by node where the address says `rows=nodes`."""
    rows = _choose_rows(ask, "GPUs")
    try:
        inquiry = ask.inquire()
    except NothingKnownError:
        return NO_CELLS

    def write() -> bytes:
        heat = read_heat(inquiry, HEAT_ROWS[rows])
        return heat.write_cells() if heat else NO_CELLS

    return inquiry.keep(("cells", rows), write, lambda cells: len(cells) // BYTES_A_VALUE)


def _draw_heat(inquiry: Inquiry, rows: str) -> Chart | None:
    heat = read_heat(inquiry, HEAT_ROWS[rows])
    return heat.draw(f"{rows[0].upper()}{rows[1:]} over time") if heat else None


def _choose_rows(ask: Ask, default: str) -> str:
    named = next((rows for rows in HEAT_ROWS if rows.lower() == ask.text("rows")), None)
    if named is None and ask.text("rows"):
        raise no_such("kind of rows", ask.text("rows"), [rows.lower() for rows in HEAT_ROWS])
    return named or default


def build_gpu(ask: Ask) -> Document:
    """One GPU: how full it was over time, and who held it."""
    inquiry = ask.inquire(device=ask.name)
    jobs = inquiry.ask(*OF_A_JOB, by=("job", "team"), most=PAGE_ROWS)
    built = [_over_time(inquiry), _as_section("Who held it", jobs)]
    tiles, readings = build_tiles(inquiry, shift(inquiry), over=_step_of_tiles(inquiry))
    full = Group({r.metric: r for r in readings}).value("utilization")
    known = "was not observed" if full is None else f"had a utilization of {percent(full)}"
    headline = f"GPU {ask.name} {known}."
    return Document(headline, [s for s in built if s], _say_window(inquiry), tiles, data=readings)


def build_queue(ask: Ask) -> Document:
    """How long jobs waited, by who waited."""
    inquiry = ask.inquire(("team",))
    page = readings_page.build_document(inquiry.ask(*OF_A_WAIT, by=("team", "pool")).arrange("queue_waiting", True))
    facts = sections.build_waits(inquiry)
    if facts is None:
        return page
    return replace(page, headline=facts.section.lead, sections=[*page.sections, replace(facts.section, lead="")])


def build_money(ask: Ask) -> Document:
    """What it cost by who pays; of the fleet, beside bills and budgets where the books know any."""
    inquiry = ask.inquire()
    page = _build_groups(ask, inquiry, "team" if ask.team is None else "project")
    if ask.team is not None or inquiry.where:
        linked = link_statements(ask, [ask.team or inquiry.where.get("team")])
        return replace(page, sections=[*page.sections, linked]) if linked else page
    built = (sections.build_chargeback(inquiry), sections.build_bridge(inquiry), sections.build_budget(inquiry))
    linked = link_statements(ask, [reading.by["team"] for reading in page.data if reading.metric == "cost"])
    more = [linked, *(facts.section for facts in built if facts)]
    return replace(page, sections=[*page.sections, *(section for section in more if section)])


def build_alerts(ask: Ask) -> Document:
    """What fires, and since when."""
    page = build_board(ask.books.store.folder, AlertsRequest(team=ask.team))
    return replace(page, sections=[s for s in page.sections if ask.team is None or s.title != UNSENT])


def build_quality(ask: Ask) -> Document:
    """Whether the books balance and what is missing, as far as they are checked; and how much of each node was observed."""
    inquiry = ask.inquire()  # first: it says where the books know nothing yet
    page = show_standing(ask.standing[0])
    nodes = inquiry.ask("observed_gpu_hours", "unobserved_gpu_hours", "paid_gpu_hours", by=("node",))
    listed = _as_section("How much of each node was observed", nodes.arrange("unobserved_gpu_hours", True, PAGE_ROWS))
    return replace(page, sections=[*page.sections, *([listed] if listed else ())])


def build_views(ask: Ask) -> Document:
    """The addresses that who asks saved, by name."""
    if not ask.views:
        subtitle = "Pages of loadfactor up have a field below them that saves their address under a name."
        return Document("No view is saved yet.", subtitle=subtitle, data=())
    listed = table(
        ask.views,
        col(VIEW, "name"),
        col("page", lambda view: unquote(view.address.partition("?")[0])),
        col("what it shows", lambda view: _say_state(view.address.partition("?")[2])),
        col("saved", lambda view: instant(moment(view.saved_ms))),
    )
    return Document(f"{counted(len(ask.views), 'view')} saved.", [Section(tables=(listed,))], data=ask.views)


def _say_state(query: str) -> str:
    return " · ".join(f"{name} {value}" for name, value in parse_qsl(query))


def build_docs(_ask: Ask) -> Document:
    """What every number means."""
    return build_metrics()


def _say_full(readings: Sequence[Reading]) -> str:
    totals = Group({r.metric: r for r in readings})
    cost = totals.value("cost")
    of_cost = "; what that cost is unknown" if cost is None else f" and cost {totals.money('cost')}"
    return f"was {percent(totals.value('load_factor'))} full{of_cost}."


def _draw_way(inquiry: Inquiry) -> Section:
    window = (inquiry.start, inquiry.end, inquiry.timezone)
    found = inquiry.books.waterfall((), *window, inquiry.basis, inquiry.where)
    return replace(draw_steps(found), lead=" ".join((say_useful(found), *list_unknown(found))))


def _say_window(inquiry: Inquiry) -> str:
    start, end = inquiry.window
    return f"{instant(start)} to {instant(end)}."


def _step_of_tiles(inquiry: Inquiry) -> str:
    start, end = inquiry.window
    return "hour" if end - start <= TILES_BY_THE_HOUR else "day"


def _step(inquiry: Inquiry) -> str:
    start, end = inquiry.window
    return "hour" if end - start <= BY_THE_HOUR else "day"


def _read_offset(ask: Ask) -> int:
    text = ask.text("offset")
    return int(text) if text.isascii() and text.isdigit() and len(text) < len("1000000000") else 0


def _say_order(order: str) -> str:
    """An order as `--sort` takes it, in words."""
    name = order.removeprefix("-")
    known = next((m for m in METRICS if m.name == name), None)
    words = {"currency": "cost", "GPU-hours": "GPU-hours"}.get(known.unit, "") if known else ""
    title = " ".join(dict.fromkeys(f"{known.title.lower()} {words}".split())) if known else name
    return f"by {title}{', the highest first' if order.startswith('-') else ''}"


def _hours_of(states: Sequence[str]) -> list[str]:
    """The metrics that are the hours in each state."""
    return [f"{state}_gpu_hours" for state in states]


def _name_states(found: Readings, states: Sequence[str]) -> list[str | None]:
    """The state in which each group was for most of its hours; None where nothing is known of them."""
    columns = [found.column(name) for name in _hours_of(states)]
    hours = [[value if isinstance(value, float) else 0.0 for value in of] for of in zip(*columns, strict=True)]
    return [states[of.index(max(of))] if any(of) else None for of in hours]


def _read_ends(inquiry: Inquiry) -> dict[str | None, str | None]:
    """How the last attempt of each job ended, as its scheduler reported; of jobs of the team in question alone."""
    rows = inquiry.books.view("allocations")
    if team := inquiry.where.get("team"):
        rows = rows.filter(rows.team == team)
    ends = inquiry.books.fetch(rows.group_by("job_id").aggregate(end=rows.end_state.argmax(rows.from_utc)))
    return dict(zip(ends["job_id"].to_pylist(), ends["end"].to_pylist(), strict=True))


def _list_facets(
    name: str, values: Sequence[Sequence[str | None]], chosen: Sequence[int], of: str = "jobs"
) -> DataTable:
    """How many of some rows each value of a facet leaves; a value is a link that keeps those alone."""
    found = Counter(chain.from_iterable(map(values.__getitem__, chosen)))
    found.pop(None, None)
    title = FACET_TITLES.get(name, f"By {name}")
    return table(found.most_common(MOST_FACETS), col(name, facet=name), col(of, style="number", digits=9), title=title)


def _over_time(inquiry: Inquiry) -> Section | None:
    facts = sections.build_over_time(inquiry)
    return facts.section if facts else None


def _as_section(title: str, readings: Readings) -> Section | None:
    return replace(readings_page.build_document(readings).sections[0], title=title) if readings else None


def _list_wastes(inquiry: Inquiry, is_priced: bool) -> Section | None:
    """Holders that left most idle, by money where it is known."""
    first, second = ("idle_cost", "idle_gpu_hours") if is_priced else ("idle_gpu_hours", "idle_cost")
    found = inquiry.ask(first, second, "utilization", by=("job", "team"), most=MOST_WASTES)
    section = _as_section("What was held and left idle, the most first", found)
    return section and replace(
        section, lead="The page of a job says what it did in that time and what to look at first."
    )


def _list_firing(ask: Ask) -> Section | None:
    board = read_board(ask.books.store.folder, now_ms(), LIVING)
    firing = [a.alert for a in board.alerts if a.alert.state == "firing" and belongs_to(a.alert, ask.team)]
    if not firing:
        return None
    listed = table(
        firing[:MOST_WASTES],
        col("alert", "rule"),
        col("of", name_group),
        col("severity", "severity"),
        col("since", lambda alert: instant(moment(alert.start_ms))),
    )
    return Section(f"{counted(len(firing), 'alert')} now", tables=(listed,))


def _build_groups(ask: Ask, inquiry: Inquiry, by: str) -> Document:
    """A row a group, the highest cost first, a picture of it, and where it is wanted the change of each."""
    found = inquiry.ask(*OF_A_GROUP, by=(by,)).arrange("cost", True)
    page = readings_page.build_document(found)
    if not found:
        return page
    names = [key[0] or readings_page.NO_NAME for key in found.keys[:MOST_BARS]]
    shown = "cost" if any(found.column("cost")) else "paid_gpu_hours"
    values = [value if isinstance(value, float) else None for value in found.column(shown)[:MOST_BARS]]
    chart = Chart(
        f"{metric(shown).title} by {by}",
        "bar",
        names,
        (Series(metric(shown).title, values),),
        y_label=readings_page.currency_of(found) if shown == "cost" else "GPU-hours",
    )
    first, *rest = page.sections
    highest = next((r for r in found if r.metric == shown and r.by[by] is not None), None)
    headline = page.headline
    if highest is not None and highest.value:
        unit = "" if highest.currency else f" {highest.unit}"
        headline = f"{highest.by[by]} has the highest {metric(shown).title.lower()}: {value_text(highest)}{unit}."
    compared = [_compare_groups(inquiry, found, shown, by)] if ask.compares else []
    return replace(page, headline=headline, sections=[replace(first, charts=(chart,)), *compared, *rest])


def _compare_groups(inquiry: Inquiry, found: Readings, shown: str, by: str) -> Section:
    """One metric of each group beside that of the period before, the largest change first."""
    before = shift(inquiry)
    if before is None:
        return Section(AGAINST_BEFORE, NOT_BEFORE)
    now, then = ({r.by[by]: r for r in of if r.metric == shown} for of in (found, before.ask(shown, by=(by,))))
    rows = [(name or readings_page.NO_NAME, now.get(name), then.get(name)) for name in {**now, **then}]
    rows.sort(key=lambda row: -abs((_amount(row[1]) or 0.0) - (_amount(row[2]) or 0.0)))
    style: Style = "money" if shown == "cost" else "number"
    listed = table(
        rows,
        col(by, lambda row: row[0]),
        col(metric(shown).title, lambda row: _amount(row[1]), style),
        col(BEFORE, lambda row: _amount(row[2]), style),
        col("change", lambda row: say_change(row[1], row[2])),
        currency=readings_page.currency_of(found),
    )
    return Section(AGAINST_BEFORE, tables=(listed,))


def _amount(reading: Reading | None) -> float | None:
    return reading.value if reading is not None and isinstance(reading.value, float) else None


def _draw_lines(inquiry: Inquiry, readings: Readings, by: Sequence[str], before: Readings | None) -> list[Chart]:
    """A picture a metric, a line a group, where one of the dimensions is time; dashed beside it that of the period `before`."""
    when = next((name for name in by if name in TIMES), None)
    if when is None:
        return []
    others = [name for name in by if name != when]
    start, end = inquiry.window
    charts = []
    for name in dict.fromkeys(r.metric for r in readings):
        of_metric = [r for r in readings if r.metric == name and not isinstance(r.value, list)]
        lines = _list_lines(of_metric, others)
        at = sorted({r.start for r in of_metric})
        if not lines or len(at) < 2:
            continue
        largest = sorted(lines, key=lambda label: -sum(lines[label].values()))[:MOST_LINES]
        series = [Series(label, [lines[label].get(moment) for moment in at]) for label in largest]
        earlier = _list_lines([r for r in before or () if r.metric == name], others)
        for label in largest if earlier else ():
            values = [earlier.get(label, {}).get(moment - (end - start)) for moment in at]
            series.append(Series(f"{label}, {BEFORE}", values, dashed=True))
        unit = of_metric[0].currency or of_metric[0].unit
        clock = [inquiry.local(moment) for moment in at]
        charts.append(Chart(metric(name).title, "line", clock, series, str(inquiry.timezone), unit))
    return charts


def _list_lines(readings: Sequence[Reading], others: Sequence[str]) -> dict[str, dict[datetime, float]]:
    """Values of one metric by the start of their time, for each group of the other dimensions."""
    lines: dict[str, dict[datetime, float]] = {}
    for reading in readings:
        label = (
            " · ".join(reading.by[other] or readings_page.NO_NAME for other in others) or metric(reading.metric).title
        )
        if isinstance(reading.value, float):
            lines.setdefault(label, {})[reading.start] = reading.value
    return lines
