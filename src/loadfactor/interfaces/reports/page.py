"""The report as a document: headline and tiles from one question, then section after section."""

from collections.abc import Sequence

from loadfactor.base.errors import InputError
from loadfactor.interfaces.document import Document, Tile
from loadfactor.interfaces.formats import duration, instant, number, percent
from loadfactor.interfaces.pages.readings import basis_text
from loadfactor.interfaces.progress import ProgressBar
from loadfactor.interfaces.reports.bill_page import build_bill_document
from loadfactor.interfaces.reports.facts import ReportFacts
from loadfactor.interfaces.reports.inquiry import Group, Inquiry, WhyQuestion
from loadfactor.interfaces.reports.job_page import build_job_page
from loadfactor.interfaces.reports.sections import SECTIONS
from loadfactor.interfaces.requests import ReportRequest
from loadfactor.metrics.query.question import check_dimensions

WELL_OBSERVED = 0.9
"""Below this coverage the headline says how much was observed."""


def build_page(request: ReportRequest) -> Document:
    """The report on the fleet, or on one job. Raises InputError for options that do not go together."""
    if request.job is not None and request.by:
        raise InputError("the page of a job is not split; leave out --by or --job")
    if request.trace and request.job is None:
        raise InputError("traces are of a job; say --job, or ask `loadfactor diagnose TRACE`")
    filters = request.filters
    if request.why and request.job is None and list(filters) not in ([], ["team"]):
        raise InputError(
            "--why speaks of the fleet, a team or a job; choose with --where team=NAME alone, or with --job"
        )
    books = request.books
    with ProgressBar() as bar, books.snapshot() as snapshot:
        if request.why and snapshot.has_only_bills:
            raise InputError(
                "these books hold bills and no GPUs: nobody knows why they were not fuller; leave --why out"
            )
        window = request.window(snapshot)
        bar("asking the books", 0.0)
        by = check_dimensions(request.by)
        why = WhyQuestion(books, request.trace, bar) if request.why or request.job is not None else None
        return build_document(Inquiry(snapshot, by, *window, request.zone, request.basis, filters, request.job, why))


def build_document(inquiry: Inquiry) -> Document:
    """Ask the books everything the report shows, on the fleet or one job. InputError for a window, job or filter not known."""
    if inquiry.books.has_only_bills and not inquiry.where and inquiry.job is None:
        return build_bill_document(inquiry)
    if inquiry.job is not None:
        return build_job_page(inquiry, inquiry.job)
    with inquiry.books.checking():
        inquiry.add_up_days()
        totals = inquiry.totals
        facts = [found for build in SECTIONS if (found := build(inquiry)) is not None]
    start, end = inquiry.window
    headline = " ".join(_headline(inquiry))
    basis = basis_text(totals.some("effective_gpu_hours", "cost"), with_shares=True)
    return Document(
        headline=headline,
        subtitle=f"{instant(start)} to {instant(end)}. {basis}".rstrip(),
        tiles=_tiles(totals),
        sections=[fact.section for fact in facts],
        data=ReportFacts(headline, start, end, totals.all, facts),
    )


def _headline(inquiry: Inquiry) -> Sequence[str]:
    """Sentences of one unit each: a share of hours stands beside hours, an amount of money beside money."""
    totals = inquiry.totals
    fleet = f"This part of the fleet ({inquiry.filter_text})" if inquiry.where else "The fleet"
    paid, effective = (number(totals.value(f"{name}_gpu_hours")) for name in ("paid", "effective"))
    cost, bought, full = (totals.value(name) for name in ("cost", "effective_cost", "load_factor"))
    said = []
    if full is None:
        said.append(f"{fleet} had {paid} paid GPU-hours, and no activity was measured.")
    else:
        said.append(f"{fleet} was {percent(full)} full: {effective} of {paid} paid GPU-hours were effective.")
    if cost is None:
        said.append("What it cost is unknown.")
    elif full is None or bought is None:
        said.append(f"It cost {totals.money('cost')}.")
    else:
        said.append(f"The effective hours cost {totals.money('effective_cost')} of {totals.money('cost')}.")
    coverage = totals.readings["observed_gpu_hours"].coverage
    if full is not None and coverage is not None and coverage < WELL_OBSERVED:
        said.append(f"Coverage is only {percent(coverage)}: what was not observed counts as not effective.")
    if totals.value("unattributed_gpu_hours"):
        unknown = number(totals.value("unattributed_gpu_hours"))
        said.append(f"{unknown} GPU-hours have no known holder: import allocations or use --job.")
    return said


def _tiles(totals: Group) -> Sequence[Tile]:
    tiles = [
        Tile("Load factor", percent(totals.value("load_factor")), "effective ÷ paid GPU-hours"),
        Tile("Utilization", percent(totals.value("utilization")), "effective ÷ observed GPU-hours"),
        Tile("Allocation", percent(totals.value("allocation")), "allocated ÷ paid GPU-hours"),
        Tile("Coverage", percent(totals.readings["observed_gpu_hours"].coverage), "observed share of held time"),
        Tile("Cost", totals.money("cost"), f"of {number(totals.value('paid_gpu_hours'))} paid GPU-hours"),
        Tile("Cost per effective GPU-hour", totals.money("cost_per_effective_gpu_hour"), "cost ÷ effective GPU-hours"),
    ]
    if totals.value("queue_wait_s_p50") is not None:
        waiting = totals.value("queue_waiting")
        note = f"one in ten over {duration(totals.value('queue_wait_s_p90'))}"
        note += f"; {number(waiting)} cancelled or pending" if waiting else ""
        tiles.append(Tile("Median queue wait", duration(totals.value("queue_wait_s_p50")), note))
    if totals.value("energy_kwh") is not None:
        tiles.append(Tile("Energy", f"{number(totals.value('energy_kwh'))} kWh", "drawn by the GPUs alone"))
    return tiles
