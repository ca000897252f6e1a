"""Pages of what is sent: the digest of a period, and the statement of a team for a month."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta, tzinfo
from shlex import quote
from typing import Final, get_args

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import InputError
from loadfactor.books.charging.statements import OwnerStatement
from loadfactor.interfaces.digests.digest import Audience, build_digest
from loadfactor.interfaces.digests.period import Every, Period, find_last, find_period
from loadfactor.interfaces.document import DataTable, Document, Section
from loadfactor.interfaces.formats import instant
from loadfactor.interfaces.pages.statement import build_statement, find_statement
from loadfactor.interfaces.reach import NothingKnownError, RefusedError, is_empty, keep_to_team
from loadfactor.interfaces.tables import col, table
from loadfactor.interfaces.web.ask import Ask
from loadfactor.interfaces.web.links import STATEMENT_OF, STATEMENT_OF_MONTH
from loadfactor.metrics.query.calendar import instant as moment
from loadfactor.settings.money import FIXED

EVERY: Final[tuple[Every, ...]] = get_args(Every)
OPTIONS: Final = {"day": "--daily", "week": "--weekly", "month": "--monthly"}
SHARES: Final = re.compile(rf"{FIXED} \(.*\)")
MOST_PERIODS: Final = 8
MOST_MONTHS: Final = 12


def build_digest_page(ask: Ask) -> Document:
    """The digest of the last whole week, or of the day, week or month in which the day `on` lies; of a team or user by `where`."""
    if is_empty(ask.snapshot):
        raise NothingKnownError
    filters = keep_to_team(ask.snapshot, ask.request.filters, ask.team)
    if others := {*filters} - {"team", "user"}:
        raise InputError(f"a digest is of the fleet, a team or a user; leave where={sorted(others)[0]}=… out")
    period = _find_period(ask)
    page = build_digest(
        ask.snapshot, period, Audience(filters.get("team"), filters.get("user")), basis=ask.request.basis
    )
    return replace(page, sections=[*page.sections, _list_digests(ask, period)])


def say_digest(ask: Ask) -> str:
    """The command that prints it: of the last period, for it takes no day."""
    words = ["loadfactor digest", OPTIONS[ask.choose("every", EVERY) or "week"]]
    filters = ask.request.filters | ({"team": ask.team} if ask.team else {})
    words += [f"--{name} {quote(filters[name])}" for name in ("team", "user") if name in filters]
    return " ".join([*words, ask.say_options(without=("where", "last", "from", "to"))])


def _find_period(ask: Ask) -> Period:
    """The period of the state, of a day before or after the books the nearest. Raises InputError for a day that is none."""
    every, on, zone = ask.choose("every", EVERY) or "week", ask.text("on"), ask.request.zone
    if not on:
        return find_last(every, ask.snapshot.span, moment(now_ms()), zone)  # type: ignore[arg-type]
    try:
        day = date.fromisoformat(on)
    except ValueError as error:
        raise InputError(f"on={on}: that is no day; write 2026-10-05") from error
    first, last = ask.snapshot.span
    at = min(max(datetime.combine(day, time(), zone), first), last - timedelta(microseconds=1))
    return find_period(every, at, zone)  # type: ignore[arg-type]


def _list_digests(ask: Ask, shown: Period) -> Section:
    """The other lengths of periods, and the last periods of which the books know anything."""
    period = find_last(shown.every, ask.snapshot.span, moment(now_ms()), shown.zone)
    periods: list[Period] = []
    while len(periods) < MOST_PERIODS and period.end > ask.snapshot.span[0]:
        periods.append(period)
        period = period.before
    lengths = table([(of,) for of in EVERY], col("every", facet="every"))
    return Section(
        "Other digests",
        tables=(
            lengths,
            table(periods, col("since", lambda of: of.first.isoformat(), facet="on"), col("period", "name")),
        ),
    )


def build_statement_page(ask: Ask) -> Document:
    """The statement of a team for a month, by default the last of the books, as it is now or as a `version` of it was closed."""
    if ask.team not in (None, ask.name):
        raise RefusedError(403, f"this token reads team {ask.team!r} alone")
    months = list_months(ask, ask.request.zone)
    if not months:
        raise NothingKnownError
    month, version = ask.text("month") or months[0], ask.text("version")
    if version and not (version.isdecimal() and int(version)):
        raise InputError(f"version={version}: that is no version; write 1 for the first closing")
    found = ask.snapshot.read_statements(month, None, ask.request.zone, int(version) if version else None)
    if ask.team is not None:  # no word of the fleet, and no name that is near
        found = tuple(_hide_others(of) for of in found if of.team == ask.team)
        if not found:
            raise NothingKnownError
    page = build_statement(find_statement(found, ask.name))
    closings = ask.snapshot.list_closings(month)
    versions = table(
        list(enumerate(closings, 1)),
        col("version", lambda row: str(row[0]), facet="version"),
        col("closed", lambda row: instant(row[1].closed)),
        title="Closed versions",
    )
    listed = [table([(of,) for of in months], col("month", facet="month"))]
    other = Section("Other statements", tables=[*listed, *([versions] if closings else [])])
    return replace(page, sections=[*page.sections, other])


def _hide_others(of: OwnerStatement) -> OwnerStatement:
    """A statement without remarks on the fleet, and without the names that fixed shares are of."""
    policy = {name: SHARES.sub(FIXED, words) for name, words in of.policy.items()}
    lines = tuple(replace(line, method=SHARES.sub(FIXED, line.method)) for line in of.lines)
    return replace(of, remarks=(), policy=policy, lines=lines)


def say_statement(ask: Ask) -> str:
    """The command that prints it."""
    version = f" --version {ask.text('version')}" if ask.text("version").isdecimal() else ""
    month = ask.text("month") or next(iter(list_months(ask, ask.request.zone)), "2026-10")
    options = ask.say_options(without=("where", "last", "from", "to"))
    return f"loadfactor statement --team {quote(ask.name)} --month {quote(month)}{version} {options}"


def list_months(ask: Ask, zone: tzinfo) -> Sequence[str]:
    """The last months of which the books know GPUs or bills, the latest first; none of empty books."""
    spans = [] if is_empty(ask.snapshot) else [ask.snapshot.span]
    spans += [ask.snapshot.bill_span] if ask.snapshot.has_bill else []
    if not spans:
        return ()
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    months: list[str] = []
    at = (last - timedelta(microseconds=1)).astimezone(zone).date()
    while len(months) < MOST_MONTHS and (not months or at >= first.astimezone(zone).date().replace(day=1)):
        months.append(f"{at:%Y-%m}")
        at = at.replace(day=1) - timedelta(days=1)
    return months


def link_statements(ask: Ask, teams: Sequence[str | None]) -> Section | None:
    """On the page of a team its months, on another page the teams; each leads to a statement. None where there is nothing."""
    shown: DataTable
    if ask.name:
        shown = table([(of,) for of in list_months(ask, ask.request.zone)], col(STATEMENT_OF_MONTH))
    else:
        shown = table([(of,) for of in teams if of], col(STATEMENT_OF))
    return Section("Statements", tables=(shown,)) if shown.rows else None
