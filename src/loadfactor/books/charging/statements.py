"""The statement of one team or pool: lines, direct and shared parts, and what changed of its months that were closed before."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final
from zoneinfo import ZoneInfo

from loadfactor.base.errors import InputError
from loadfactor.books.charging.closings import Closing, list_closed_months, read_closings
from loadfactor.books.charging.fleet_chargeback import FleetChargeback
from loadfactor.metrics.query.reading import Reading, Readings
from loadfactor.money.currency import add_exactly
from loadfactor.money.lines import Costs, StatedHours, Statement, StatementLine, add_hours, list_lines
from loadfactor.store.session import Session

MOST_MONTHS: Final = 12
"""So many closed months before one are looked at for corrections."""
TEAM: Final = "team"
Owner = tuple[str | None, str | None]
"""A team, or a pool that no team bears."""


@dataclass(frozen=True)
class Correction:
    """A change of an earlier month: what a version charged and what the next one does; the books now where `later` is None."""

    month: str
    version: str
    closed: datetime
    later: str | None
    before: Costs
    after: Costs
    change: Costs


@dataclass(frozen=True)
class OwnerEnergy:
    """Energy of the GPUs that a team held, and its carbon: measured, estimated, at the meter. Coverage is that of the carbon."""

    energy_kwh: float | None
    energy_estimated_kwh: float | None
    site_energy_kwh: float | None
    carbon_kg: float | None
    coverage: float | None


@dataclass(frozen=True)
class OwnerStatement:
    """A month of one team, or of a pool that no team bears. `direct` and `shared` sum to `amounts`, as lines do, by cost column.

    `closing` is the version that the books keep of it. `corrections` are of months before it and in none of its amounts. `hours`
    are those held, `rates` what an hour of them cost; `energy` is there where the settings ask for it, of no closed version.
    """

    team: str | None
    pool: str | None
    month: str | None
    closing: str | None
    start: datetime
    end: datetime
    currency: str
    cost_source: str
    basis: str | None
    policy: Mapping[str, str]
    amounts: Costs
    direct: Costs
    shared: Costs
    hours: StatedHours
    rates: Mapping[str, Decimal | None]
    lines: tuple[StatementLine, ...]
    corrections: tuple[Correction, ...]
    remarks: tuple[str, ...]
    energy: OwnerEnergy | None = None

    @property
    def name(self) -> str:
        """The team, or the pool."""
        return self.team or self.pool or ""


Charge = Callable[..., FleetChargeback]


def read_statements(
    session: Session, found: FleetChargeback, is_closed: bool, charge: Charge
) -> tuple[OwnerStatement, ...]:
    """Statements by team as one for each team and pool; `charge` charges a month by names, in a currency, of a zone.

    Where `is_closed`, corrections are those that were known then. Raises InputError where they are not by team.
    """
    if TEAM not in found.by:
        raise InputError(f"{found.closing} is by {','.join(found.by)}; a statement of a team needs one that is by team")
    corrections = _find_corrections(session, found, is_closed, charge)
    of_owner: dict[Owner, list[Statement]] = defaultdict(list)
    for statement in found.statements:
        of_owner[_find_owner(statement)].append(statement)
    for owner in corrections:
        of_owner.setdefault(owner, [])
    return tuple(_make_statement(found, owner, of, corrections.get(owner, ())) for owner, of in of_owner.items())


def add_energy(found: tuple[OwnerStatement, ...], readings: Readings) -> tuple[OwnerStatement, ...]:
    """Statements of teams with the energy that readings by team say."""
    of_team: dict[str | None, dict[str, Reading]] = defaultdict(dict)
    for reading in readings:
        of_team[reading.by[TEAM]][reading.metric] = reading
    return tuple(
        replace(of, energy=_read_energy(of_team[of.team])) if of.team in of_team and of.team else of for of in found
    )


def _read_energy(readings: Mapping[str, Reading]) -> OwnerEnergy:
    values: dict[str, Any] = {name: of.value for name, of in readings.items()}
    return OwnerEnergy(**values, coverage=readings["carbon_kg"].coverage)


def _find_owner(statement: Statement) -> Owner:
    """The team of a statement, its storage that is kept apart included; the pool where it is of nobody."""
    if statement.owner is None:
        return None, statement.pool
    team = statement.by[TEAM]
    return (team, None) if team else (None, "untagged")


def _make_statement(
    found: FleetChargeback, owner: Owner, of: Sequence[Statement], corrections: Iterable[Correction]
) -> OwnerStatement:
    lines = [line for statement in of for line in _name_lines(statement)]
    zero = {column: total.charged * 0 for column, total in found.totals.items()}

    def add(parts: Iterable[StatementLine]) -> Costs:
        amounts = [part.amounts for part in parts]
        return {column: add_exactly([nothing, *(a[column] for a in amounts)]) for column, nothing in zero.items()}

    held = [statement for statement in of if statement.hours.total]
    return OwnerStatement(
        *owner,
        found.month,
        found.closing,
        found.start,
        found.end,
        found.currency,
        found.cost_source,
        found.basis,
        found.policy,
        add(lines),
        add(line for line in lines if not line.is_share),
        add(line for line in lines if line.is_share),
        add_hours(statement.hours for statement in held),
        held[0].rates if len(held) == 1 else dict.fromkeys(zero),
        tuple(lines),
        tuple(corrections),
        found.remarks,
    )


def _name_lines(statement: Statement) -> Iterator[StatementLine]:
    """The lines of a statement; of one that is by other names too, with these."""
    others = " / ".join(value for name, value in statement.by.items() if name != TEAM and value)
    for line in list_lines(statement):
        yield replace(line, name=f"{line.name}, {others}") if others else line


def _find_corrections(
    session: Session, found: FleetChargeback, is_closed: bool, charge: Charge
) -> dict[Owner, list[Correction]]:
    """What changed of closed months before one: from each version to the next, and to now."""
    if found.month is None:
        return {}
    corrections: dict[Owner, list[Correction]] = defaultdict(list)
    until = next((of.closed for of in read_closings(session, found.month) if of.name == found.closing), None)
    for month in [of for of in list_closed_months(session) if of < found.month][-MOST_MONTHS:]:
        closings = [of for of in read_closings(session, month) if TEAM in of.by and of.currency == found.currency]
        if is_closed and until is not None:
            closings = [of for of in closings if of.closed <= until]
        steps: list[tuple[Closing, str | None, dict[Owner, Costs]]] = [
            (before, after.name, _sum(after.statements)) for before, after in pairwise(closings)
        ]
        if closings and not is_closed:
            steps.append((closings[-1], None, _sum_now(closings[-1], charge)))
        for before, later, after in steps:
            charged = _sum(before.statements)
            for owner in dict.fromkeys([*charged, *after]):
                if correction := _compare(before, later, charged.get(owner, {}), after.get(owner, {})):
                    corrections[owner].append(correction)
    return corrections


def _compare(before: Closing, later: str | None, charged: Costs, now: Costs) -> Correction | None:
    columns = list(dict.fromkeys([*charged, *now]))
    change = {c: now.get(c, Decimal("0.00")) - charged.get(c, Decimal("0.00")) for c in columns}
    if not any(change.values()):
        return None
    return Correction(before.month, before.name, before.closed, later, charged, now, change)


def _sum_now(closing: Closing, charge: Charge) -> dict[Owner, Costs]:
    """What the month is charged now, by the names and in the zone in which it was closed."""
    zone = ZoneInfo(closing.stood_on.timezone)
    return _sum(charge(closing.month, closing.by, closing.currency, zone).statements)


def _sum(statements: Iterable[Statement]) -> dict[Owner, Costs]:
    sums: dict[Owner, Costs] = {}
    for statement in statements:
        of = sums.setdefault(_find_owner(statement), {})
        for column, amount in statement.amounts.items():
            of[column] = of.get(column, Decimal(0)) + amount
    return sums
