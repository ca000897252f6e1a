"""The report as a document: headline and tiles from one question, then section after section."""

from collections.abc import Callable, Sequence
from shlex import quote

from loadfactor.base.errors import InputError
from loadfactor.books.charging.fleet_chargeback import FleetChargeback
from loadfactor.interfaces.document import Document, Section, Suggestion, Tile
from loadfactor.interfaces.formats import duration, instant, number, percent
from loadfactor.interfaces.pages.readings import basis_text
from loadfactor.interfaces.progress import ProgressBar
from loadfactor.interfaces.reports import sections
from loadfactor.interfaces.reports.facts import ChargebackFacts, NextStepsFacts, ReportFacts, SectionFacts, WhyFacts
from loadfactor.interfaces.reports.inquiry import Group, Inquiry, WhyQuestion
from loadfactor.interfaces.reports.job import build_job_page, build_jobs
from loadfactor.interfaces.requests import ReportRequest
from loadfactor.metrics.query.question import check_dimensions


def build_requested_why(inquiry: Inquiry) -> WhyFacts | None:
    """Causes and levers of the window; None where they are not requested, as they take longer than all the rest."""
    if inquiry.why is None:
        return None
    from loadfactor.interfaces.reports.why import build_fleet_why  # which most reports do without

    return build_fleet_why(inquiry, inquiry.why)


SECTIONS: tuple[Callable[[Inquiry], SectionFacts | None], ...] = (
    sections.build_waterfall,
    sections.build_useful,
    build_requested_why,
    sections.build_over_time,
    sections.build_groups,
    sections.build_chargeback,
    sections.build_bridge,
    sections.build_budget,
    sections.build_targets,
    sections.build_energy,
    sections.build_waits,
    sections.build_unit_costs,
    build_jobs,
    sections.build_data_quality,
    sections.build_next_steps,
)
"""The sections in the order a person should read them; one that has nothing to say is None."""
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
        totals = inquiry.totals
        facts = [found for build in SECTIONS if (found := build(inquiry)) is not None]
    start, end = inquiry.window
    headline = " ".join(_headline(inquiry))
    basis = basis_text(totals.some("effective_gpu_hours", "cost"), with_shares=True)
    return Document(
        headline=headline,
        subtitle=f"{instant(start)} to {instant(end)}. {basis}".rstrip(),
        tiles=_tiles(totals),
        sections=list({fact.title: fact.section for fact in facts}.values()),  # two facts may speak in one section
        notes=inquiry.books.list_remarks(start, end),
        data=ReportFacts(headline, start, end, totals.all, facts),
    )


def _headline(inquiry: Inquiry) -> Sequence[str]:
    """Sentences of one unit each: a share of hours stands beside hours, an amount of money beside money."""
    totals = inquiry.totals
    fleet = f"This part of the fleet ({inquiry.filter_text})" if inquiry.where else "The fleet"
    paid, effective = (number(totals.value(f"{name}_gpu_hours")) for name in ("paid", "effective"))
    cost, bought, full = (totals.value(name) for name in ("cost", "effective_cost", "load_factor"))
    sentences = []
    if full is None:
        sentences.append(f"{fleet} had {paid} paid GPU-hours, and no activity was measured.")
    else:
        sentences.append(f"{fleet} was {percent(full)} full: {effective} of {paid} paid GPU-hours were effective.")
    if cost is None:
        sentences.append("What it cost is unknown.")
    elif full is None or bought is None:
        sentences.append(f"It cost {totals.money('cost')}.")
    else:
        sentences.append(f"The effective hours cost {totals.money('effective_cost')} of {totals.money('cost')}.")
    coverage = totals.readings["observed_gpu_hours"].coverage
    if full is not None and coverage is not None and coverage < WELL_OBSERVED:
        sentences.append(f"Coverage is only {percent(coverage)}: what was not observed counts as not effective.")
    if totals.value("unattributed_gpu_hours"):
        unknown = number(totals.value("unattributed_gpu_hours"))
        sentences.append(f"{unknown} GPU-hours have no known holder: import allocations or use --job.")
    return sentences


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
    if totals.value("carbon_kg") is not None:
        carbon, site = (totals.readings[name] for name in ("carbon_kg", "site_energy_kwh"))
        note = f"{number(totals.value(site.metric))} kWh at the meter"
        note += f"; {percent(carbon.coverage)} known" if carbon.coverage and carbon.coverage < 1 else ""
        tiles.append(Tile("Carbon", f"{number(totals.value(carbon.metric))} kgCO2e", note))
    return tiles


TITLES = {"BilledCost": "Billed", "EffectiveCost": "Effective cost", "ListCost": "List cost"}


def build_bill_document(inquiry: Inquiry) -> Document:
    """The report on bills alone. Raises InputError where the budgets of the settings cannot be followed."""
    there = f"--store {quote(inquiry.store)}"
    steps = (
        Suggestion(f"loadfactor chargeback --by project {there}", "who pays, by other names"),
        Suggestion(f"loadfactor bill commitments {there}", "what commitments saved, and what of them was not used"),
        Suggestion(f"loadfactor doctor {there}", "which GPUs are billed, and what is missing in these books"),
        Suggestion("loadfactor check", "what this machine has that measures or lists GPUs, to import beside the bill"),
    )
    built = (
        sections.build_chargeback(inquiry),
        sections.build_bridge(inquiry),
        sections.build_budget(inquiry),
        NextStepsFacts("next", Section("What to try next", suggestions=steps), ()),
    )
    facts: list[SectionFacts] = [section for section in built if section is not None]
    found = next((fact.chargeback for fact in facts if isinstance(fact, ChargebackFacts)), None)
    start, end = inquiry.window
    headline = f"{_say_bill(found)} No GPUs are known beside it, so how full they were is unknown."
    return Document(
        headline=headline,
        subtitle=f"{instant(start)} to {instant(end)}.",
        tiles=_bill_tiles(found) if found else (),
        sections=[fact.section for fact in facts],
        data=ReportFacts(headline, start, end, (), facts),
    )


def _say_bill(found: FleetChargeback | None) -> str:
    if found is None:
        return "The books hold a bill."
    amounts = [
        f"{total.charged:,f} {found.currency} of {name}" for name, total in found.totals.items() if name in TITLES
    ]
    return f"The bill is {' and '.join(amounts[:2])}."


def _bill_tiles(found: FleetChargeback) -> Sequence[Tile]:
    tiles = [
        Tile(title, f"{found.totals[name].charged:,f} {found.currency}", name)
        for name, title in TITLES.items()
        if name in found.totals
    ]
    if found.tag_coverage_share is not None:
        share = percent(float(found.tag_coverage_share))
        tiles.append(Tile("Tag coverage", share, f"of the cost has its {', '.join(found.by)}"))
    return tiles
