"""Why the cost of a closed month is another one now: other rules, prices and late data, statement by statement, to the cent.

Rules are what today's [chargeback] charges less what that of the closing would charge of today's books. The rest of a statement's
change is its charged GPU-hours × their rate: hours that came later are late data, each factor's part being the mean of both
orders (the Shapley decomposition of `changes`); another rate is price where prices differ, else the mix of its hours. Of a bill,
which has no price but its lines, and of what has no hours, all is late data.
"""

from collections.abc import Mapping
from datetime import UTC, tzinfo
from decimal import Decimal
from math import fsum

from loadfactor.base.errors import InputError
from loadfactor.books.charging.fleet_chargeback import BILL
from loadfactor.books.snapshot import Snapshot
from loadfactor.insight.changes import METHOD, Change, ChangedHolder, ChangePart
from loadfactor.metrics.factors import MEANINGS, PartName
from loadfactor.money.currency import count_minor_digits
from loadfactor.money.lines import Statement, choose_column
from loadfactor.settings.money import read_policy

_EVIDENCE = ("import", "price", "rule")
"""Reasons of `chargeback --diff` that stand as remarks."""
_MOST_REMARKS = 8


def explain_closed(
    snapshot: Snapshot,
    month: str,
    by: tuple[str, ...] = (),
    zone: tzinfo = UTC,
    where: Mapping[str, str] | None = None,
) -> Change:
    """Why the statements of a month differ from those that it was closed with. Raises InputError where it was not closed."""
    found = snapshot.compare_closed(month, by or None, timezone=zone)
    last = snapshot.list_closings(month)[-1]
    unknown = {*(where or {})} - {*last.by}
    if unknown:
        raise InputError(
            f"{last.name} is by {', '.join(last.by)}; --where {', '.join(sorted(unknown))} is none of these"
        )
    now = snapshot.charge(month, last.by, timezone=zone)
    by_rules = snapshot.charge(month, last.by, timezone=zone, policy=read_policy(last.policy))
    stood_on, column = snapshot.describe_closing(now, zone), choose_column(now.totals)
    rate: PartName = "price" if stood_on.prices != last.stood_on.prices else "mix"
    if BILL in (now.cost_source, last.stood_on.cost_source):
        rate = "late data"
    digits = count_minor_digits(last.currency)
    sides = [
        {_place(of): of for of in s if _is_in(of, where)}
        for s in (last.statements, by_rules.statements, now.statements)
    ]
    parts: dict[PartName, list[ChangedHolder]] = {}
    for place in dict.fromkeys(place for side in sides for place in side):
        closed, ruled, today = (side.get(place) for side in sides)
        amounts = _divide(closed, ruled, column, rate, digits)
        amounts["rules"] = _amount(today, column) - _amount(ruled, column)
        statement = closed or ruled or today
        holder = {**statement.by, **({"pool": statement.pool} if statement.pool else {})} if statement else {}
        for name, money in amounts.items():
            if money:
                parts.setdefault(name, []).append(ChangedHolder(holder, float(money)))
    before, after = (sum((_amount(of, column) for of in side.values()), Decimal(0)) for side in (sides[0], sides[2]))
    ranked = []
    for name, holders in parts.items():
        holders.sort(key=lambda of: -abs(of.amount))
        amount = round(fsum(of.amount for of in holders), digits)
        ranked.append(ChangePart(name, MEANINGS[name], amount, tuple(holders)))
    remarks = [reason.what for reason in found.reasons if reason.kind in _EVIDENCE][:_MOST_REMARKS]
    return Change(
        "cost",
        last.currency,
        last.currency,
        float(before),
        float(after),
        float(after - before),
        now.start,
        now.end,
        now.start,
        now.end,
        last.by,
        tuple(sorted(ranked, key=lambda part: -abs(part.amount))),
        METHOD,
        (f"before: {last.words}, {column}", *remarks),
    )


def _place(of: Statement) -> tuple[tuple[str | None, ...], str | None]:
    return tuple(of.by.values()), of.pool


def _is_in(of: Statement, where: Mapping[str, str] | None) -> bool:
    return all(of.by[name] == value for name, value in (where or {}).items())


def _amount(of: Statement | None, column: str) -> Decimal:
    return Decimal(0) if of is None else of.amounts.get(column, Decimal(0))


def _divide(
    closed: Statement | None, now: Statement | None, column: str, rate: PartName, digits: int
) -> dict[PartName, Decimal]:
    """What of a statement's change came with hours, and what with another rate of them."""
    one, other = _amount(closed, column), _amount(now, column)
    hours, hours_now = (of.charged_hours if of else Decimal(0) for of in (closed, now))
    if not hours or not hours_now or rate == "late data":
        return {"late data": other - one}
    late = ((hours_now - hours) * (one / hours + other / hours_now) / 2).quantize(Decimal(1).scaleb(-digits))
    return {"late data": late, rate: other - one - late}
