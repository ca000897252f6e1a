"""Why not fuller, and what to change: what `diagnose` says of the jobs that lost most, and what `savings` says."""

from collections.abc import Sequence
from dataclasses import replace
from shlex import quote
from typing import Final

from loadfactor.insight.diagnosis.diagnose import diagnose_books
from loadfactor.insight.savings import TITLES, FleetSavings, find_savings
from loadfactor.interfaces.document import DataTable, Section, Suggestion
from loadfactor.interfaces.formats import money, number
from loadfactor.interfaces.pages.diagnosis import (
    explain,
    list_causes,
    list_findings,
    list_jobs,
    list_scheduling,
    say_fleet,
    say_job,
    say_rest,
)
from loadfactor.interfaces.pages.savings import list_levers, rank_levers, say_total, uncapitalize
from loadfactor.interfaces.reports.facts import SectionFacts, TraceFacts, WhyFacts
from loadfactor.interfaces.reports.inquiry import Inquiry, WhyQuestion
from loadfactor.settings.config import settings

MOST_JOBS: Final = 3
MOST_LEVERS: Final = 5


def build_fleet_why(inquiry: Inquiry, why: WhyQuestion) -> WhyFacts:
    """Causes and levers of the window, of the fleet or of one team."""
    books, team = why.books, inquiry.where.get("team")
    found = diagnose_books(books, None, team, inquiry.window, MOST_JOBS, why.progress)
    by = ("team",) if team else ()
    savings = find_savings(books, by, inquiry.start, inquiry.end, settings().lever, progress=why.progress)
    whose = f"--team {quote(team)} " if team else ""
    tables: list[DataTable] = []
    if found.causes:
        tables.append(replace(list_causes(found.causes, found.currency), title="Causes over these jobs"))
    if found.jobs:
        tables.append(replace(list_jobs(found), title="The jobs that lost most", note=say_rest(found)))
    if found.scheduling:
        waiting = list_scheduling(found.scheduling, found.currency)
        tables += [replace(table, title=waiting.title) for table in waiting.tables]
    if savings.levers and team is None:
        ranked = rank_levers(savings)
        table = list_levers(savings, ranked[:MOST_LEVERS])
        more = f"; {len(ranked) - MOST_LEVERS} more save less" if len(ranked) > MOST_LEVERS else ""
        tables.append(replace(table, title="Levers that save most", note=f"{table.note}{more}"))
    summary = _say_team(savings, team) if team else say_total(savings)
    section = Section(
        "Why not fuller, and what to change",
        f"{say_fleet(found)} {summary}",
        tables=tables,
        suggestions=(
            Suggestion(
                f"loadfactor diagnose {whose}--jobs {MOST_JOBS} {inquiry.span_options}",
                "the same causes with their evidence, and what to change",
            ),
            Suggestion(
                f"loadfactor savings {'--by team ' if team else ''}{inquiry.span_options}", "each lever in full"
            ),
        ),
    )
    return WhyFacts("why", section, (), diagnosis=found, savings=savings)


def _say_team(savings: FleetSavings, team: str) -> str:
    row = next((row for row in savings.rows if row.by["team"] == team), None)
    if row is None:
        return f"Of team {team} nothing was known to be lost."
    hours = row.saved is None or row.lost is None
    lost, saved = (
        f"{number(of)} GPU-hours" if hours else money(cost, savings.currency)
        for of, cost in ((row.lost_gpu_hours, row.lost), (row.gpu_hours, row.saved))
    )
    first = max(row.levers, key=lambda name: row.levers[name]) if row.levers else None
    return f"Of {lost} of team {team} that brought nothing, {saved} could have been saved" + (
        f". Most by one change: {uncapitalize(TITLES[first])}." if first else "."
    )


def build_job_why(inquiry: Inquiry, why: WhyQuestion, job: str) -> Sequence[SectionFacts]:
    """Its diagnosis and, where there are some, its traces."""
    found: list[SectionFacts] = [_draw_diagnosis(inquiry, why, job)]
    if why.traces:
        found.append(_draw_traces(inquiry, why, job))
    return found


def _draw_diagnosis(inquiry: Inquiry, why: WhyQuestion, job: str) -> WhyFacts:
    found = diagnose_books(why.books, job, None, inquiry.window, progress=why.progress)
    (one,) = found.jobs
    lead = say_job(one, found.currency)
    tables = []
    if one.findings:
        first = explain(one.findings[0])
        lead += f" {first.lead}"
        tables.append(list_findings(one.findings, found.currency))
    elif one.cannot_tell:
        missing = sorted({name for each in one.cannot_tell for name in each.missing})
        lead += f" Not measured: {', '.join(missing)}."
    ask = Suggestion(
        f"loadfactor diagnose --job {quote(job)} {inquiry.span_options}",
        "every cause with its evidence, and what cannot be told",
    )
    section = Section("Why not fuller", lead, tables=tables, suggestions=(ask,))
    return WhyFacts("why", section, (), diagnosis=found, savings=None)


def _draw_traces(inquiry: Inquiry, why: WhyQuestion, job: str) -> TraceFacts:
    from loadfactor.insight.traces.report import read_rate  # slow to import, as all that reads traces
    from loadfactor.interfaces.pages.traces import list_costs, read_traces, say_verdict

    traced = read_traces(why.traces, read_rate(why.books, job, inquiry.window))
    assert traced.in_books is not None
    costs = list_costs(traced.in_books)
    names = " ".join(quote(str(path)) for path in why.traces)
    ask = Suggestion(
        f"loadfactor diagnose {names} --job {quote(job)} {inquiry.span_options}",
        "their steps, kernels, ranks and owners",
    )
    section = replace(
        costs, title="What its traces say", lead=f"{say_verdict(traced)} {costs.lead}", suggestions=(ask,)
    )
    return TraceFacts("traces", section, (), traced=traced)
