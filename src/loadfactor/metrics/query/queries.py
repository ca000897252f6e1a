"""The queries of a question as Ibis expressions by name: sums over the ledger, waits, units of work and their cost.

They read tables by name: `window_ledger` (the ledger of the window, nothing beyond it), `progress`, `waits`, and those of
`list_inputs`. None of them holds an instant or a name that the question has: two questions of one shape have the same queries.
"""

from collections.abc import Sequence
from typing import Any

import ibis
import ibis.expr.operations as ops

from loadfactor.base.units import MS_PER_HOUR, S_PER_HOUR
from loadfactor.ledger.columns import ACTIVITIES, HISTOGRAM, HOLDER, STATES, UNKNOWN
from loadfactor.ledger.intervals import shares_time
from loadfactor.ledger.states import measures, resolve_overlaps
from loadfactor.ledger.steps import ledger_columns
from loadfactor.ledger.sums import fold
from loadfactor.ledger.waits import list_reasons, list_waits
from loadfactor.metrics.metric import COST, EFFECTIVE_COST, OF_GRID, UNDERUSED_COST, UNDERUSED_S, Quantile, Sum
from loadfactor.metrics.query.grid import READ_BY_GRID, add_energy
from loadfactor.metrics.query.question import OF_A_HOLDER, OF_A_WAIT, TENANT, UNKNOWN_HOLDER, Question
from loadfactor.metrics.work import (
    AT_PEAK,
    CACHED,
    HARDWARE_FLOP,
    MODEL_FLOP,
    PROMPT,
    SERVED,
    SPLIT,
    TRAIN_SAMPLE,
    TRAIN_TOKEN,
    WORKED_OUT,
)
from loadfactor.tables.schema import DIMENSIONS, columns_of

Expr = Any
_WHO = tuple(c for c in HOLDER if c not in ("attempt", "job_id"))
"""What a job is called, besides its own name."""
WORK_ID, _SHOWN_JOB = "work_id", "shown_job"
"""Of rows that are divided: the job as a part of its work is called, and as it is shown."""
_AS_GOOD_AS_EQUAL = 4
"""So many times the groups that were requested are read: of those whose amounts differ by rounding alone names decide."""


def list_queries(question: Question) -> dict[str, Expr]:
    """Every query that the answer to a question reads, by name."""
    columns = ledger_columns() | (dict.fromkeys((TENANT, WORK_ID), "string") if question.divides else {})
    book = name_unknown(question, ibis.table(columns, name="window_ledger"))
    if question.divides and question.units:
        of_job = ibis.window(group_by=book.job_id)
        book = book.mutate(job_from=book.from_utc.min().over(of_job), job_to=book.to_utc.max().over(of_job))
    booked = apply_filters(question, book, tuple(DIMENSIONS))
    booked = add_calendar(question, booked, booked.hour_utc, booked.from_utc)
    if question.reads_grid:
        booked = add_energy(booked)
    queries = {"sums": sum_parts(question, booked)}
    if question.units:
        queries |= list_unit_queries(question, booked, drop_shared_jobs(question, book, _input("progress")))
    if question.waits:
        queries |= list_wait_queries(question, apply_filters(question, tabulate_waits(), OF_A_WAIT))
    return queries


def list_columns(question: Question) -> set[str]:
    """The columns of the ledger that the queries of a question read, but for those of time."""
    book = ibis.table(ledger_columns(), name="window_ledger")
    used = {*question.keys, *(DIMENSIONS[name] for name, _ in question.where), *question.peaks, "holder"}
    used |= {field.name for of in list_parts(question, book).values() for field in of.op().find(ops.Field)}
    if question.reads_grid:
        used |= READ_BY_GRID
    if question.divides:
        used |= {"job_id", "state", *_WHO}
    if question.units:
        used |= {"job_id", *_WHO, "state", "gpu_s", f"price_per_gpu_hour_{question.basis}"}
    return used.intersection(book.columns)


def tabulate_waits() -> Expr:
    """The table `waits`."""
    return ibis.table(list_all_waits().schema(), name="waits")


def list_all_waits() -> Expr:
    """The table `waits`: the waits that allocations and queue events speak of."""
    return list_waits(_input("allocations"), _input("queue_events"))


def list_all_reasons() -> Expr:
    """The table `wait_reasons`: for which reasons the waits in `waits` lasted, from when to when."""
    return list_reasons(tabulate_waits(), _input("allocations"), _input("queue_events"))


# -- rows ----------------------------------------------------------------------------------------------------------------


def read_input(question: Question, name: str) -> Expr:
    """`start_ms` or `end_ms` of the window, or `where_…`, the value of a filter."""
    given = {"start_ms": "int64", "end_ms": "int64"} | {f"where_{of}": "string" for of, _ in question.where}
    return ibis.table(given, name="asked")[name].as_scalar()


def apply_filters(question: Question, rows: Expr, known: tuple[str, ...]) -> Expr:
    """Rows that pass the question's filters; none where they have no such dimension."""
    for name, _ in question.where:
        rows = (
            rows.filter(rows[DIMENSIONS[name]] == read_input(question, f"where_{name}"))
            if name in known
            else rows.limit(0)
        )
    return rows


def name_unknown(question: Question, book: Expr) -> Expr:
    """The ledger with unattributed time under a name of its own in the holder dimensions that the question uses."""
    used = {*question.by, *(name for name, _ in question.where)}
    columns = [DIMENSIONS[name] for name in OF_A_HOLDER if name in used]
    return book.mutate(**{c: ibis.ifelse(book.holder == UNKNOWN, UNKNOWN_HOLDER, book[c]) for c in columns})


def add_calendar(question: Question, rows: Expr, hour: Expr, at: Expr) -> Expr:
    """Rows with the hour and the local day, week and month they lie in, where the question splits by them."""
    if "hour" in question.by:
        rows = rows.mutate(hour=hour)
    return date_rows(rows, question.periods, hour, at) if question.periods else rows


def date_rows(rows: Expr, periods: Sequence[str], hour: Expr, at: Expr) -> Expr:
    """Rows with the local periods they lie in; `hour` is the UTC hour of `at`."""
    names = ibis.table({**dict.fromkeys(periods, "string"), "first": "int64", "after": "int64"}, name="calendar")
    hours = ibis.range(names.first - names.first % MS_PER_HOUR, names.after, MS_PER_HOUR)
    names = names.mutate(calendar_hour=hours.unnest())  # equal hours are found faster than an hour within a period
    rows = rows.mutate(dated_utc=at, calendar_hour=hour)
    within = [
        rows.calendar_hour == names.calendar_hour,
        rows.dated_utc >= names.first,
        rows.dated_utc < names.after,
    ]
    return rows.join(names, within).drop("first", "after", "calendar_hour")


def _input(name: str) -> Expr:
    """A table of the store under its own name."""
    return ibis.table(ibis.schema(columns_of(name)), name=name)


def _grouped(rows: Expr, keys: list[str], columns: dict[str, Expr]) -> Expr:
    """Aggregates by group, in order; of all rows where there are no keys."""
    return rows.group_by(keys).aggregate(**columns).order_by(keys) if keys else rows.aggregate(**columns)


# -- the ledger ----------------------------------------------------------------------------------------------------------


def sum_parts(question: Question, booked: Expr) -> Expr:
    """All the parts of all the metrics in one aggregate: `p<part>_<column>`, the peaks, and how many `rows`.

    Rows with equal dimensions are added up first: so many fewer have to be chosen and multiplied that it halves the time. Of a
    job, or of a GPU in an hour, kept sums have few.
    """
    if {*question.by} >= {"device", "hour"} or ("job" in question.by and "hour" not in question.by):
        summed = _grouped(booked, question.keys, {"rows": booked.count(), **_sum_up(question, booked)})
        return _keep_most(question, summed)
    named = [field for column in list_parts(question, booked).values() for field in column.op().find(ops.Field)]
    used = {field.name for field in named if field.rel == booked.op()}
    folded = fold(booked, question.keys, used, question.peaks, OF_GRID)
    columns = {"rows": ibis.coalesce(folded.folded.sum(), 0), **_sum_up(question, folded)}
    return _keep_most(question, _grouped(folded, question.keys, columns))


def _sum_up(question: Question, rows: Expr) -> dict[str, Expr]:
    """The aggregates of rows of a ledger: parts and peaks."""
    sums = {name: ibis.coalesce(of.sum(), 0.0) for name, of in list_parts(question, rows).items()}
    return sums | {name: rows[name].max() for name in question.peaks}


def _keep_most(question: Question, summed: Expr) -> Expr:
    """The groups that were requested, in order."""
    if question.most is None:
        return summed
    kind = question.metrics[0].kind
    assert isinstance(kind, Sum)
    number = question.parts.index(kind.part)
    amount = sum(summed[f"p{number}_{place}"] for place in range(len(kind.part.columns)))
    most = summed.order_by([ibis.desc(amount), *question.keys]).limit(question.most * _AS_GOOD_AS_EQUAL)
    return most.order_by(question.keys)


def list_parts(question: Question, booked: Expr) -> dict[str, Expr]:
    """The amounts that each row of a ledger adds to each column of each part: `p<part>_<column>`."""
    named, amounts = _columns(booked, question.basis), {}
    for number, part in enumerate(question.parts):
        where = booked.state.isin(part.states) if set(part.states) < set(STATES) else ibis.literal(True)
        if part.holder:
            where = where & (booked.holder == part.holder)
        if part.priced:
            where = where & named[COST].notnull()
        for place, name in enumerate(part.columns):
            # a sum of zeros elsewhere: engines do that several times faster than FILTER
            amounts[f"p{number}_{place}"] = ibis.ifelse(where, named[name], 0.0)
    return amounts


def _columns(booked: Expr, basis: str) -> dict[str, Expr]:
    """Everything a metric may add up, by name: ledger columns, what follows from them, and the stand-ins of `metric`."""
    columns = {c: booked[c] for c in booked.columns} | measures(booked)
    active_s = sum(columns[f"effective_{kind.basis}_s"] for kind in ACTIVITIES)
    under_s = ibis.ifelse(booked.state == "busy", booked.gpu_s, 0.0) - active_s
    cost_per_s = booked[f"price_per_gpu_hour_{basis}"] / S_PER_HOUR
    unknown = {name: booked.gpu_s * 0.0 for name in OF_GRID if name not in columns}  # no second of it is known
    return (
        columns
        | unknown
        | {
            COST: columns[f"cost_{basis}"],
            UNDERUSED_S: under_s,
            UNDERUSED_COST: cost_per_s * under_s,
            EFFECTIVE_COST: cost_per_s * active_s,
        }
    )


# -- units of work -------------------------------------------------------------------------------------------------------


def list_unit_queries(question: Question, booked: Expr, progress: Expr) -> dict[str, Expr]:
    """`unit_amounts`: what was made, kept and lost; `unit_costs`: what each of the jobs that worked on it cost; by unit and group.

    Both are lists of amounts in any order, as joins leave them.
    """
    keys = ["unit", *question.keys]
    if question.divides:
        booked, keys = _call_parts(booked), [_SHOWN_JOB if key == "job_id" else key for key in keys]
    rows = progress.filter(progress.unit.isin(question.units))
    start, end = read_input(question, "start_ms"), read_input(question, "end_ms")
    rows = rows.filter(rows.from_utc < end, (rows.to_utc > start) | (rows.from_utc >= start))
    jobs = rows.select("unit", "job_id").distinct()  # those of which all work was lost cost, too
    held = booked.filter(booked.job_id.notnull())  # all of them: a join may change the order, and with it the digits
    counted, cost = held.state.isin(question.held.states), measures(held)[f"cost_{question.basis}"]
    of_jobs = held.group_by(["job_id", *(key for key in keys[1:] if key != "job_id")]).aggregate(
        cost=ibis.coalesce(ibis.ifelse(counted, cost, 0.0).sum(), 0.0),
        priced_s=ibis.ifelse(counted & cost.notnull(), held.gpu_s, 0.0).sum(),
        needed_s=ibis.ifelse(counted, held.gpu_s, 0.0).sum(),
    )
    by_unit = of_jobs.join(jobs, "job_id")
    spent = by_unit.group_by(keys).aggregate(**{c: by_unit[c].collect() for c in ("cost", "priced_s", "needed_s")})
    apart = [*keys, "kept", "cause", "known_from"]
    amounts = _amounts(question, booked.semi_join(rows, "job_id"), rows, apart)
    found = {"unit_costs": spent.order_by(keys), "unit_amounts": amounts.order_by(apart)}
    return {name: of.rename(job_id=_SHOWN_JOB) if _SHOWN_JOB in keys else of for name, of in found.items()}


def _call_parts(booked: Expr) -> Expr:
    """Rows that are divided, as if who used a job had each a job of their own, that held GPUs from its first second to its last."""
    held = {"from_utc": booked.job_from, "to_utc": booked.job_to}
    return booked.mutate(**held, **{_SHOWN_JOB: booked.job_id, "job_id": booked[WORK_ID]})


def drop_shared_jobs(question: Question, book: Expr, progress: Expr) -> Expr:
    """Progress of the jobs that held nothing outside the question's filters: of others nobody knows what was made where.

    `book` is the ledger of the window, unfiltered.
    """
    if not question.where:
        return progress
    inside = ibis.and_(*(book[DIMENSIONS[name]] == read_input(question, f"where_{name}") for name, _ in question.where))
    outside = book.filter(~ibis.coalesce(inside, False))
    return progress.anti_join(outside, progress.job_id == outside[WORK_ID if question.divides else "job_id"])


def _amounts(question: Question, booked: Expr, rows: Expr, keys: list[str]) -> Expr:
    """Progress in the window by unit and group; an interval that the window or a bucket cuts counts in proportion to time.

    `booked` is the ledger of the jobs that made it: they are called what it calls them, and what they report from before or after
    they held GPUs counts nothing: of GPUs that nobody knows it has no cost.
    """
    called = (*_WHO, TENANT, _SHOWN_JOB) if question.divides else _WHO
    names = booked.group_by("job_id").aggregate(
        **{c: booked[c].max() for c in called}, held_from=booked.from_utc.min(), held_to=booked.to_utc.max()
    )
    start, end = read_input(question, "start_ms"), read_input(question, "end_ms")
    length = (rows.to_utc - rows.from_utc).cast("float64")
    kept = ibis.coalesce(rows.kept, True)
    cause = ibis.ifelse(kept, ibis.null("string"), rows.cause)
    rows = rows.select(
        "unit", "job_id", "from_utc", "to_utc", "amount", "known_from", length=length, kept=kept, cause=cause
    )
    rows = rows.join(names.select("job_id", "held_from", "held_to"), "job_id")
    instants = rows.filter(rows.length == 0)
    instants = instants.filter(instants.from_utc >= start, instants.from_utc < end)
    instants = instants.filter(instants.from_utc.between(instants.held_from, instants.held_to))
    intervals = rows.filter(rows.length > 0)
    if "hour" in question.by or question.periods:
        intervals = _bucketed(intervals)
    part = ibis.least(intervals.to_utc, end, intervals.held_to)
    part = part - ibis.greatest(intervals.from_utc, start, intervals.held_from)
    intervals = intervals.mutate(amount=intervals.amount * part / intervals.length).filter(part > 0)
    columns = ["unit", "job_id", "from_utc", "amount", "kept", "cause", "known_from"]
    made = ibis.union(instants.select(*columns), intervals.select(*columns)).join(names, "job_id")
    hour = made.from_utc - made.from_utc % MS_PER_HOUR
    made = add_calendar(question, made, hour, made.from_utc)
    return made.group_by(keys).aggregate(amounts=made.amount.collect())


def _bucketed(intervals: Expr) -> Expr:
    """Intervals cut at hours, and at the local midnights that are none; amounts still those of the whole interval."""
    buckets = _list_buckets()
    cut = intervals.join(buckets, [intervals.from_utc < buckets.after, intervals.to_utc > buckets.first])
    return cut.select(
        "unit",
        "job_id",
        "amount",
        "length",
        "kept",
        "cause",
        "known_from",
        "held_from",
        "held_to",
        from_utc=ibis.greatest(cut.from_utc, cut.first),
        to_utc=ibis.least(cut.to_utc, cut.after),
    )


# -- waits ---------------------------------------------------------------------------------------------------------------


def list_wait_queries(question: Question, waits: Expr) -> dict[str, Expr]:
    """`any_wait`: whether one was ever recorded; `waited`: every plain quantile; the weighted ones by name; `waiting` still."""
    start, end, keys = read_input(question, "start_ms"), read_input(question, "end_ms"), question.keys
    started = waits.filter(waits.started, waits.ended_utc >= start, waits.ended_utc < end)
    hour = started.ended_utc - started.ended_utc % MS_PER_HOUR
    started = add_calendar(question, started, hour, started.ended_utc).mutate(gpus=ibis.coalesce(started.gpus, 1.0))
    spans = _list_spans(question, start, end)
    at_end = waits.ended_utc.isnull() | (waits.ended_utc >= spans.until)
    is_censored = at_end | (~waits.started & (waits.ended_utc >= spans.since))
    censored = waits.join(spans, [waits.queued_utc < spans.until, is_censored])
    columns, queries = {"n": started.count()}, {"any_wait": waits.select("job_id").limit(1)}
    for metric in question.metrics:
        kind = metric.kind
        if not isinstance(kind, Quantile) or kind.of != "wait_s":
            continue
        if kind.weight is None:
            columns[metric.name] = started.wait_s.mean() if kind.mean else started.wait_s.quantile(kind.q)
        elif kind.mean:
            columns[metric.name] = (started.wait_s * started[kind.weight]).sum() / started[kind.weight].sum()
        else:
            queries[metric.name] = _weighted_quantile(started, keys, kind)
    queries["waited"] = _grouped(started, keys, columns)
    queries["waiting"] = _grouped(censored, keys, {"n": censored.count()})
    return queries


def _list_spans(question: Question, start: Expr, end: Expr) -> Expr:
    """The intervals of the hours and periods that a question splits by, `since` and `until`, inside its window; else the window."""
    by = [name for name in ("hour", *question.periods) if name in question.by]
    if not by:
        return ibis.table({"start_ms": "int64", "end_ms": "int64"}, name="asked").select(
            since="start_ms", until="end_ms"
        )
    buckets = _list_buckets().rename(since="first", until="after")
    at = buckets.since
    dated = add_calendar(question, buckets, at - at % MS_PER_HOUR, at)
    whole = dated.group_by(by).aggregate(first=dated.since.min(), after=dated.until.max())
    spans = whole.select(*by, since=ibis.greatest(whole.first, start), until=ibis.least(whole.after, end))
    return spans.filter(spans.since < spans.until)


def _list_buckets() -> Expr:
    """The hours that a question splits by, cut at local midnights; the days where it splits by no hour."""
    return ibis.table({"first": "int64", "after": "int64"}, name="buckets")


def _weighted_quantile(rows: Expr, keys: list[str], kind: Quantile) -> Expr:
    """The smallest wait at which the weights of the waits so far reach the share q of all weights."""
    weight = rows[kind.weight]
    running = ibis.cumulative_window(group_by=keys, order_by=[rows.wait_s, rows.job_id])
    whole = ibis.window(group_by=keys)
    reached = rows.mutate(so_far=weight.sum().over(running), all=weight.sum().over(whole))
    reached = reached.filter(reached.so_far >= reached["all"] * kind.q)
    return _grouped(reached, keys, {"v": reached.wait_s.min()})


def list_step_rows(question: Question) -> Expr:
    """The rows of `window_ledger`: `from_utc`, whose by the dimensions of the question, and amounts by part and column."""
    book = name_unknown(question, ibis.table(ledger_columns(), name="window_ledger"))
    return book.select("from_utc", *question.keys, **list_parts(question, book))


def list_rates(question: Question) -> Expr:
    """The rows of `book`, one a sample: whose by number of the holding, the interval, and what each second adds."""
    columns = {c: of for c, of in ledger_columns().items() if c not in HISTOGRAM}
    of_samples = {"activity_bin": "int32", "holding": "int64", "is_rest": "boolean"}
    book = ibis.table(columns | of_samples, name="book")
    return book.select("holding", "from_utc", "to_utc", "is_rest", **list_parts(question, book))


JOB_FLOPS = {
    "job_id": "string",
    "flops_per_token": "float64",
    "hardware_flops_per_token": "float64",
    "peak_flops": "float64",
    "tokens_per_sample": "float64",
}
"""Columns of the table `job_flops`; null where not known."""
SECTION_WORK = {"job_id": "string", "unit": "string", "from_utc": "int64", "to_utc": "int64", "amount": "float64"}
"""Columns of the table `section_work`."""


def list_worked_out() -> Expr:
    """All progress: what is stored, and what follows from it. FLOPs that a job reports come before those of its tokens."""
    stored = ibis.table(columns_of("progress"), name="stored_progress")
    jobs = ibis.table(JOB_FLOPS, name="job_flops")
    stored = ibis.union(stored, _count_samples(stored, jobs))
    reported = {unit: stored.filter(stored.unit == unit) for unit in AT_PEAK}
    beside = _list_beside(stored).anti_join(reported[MODEL_FLOP], "job_id")
    model = ibis.union(reported[MODEL_FLOP], beside)
    flops = {
        MODEL_FLOP: ibis.union(model, _count_tokens(stored, jobs, "flops_per_token", MODEL_FLOP, model)),
        HARDWARE_FLOP: ibis.union(
            reported[HARDWARE_FLOP],
            _count_tokens(stored, jobs, "hardware_flops_per_token", HARDWARE_FLOP, reported[HARDWARE_FLOP]),
        ),
    }
    at_peak = [_list_at_peak(rows, jobs, AT_PEAK[unit]) for unit, rows in flops.items()]
    served = stored.filter(stored.unit.isin(list(SPLIT)))
    weight = ibis.cases(*((served.unit == unit, _weigh(unit)) for unit in SPLIT), else_=0.0)
    served = served.mutate(amount=served.amount * weight, unit=ibis.literal(SERVED))
    rest = stored.filter(~stored.unit.isin(list(WORKED_OUT)))
    sections = ibis.table(SECTION_WORK, name="section_work")
    absent = {name: ibis.null(of) for name, of in stored.schema().items() if name not in SECTION_WORK}
    in_sections = sections.mutate(**absent).select(rest.columns)
    return ibis.union(rest, *flops.values(), *at_peak, served.select(rest.columns), in_sections)


def _weigh(unit: str) -> float:
    """The weight of a token among those served: one from a cache is counted among prompt tokens already."""
    return SPLIT[unit] - (SPLIT[PROMPT] if unit == CACHED else 0.0)


def _list_beside(stored: Expr) -> Expr:
    """FLOPs that stand beside amounts of other units, of one unit a job: of its tokens, where these have them."""
    rows = stored.filter(stored.model_flops.notnull(), ~stored.unit.isin(list(WORKED_OUT)))
    rank = ibis.ifelse(rows.unit == TRAIN_TOKEN, "", rows.unit)
    rows = rows.mutate(rank=rank, first=rank.min().over(ibis.window(group_by="job_id")))
    rows = rows.filter(rows.rank == rows.first)
    return rows.mutate(unit=ibis.literal(MODEL_FLOP), amount=rows.model_flops).select(stored.columns)


def _count_tokens(stored: Expr, jobs: Expr, per_token: str, unit: str, reported: Expr) -> Expr:
    """FLOPs of tokens, of jobs that report none."""
    tokens = stored.filter(stored.unit == TRAIN_TOKEN).anti_join(reported, "job_id")
    known = tokens.join(jobs.filter(jobs[per_token].notnull()), "job_id")
    amount = known.amount * known[per_token]
    return known.mutate(unit=ibis.literal(unit), amount=amount).select(stored.columns)


def _count_samples(stored: Expr, jobs: Expr) -> Expr:
    """Tokens of samples that are packed, of jobs that report no tokens."""
    samples = stored.filter(stored.unit == TRAIN_SAMPLE).anti_join(stored.filter(stored.unit == TRAIN_TOKEN), "job_id")
    known = samples.join(jobs.filter(jobs.tokens_per_sample.notnull()), "job_id")
    tokens = {"unit": ibis.literal(TRAIN_TOKEN), "amount": known.amount * known.tokens_per_sample}
    return known.mutate(**tokens, model_flops=ibis.null("float64")).select(stored.columns)


def _list_at_peak(flops: Expr, jobs: Expr, unit: str) -> Expr:
    """FLOPs as seconds of a GPU at its dense peak, of jobs whose peak is known."""
    known = flops.join(jobs.filter(jobs.peak_flops.notnull()), "job_id")
    amount = known.amount / known.peak_flops
    return known.mutate(unit=ibis.literal(unit), amount=amount).select(flops.columns)


def list_held(allocations: Expr) -> Expr:
    """The table `held_gpus`: the GPUs that allocations name for the job, or labels by its scheduler's number.

    The table `chosen_job` is one row: the job, and the requested time.
    """
    request = ibis.table({"job_id": "string", "from_utc": "int64", "to_utc": "int64"}, name="chosen_job")
    own = allocations.semi_join(request, "job_id")
    labels = own.select(label=ibis.coalesce(own.job_number, own.job_id))
    own = ibis.union(own, allocations.semi_join(labels, allocations.job_id == labels.label))
    named = own.filter(own.device_id.notnull())
    held = named.cross_join(request).select(
        named.device_id,
        from_utc=ibis.greatest(named.from_utc, request.from_utc),
        to_utc=ibis.least(ibis.coalesce(named.to_utc, request.to_utc), request.to_utc),
    )
    return held.filter(held.from_utc < held.to_utc).distinct()


def list_activity(samples: Expr, overlaps: bool) -> Expr:
    """Activity of `held_gpus` while they are held, by the best signal of each sample: device_id, from_ms, to_ms, activity."""
    held = ibis.table({"device_id": "string", "from_utc": "int64", "to_utc": "int64"}, name="held_gpus")
    samples = samples.semi_join(held, "device_id")
    if overlaps:
        samples = resolve_overlaps(samples)
    rows = samples.mutate(activity=ibis.coalesce(*(samples[kind.column] for kind in ACTIVITIES)))
    rows = rows.filter(rows.activity.notnull())
    return rows.join(held, shares_time(rows, held, ["device_id"])).select(
        rows.device_id,
        from_ms=ibis.greatest(rows.from_utc, held.from_utc),
        to_ms=ibis.least(rows.to_utc, held.to_utc),
        activity=rows.activity,
    )
