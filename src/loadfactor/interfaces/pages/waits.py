"""The pages of `loadfactor waits`: how long jobs waited by size, queue and others, and what that tells of one that waits."""

from datetime import datetime
from shlex import quote

from loadfactor.base.errors import InputError
from loadfactor.books.quotas import QuotaUse
from loadfactor.books.waits import WaitEstimate, WaitGroup, Waits
from loadfactor.interfaces.document import Cell, DataTable, Document, Section, Suggestion, TableColumn
from loadfactor.interfaces.formats import UNKNOWN, counted, duration, instant, number
from loadfactor.interfaces.requests import WaitsRequest
from loadfactor.metrics.survival import Interval

MOST_ROWS = 25
MOST_WAITING = 10
HOW = (
    "Jobs that wait still or were cancelled waiting count as having waited at least so long (Kaplan–Meier); in brackets:"
    " 95 % intervals (Greenwood, log-log)."
)
NOTHING = "(none)"
NOT_SAID = "(not said)"
NOT_REACHED = "not reached"
ALL = "all"
NO_LIMIT = "no limit"
ANY = "any"


def build_page(request: WaitsRequest) -> Document:
    """The waits of the window, or the estimate that they give of one job."""
    books = request.books
    start, end = request.window(books)
    words = f" --store {quote(str(books.store.folder))}"
    if request.job is not None:
        if request.where:
            raise InputError("--job compares with jobs like it and takes no --where; use one of the two")
        return build_estimate(books.estimate_wait(request.job, start, end), words)
    return build_waits(books.find_waits(request.by, start, end, request.filters), words)


def build_waits(found: Waits, store_words: str) -> Document:
    """Quantiles of the waits by group, each job and each GPU counted once, and the reasons for them."""
    quotas = [_list_quotas(found)] if found.quotas else []
    if not found.all.waits:
        note = _say_before(found)
        return Document("No job is known to have been queued in that time.", tuple(quotas), notes=note, data=found)
    sections = [_list_groups(found), _list_by_gpu(found)]
    if any(reason.reason for reason in found.reasons):
        sections.append(_list_reasons(found))
    if found.longest_waiting:
        sections.append(_list_waiting(found, store_words))
    sections += quotas
    start, end = (instant(datetime.fromisoformat(found.window[name])) for name in ("from", "to"))
    subtitle = f"Queued between {start} and {end}. {HOW}"
    return Document(_say_all(found.all), tuple(sections), subtitle, notes=_say_before(found), data=found)


def _say_all(group: WaitGroup) -> str:
    p50, p90 = group.wait_s_p50, group.wait_s_p90
    if p50.value is None:
        least = "" if p50.low is None else f"; it is {duration(p50.low)} or more"
        said = f"Less than half of {counted(group.waits, 'wait')} are known to have ended in a start{least}"
    else:
        said = f"Of {counted(group.waits, 'wait')}, half lasted at most {duration(p50.value)}{_bracket(p50)}"
        said += ", nine in ten " + (
            "longer than can be told" if p90.value is None else f"at most {duration(p90.value)}{_bracket(p90)}"
        )
    ends = [f"{number(group.waiting)} not over yet"] if group.waiting else []
    ends += [f"{number(group.cancelled)} cancelled"] if group.cancelled else []
    return f"{'; '.join([said, *ends])}."


def _bracket(of: Interval) -> str:
    return f" ({say_interval(of)})" if of.low is not None else ""


def say_interval(of: Interval) -> str:
    """Between what an estimate lies."""
    if of.low is None:
        return UNKNOWN
    low = duration(of.low)
    if of.high is None:
        return f"{low} or more"
    if of.high == of.low:
        return low
    high, (begin, _, unit) = duration(of.high), low.rpartition(" ")
    return f"{begin if high.endswith(f' {unit}') else low} to {high}"


def _say(of: Interval) -> tuple[Cell, Cell]:
    """An estimate and its interval as cells."""
    return NOT_REACHED if of.value is None else of.value, say_interval(of)


def _list_groups(found: Waits) -> Section:
    columns = (
        *(TableColumn(name) for name in _dimensions(found)),
        TableColumn("waits", "number", digits=9),
        TableColumn("waiting", "number", digits=9),
        TableColumn("cancelled", "number", digits=9),
        TableColumn("median", "duration"),
        TableColumn("95 % interval"),
        TableColumn("90 % within", "duration"),
    )
    rows = [
        (*names, g.waits, g.waiting, g.cancelled, *_say(g.wait_s_p50), _say(g.wait_s_p90)[0])
        for names, g in _named(found)
    ]
    return Section("How long jobs waited", tables=(DataTable(columns, rows, note=_say_more(found)),))


def _list_by_gpu(found: Waits) -> Section:
    columns = (
        *(TableColumn(name) for name in _dimensions(found)),
        TableColumn("GPU-hours waited", "number"),
        TableColumn("median", "duration"),
        TableColumn("95 % interval"),
        TableColumn("90 % within", "duration"),
    )
    rows = [
        (*names, g.gpu_hours_waited, *_say(g.wait_s_p50_gpu_weighted), _say(g.wait_s_p90_gpu_weighted)[0])
        for names, g in _named(found)
    ]
    return Section("Each wait counted once a GPU", tables=(DataTable(columns, rows),))


def _list_reasons(found: Waits) -> Section:
    columns = (
        TableColumn("reason"),
        TableColumn("GPU-hours waited", "number"),
        TableColumn("share", "percent"),
        TableColumn("waits", "number", digits=9),
    )
    whole = found.all.gpu_hours_waited
    rows: list[tuple[Cell, ...]] = [
        (
            r.reason or NOT_SAID,
            r.gpu_hours_waited,
            r.gpu_hours_waited / whole if whole else None,
            "" if r.waits is None else r.waits,
        )
        for r in found.reasons[:MOST_ROWS]
    ]
    return Section("What they waited for", tables=(DataTable(columns, rows),))


def _list_waiting(found: Waits, store_words: str) -> Section:
    columns = (
        TableColumn("job"),
        TableColumn("GPUs", "number"),
        TableColumn("queue"),
        TableColumn("team"),
        TableColumn("reason"),
        TableColumn("waited", "duration"),
    )
    longest = found.longest_waiting[:MOST_WAITING]
    rows: list[tuple[Cell, ...]] = [
        (w.job, w.gpus, w.queue or NOTHING, w.team or NOTHING, w.reason or NOT_SAID, w.waited_s) for w in longest
    ]
    command = f"loadfactor waits --job {quote(longest[0].job)}{store_words}"
    suggestion = Suggestion(command, "how much longer jobs like the first waited that had waited as long")
    return Section("Who waits longest", tables=(DataTable(columns, rows),), suggestions=(suggestion,))


def _list_quotas(found: Waits) -> Section:
    columns = (
        TableColumn("queue"),
        TableColumn("cohort"),
        TableColumn("quota, GPUs", "number"),
        TableColumn("may borrow", "number"),
        TableColumn("held", "number"),
        TableColumn("waiting", "number"),
        TableColumn("jobs waiting", "number", digits=9),
        TableColumn("flavors"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            _name_queue(q),
            q.cohort or NOTHING,
            q.gpus,
            NO_LIMIT if q.borrowing_gpus is None else q.borrowing_gpus,
            q.held_gpus,
            q.waiting_gpus,
            q.waiting_jobs,
            ", ".join(f"{name or ANY} {number(gpus)}" for name, gpus in q.flavors.items()),
        )
        for q in found.quotas[:MOST_ROWS]
    ]
    more = len(found.quotas) - MOST_ROWS
    note = f"and {more:,} more; --format json lists them all" if more > 0 else ""
    lead = f"GPUs of all queues at {instant(datetime.fromisoformat(found.window['to']))}."
    tables = [
        DataTable(columns, rows, note=note),
        _list_flavors(found),
        *([_list_cohorts(found)] if found.cohorts else []),
    ]
    return Section("Quotas", lead, tables=tuple(tables))


def _list_flavors(found: Waits) -> DataTable:
    columns = (
        TableColumn("queue"),
        TableColumn("flavor"),
        *(TableColumn(name, "number") for name in ("quota, GPUs", "held", "of it borrowed", "may borrow", "may lend")),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            _name_queue(q),
            use.flavor or ANY,
            use.gpus,
            use.held_gpus,
            use.borrowed_gpus,
            NO_LIMIT if use.borrowing_gpus is None else use.borrowing_gpus,
            NO_LIMIT if use.lending_gpus is None else use.lending_gpus,
        )
        for q in found.quotas[:MOST_ROWS]
        for use in q.by_flavor
    ]
    return DataTable(columns, rows)


def _list_cohorts(found: Waits) -> DataTable:
    columns = (
        TableColumn("cohort"),
        TableColumn("flavor"),
        *(TableColumn(name, "number") for name in ("quota, GPUs", "held", "of it borrowed")),
    )
    rows: list[tuple[Cell, ...]] = [
        (f"{c.cluster}: {c.cohort}" if c.cluster else c.cohort, c.flavor or ANY, c.gpus, c.held_gpus, c.borrowed_gpus)
        for c in found.cohorts[:MOST_ROWS]
    ]
    more = len(found.cohorts) - MOST_ROWS
    note = f"and {more:,} more; --format json lists them all" if more > 0 else ""
    return DataTable(columns, rows, note=note)


def _name_queue(quota: QuotaUse) -> str:
    return f"{quota.cluster}: {quota.queue}" if quota.cluster else quota.queue


def _dimensions(found: Waits) -> tuple[str, ...]:
    return tuple(found.rows[0].by)


def _named(found: Waits) -> list[tuple[tuple[str, ...], WaitGroup]]:
    """All waits, then the groups, each with its names."""
    by = _dimensions(found)
    groups = [(tuple(g.by[name] or NOTHING for name in by), g) for g in found.rows[:MOST_ROWS]]
    return [((ALL, *[""] * (len(by) - 1)), found.all), *groups]


def _say_more(found: Waits) -> str:
    more = len(found.rows) - MOST_ROWS
    return f"and {more:,} more; --json lists them all" if more > 0 else ""


def _say_before(found: Waits) -> tuple[str, ...]:
    if not found.waiting_since_before:
        return ()
    waits = counted(found.waiting_since_before, "wait")
    return (
        f"{waits} had begun before the window and lasted into it, and are not counted; an earlier --from counts them.",
    )


def build_estimate(found: WaitEstimate, store_words: str) -> Document:
    """How much longer a job will wait, as an estimate."""
    own = {"size": found.size, "queue": found.queue, "team": found.team}
    alike = ", ".join(f"{name} {own[name] or NOTHING}" for name in found.alike)
    waits = f"{counted(found.n, 'wait')} " + (f"like it ({alike})" if alike else "of any size")
    begin = f"Job {found.job} has waited {duration(found.waited_s)} for {counted(found.gpus, 'GPU')}"
    if found.reason:
        begin += f" ({found.reason})"
    if not found.started:
        headline = (
            f"{begin}. No job like it that had waited as long is known to have started: nothing can be estimated."
        )
        return Document(headline, _suggest(store_words), data=found)
    rest = found.rest_s_p50
    if rest.value is None:
        least = "" if rest.low is None else f": half of them waited another {duration(rest.low)} or more"
        ended = f"less than half are known to have ended in a start{least}"
    else:
        ended = f"half ended in a start within another {duration(rest.value)}{_bracket(rest)}"
    headline = f"{begin}. Of {waits} that had lasted as long, {ended}. An estimate."
    columns = (TableColumn("another wait"), TableColumn("estimate", "duration"), TableColumn("95 % interval"))
    rows = [
        ("half of jobs like it", *_say(found.rest_s_p50)),
        ("nine in ten of them", *_say(found.rest_s_p90)),
    ]
    note = (
        f"Told from {counted(found.n, 'wait')}, {number(found.started)} of which ended in a start; as of {found.at}."
        " Schedulers change their minds, and so do queues: it is no promise."
    )
    table = DataTable(columns, rows, note=note)
    return Document(headline, (Section(tables=(table,)), *_suggest(store_words)), data=found)


def _suggest(store_words: str) -> tuple[Section, ...]:
    why = "how long all jobs waited"
    return (Section(suggestions=(Suggestion(f"loadfactor waits --by size,queue{store_words}", why),)),)
