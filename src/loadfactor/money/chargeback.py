"""Charges: from lines that know their owners to statements that sum to the rounded bill, minor unit by minor unit.

Each column goes its own way and is never added to another. What is charged is worked out exactly, pools included, and rounded once
at the end: the bill half to even; then pools and owners, each level of names, and parts of statements by largest remainders.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from typing import TypeVar

from loadfactor.base.errors import InputError
from loadfactor.money.currency import (
    EXACT,
    Path,
    add_exactly,
    count_minor_digits,
    from_minor,
    round_levels,
    round_to_minor,
    sort_key,
)
from loadfactor.money.lines import (
    SHARE_OF,
    Chargeback,
    ChargedHours,
    ColumnTotal,
    CostLine,
    Costs,
    Owner,
    SpreadPool,
    Statement,
    StatementPart,
    split_by_state,
    state_hours,
)
from loadfactor.settings.money import EFFECTIVE, EVEN, FIXED, HELD, HOLDER, OWN_POOL, POOLS, Bearing, ChargebackPolicy

Hours = Mapping[Owner, ChargedHours]
Key = TypeVar("Key")


@dataclass(frozen=True)
class BorneShare:
    """The part of a pool that an owner bears, and how it came about in words."""

    share: Fraction
    method: str


def share_pool(bearing: Bearing, hours: Hours, names: int = 1) -> dict[Owner, BorneShare]:
    """Shares of owners, above 0 and summing to 1; nothing where the pool keeps its cost, or nobody has what it goes by.

    `names` is how many an owner has. Even and fixed shares are of the first one; what stands under it is divided by held
    hours, and evenly where it held none. A fixed share of a name that has no line is borne by that name.

    >>> from decimal import Decimal
    >>> held = {("a",): ChargedHours(Decimal(50)), ("b",): ChargedHours(Decimal(30))}
    >>> {owner[0]: str(borne.share) for owner, borne in share_pool(Bearing.model_validate("held hours"), held).items()}
    {'a': '5/8', 'b': '3/8'}
    """
    if bearing.way in (HELD, EFFECTIVE):
        amounts = {owner: Fraction(own.total if bearing.way == HELD else own.effective) for owner, own in hours.items()}
        return _in_proportion(amounts, f"by {bearing.way}", "h")
    if bearing.way == EVEN:
        everybody = {owner[0]: Fraction(1) for owner in hours if owner[0]}
        return _under_names(_in_proportion(everybody, "evenly", "names"), hours, names)
    if bearing.way == FIXED:
        fixed = {name: Fraction(share) for name, share in bearing.shares}
        return _under_names(_in_proportion(fixed, "by fixed shares", ""), hours, names)
    return {}


def _in_proportion(amounts: Mapping[Key, Fraction], method: str, unit: str) -> dict[Key, BorneShare]:
    whole = sum(amounts.values())
    return {
        key: BorneShare(amount / whole, f"{method}: {float(amount):,.6g} of {float(whole):,.6g} {unit}".rstrip())
        for key, amount in amounts.items()
        if amount
    }


def _under_names(shares: Mapping[str, BorneShare], hours: Hours, names: int) -> dict[Owner, BorneShare]:
    """The share of each name, divided among the owners under it by held hours."""
    families: dict[str | None, dict[Owner, Fraction]] = defaultdict(dict)
    for owner, own in hours.items():
        families[owner[0]][owner] = Fraction(own.total)
    borne = {}
    for name, of_name in shares.items():
        family = families.get(name) or {(name, *(None,) * (names - 1)): Fraction(1)}
        if not any(family.values()):
            family = dict.fromkeys(family, Fraction(1))
        for owner, inside in _in_proportion(family, "inside by held hours", "h").items():
            method = of_name.method if len(family) == 1 else f"{of_name.method}, {inside.method}"
            borne[owner] = BorneShare(of_name.share * inside.share, method)
    return borne


_OWNERS = ""
"""Where a path begins that is not in a pool."""


class _PlacedCosts:
    """Exact amounts while lines come in: by place, that is (pool or none, owner, part), and hours by (pool or none, owner)."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self.costs: dict[Path, Costs] = defaultdict(lambda: dict.fromkeys(columns, Decimal(0)))
        self.hours: dict[Path, ChargedHours] = defaultdict(ChargedHours)
        self.billed: dict[Path, Fraction] = defaultdict(Fraction)

    def put(self, place: Path, costs: Costs) -> None:
        """Add costs to a place."""
        there = self.costs[place]
        for column in self.columns:
            there[column] = EXACT.add(there[column], costs[column])


def charge(
    lines: Iterable[CostLine],
    by: tuple[str, ...],
    columns: Sequence[str],
    policy: ChargebackPolicy | None = None,
    currency: str = "USD",
) -> Chargeback:
    """Statements of everybody who owns a line, and of every pool. Amounts of `lines` are all in `currency`.

    `by` names what the owners of lines consist of; every line has an amount in every one of `columns`. The answer does not depend
    on the order of the lines. Raises InputError naming what a line lacks.

    >>> from decimal import Decimal
    >>> def hours(n): return ChargedHours(total=Decimal(n))
    >>> lines = [CostLine({"BilledCost": Decimal(n * 10)}, (team,), hours=hours(n)) for team, n in (("a", 50), ("b", 30))]
    >>> lines.append(CostLine({"BilledCost": Decimal(200)}, pool="unallocated", hours=hours(20)))
    >>> policy = ChargebackPolicy.model_validate({"unallocated": "held hours"})
    >>> [(s.by["team"], str(s.amounts["BilledCost"])) for s in charge(lines, ("team",), ["BilledCost"], policy).statements]
    [('a', '625.00'), ('b', '375.00')]
    """
    policy = policy or ChargebackPolicy()
    placed = _PlacedCosts(columns)
    bill = dict.fromkeys(columns, Decimal(0))
    for line in lines:
        _check_line(line, by, columns)
        for column in columns:
            bill[column] = EXACT.add(bill[column], line.costs[column])
        _book(line, by, policy, placed)
    quotas, methods, spreads = _spread(placed, by, policy)
    rounded = {column: round_to_minor(bill[column], currency) for column in columns}
    scale = Fraction(10 ** count_minor_digits(currency))
    shares = {
        column: round_levels(rounded[column], {place: of_place[column] * scale for place, of_place in quotas.items()})
        for column in columns
    }
    amounts = {place: {column: from_minor(shares[column][place], currency) for column in columns} for place in quotas}
    nothing = dict.fromkeys(columns, from_minor(0, currency))
    statements = _write(amounts, methods, placed, by, policy, nothing)
    totals = {}
    for column, zero in nothing.items():
        charged = add_exactly([zero, *(statement.amounts[column] for statement in statements)])
        rounding = EXACT.subtract(bill[column], from_minor(rounded[column], currency))
        difference = EXACT.quantize(EXACT.subtract(EXACT.subtract(bill[column], rounding), charged), zero)
        totals[column] = ColumnTotal(bill[column], charged, rounding, difference)
    return Chargeback(by, currency, policy, statements, _add_shares(spreads, amounts, nothing), totals)


def _check_line(line: CostLine, by: tuple[str, ...], columns: Sequence[str]) -> None:
    if line.owner is not None and len(line.owner) != len(by):
        raise InputError(
            f"the owner {line.owner} of a line has {len(line.owner)} names; statements are by {', '.join(by)}"
        )
    lacking = [column for column in columns if column not in line.costs]
    if lacking:
        raise InputError(
            f"a line of {line.owner or line.pool or 'nobody'} has no {lacking[0]}; leave that column out of the question"
        )


def _book(line: CostLine, by: tuple[str, ...], policy: ChargebackPolicy, placed: _PlacedCosts) -> None:
    """Put a line where it belongs before pools are spread."""
    nobody: Owner = (None,) * len(by)
    if line.is_owned:
        placed.hours[_OWNERS, *(line.owner or nobody)] += line.hours
    elif not policy.is_apart(line.kind) or line.pool is not None:
        placed.hours[line.pool or "untagged", *nobody] += line.hours
    for place, part, hours in _list_places(line, by, policy, placed.columns):
        placed.put(place, part)
        if line.is_owned and place[0] in ("idle", "unobserved"):
            placed.hours[place[0], *nobody] += ChargedHours(hours)
        if hours:
            placed.billed[place[:-1]] += Fraction(hours) * line.billed_share


def _list_places(
    line: CostLine, by: tuple[str, ...], policy: ChargebackPolicy, columns: Sequence[str]
) -> Iterator[tuple[Path, Costs, Decimal]]:
    """Where a line belongs before pools are spread: its parts, each with its costs and GPU-hours."""
    nobody: Owner = (None,) * len(by)
    costs = {column: line.costs[column] for column in columns}
    owner = line.owner if line.owner is not None and line.is_owned else nobody
    if line.pool is None and policy.is_apart(line.kind):
        yield (line.kind, *owner, line.kind), costs, Decimal(0)
    elif not line.is_owned:
        yield (line.pool or "untagged", *nobody, line.kind), costs, line.hours.total
    elif line.kind != "gpu" or not line.hours.total:
        yield (_OWNERS, *owner, line.kind), costs, Decimal(0)
    else:
        idle, unobserved = line.hours.idle, line.hours.unobserved
        hours = {"idle": idle, "unobserved": unobserved}
        for state, part in split_by_state(line, columns).items():
            known = hours.get(state, line.hours.total - idle - unobserved)
            if state == "busy" or policy.bearing_of(state).way == HOLDER:
                yield (_OWNERS, *owner, state), part, known
            else:
                yield (state, *nobody, "gpu"), part, known


def charge_parts(
    held: Iterable[CostLine],
    parts: Iterable[tuple[CostLine, Key]],
    by: tuple[str, ...],
    column: str,
    policy: ChargebackPolicy,
) -> dict[Path, dict[Key, Fraction]]:
    """Exact amounts by (pool or "", owner) and key, of lines that have one: a day, say. Pools are borne by the hours of `held`.

    Summed over keys they are what `charge` charges of the same lines, before it rounds.
    """
    placed = _PlacedCosts((column,))
    for line in held:
        _book(line, by, policy, placed)
    owners = {place[1:]: hours for place, hours in placed.hours.items() if place[0] == _OWNERS}
    borne = {
        pool: share_pool(policy.bearing_of(pool), owners, len(by))
        for pool in POOLS
        if policy.bearing_of(pool).way not in (OWN_POOL, HOLDER)
    }
    found: dict[Path, dict[Key, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for line, key in parts:
        for place, costs, _ in _list_places(line, by, policy, (column,)):
            amount = Fraction(costs[column])
            if shares := borne.get(str(place[0])):
                for owner, part in shares.items():
                    found[_OWNERS, *owner][key] += amount * part.share
            else:
                found[place[:-1]][key] += amount
    return found


def _spread(
    placed: _PlacedCosts, by: tuple[str, ...], policy: ChargebackPolicy
) -> tuple[dict[Path, dict[str, Fraction]], dict[Path, str], list[SpreadPool]]:
    """Exact amounts by place after owners have borne what the policy gives them; how each share came about; what was spread."""
    owners = {place[1:]: hours for place, hours in placed.hours.items() if place[0] == _OWNERS}
    exact = {place: {c: Fraction(amount) for c, amount in costs.items()} for place, costs in placed.costs.items()}
    methods: dict[Path, str] = {}
    spreads = []
    for pool in POOLS:
        bearing = policy.bearing_of(pool)
        places = [place for place in exact if place[0] == pool]
        if bearing.way in (OWN_POOL, HOLDER) or not places:
            continue
        borne = share_pool(bearing, owners, len(by))
        why = "" if borne else f"nobody has {bearing.way}" if owners else "there is no owner"
        hours = placed.hours[pool, *(None,) * len(by)]
        spreads.append(SpreadPool(pool, bearing.words, {}, hours, why))
        if not borne:
            continue
        whole = {column: sum((exact[place][column] for place in places), Fraction(0)) for column in placed.columns}
        for place in places:
            del exact[place]
        for owner, part in borne.items():
            place = (_OWNERS, *owner, SHARE_OF + pool)
            exact[place] = {column: amount * part.share for column, amount in whole.items()}
            methods[place] = part.method
    return exact, methods, spreads


_METHODS = {
    "busy": "held hours that worked",
    "idle": "held hours that did nothing, borne by their holder",
    "unobserved": "held hours of which nothing is known, borne by their holder",
}


def _write(
    amounts: dict[Path, Costs],
    methods: dict[Path, str],
    placed: _PlacedCosts,
    by: tuple[str, ...],
    policy: ChargebackPolicy,
    nothing: Costs,
) -> tuple[Statement, ...]:
    """Statements of owners in the order of their names, then of pools in the order of `POOLS`, then of what is kept apart."""
    order = {pool: position for position, pool in enumerate((_OWNERS, *POOLS))}
    places = sorted(amounts, key=lambda place: (order.get(str(place[0]), len(order)), sort_key(place)))
    statements = []
    for (pool, *names), group in groupby(places, key=lambda place: place[:-1]):
        parts = tuple(
            StatementPart(
                str(place[-1]), amounts[place], methods.get(place) or _METHODS.get(str(place[-1]), "lines of its own")
            )
            for place in group
            if any(amounts[place].values())
        )
        held = placed.hours.get((pool, *names), ChargedHours())
        if not parts and not held.total:
            continue
        whole = {
            column: add_exactly([zero, *(part.amounts[column] for part in parts)]) for column, zero in nothing.items()
        }
        owner = tuple(names) if any(names) else None
        named = dict(zip(by, names, strict=True))
        charged = held.total if pool else _count_charged(held, policy)
        billed = _read_fraction(placed.billed.get((pool, *names), Fraction(0)))
        stated = state_hours(held, pool or None)
        statements.append(Statement(owner, pool or None, named, whole, parts, stated, charged, billed))
    return tuple(statements)


def _read_fraction(hours: Fraction) -> Decimal:
    """Hours to nine digits."""
    return Decimal(round(hours * 10**9)).scaleb(-9)


def _count_charged(hours: ChargedHours, policy: ChargebackPolicy) -> Decimal:
    """Held hours whose cost their holder bears."""
    apart = [Decimal(0) if policy.idle.way == HOLDER else hours.idle]
    apart.append(Decimal(0) if policy.unobserved.way == HOLDER else hours.unobserved)
    return EXACT.subtract(hours.total, add_exactly(apart))


def _add_shares(spreads: list[SpreadPool], amounts: dict[Path, Costs], nothing: Costs) -> tuple[SpreadPool, ...]:
    """Spread pools with the sums of what owners bear of them, as it stands on their statements."""
    summed = []
    for spread in spreads:
        borne = [costs for place, costs in amounts.items() if place[-1] == SHARE_OF + spread.pool]
        total = {column: add_exactly([zero, *(costs[column] for costs in borne)]) for column, zero in nothing.items()}
        summed.append(SpreadPool(spread.pool, spread.way, total, spread.hours, spread.kept_because))
    return tuple(summed)
