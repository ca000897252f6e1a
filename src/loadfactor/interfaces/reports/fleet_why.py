"""Why not fuller, and what to change: what `diagnose` says of the jobs that lost most, and what `savings` says."""

from dataclasses import replace
from shlex import quote
from typing import Final

from loadfactor.insight.diagnosis.fleet import diagnose_books
from loadfactor.insight.savings import FleetSavings, find_savings
from loadfactor.interfaces.document import DataTable, Section, Suggestion
from loadfactor.interfaces.formats import money, number
from loadfactor.interfaces.pages.diagnosis import list_causes, list_jobs, list_scheduling, say_fleet, say_rest
from loadfactor.interfaces.pages.savings import list_levers, rank_levers, say_total
from loadfactor.interfaces.reports.facts import WhyFacts
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
    said = _say_team(savings, team) if team else say_total(savings)
    section = Section(
        "Why not fuller, and what to change",
        f"{say_fleet(found)} {said}",
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
    """The row of one team of savings by team."""
    row = next((row for row in savings.rows if row.by["team"] == team), None)
    if row is None:
        return f"Of team {team} nothing was known to be lost."
    hours = row.saved is None or row.lost is None
    lost, saved = (
        f"{number(of)} GPU-hours" if hours else money(cost, savings.currency)
        for of, cost in ((row.lost_gpu_hours, row.lost), (row.gpu_hours, row.saved))
    )
    first = max(row.levers, key=lambda name: row.levers[name]) if row.levers else None
    return f"Of {lost} lost by team {team}, {saved} would have been saved at most" + (
        f"; first: {first}." if first else "."
    )
