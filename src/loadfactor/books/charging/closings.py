"""Closed months: their statements in a table of their own, written by closing alone; a closing names the one that it replaces."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S
from loadfactor.books.charging.fleet_chargeback import FleetChargeback
from loadfactor.metrics.query.calendar import instant
from loadfactor.money.lines import Statement
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.schema import STATEMENTS

if TYPE_CHECKING:
    from loadfactor.sources.base import Rows, Source
    from loadfactor.store.importing import Receipt


Amounts = Mapping[str, Decimal]
Place = tuple[tuple[str | None, ...], str | None]
"""The owner, and the pool, of a statement."""


@dataclass(frozen=True)
class Closing:
    """The statements of a month as they were when it was closed: amounts by owner and pool."""

    name: str
    closed: datetime
    replaces: str | None
    currency: str
    by: tuple[str, ...]
    amounts: Mapping[Place, Amounts]


def read_closings(session: Session, month: str) -> list[Closing]:
    """The closings of a month, the first one first."""
    session.view_table("statements", "statements")
    rows = session.raw.execute(
        f"SELECT closing, closed_utc, replaces, currency, owner, pool, amounts FROM statements WHERE month = {quote(month)}"
        " ORDER BY closed_utc, length(closing), closing"
    ).fetchall()
    found: dict[str, Closing] = {}
    for name, closed, replaces, currency, owner, pool, amounts in rows:
        named: dict[str, str | None] = json.loads(owner)
        closing = found.setdefault(name, Closing(name, instant(closed), replaces, currency, tuple(named), {}))
        costs = {column: Decimal(amount) for column, amount in json.loads(amounts).items()}
        found[name] = replace(closing, amounts={**closing.amounts, (tuple(named.values()), pool): costs})
    return list(found.values())


def list_amounts(chargeback: FleetChargeback) -> dict[Place, Amounts]:
    return {(tuple(of.by[name] for name in chargeback.by), of.pool): of.amounts for of in chargeback.statements}


def mention_closing(found: FleetChargeback, closings: Sequence[Closing]) -> FleetChargeback:
    """Statements with the last closing of their month, or with a remark where that says something else."""
    if not closings:
        return found
    last = closings[-1]
    if _says_same(last, found):
        return replace(found, closing=last.name, replaces=last.replaces)
    compare = f"loadfactor chargeback --month {found.month} --diff"
    remark = (
        f"{found.month} was closed on {last.closed:%Y-%m-%d} as {last.name}, by {','.join(last.by)} in {last.currency}; these"
        f" statements are not those, `{compare}` shows what changed since"
    )
    return replace(found, remarks=(*found.remarks, remark))


def _says_same(closing: Closing, found: FleetChargeback) -> bool:
    return (closing.amounts, closing.currency, closing.by) == (list_amounts(found), found.currency, found.by)


def close_month(
    found: FleetChargeback, earlier: Sequence[Closing], add_rows: "Callable[[Source, list[Rows], str], Receipt]"
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
    if add_rows(_describe_source(), _make_rows(closed), f"statements {name}").already:
        raise InputError(f"{found.month} was closed by somebody else just now; ask again")
    return closed


def _describe_source() -> "Source":
    """Where rows of statements come from, for the list of imports; it reads no files."""
    from loadfactor.sources.base import Source

    return Source(STATEMENTS.name, lambda paths: paths, lambda _paths, _options: iter(()))


def _make_rows(closed: FleetChargeback) -> "list[Rows]":
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
        "hours": _write(vars(statement.hours) | {"charged": statement.charged_hours}),
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
