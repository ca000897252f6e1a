"""Closed months: their statements in a table of their own, written by closing alone; a closing names the one that it replaces."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_DAY, MS_PER_S, US_PER_S
from loadfactor.books.charging.bill_lines import EPOCH, find_extent, view_charges
from loadfactor.books.charging.fleet_chargeback import BILL, ChargedDays, FleetChargeback
from loadfactor.metrics.query.calendar import instant
from loadfactor.money.lines import ColumnTotal, StatedHours, Statement, StatementPart, choose_column, read_hours
from loadfactor.sources.live import corrects_rows
from loadfactor.store.federation import FederatedSession
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.store.trusted_time import ClockState
from loadfactor.tables.schema import STATEMENTS

if TYPE_CHECKING:
    from loadfactor.sources.base import Rows, Source
    from loadfactor.store.import_records import ImportRecord
    from loadfactor.store.importing import Receipt


Amounts = Mapping[str, Decimal]
Place = tuple[tuple[str | None, ...], str | None]
"""The owner, and the pool, of a statement."""


@dataclass(frozen=True)
class StoodOn:
    """What a closing stood on: the last import, prices by basis and GPUs, amounts by day and hour, and a remark on what is missing.

    `days` are of all statements together, in the column that bridges are of. `held` are held GPU-hours by UTC hour, 2026-10-05T13,
    and `costs` price × installed time where there is no bill, whose charges go by days.
    """

    timezone: str = "UTC"
    last_import: int | None = None
    prices: Mapping[str, str] = field(default_factory=dict)
    days: Mapping[str, Decimal] = field(default_factory=dict)
    held: Mapping[str, Decimal] = field(default_factory=dict)
    costs: Mapping[str, Decimal] = field(default_factory=dict)
    cost_source: str = ""
    basis: str | None = None
    start_ms: int = 0
    end_ms: int = 0
    remark: str = ""


@dataclass(frozen=True)
class Closing:
    """The statements of a month as they were when it was closed, and their amounts by owner and pool."""

    name: str
    month: str
    closed: datetime
    replaces: str | None
    currency: str
    by: tuple[str, ...]
    amounts: Mapping[Place, Amounts]
    policy: Mapping[str, str]
    totals: Mapping[str, ColumnTotal]
    statements: tuple[Statement, ...]
    stood_on: StoodOn

    @property
    def words(self) -> str:
        """When it was closed, and as what."""
        return f"{self.month} was closed on {self.closed:%Y-%m-%d} as {self.name}"


def read_closings(session: Session, month: str) -> list[Closing]:
    """The closings of a month, the first one first. None of stores that are read as one: each closes its own months."""
    if isinstance(session, FederatedSession):
        return []
    session.view_table("statements", "statements")
    rows = session.raw.execute(
        "SELECT closing, month, closed_utc, replaces, currency, owner, pool, amounts, parts, hours, policy, totals, stood_on"
        f" FROM statements WHERE month = {quote(month)} ORDER BY closed_utc, length(closing), closing, number"
    ).fetchall()
    found: dict[str, Closing] = {}
    for name, month_, closed, replaces, currency, owner, pool, amounts, parts, hours, policy, totals, stood_on in rows:
        named: dict[str, str | None] = json.loads(owner)
        if name not in found:
            known = {column: ColumnTotal(**_read_amounts(of)) for column, of in json.loads(totals).items()}
            stood = _read_stood_on(json.loads(stood_on or "{}"))
            found[name] = Closing(
                name,
                month_,
                instant(closed),
                replaces,
                currency,
                tuple(named),
                {},
                json.loads(policy),
                known,
                (),
                stood,
            )
        statement = _read_statement(named, pool, json.loads(amounts), json.loads(parts), json.loads(hours))
        closing = found[name]
        place = tuple(named.values()), pool
        found[name] = replace(
            closing,
            amounts={**closing.amounts, place: statement.amounts},
            statements=(*closing.statements, statement),
        )
    return list(found.values())


def _read_amounts(texts: Mapping[str, str | None]) -> dict[str, Any]:
    return {name: None if text is None else Decimal(text) for name, text in texts.items()}


def _read_stood_on(kept: dict[str, Any]) -> StoodOn:
    days, held, costs = (_read_amounts(kept.pop(name, {})) for name in ("days", "held", "costs"))
    return StoodOn(**kept, days=days, held=held, costs=costs)


def _read_statement(
    by: Mapping[str, str | None], pool: str | None, amounts: Any, parts: Any, hours: dict[str, Any]
) -> Statement:
    held = _read_amounts(hours)
    charged, billed = held.pop("charged"), held.pop("billed")
    listed = tuple(StatementPart(part["name"], _read_amounts(part["amounts"]), part["method"]) for part in parts)
    owner = tuple(by.values()) if any(by.values()) else None
    return Statement(owner, pool, by, _read_amounts(amounts), listed, StatedHours(**held), charged, billed)


def show_closed(closing: Closing) -> FleetChargeback:
    """The statements of a month as they were when it was closed."""
    stood, column = closing.stood_on, choose_column(closing.totals)
    start, end = (instant(ms) for ms in (stood.start_ms, stood.end_ms))
    held = [s.hours for s in closing.statements if s.pool is None]
    total, unobserved = (sum((getattr(own, name) for own in held), Decimal(0)) for name in ("total", "unobserved"))
    remarks = (f"{closing.words}; this is how it was",) + ((f"missing: {stood.remark}",) if stood.remark else ())
    zone = ZoneInfo(stood.timezone)
    return FleetChargeback(
        month=closing.month,
        start=start.astimezone(zone),
        end=end.astimezone(zone),
        currency=closing.currency,
        policy=closing.policy,
        by=closing.by,
        cost_source=stood.cost_source or "kept statements",
        basis=stood.basis,
        statements=closing.statements,
        spreads=(),
        totals={column: closing.totals[column], **closing.totals},
        coverage_share=round((total - unobserved) / total, 6) if total else None,
        tag_coverage_share=None,
        unpriced_gpu_hours=Decimal(0),
        remarks=remarks,
        closing=closing.name,
        replaces=closing.replaces,
    )


def pick_closing(closings: Sequence[Closing], month: str, version: int | None = None) -> Closing:
    """The closing of a month with this number, by default the last. Raises InputError where there is none."""
    if not closings:
        raise InputError(f"{month} is not closed; `loadfactor chargeback --month {month} --close` keeps its statements")
    if version is None:
        return closings[-1]
    if not 1 <= version <= len(closings):
        raise InputError(f"{month} has no version {version}; take 1 to {len(closings)}, which --versions lists")
    return closings[version - 1]


def list_closed_months(session: Session) -> list[str]:
    """The months that were closed, in order; none of stores that are read as one."""
    if isinstance(session, FederatedSession):
        return []
    session.view_table("statements", "statements")
    return [month for (month,) in session.raw.execute("SELECT DISTINCT month FROM statements ORDER BY 1").fetchall()]


def mention_own_closings(found: FleetChargeback, session: FederatedSession, month: str) -> FleetChargeback:
    """Statements of several stores with a remark on those that closed the month for themselves."""
    closed = [region for region, member in session.members.items() if read_closings(member, month)]
    if not closed:
        return found
    remark = f"closed for itself: {', '.join(closed)}; --as-closed with --store of one of them prints it as it was"
    return replace(found, remarks=(*found.remarks, remark))


def list_amounts(chargeback: FleetChargeback) -> dict[Place, Amounts]:
    return {(tuple(of.by[name] for name in chargeback.by), of.pool): of.amounts for of in chargeback.statements}


def mention_closing(found: FleetChargeback, closings: Sequence[Closing]) -> FleetChargeback:
    """Statements with the last closing of their month, or with a remark where that says something else."""
    if not closings:
        return found
    last = closings[-1]
    if _says_same(last, found):
        lacking = f"; {last.stood_on.remark}" if last.stood_on.remark else ""
        kept = (f"{last.words}, and these are its statements{lacking}",)
        return replace(found, closing=last.name, replaces=last.replaces, remarks=(*found.remarks, *kept))
    compare = f"loadfactor chargeback --month {found.month} --diff"
    remark = (
        f"{last.words}, by {','.join(last.by)} in {last.currency}; these statements are not those: `{compare}` says what changed"
        " and why, --as-closed prints them as they were"
    )
    return replace(found, remarks=(*found.remarks, remark))


def _says_same(closing: Closing, found: FleetChargeback) -> bool:
    return (closing.amounts, closing.currency, closing.by) == (list_amounts(found), found.currency, found.by)


def check_month_ended(found: FleetChargeback, clock: ClockState) -> None:
    """Raise InputError for a month that has not ended, by the clock and by the newest time that the store recorded."""
    if clock.latest_ms < round(found.end.timestamp() * MS_PER_S):
        raise InputError(
            f"{found.month} ends on {found.end:%Y-%m-%d %H:%M}, and it is {instant(clock.latest_ms):%Y-%m-%d %H:%M} UTC; close it"
            " when it is over"
        )


def close_month(
    found: FleetChargeback,
    earlier: Sequence[Closing],
    add_rows: "Callable[[Source, list[Rows], str], Receipt]",
    stood_on: StoodOn,
) -> FleetChargeback:
    """As `Books.close_month`: where the last closing says the same, that one, and nothing is written.

    Raises InputError where there is no statement, or somebody else closed the month meanwhile.
    """
    last = earlier[-1] if earlier else None
    if last is not None and _says_same(last, found):
        return replace(found, closing=last.name, replaces=last.replaces)
    if not found.statements:
        raise InputError(f"nothing of {found.month} is charged to anybody: there are no statements to keep")
    name = f"{found.month}.{len(earlier) + 1}"
    closed = replace(found, closing=name, replaces=last.name if last else None)
    if add_rows(_describe_source(), _make_rows(closed, stood_on), f"statements {name}").already:
        raise InputError(f"{found.month} was closed by somebody else just now; ask again")
    remarks = (
        (*found.remarks, f"closed as {name} with what is missing: {stood_on.remark}")
        if stood_on.remark
        else found.remarks
    )
    return replace(closed, remarks=remarks)


def _describe_source() -> "Source":
    """Where rows of statements come from, for the list of imports; it reads no files."""
    from loadfactor.sources.base import Source

    return Source(STATEMENTS.name, lambda paths: paths, lambda _paths, _options: iter(()))


def _make_rows(closed: FleetChargeback, stood_on: StoodOn) -> "list[Rows]":
    import pyarrow as pa

    from loadfactor.sources.base import Rows

    repeated = {
        "closing": closed.closing,
        "month": closed.month,
        "currency": closed.currency,
        "closed_utc": int(datetime.now(UTC).timestamp() * MS_PER_S),
        "replaces": closed.replaces,
        "policy": _write(closed.policy),
        "totals": _write({column: vars(total) for column, total in closed.totals.items()}),
        "stood_on": _write(vars(stood_on)),
    }
    rows = [repeated | _describe(number, statement) for number, statement in enumerate(closed.statements)]
    schema = STATEMENTS.schema
    return [
        Rows(
            "statements", pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)
        )
    ]


def _describe(number: int, statement: Statement) -> dict[str, Any]:
    parts = [{"name": part.name, "amounts": part.amounts, "method": part.method} for part in statement.parts]
    return {
        "number": float(number),
        "owner": _write(statement.by),
        "pool": statement.pool,
        "amounts": _write(statement.amounts),
        "parts": _write(parts),
        "hours": _write(vars(statement.hours) | {"charged": statement.charged_hours, "billed": statement.billed_hours}),
    }


def _write(value: Any) -> str:
    """JSON whose amounts are texts, every digit of them."""
    return json.dumps(value, ensure_ascii=False, default=lambda of: f"{of:f}" if isinstance(of, Decimal) else dict(of))


@dataclass(frozen=True)
class StatementChange:
    """Charges of one owner or pool at the closing and now, and the difference; by cost column."""

    by: Mapping[str, str | None]
    pool: str | None
    closed: Mapping[str, Decimal]
    now: Mapping[str, Decimal]
    change: Mapping[str, Decimal]


@dataclass(frozen=True)
class Reason:
    """Something that changed since a month was closed; `amount` where known.

    `kind`: import, late data (that came live), price, rule, hours (GPU-hours), day or hour.
    """

    kind: str
    what: str
    amount: Decimal | None = None


@dataclass(frozen=True)
class ChargebackChanges:
    """The statements that differ from those of a closing, in the order of statements, and why."""

    month: str
    currency: str
    closing: str
    closed: datetime
    statements: tuple[StatementChange, ...]
    change: Mapping[str, Decimal]
    reasons: tuple[Reason, ...] = ()


def compare_closed(
    last: Closing, found: FleetChargeback, now_on: StoodOn, imports: "Sequence[ImportRecord]"
) -> ChargebackChanges:
    """A closing beside the statements of now, and why they differ; `imports` are those since it.

    Raises InputError where they are by other names, or in another currency.
    """
    if found.by != last.by:
        raise InputError(f"{last.name} is by {','.join(last.by)}; compare it with --by {','.join(last.by)}")
    if found.currency != last.currency:
        raise InputError(f"{last.name} is in {last.currency}, not in {found.currency}; add --currency {last.currency}")
    now = list_amounts(found)
    columns = list(dict.fromkeys([*found.totals, *(c for costs in last.amounts.values() for c in costs)]))
    changes = []
    for place in dict.fromkeys([*now, *last.amounts]):
        before, after = last.amounts.get(place, {}), now.get(place, {})
        change = {c: after.get(c, Decimal(0)) - before.get(c, Decimal(0)) for c in columns}
        if any(change.values()):
            named = dict(zip(last.by, place[0], strict=True))
            changes.append(StatementChange(named, place[1], before, after, change))
    whole = {c: sum((of.change[c] for of in changes), Decimal(0)) for c in columns}
    reasons = tuple(_explain(last, found, now_on, imports)) if changes else ()
    return ChargebackChanges(found.month or "", found.currency, last.name, last.closed, tuple(changes), whole, reasons)


def _explain(
    last: Closing, found: FleetChargeback, now_on: StoodOn, imports: "Sequence[ImportRecord]"
) -> Iterator[Reason]:
    """What changed between a closing and now: imports, prices, rules, GPU-hours, and the days and hours that differ."""
    before = last.stood_on
    for record in imports:
        if record.is_live:
            yield Reason("late data", f"{record.source}, {record.paths[0]}: came after the month was closed")
            continue
        rows = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in record.rows.items())
        when = "" if not record.at_ms else f" on {instant(record.at_ms):%Y-%m-%d %H:%M} UTC"
        files = ", ".join(path.rsplit("/", 1)[-1] for path in record.paths[:2])
        yield Reason("import", f"import {record.number} ({record.source} {files}){when}: {rows}")
    for name in sorted({*before.prices, *now_on.prices}):
        then, now = before.prices.get(name), now_on.prices.get(name)
        if then != now:
            yield Reason("price", f"{name}: {then or 'none'} → {now or 'none'} a GPU-hour")
    for name in found.policy:
        if name in last.policy and last.policy[name] != found.policy[name]:
            yield Reason("rule", f"[chargeback] {name}: {last.policy[name]} → {found.policy[name]}")
    if before.timezone != now_on.timezone:
        yield Reason("rule", f"the month of {before.timezone} → of {now_on.timezone}")
    held, holds = (
        sum((s.hours.total for s in of if s.pool is None), Decimal(0)) for of in (last.statements, found.statements)
    )
    if held != holds:
        yield Reason("hours", f"held GPU-hours {held:,.1f} → {holds:,.1f}")
    for day in sorted({*before.days, *now_on.days}) if before.days else ():
        if change := now_on.days.get(day, Decimal(0)) - before.days.get(day, Decimal(0)):
            yield Reason("day", day, change)
    yield from _explain_hours(before, now_on, found.start.tzinfo)


def _explain_hours(before: StoodOn, now_on: StoodOn, zone: tzinfo | None) -> Iterator[Reason]:
    """Hours whose GPU-hours or cost differ, those that follow each other together; none of a closing that kept no hours."""
    names = {*before.held, *now_on.held, *before.costs, *now_on.costs} if before.held or before.costs else set()
    changed = [
        datetime.fromisoformat(f"{name}:00+00:00")
        for name in sorted(names)
        if before.held.get(name) != now_on.held.get(name) or before.costs.get(name) != now_on.costs.get(name)
    ]
    for _, run in groupby(enumerate(changed), lambda of: of[1] - timedelta(hours=of[0])):
        hours = [at for _, at in run]
        keys = [f"{at:{HOUR}}" for at in hours]
        held, holds, cost, costs = (
            sum((of.get(key, Decimal(0)) for key in keys), Decimal(0))
            for of in (before.held, now_on.held, before.costs, now_on.costs)
        )
        start, end = (at.astimezone(zone) for at in (hours[0], hours[-1] + timedelta(hours=1)))
        words = f"{start:%Y-%m-%d %H:%M} to {end:%H:%M}" + (f" on {end:%Y-%m-%d}" if end.date() != start.date() else "")
        if held != holds:
            words += f": held GPU-hours {held:,.1f} → {holds:,.1f}"
        yield Reason("hour", words, costs - cost if costs != cost else None)


def describe_inputs(
    session: Session, charged: ChargedDays, timezone: str, remark: str = "", has_ledger: bool = True
) -> StoodOn:
    """What statements of a month stand on now; `has_ledger`: `window_ledger` is that of the month."""
    found = charged.found
    days: dict[str, Fraction] = defaultdict(Fraction)
    for of_days in charged.days.values():
        for when, exact in of_days.items():
            days[(EPOCH + timedelta(when.first)).isoformat()] += exact
    session.view_table("closed_prices", "prices")
    prices = session.raw.execute(
        "SELECT concat_ws(' ', basis, accelerator, pool, device_id, strftime(make_timestamp(from_utc * 1000), '%Y-%m-%d')),"
        " max(price_per_gpu_hour) FROM closed_prices GROUP BY 1 ORDER BY 1"
    ).fetchall()
    start, end = (round(at.timestamp() * MS_PER_S) for at in (found.start, found.end))
    return StoodOn(
        timezone,
        session.manifest.last_import,
        {name: f"{price:g}" for name, price in prices},
        {day: Decimal(round(amount * 100)).scaleb(-2) for day, amount in days.items()},
        *(_sum_hours(session, found.basis) if has_ledger else ({}, {})),
        found.cost_source,
        found.basis,
        start,
        end,
        remark,
    )


HOUR: Final = "%Y-%m-%dT%H"


def _sum_hours(session: Session, basis: str | None) -> tuple[dict[str, Decimal], dict[str, Decimal]]:
    """Held GPU-hours of `window_ledger` by UTC hour, and price × installed time to the cent in a kind of money, if one is given."""
    price = f"price_per_gpu_hour_{basis}" if basis else "NULL"
    rows = session.raw.execute(
        f"SELECT hour_utc, CAST({price} AS VARCHAR), sum(CAST(round(gpu_s * {US_PER_S}) AS BIGINT)),"
        f" coalesce(sum(CAST(round(gpu_s * {US_PER_S}) AS BIGINT)) FILTER (state IN ('busy', 'idle', 'unobserved')), 0)"
        " FROM window_ledger GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    held, costs = defaultdict[str, Decimal](Decimal), defaultdict[str, Decimal](Decimal)
    for at, price, there_us, held_us in rows:
        name = f"{instant(at):{HOUR}}"
        held[name] += read_hours(held_us / US_PER_S)
        if price is not None:
            costs[name] += read_hours(there_us / US_PER_S) * Decimal(price)
    return dict(held), {name: cost.quantize(Decimal("0.01")) for name, cost in costs.items()}


def find_missing(session: Session, found: FleetChargeback) -> str:
    """What the books lack of a month, and what that would have cost at the rate of what they know; empty where they are whole."""
    start, end = (round(at.timestamp() * MS_PER_S) for at in (found.start, found.end))
    first, last = session.span()
    known = {"GPUs": (first, last)} if first < last else {}
    if found.cost_source == BILL and view_charges(session, None):
        known["bill"] = find_extent(session)
    column = choose_column(found.totals)
    sentences = []
    for name, (since, until) in known.items():
        gap_ms = max(0, min(since, end) - start) + max(0, end - max(until, start))
        covered_ms = min(until, end) - max(since, start)
        if gap_ms <= 0 or covered_ms <= 0:
            continue
        sides = [f"before {instant(since).astimezone(found.start.tzinfo):%Y-%m-%d %H:%M}"] if since > start else []
        sides += [f"after {instant(until).astimezone(found.start.tzinfo):%Y-%m-%d %H:%M}"] if until < end else []
        cost = found.totals[column].charged * gap_ms / covered_ms
        worth = f"which at the rate of the rest would have cost about {cost:,.2f} {found.currency}"
        if name == "GPUs" and found.cost_source == BILL:
            worth = "whose cost is on the bill and whose holders nobody knows"
        where = "the bill covers" if name == "bill" else "the books know GPUs of"
        days = (end - start - gap_ms) / MS_PER_DAY
        sentences.append(
            f"{where} {days:,.1f} of its {(end - start) / MS_PER_DAY:,.0f} days; nothing is known {' and '.join(sides)}, {worth}"
        )
    return "; ".join(sentences)


def list_imports_since(session: Session, closing: Closing) -> "list[ImportRecord]":
    """Imports since a closing that brought anything that statements stand on; of live ones those of a day of its month."""
    from loadfactor.store.import_records import LIVE_DAY, list_imports

    last = closing.stood_on.last_import
    if last is None:
        return []
    own, closed_ms = STATEMENTS.name, round(closing.closed.timestamp() * MS_PER_S)
    found = list_imports(session, f"import_no > {last} OR (starts_with(digest, '{LIVE_DAY}') AND at_utc > {closed_ms})")
    span = closing.stood_on.start_ms, closing.stood_on.end_ms - 1
    first, final = (f"{LIVE_DAY}{datetime.fromtimestamp(ms / MS_PER_S, UTC).date()}" for ms in span)
    return [
        record
        for record in found
        if {*record.rows} - {own}
        and (not record.is_live or corrects_rows(record.source) or first <= record.paths[0] <= final)
    ]
