"""The most expensive jobs, and how one of them used its GPUs: the most expensive training job."""

from collections.abc import Sequence
from datetime import timedelta
from shlex import quote
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import ONES_PER_MILLION
from loadfactor.books.job_account import (
    ASKED_OF_JOBS,
    FEWEST_ALIKE,
    KEPT,
    MADE,
    OF_THE_INVOICE,
    OF_WHAT_WAS_MADE,
    SPENT_ON,
    UNIT_COSTS,
    Leak,
    compare_jobs,
    list_leaks,
)
from loadfactor.books.job_summary import HeldPart, ReportedUse
from loadfactor.books.waterfall import FleetWaterfall
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Cell, DataTable, Document, Histogram, Section, Suggestion, Tile
from loadfactor.interfaces.formats import duration, instant, money, number, percent
from loadfactor.interfaces.pages.readings import BY_PARTS, basis_text, is_per_million
from loadfactor.interfaces.pages.waterfall import CAUSE_TITLES, MEANINGS, TITLES, draw_steps, list_unknown, say_useful
from loadfactor.interfaces.reports.facts import (
    ComparisonFacts,
    JobFacts,
    LeaksFacts,
    NextStepsFacts,
    ReportFacts,
    SectionFacts,
    UseFacts,
    UsefulFacts,
)
from loadfactor.interfaces.reports.inquiry import OF_JOBS, UNTAGGED, Group, Inquiry, Key, group_readings
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics import metric
from loadfactor.metrics.metric import CURRENCY
from loadfactor.metrics.query.calendar import instant as moment
from loadfactor.metrics.query.question import UNKNOWN_HOLDER
from loadfactor.metrics.query.reading import Readings, rank

MOST_USES: Final = 30
"""Uses of a job that its page lists; its JSON has all."""
REMEDIES: Final = {
    "unobserved": "no samples: find the exporter that is silent",
    "idle": "held and not used: find what it waited for, or give the GPUs back",
    "underused": "larger batches, more data workers, fewer small kernels",
    "uncounted": "name its network (`[[network]]`) or track it",
    "not_math": "memory-bound kernels, communication, recomputed work",
    "lost_work": "checkpoint more often, fail less often",
    "failed_work": "find out why its last run failed",
}
"""First things to look at, by the kind of loss."""


def title_of(leak: Leak) -> str:
    """A leak as people read it.

    >>> title_of(Leak("idle", None, False, 1.0, 2.0, 0.1)), title_of(Leak("lost_work", "restart", False, 1.0, 2.0, 0.1))
    ('idle', 'lost: restart since the last checkpoint')
    """
    return TITLES[leak.name] if leak.cause is None else f"lost: {CAUSE_TITLES[leak.cause]}"


def say_reported(of: ReportedUse) -> str:
    """What summaries of whole runs say, with their basis."""
    memory = "" if of.mem_peak_share is None else f", memory up to {percent(of.mem_peak_share)}"
    return f"reported busy {percent(of.utilization)} of {percent(of.coverage)} of its GPU-hours{memory} ({of.basis})"


def list_invoice(one: Group) -> DataTable:
    cost = one.value("cost")
    rows: list[Sequence[Cell]] = []
    for name in SPENT_ON:
        spent = one.value(f"{name}_cost")
        share = spent / cost if spent is not None and cost else None
        rows.append((name.capitalize(), one.value(f"{name}_gpu_hours"), spent, share, MEANINGS[name]))
    rows.append(("Total", one.value("allocated_gpu_hours"), cost, 1.0 if cost else None, "held by the job"))
    return table(
        rows,
        col("part"),
        col("GPU-hours", style="number"),
        col("cost", style="money"),
        col("of cost", style="percent"),
        col("meaning"),
        currency=one.currency,
    )


def list_made(one: Group) -> DataTable:
    amounts = [(unit, one.value(made.name), one.value(KEPT[unit].name)) for unit, made in MADE.items()]
    return table(
        [(unit, made, kept) for unit, made, kept in amounts if made is not None and kept is not None],
        col("unit", lambda row: row[0].replace("_", " ")),
        col("made", style="number"),
        col("kept", style="number"),
        col("lost", lambda row: row[1] - row[2], "number"),
        col("cost per kept unit", lambda row: _price(UNIT_COSTS[row[0]], one.value(UNIT_COSTS[row[0]]), one.currency)),
        note="the whole cost of the job stands in each",
    )


def _show(name: str, value: float | None, currency: str) -> str | None:
    if metric(name).unit.startswith(CURRENCY):
        return _price(name, value, currency)
    return None if value is None else percent(value)


def _price(name: str, value: float | None, currency: str) -> str | None:
    """The cost of a unit, or of a million where one is too small to read."""
    if value is None:
        return None
    if is_per_million(metric(name).unit, [value]):
        return f"{money(value * ONES_PER_MILLION, currency)} per million"
    return money(value, currency)


MOST = 10
LOWEST, HIGHEST = 16, 8
"""GPUs shown of a larger job."""


def build_jobs(inquiry: Inquiry) -> JobFacts | None:
    """The most expensive jobs, and a histogram of each GPU of the one looked into."""
    readings = inquiry.jobs.of(OF_JOBS)
    jobs = _most_expensive_first(readings)
    if not jobs:
        return None
    keys = readings.keys
    training = (keys[number][0] for number in jobs if keys[number][2] == "training")
    job = next(training, keys[jobs[0]][0]) or ""
    shown = group_readings(readings.pick([*jobs[:MOST], *(number for number in jobs[MOST:] if keys[number][0] == job)]))
    gpus = find_gpus(inquiry, job)
    section = Section(
        "Most expensive jobs",
        _lead(len(jobs), job, next((group for key, group in shown if key[0] == job), Group({})), gpus),
        draw_activity(inquiry, job),
        (_table(shown, inquiry.totals.currency),),
        draw_histograms(gpus),
    )
    return JobFacts("job", section, [r for _, group in (*shown, *gpus) for r in group.all], job)


def find_gpus(inquiry: Inquiry, job: str) -> Sequence[tuple[Key, Group]]:
    """The GPUs of a job with their histograms, the lowest utilization first. Raises InputError for a job the books do not know."""
    by_gpu = inquiry.groups("utilization_histogram", "utilization", "observed_gpu_hours", by=("device",), job=job)
    gpus = [(key, group) for key, group in by_gpu if group.bins("utilization_histogram")]
    return sorted(gpus, key=lambda g: (rank(g[1].value("utilization")), str(g[0])))


def draw_histograms(gpus: Sequence[tuple[Key, Group]]) -> Sequence[Histogram]:
    return [
        _histogram(key, group)
        for key, group in (gpus if len(gpus) <= LOWEST + HIGHEST else [*gpus[:LOWEST], *gpus[-HIGHEST:]])
    ]


def _most_expensive_first(readings: Readings) -> list[int]:
    """The numbers of the groups that are jobs with GPUs; of thousands a few are shown, so no more is made of the others."""
    keys, costs, hours = readings.keys, readings.column("cost"), readings.column("allocated_gpu_hours")
    held = [number for number, key in enumerate(keys) if key[0] is not None and hours[number]]
    return sorted(held, key=lambda n: (-rank(costs[n]), -rank(hours[n]), str(keys[n])))


def draw_activity(inquiry: Inquiry, job: str) -> Sequence[Chart]:
    """Activity of the job's GPUs over time, as finely as its samples and the picture allow."""
    activity = inquiry.books.job_activity(job, *inquiry.window)
    if activity is None or len(activity.mean) < 2:
        return ()
    start = inquiry.local(moment(activity.start_ms))
    at = [start + timedelta(seconds=i * activity.step_s) for i in range(len(activity.mean))]
    series = [Series("mean", activity.mean)]
    if activity.gpus > 1:
        series = [Series("highest GPU", activity.highest), *series, Series("lowest GPU", activity.lowest)]
    title = f"Activity of the GPUs of job {job}, each {duration(activity.step_s)}"
    return (Chart(title, "line", at, series, str(inquiry.timezone), "share"),)


def _table(jobs: Sequence[tuple[Key, Group]], currency: str) -> DataTable:
    return table(
        [(*(name or UNTAGGED for name in key), *(group.value(m) for m in OF_JOBS)) for key, group in jobs],
        col("job"),
        col("team"),
        col("purpose"),
        col("cost", style="money"),
        col("allocated GPU-hours", style="number"),
        col("utilization", style="percent"),
        col("idle cost", style="money"),
        currency=currency,
    )


def _lead(jobs: int, job: str, found: Group, gpus: Sequence[tuple[Key, Group]]) -> str:
    sentences = [f"{jobs:,} jobs had GPUs allocated." if jobs > 1 else "One job had GPUs allocated."]
    cost = f"cost {found.money('cost')}" if found.value("cost") is not None else "has no price"
    sentences.append(f"Job {job}, looked into below, {cost}.")
    return " ".join((*sentences, say_gpus(gpus))).rstrip()


def say_gpus(gpus: Sequence[tuple[Key, Group]]) -> str:
    sentences = []
    if gpus:
        low, high = (percent(gpus[place][1].value("utilization")) for place in (0, -1))
        sentences.append(
            f"Utilization of its {len(gpus)} GPUs: {low} to {high}."
            if len(gpus) > 1
            else f"Utilization of its GPU: {low}."
        )
        sentences.append("Each histogram shows one GPU's observed time by activity, 0 on the left, 100 % on the right.")
    if len(gpus) > LOWEST + HIGHEST:
        sentences.append(f"Shown are the {LOWEST} lowest and the {HIGHEST} highest.")
    return " ".join(sentences)


def _histogram(key: Key, group: Group) -> Histogram:
    note = f"{percent(group.value('utilization'))}, {number(group.value('observed_gpu_hours'))} h observed"
    return Histogram(key[0] or "", group.bins("utilization_histogram"), note)


def build_job_page(inquiry: Inquiry, job: str) -> Document:
    """Two questions of the books. Raises InputError for a job that they do not know, or that held no GPUs in that time."""
    gpus = find_gpus(inquiry, job)  # first, as it says which jobs there are
    found = inquiry.ask(*ASKED_OF_JOBS, by=("job",))
    start, end = inquiry.window
    if job == UNKNOWN_HOLDER or (job,) not in found.keys:
        raise InputError(
            f"job {job!r} held no GPUs from {instant(start)} to {instant(end)}; see `loadfactor waits --job`"
        )
    of_job = found.pick([found.keys.index((job,))])
    one = Group({reading.metric: reading for reading in of_job[: len(OF_THE_INVOICE) + len(OF_WHAT_WAS_MADE)]})
    waterfall = inquiry.books.read_waterfall(of_job, inquiry.basis)
    section = draw_steps(waterfall)
    lead = " ".join(list_unknown(waterfall))
    section = Section(section.title, lead, section.charts, section.tables)
    here = f"--where job={quote(job)} {inquiry.options}"
    steps = (
        Suggestion(f"loadfactor show utilization idle_cost mfu --by hour {here}", "when it was idle"),
        Suggestion(
            f"loadfactor validate train --job {quote(job)} --store {quote(inquiry.store)}",
            "where its time went, beside the plan for its network",
        ),
        Suggestion(f"loadfactor report {inquiry.options}", "the whole fleet"),
    )
    facts = [
        _draw_invoice(one, inquiry.books.list_parts(start, end, {"job": job}).get(job)),
        _draw_made(one),
        *_draw_use(inquiry, job, one),
        _draw_leaks(waterfall),
        *_say_why(inquiry, job),
        _draw_comparison(inquiry, found, job, one.currency),
        UsefulFacts("useful", section, (), waterfall=waterfall),
        JobFacts(
            "job",
            Section("Its GPUs", say_gpus(gpus), draw_activity(inquiry, job), (), draw_histograms(gpus)),
            [reading for _, group in gpus for reading in group.all],
            job,
        ),
        NextStepsFacts("next", Section("What to try next", suggestions=steps), ()),
    ]
    headline = _say_job(job, one, waterfall)
    reported = None if gpus else inquiry.books.sum_reported("job", start, end).get(job)
    full = "effective ÷ observed GPU-hours" if reported is None else f"not sampled; {say_reported(reported)}"
    mfu = "model FLOPs ÷ dense peak of held time" if one.value("mfu") is not None else "its network is not known"
    return Document(
        headline=headline,
        subtitle=f"{instant(start)} to {instant(end)}. {basis_text(one.some('effective_gpu_hours', 'cost'))}".rstrip(),
        tiles=(
            Tile("Cost", one.money("cost"), f"of {number(one.value('allocated_gpu_hours'))} GPU-hours"),
            Tile("Effective", one.money("effective_cost"), "cost of held hours × activity"),
            Tile("Utilization", percent(one.value("utilization")), full),
            Tile("MFU", percent(one.value("mfu")), mfu),
        ),
        sections=[fact.section for fact in facts],
        notes=inquiry.books.list_remarks(*inquiry.window, "the activity of single GPUs over time"),
        data=ReportFacts(headline, start, end, one.all, facts),
    )


def _say_job(job: str, one: Group, waterfall: FleetWaterfall) -> str:
    hours = f"{number(one.value('allocated_gpu_hours'))} GPU-hours"
    cost = one.value("cost")
    sentence = (
        f"Job {job} held {hours}; what they cost is unknown." if cost is None else f"Job {job} cost {one.money('cost')}"
    )
    if cost is not None:
        sentence += f" for {hours}."
    leaks = [leak for leak in list_leaks(waterfall.all) if not leak.is_unknown]
    if leaks:
        of = number(leaks[0].gpu_hours) + " GPU-hours" if cost is None else money(leaks[0].cost, one.currency)
        sentence += f" Its largest loss: {title_of(leaks[0])}, {of}."
    return sentence


def _draw_invoice(one: Group, part: HeldPart | None) -> SectionFacts:
    cost, effective = one.value("cost"), one.value("effective_cost")
    lead = "Every GPU-hour that it held is counted once."
    if part is not None:
        most = f" to {percent(part.largest)}" if part.largest > part.smallest else ""
        lead += (
            f" It held parts of GPUs, {percent(part.smallest)}{most} of one ({part.word}), by {part.basis}. {BY_PARTS}"
        )
    if cost is not None and effective is not None:
        lead += f" The effective hours cost {one.money('effective_cost')} of {one.money('cost')}."
    section = Section("What it cost", lead, tables=(list_invoice(one),))
    return SectionFacts("invoice", section, one.some(*OF_THE_INVOICE))


def _draw_made(one: Group) -> SectionFacts:
    sentences = []
    tokens, samples = (one.value(MADE[unit].name) for unit in ("train_token", "train_sample"))
    if samples is not None and tokens is None:
        sentences.append(
            "The cost of its tokens is unknown: it reports samples, and nobody says that they are full of tokens (packed = true and"
            " sequence_length in [[network]])."
        )
    if one.value("mfu") is None:
        why = "it reports no tokens or FLOPs"
        if tokens:
            why = "its network, datatype or accelerator is not known, of which [[network]] of loadfactor.toml names the first two"
        sentences.append(f"Its MFU is unknown: {why}.")
    else:
        sentences.append(f"MFU {percent(one.value('mfu'))} of all time that it held.")
    if one.value("tokens_per_gpu_s") is not None:
        sentences.append(f"{number(one.value('tokens_per_gpu_s'))} tokens/s per GPU.")
    table = list_made(one)
    if not table.rows:
        sentences.insert(0, "Its work is not known: track it, or import its log.")
    if estimated := [
        unit for unit, made in MADE.items() if (of := one.readings.get(made.name)) is not None and of.activity_basis
    ]:
        named = ", ".join(unit.replace("_", " ") + "s" for unit in estimated)
        sentences.append(f"Estimated, a rate × time: {named}.")
    section = Section("What it made", " ".join(sentences), tables=(table,) if table.rows else ())
    return SectionFacts("made", section, one.some(*OF_WHAT_WAS_MADE))


def _draw_use(inquiry: Inquiry, job: str, one: Group) -> Sequence[UseFacts]:
    """Who used what it serves; nothing where no gateway logged it."""
    start, end = inquiry.window
    use = inquiry.books.divide_use(job, start, end, (one.value("cost"), one.value("idle_cost")), inquiry.basis)
    if use is None:
        return ()
    rows: list[Sequence[Cell]] = [
        (
            of.team or UNTAGGED,
            of.api_key,
            of.feature,
            of.model,
            of.requests,
            of.prompt_tokens,
            of.output_tokens,
            of.share,
            of.cost,
        )
        for of in use.uses[:MOST_USES]
    ]
    if more := use.uses[MOST_USES:]:
        sums = (
            sum(getattr(of, name) for of in more) for name in ("requests", "prompt_tokens", "output_tokens", "share")
        )
        cost = None if more[0].cost is None else sum(of.cost or 0.0 for of in more)
        rows.append((f"{len(more):,} others", None, None, None, *sums, cost))
    if use.unlogged_share:
        rows.append(
            ("in no log of a gateway", None, None, None, None, None, None, use.unlogged_share, use.unlogged_cost)
        )
    rows.append(("idle", None, None, None, None, None, None, None, use.idle_cost))
    shown = table(
        rows,
        *(col(name) for name in ("team", "API key", "feature", "model")),
        *(col(name, style="number") for name in ("requests", "prompt tokens", "output tokens")),
        col("of use", style="percent"),
        col("cost", style="money"),
        currency=one.currency,
        note="the cost of held time but for idle time, by tokens: a prompt token counts 1, one from a cache 0.1, an output token 4",
    )
    first = use.uses[0]
    lead = f"{first.team or UNTAGGED} used most: {percent(first.share)}."
    if use.idle_cost is None and use.uses[0].cost is not None:
        lead += " When it was idle is not known, so that each bears a part of that, too."
    if use.half_known:
        lead += f" Of {use.half_known:,} requests prompt or output tokens are not known, and count as none."
    return (UseFacts("use", Section("Who used it", lead, tables=(shown,)), one.some("cost", "idle_cost"), use),)


def _draw_leaks(waterfall: FleetWaterfall) -> LeaksFacts:
    leaks = list_leaks(waterfall.all)
    lead = say_useful(waterfall)
    leaked = table(
        leaks,
        col("leak", lambda leak: f"{'? ' * leak.is_unknown}{title_of(leak)}"),
        col("cost", "cost", "money"),
        col("GPU-hours", "gpu_hours", "number"),
        col("of cost", "share_of_cost", "percent"),
        col("look at", lambda leak: REMEDIES[leak.name]),
        currency=waterfall.currency,
        note="? nobody knows whether it was useful" if any(leak.is_unknown for leak in leaks) else "",
    )
    section = Section("Where the money leaked", lead, tables=(leaked,) if leaks else ())
    return LeaksFacts("leaks", section, (), leaks=leaks)


def _say_why(inquiry: Inquiry, job: str) -> Sequence[SectionFacts]:
    """Why it was not fuller; nothing where it is not requested."""
    if inquiry.why is None:
        return ()
    from loadfactor.interfaces.reports.why import build_job_why  # which other reports do without

    return build_job_why(inquiry, inquiry.why, job)


def _draw_comparison(inquiry: Inquiry, found: Readings, job: str, currency: str) -> ComparisonFacts:
    alike = inquiry.books.find_alike(job, *inquiry.window)
    compared = compare_jobs(found, job, alike)
    count = len(alike.jobs)
    like = "of its team or experiment and of no other purpose, with half to twice its GPUs"
    lead = f"It held {number(alike.gpus)} GPU{'s' * (alike.gpus != 1)} at most. Jobs like it ({like}): {count:,}."

    few = any(of.jobs < FEWEST_ALIKE for of in compared)
    beside = table(
        compared,
        col("metric", lambda of: metric(of.metric).title),
        col("this job", lambda of: _show(of.metric, of.value, currency)),
        col("median", lambda of: _show(of.metric, of.median, currency)),
        col("of jobs", lambda of: float(of.jobs), "number"),
        note=f"the median of fewer than {FEWEST_ALIKE} jobs is not known" if few else "",
    )
    section = Section("Beside jobs like it", lead, tables=(beside,))
    return ComparisonFacts("alike", section, (), alike=count, compared=compared)
