"""What changed since a month was closed: its last closing beside the statements of now."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from loadfactor.base.errors import InputError
from loadfactor.books.charging.closings import Closing, list_amounts
from loadfactor.books.charging.fleet_chargeback import FleetChargeback


@dataclass(frozen=True)
class StatementChange:
    """What one owner or pool was charged at the closing, what it would be now, and the difference; by cost column."""

    by: Mapping[str, str | None]
    pool: str | None
    closed: Mapping[str, Decimal]
    now: Mapping[str, Decimal]
    change: Mapping[str, Decimal]


@dataclass(frozen=True)
class ChargebackChanges:
    """The statements that differ from those of a closing, in the order of statements."""

    month: str
    currency: str
    closing: str
    closed: datetime
    statements: tuple[StatementChange, ...]
    change: Mapping[str, Decimal]


def compare_closed(last: Closing, found: FleetChargeback) -> ChargebackChanges:
    """A closing beside the statements of now. Raises InputError where they are by other names, or in another currency."""
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
    return ChargebackChanges(found.month or "", found.currency, last.name, last.closed, tuple(changes), whole)
