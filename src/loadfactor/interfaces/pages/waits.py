"""The pages of `loadfactor waits`: how long jobs waited by size, queue and others, and what that tells of one that waits."""

from datetime import datetime
from shlex import quote

from loadfactor.base.errors import InputError
from loadfactor.books.waits import QuotaUse, WaitEstimate, WaitGroup, Waits
from loadfactor.interfaces.document import Cell, Document, Section, Suggestion
from loadfactor.interfaces.formats import UNKNOWN, counted, duration, instant, number
from loadfactor.interfaces.requests import WaitsRequest
from loadfactor.interfaces.tables import col, cols, table
from loadfactor.metrics.survival import Interval

MOST_ROWS = 25
MOST_WAITING = 10
HOW = (
    "Jobs that wait still or were cancelled waiting count as having waited at least so long (Kaplan–Meier); in brackets:"
    " 95 % intervals (Greenwood, log-log)."
)
NOTHING = "(none)"
NOT_GIVEN = "(not said)"
NOT_REACHED = "not reached"
ALL = "all"
NO_LIMIT = "no limit"
ANY = "any"


def build_page(request: WaitsRequest) -> Document:
    """The waits of the window, or the estimate that they give of one job."""
    books = request.books
    start, end = request.window(books)
    words = f" --store {quote(books.store.name)}"
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
    waits = table(
        _named(found),
        *cols(tuple(found.rows[0].by), lambda row, name: row[0][name]),
        col("GPU-hours waited", lambda row: row[1].gpu_hours_waited, "number"),
        col("median", lambda row: _value(row[1].wait_s_p50_gpu_weighted), "duration"),
        col("95 % interval", lambda row: say_interval(row[1].wait_s_p50_gpu_weighted)),
        col("90 % within", lambda row: _value(row[1].wait_s_p90_gpu_weighted), "duration"),
    )
    sections = [_list_groups(found), Section("Each wait counted once a GPU", tables=(waits,))]
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
        sentence = f"Less than half of {counted(group.waits, 'wait')} are known to have ended in a start{least}"
    else:
        sentence = f"Of {counted(group.waits, 'wait')}, half lasted at most {duration(p50.value)}{_bracket(p50)}"
        sentence += ", nine in ten " + (
            "longer than can be told" if p90.value is None else f"at most {duration(p90.value)}{_bracket(p90)}"
        )
    ends = [f"{number(group.waiting)} not over yet"] if group.waiting else []
    ends += [f"{number(group.cancelled)} cancelled"] if group.cancelled else []
    return f"{'; '.join([sentence, *ends])}."


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


def _value(of: Interval) -> Cell:
    return NOT_REACHED if of.value is None else of.value


def _list_groups(found: Waits) -> Section:
    waits = table(
        _named(found),
        *cols(tuple(found.rows[0].by), lambda row, name: row[0][name]),
        col("waits", lambda row: row[1].waits, "number", digits=9),
        col("waiting", lambda row: row[1].waiting, "number", digits=9),
        col("cancelled", lambda row: row[1].cancelled, "number", digits=9),
        col("median", lambda row: _value(row[1].wait_s_p50), "duration"),
        col("95 % interval", lambda row: say_interval(row[1].wait_s_p50)),
        col("90 % within", lambda row: _value(row[1].wait_s_p90), "duration"),
        note=_say_more(len(found.rows)),
    )
    return Section("How long jobs waited", tables=(waits,))


def _list_reasons(found: Waits) -> Section:
    whole = found.all.gpu_hours_waited
    reasons = table(
        found.reasons[:MOST_ROWS],
        col("reason", lambda reason: reason.reason or NOT_GIVEN),
        col("GPU-hours waited", "gpu_hours_waited", "number"),
        col("share", lambda reason: reason.gpu_hours_waited / whole if whole else None, "percent"),
        col("waits", lambda reason: "" if reason.waits is None else reason.waits, "number", digits=9),
    )
    return Section("What they waited for", tables=(reasons,))


def _list_waiting(found: Waits, store_words: str) -> Section:
    longest = table(
        found.longest_waiting[:MOST_WAITING],
        col("job", "job"),
        col("GPUs", "gpus", "number"),
        col("queue", lambda wait: wait.queue or NOTHING),
        col("team", lambda wait: wait.team or NOTHING),
        col("reason", lambda wait: wait.reason or NOT_GIVEN),
        col("waited", "waited_s", "duration"),
    )
    command = f"loadfactor waits --job {quote(found.longest_waiting[0].job)}{store_words}"
    suggestion = Suggestion(command, "how much longer jobs like the first waited that had waited as long")
    return Section("Who waits longest", tables=(longest,), suggestions=(suggestion,))


def _list_quotas(found: Waits) -> Section:
    shown = found.quotas[:MOST_ROWS]
    queues = table(
        shown,
        col("queue", _name_queue),
        col("cohort", lambda quota: quota.cohort or NOTHING),
        col("quota, GPUs", "gpus", "number"),
        col("may borrow", lambda quota: _limit(quota.borrowing_gpus), "number"),
        col("held", "held_gpus", "number"),
        col("waiting", "waiting_gpus", "number"),
        col("jobs waiting", "waiting_jobs", "number", digits=9),
        col("flavors", lambda q: ", ".join(f"{name or ANY} {number(gpus)}" for name, gpus in q.flavors.items())),
        note=_say_more(len(found.quotas), "--format json"),
    )
    flavors = table(
        [(quota, use) for quota in shown for use in quota.by_flavor],
        col("queue", lambda of: _name_queue(of[0])),
        col("flavor", lambda of: of[1].flavor or ANY),
        col("quota, GPUs", lambda of: of[1].gpus, "number"),
        col("held", lambda of: of[1].held_gpus, "number"),
        col("of it borrowed", lambda of: of[1].borrowed_gpus, "number"),
        col("may borrow", lambda of: _limit(of[1].borrowing_gpus), "number"),
        col("may lend", lambda of: _limit(of[1].lending_gpus), "number"),
    )
    cohorts = table(
        found.cohorts[:MOST_ROWS],
        col("cohort", lambda c: f"{c.cluster}: {c.cohort}" if c.cluster else c.cohort),
        col("flavor", lambda c: c.flavor or ANY),
        col("quota, GPUs", "gpus", "number"),
        col("held", "held_gpus", "number"),
        col("of it borrowed", "borrowed_gpus", "number"),
        note=_say_more(len(found.cohorts), "--format json"),
    )
    lead = f"GPUs of all queues at {instant(datetime.fromisoformat(found.window['to']))}."
    return Section("Quotas", lead, tables=(queues, flavors, cohorts) if found.cohorts else (queues, flavors))


def _limit(gpus: float | None) -> Cell:
    return NO_LIMIT if gpus is None else gpus


def _name_queue(quota: QuotaUse) -> str:
    return f"{quota.cluster}: {quota.queue}" if quota.cluster else quota.queue


def _named(found: Waits) -> list[tuple[dict[str, str], WaitGroup]]:
    by = found.rows[0].by
    whole = {name: "" if index else ALL for index, name in enumerate(by)}
    return [(whole, found.all), *(({name: g.by[name] or NOTHING for name in by}, g) for g in found.rows[:MOST_ROWS])]


def _say_more(count: int, flag: str = "--json") -> str:
    return f"and {count - MOST_ROWS:,} more; {flag} lists them all" if count > MOST_ROWS else ""


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
    note = (
        f"Estimated from {counted(found.n, 'wait')}, {number(found.started)} of which ended in a start; as of {found.at}."
        " Schedulers change their minds, and so do queues: it is no promise."
    )
    estimates = table(
        [("half of jobs like it", found.rest_s_p50), ("nine in ten of them", found.rest_s_p90)],
        col("another wait"),
        col("estimate", lambda row: _value(row[1]), "duration"),
        col("95 % interval", lambda row: say_interval(row[1])),
        note=note,
    )
    return Document(headline, (Section(tables=(estimates,)), *_suggest(store_words)), data=found)


def _suggest(store_words: str) -> tuple[Section, ...]:
    why = "how long all jobs waited"
    return (Section(suggestions=(Suggestion(f"loadfactor waits --by size,queue{store_words}", why),)),)
