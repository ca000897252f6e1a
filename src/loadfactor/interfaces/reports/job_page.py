"""The page of one job: an invoice (what it cost and made) and a doctor's letter (where the money leaked, beside jobs like it)."""

from collections.abc import Sequence
from shlex import quote

from loadfactor.base.errors import InputError
from loadfactor.books.job_account import ASKED_OF_JOBS, OF_THE_INVOICE, OF_WHAT_WAS_MADE, compare_jobs, list_leaks
from loadfactor.books.waterfall_groups import FleetWaterfall
from loadfactor.interfaces.document import Document, Section, Suggestion, Tile
from loadfactor.interfaces.formats import instant, money, number, percent
from loadfactor.interfaces.pages.readings import basis_text
from loadfactor.interfaces.pages.waterfall import draw_steps, list_unknown, say_useful
from loadfactor.interfaces.reports.facts import (
    ComparisonFacts,
    JobFacts,
    LeaksFacts,
    NextStepsFacts,
    ReportFacts,
    SectionFacts,
    UsefulFacts,
)
from loadfactor.interfaces.reports.inquiry import Group, Inquiry
from loadfactor.interfaces.reports.job_tables import (
    list_invoice,
    list_made,
    tabulate_comparison,
    tabulate_leaks,
    title_of,
)
from loadfactor.interfaces.reports.sections.job import draw_activity, draw_histograms, find_gpus, say_gpus
from loadfactor.metrics.query.reading import Readings


def build_job_page(inquiry: Inquiry, job: str) -> Document:
    """Two questions of the books. Raises InputError for a job that they do not know, or that held no GPUs in that time."""
    gpus = find_gpus(inquiry, job)  # first, as it says which jobs there are
    found = inquiry.ask(*ASKED_OF_JOBS, by=("job",))
    start, end = inquiry.window
    if (job,) not in found.keys:
        raise InputError(
            f"job {job!r} held no GPUs from {instant(start)} to {instant(end)}; see `loadfactor waits --job`"
        )
    of_job = found.pick([found.keys.index((job,))])
    one = Group({reading.metric: reading for reading in of_job[: len(OF_THE_INVOICE) + len(OF_WHAT_WAS_MADE)]})
    waterfall = inquiry.books.read_waterfall(of_job, inquiry.basis)
    facts = [
        _draw_invoice(one),
        _draw_made(one),
        _draw_leaks(waterfall),
        *_say_why(inquiry, job),
        _draw_comparison(inquiry, found, job, one.currency),
        _draw_waterfall(waterfall),
        JobFacts(
            "job",
            Section("Its GPUs", say_gpus(gpus), draw_activity(inquiry, job), (), draw_histograms(gpus)),
            [reading for _, group in gpus for reading in group.all],
            job,
        ),
        _suggest(inquiry, job),
    ]
    headline = _say(job, one, waterfall)
    return Document(
        headline=headline,
        subtitle=f"{instant(start)} to {instant(end)}. {basis_text(one.some('effective_gpu_hours', 'cost'))}".rstrip(),
        tiles=_list_tiles(one),
        sections=[fact.section for fact in facts],
        data=ReportFacts(headline, start, end, one.all, facts),
    )


def _say(job: str, one: Group, waterfall: FleetWaterfall) -> str:
    hours = f"{number(one.value('allocated_gpu_hours'))} GPU-hours"
    cost = one.value("cost")
    said = (
        f"Job {job} held {hours}; what they cost is unknown." if cost is None else f"Job {job} cost {one.money('cost')}"
    )
    if cost is not None:
        said += f" for {hours}."
    leaks = [leak for leak in list_leaks(waterfall.all) if not leak.is_unknown]
    if leaks:
        of = number(leaks[0].gpu_hours) + " GPU-hours" if cost is None else money(leaks[0].cost, one.currency)
        said += f" Its largest loss: {title_of(leaks[0])}, {of}."
    return said


def _list_tiles(one: Group) -> Sequence[Tile]:
    mfu = "model FLOPs ÷ dense peak of held time" if one.value("mfu") is not None else "its network is not known"
    return (
        Tile("Cost", one.money("cost"), f"of {number(one.value('allocated_gpu_hours'))} GPU-hours"),
        Tile("Effective", one.money("effective_cost"), "cost of held hours × activity"),
        Tile("Utilization", percent(one.value("utilization")), "effective ÷ observed GPU-hours"),
        Tile("MFU", percent(one.value("mfu")), mfu),
    )


def _draw_invoice(one: Group) -> SectionFacts:
    cost, effective = one.value("cost"), one.value("effective_cost")
    lead = "Every GPU-hour that it held is counted once."
    if cost is not None and effective is not None:
        lead += f" The effective hours cost {one.money('effective_cost')} of {one.money('cost')}."
    section = Section("What it cost", lead, tables=(list_invoice(one),))
    return SectionFacts("invoice", section, one.some(*OF_THE_INVOICE))


def _draw_made(one: Group) -> SectionFacts:
    said = []
    if one.value("mfu") is None:
        said.append(
            "Its MFU is unknown: it reports no tokens or FLOPs, or no [[network]] of loadfactor.toml names its network."
        )
    else:
        said.append(f"MFU {percent(one.value('mfu'))} of all time that it held.")
    if one.value("tokens_per_gpu_s") is not None:
        said.append(f"{number(one.value('tokens_per_gpu_s'))} tokens/s per GPU.")
    table = list_made(one)
    if not table.rows:
        said.insert(0, "Nobody said what it made: track it, or import its log.")
    section = Section("What it made", " ".join(said), tables=(table,) if table.rows else ())
    return SectionFacts("made", section, one.some(*OF_WHAT_WAS_MADE))


def _draw_leaks(waterfall: FleetWaterfall) -> LeaksFacts:
    leaks = list_leaks(waterfall.all)
    lead = say_useful(waterfall)
    section = Section(
        "Where the money leaked", lead, tables=(tabulate_leaks(leaks, waterfall.currency),) if leaks else ()
    )
    return LeaksFacts("leaks", section, (), leaks=leaks)


def _say_why(inquiry: Inquiry, job: str) -> Sequence[SectionFacts]:
    """Why it was not fuller; nothing where nobody asked for it."""
    if inquiry.why is None:
        return ()
    from loadfactor.interfaces.reports.job_why import build_job_why  # which other reports do without

    return build_job_why(inquiry, inquiry.why, job)


def _draw_comparison(inquiry: Inquiry, found: Readings, job: str, currency: str) -> ComparisonFacts:
    alike = inquiry.books.find_alike(job, *inquiry.window)
    compared = compare_jobs(found, job, alike)
    count = len(alike.jobs)
    like = "of its team or experiment and of no other purpose, with half to twice its GPUs"
    lead = f"It held {number(alike.gpus)} GPU{'s' * (alike.gpus != 1)} at most. Jobs like it ({like}): {count:,}."
    section = Section("Beside jobs like it", lead, tables=(tabulate_comparison(compared, currency),))
    return ComparisonFacts("alike", section, (), alike=count, compared=compared)


def _draw_waterfall(waterfall: FleetWaterfall) -> UsefulFacts:
    section = draw_steps(waterfall)
    lead = " ".join(list_unknown(waterfall))
    section = Section(section.title, lead, section.charts, section.tables)
    return UsefulFacts("useful", section, (), waterfall=waterfall)


def _suggest(inquiry: Inquiry, job: str) -> NextStepsFacts:
    here = f"--where job={quote(job)} {inquiry.options}"
    steps = (
        Suggestion(f"loadfactor show utilization idle_cost mfu --by hour {here}", "when it was idle"),
        Suggestion(
            f"loadfactor validate train --job {quote(job)} --store {quote(str(inquiry.folder))}",
            "where its time went, beside the plan for its network",
        ),
        Suggestion(f"loadfactor report {inquiry.options}", "the whole fleet"),
    )
    return NextStepsFacts("next", Section("What to try next", suggestions=steps), ())
