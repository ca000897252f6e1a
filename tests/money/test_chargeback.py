"""Statements: worked examples, every policy and commitment, division to the cent, and what must hold of any bill."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import InputError
from loadfactor.money.chargeback import charge
from loadfactor.money.commitments import CommitmentLine, CommitmentUse, measure_commitments
from loadfactor.money.currency import largest_remainder, round_levels, round_shares, round_to_minor
from loadfactor.money.lines import Chargeback, ChargedHours, CostLine, Kind
from loadfactor.planner.economics.renting import Commitment
from loadfactor.settings.money import POOLS, ChargebackPolicy

SETTINGS = settings(max_examples=80, deadline=None, derandomize=True, database=None)
B = "BilledCost"


def held(team: str, hours: int, price: str = "10", **more: int) -> CostLine:
    """A team's GPU-hours at a price each."""
    counted = ChargedHours(Decimal(hours), **{name: Decimal(value) for name, value in more.items()})
    return CostLine({B: hours * Decimal(price)}, (team,), hours=counted)


def pooled(pool: str, cost: str, hours: int = 0, kind: Kind = "gpu") -> CostLine:
    return CostLine({B: Decimal(cost)}, pool=pool, kind=kind, hours=ChargedHours(Decimal(hours)))


def amounts(chargeback: Chargeback) -> dict[str, str]:
    """What owners and pools are charged, by name."""
    return {s.pool or str(s.by["team"]): str(s.amounts[B]) for s in chargeback.statements}


def charged(lines: list[CostLine], **policy: Any) -> Chargeback:
    """Statements by team under a policy as it is written in loadfactor.toml."""
    return charge(lines, ("team",), [B], ChargebackPolicy.model_validate(policy))


# economics.md §3.2: $1,000 at $10 a GPU-hour; A holds 50 h, B 30 h, nobody 20 h
FLEET = [held("A", 50), held("B", 30), pooled("unallocated", "200", 20)]


@pytest.mark.parametrize(
    ("bearing", "expected"),
    [
        ("own pool", {"A": "500.00", "B": "300.00", "unallocated": "200.00"}),
        ("held hours", {"A": "625.00", "B": "375.00"}),
        ("even", {"A": "600.00", "B": "400.00"}),
        ({"A": 60, "B": 40}, {"A": "620.00", "B": "380.00"}),
    ],
)
def test_spare_capacity_is_borne_as_published(bearing: object, expected: dict[str, str]) -> None:
    """The published example under each of its four policies."""
    assert amounts(charged(FLEET, unallocated=bearing)) == expected


def test_overhead_is_borne_pro_rata_as_published() -> None:
    """$100 of overhead: 62.50 and 37.50, as parts of their own beside the GPU-hours."""
    got = charged([held("A", 50), held("B", 30), pooled("shared", "100", kind="other")], shared="held hours")
    parts = {(s.by["team"], part.name): str(part.amounts[B]) for s in got.statements for part in s.parts}
    assert parts[("A", "share of shared")] == "62.50"
    assert parts[("B", "share of shared")] == "37.50"
    assert [part.method for part in got.statements[0].parts] == ["held hours that worked", "by held hours: 50 of 80 h"]
    assert str(got.spreads[0].amounts[B]) == "100.00"


def test_held_time_goes_to_its_holder_unless_policy_says_otherwise() -> None:
    """Idle and unobserved hours are parts of the holder's statement; kept apart by policy, they are pools with their hours."""
    lines = [held("A", 50, idle=10, unobserved=5, effective=20), held("B", 30, effective=30)]
    at_holder = charged(lines)
    assert amounts(at_holder) == {"A": "500.00", "B": "300.00"}
    expected = {"busy": "350.00", "idle": "100.00", "unobserved": "50.00"}
    assert {p.name: str(p.amounts[B]) for p in at_holder.statements[0].parts} == expected
    assert at_holder.statements[0].hours.coverage_share == Decimal("0.9")
    assert at_holder.statements[0].rates == {B: Decimal("10.000000")}
    apart = charged(lines, idle="own pool", unobserved="own pool")
    assert amounts(apart) == {"A": "350.00", "B": "300.00", "idle": "100.00", "unobserved": "50.00"}
    assert [s.hours.total for s in apart.statements if s.pool] == [10, 5]
    assert {s.rates[B] for s in apart.statements} == {Decimal(10)}
    borne = charged(lines, idle="effective hours")
    assert amounts(borne) == {"A": "440.00", "B": "360.00"}


def test_gpus_without_hours_are_not_called_busy() -> None:
    """Where only the bill is known and no hours, an owner's GPUs are charged as such, without a rate and without a coverage."""
    (statement,) = charged([CostLine({B: Decimal(7)}, ("A",))], idle="own pool").statements
    assert [part.name for part in statement.parts] == ["gpu"]
    assert statement.rates == {B: None}
    assert statement.hours.coverage_share is None


def test_nobody_to_bear_leaves_a_pool_as_it_is() -> None:
    """Where nobody used anything effectively, a pool that goes by effective hours stands in its own statement, and it is said."""
    got = charged(FLEET, unallocated="effective hours")
    assert amounts(got)["unallocated"] == "200.00"
    assert got.spreads[0].kept_because == "nobody has effective hours"


def test_a_fixed_share_of_somebody_without_lines_is_charged() -> None:
    """Who has a fixed share pays it without having held anything; under a name, owners bear by their held hours."""
    lines = [
        CostLine({B: Decimal(1)}, ("A", "x"), hours=ChargedHours(Decimal(3))),
        CostLine({B: Decimal(1)}, ("A", "y"), hours=ChargedHours(Decimal(1))),
        pooled("down", "80"),
    ]
    policy = ChargebackPolicy.model_validate({"down": {"A": 1, "C": 1}})
    got = charge(lines, ("team", "project"), [B], policy)
    expected = [("A", "x", "31.00"), ("A", "y", "11.00"), ("C", None, "40.00")]
    assert [(*s.by.values(), str(s.amounts[B])) for s in got.statements] == expected


def test_storage_is_part_of_a_statement_or_a_statement_of_its_own() -> None:
    """Included, storage is a part of its owner's statement; apart, the owner has a second one; without an owner it is untagged."""
    lines = [
        held("A", 1),
        CostLine({B: Decimal(5)}, ("A",), kind="storage"),
        CostLine({B: Decimal(2)}, kind="storage"),
        CostLine({B: Decimal(-3)}, (None,), kind="other"),
    ]
    assert amounts(charged(lines)) == {"A": "15.00", "untagged": "-1.00"}
    apart = charged(lines, storage="apart").statements
    assert [(s.owner, s.pool, str(s.amounts[B])) for s in apart] == [
        (("A",), None, "10.00"),
        (None, "untagged", "-3.00"),
        (("A",), "storage", "5.00"),
        (None, "storage", "2.00"),
    ]


def test_credits_and_other_currencies() -> None:
    """A credit larger than the bill makes statements negative; yen have no minor unit, and what rounding takes away is printed."""
    lines = [held("A", 1, "0.4"), held("B", 1, "0.4"), pooled("shared", "-2.3")]
    policy = ChargebackPolicy.model_validate({"shared": "even"})
    got = charge(lines, ("team",), [B], policy, "JPY")
    assert amounts(got) == {"A": "-1", "B": "-1"}
    total = got.totals[B]
    expected = (Decimal("-1.5"), Decimal("-2"), Decimal("0.5"), "0")
    assert (total.bill, total.charged, total.rounding, str(total.difference)) == expected


def test_a_line_that_cannot_be_is_refused_in_one_line() -> None:
    """A missing column, a wrong number of names, an unknown pool, no number, more idle than held."""
    with pytest.raises(InputError, match="has no EffectiveCost"):
        charge([held("A", 1)], ("team",), [B, "EffectiveCost"])
    with pytest.raises(InputError, match="1 names; statements are by team, project"):
        charge([held("A", 1)], ("team", "project"), [B])
    with pytest.raises(InputError, match="did you mean 'unallocated'"):
        pooled("unalocated", "1")
    with pytest.raises(InputError, match="BilledCost of a line of A is NaN"):
        held("A", 1, "NaN")
    with pytest.raises(InputError, match="more idle and unobserved hours"):
        held("A", 1, idle=2)
    with pytest.raises(InputError, match="an owner or a pool"):
        CostLine({B: Decimal(1)}, ("A",), "down")


MONEY = st.decimals(-100, 1000, places=11)
HOURS = st.tuples(st.integers(0, 50), st.integers(0, 20), st.integers(0, 20), st.integers(0, 60)).map(
    lambda h: ChargedHours(Decimal(sum(h[:3])) / 8, Decimal(h[1]) / 8, Decimal(h[2]) / 8, Decimal(h[3]))
)
NAME = st.none() | st.sampled_from(["a", "b", "c"])
COSTS = st.fixed_dictionaries({B: MONEY, "EffectiveCost": MONEY})
KINDS = st.sampled_from(["gpu", "storage", "network", "egress", "other"])
LINES = st.lists(
    st.builds(CostLine, COSTS, st.tuples(NAME, NAME), st.none(), KINDS, HOURS)
    | st.builds(CostLine, COSTS, st.none(), st.sampled_from(POOLS), KINDS, HOURS),
    max_size=25,
)
BEARINGS = st.sampled_from(["own pool", "held hours", "effective hours", "even", {"a": 3, "z": 1.5}])
POLICIES = st.fixed_dictionaries(
    {pool.replace(" ", "_"): BEARINGS for pool in POOLS} | {"storage": st.sampled_from(["included", "apart"])}
).map(ChargebackPolicy.model_validate)


@pytest.mark.long
@SETTINGS
@given(LINES, POLICIES, st.sampled_from(["USD", "JPY", "KWD"]), st.randoms())
def test_whatever_the_bill_every_cent_is_charged_once(
    lines: list[CostLine], policy: ChargebackPolicy, currency: str, random: Any
) -> None:
    """Statements sum to the rounded bill, parts to their statement, and the order of lines is nothing."""
    by, columns = ("team", "project"), [B, "EffectiveCost"]
    got = charge(lines, by, columns, policy, currency)
    shuffled = random.sample(lines, len(lines))
    assert charge(shuffled, by, columns, policy, currency) == got
    for column in columns:
        total = got.totals[column]
        exact = sum((Fraction(line.costs[column]) for line in lines), Fraction(0))
        assert Fraction(total.bill) == exact
        assert sum(Fraction(s.amounts[column]) for s in got.statements) == Fraction(total.charged)
        assert round_to_minor(total.charged, currency) == round_to_minor(exact, currency)
        assert Fraction(total.bill - total.rounding) == Fraction(total.charged)
        assert not total.difference
        for statement in got.statements:
            assert sum(part.amounts[column] for part in statement.parts) == statement.amounts[column]


def bear(lines: list[CostLine], way: str, column: str) -> dict[str | None, Fraction]:
    """What each team is charged exactly, worked out slowly: its own lines, and all pools in proportion to its hours."""
    own: dict[str | None, Fraction] = {}
    hours: dict[str | None, Fraction] = {}
    pools = Fraction(0)
    for line in lines:
        cost = Fraction(line.costs[column])
        if line.owner is None:
            pools += cost
            continue
        own[line.owner[0]] = own.get(line.owner[0], Fraction(0)) + cost
        counted = line.hours.total if way == "held hours" else line.hours.effective
        hours[line.owner[0]] = hours.get(line.owner[0], Fraction(0)) + Fraction(counted)
    everything = sum(hours.values())
    return {team: cost + (pools * hours[team] / everything if everything else 0) for team, cost in own.items()}


TEAM_LINES = st.lists(
    st.builds(CostLine, COSTS, st.tuples(st.sampled_from("abc"), NAME), st.none(), KINDS, HOURS)
    | st.builds(CostLine, COSTS, st.none(), st.sampled_from(POOLS), KINDS, HOURS),
    max_size=25,
)


@SETTINGS
@given(TEAM_LINES, st.sampled_from(["held hours", "effective hours"]))
def test_a_team_pays_its_exact_share_within_a_cent(lines: list[CostLine], way: str) -> None:
    """However pools are borne, a team's statements lie less than a cent from a slow exact sum, with and without projects alike."""
    policy = ChargebackPolicy.model_validate(
        {pool.replace(" ", "_"): way for pool in POOLS if pool not in ("idle", "unobserved")}
    )
    lines = [line for line in lines if line.pool not in ("idle", "unobserved")]
    by_team = [replace(line, owner=line.owner and line.owner[:1]) for line in lines]
    short = charge(by_team, ("team",), [B], policy)
    paid: dict[str | None, Decimal] = {s.by["team"]: s.amounts[B] for s in short.statements if s.owner}
    for team, exact in bear(lines, way, B).items():
        assert abs(Fraction(paid.get(team, Decimal(0))) - exact) < Fraction(1, 100)
    deep: dict[str | None, Decimal] = {}
    for statement in charge(lines, ("team", "project"), [B], policy).statements:
        if statement.owner:
            deep[statement.owner[0]] = deep.get(statement.owner[0], Decimal(0)) + statement.amounts[B]
    assert {team: amount for team, amount in deep.items() if amount} == {t: a for t, a in paid.items() if a}


COMMITMENT_SETTINGS = settings(max_examples=100, deadline=None, derandomize=True, database=None)


@COMMITMENT_SETTINGS
@given(st.integers(1, 200), st.integers(0, 300), st.integers(1, 500), st.integers(1, 500))
def test_a_bill_says_what_the_plan_said(committed: int, used: int, rate: int, on_demand: int) -> None:
    """An hour of a commitment, charged line by line, has the savings rate, coverage, utilization and unused cost of the plan."""
    covered = min(committed, used)
    lines = [
        CommitmentLine("ri", Decimal(covered * rate), Decimal(covered * on_demand)),
        CommitmentLine("ri", Decimal((committed - covered) * rate), is_used=False),
        CommitmentLine(None, Decimal((used - covered) * on_demand), Decimal((used - covered) * on_demand)),
    ]
    billed = sum(measure_commitments(lines).values(), CommitmentUse())
    planned = Commitment(committed, rate, on_demand, used)
    for ours, theirs in (
        (billed.utilization_share, planned.utilization_share),
        (billed.coverage_share, planned.coverage_share),
        (billed.effective_savings_share, planned.effective_savings_share),
        (billed.unused_cost, planned.unused_cost_per_hour),
    ):
        assert ours == theirs or float(ours or 0) == pytest.approx(theirs, rel=1e-12, abs=1e-12)


def test_commitments_are_told_apart_and_what_none_covered_comes_last() -> None:
    """Each has its own numbers; one that nobody used has no savings rate, and use outside of all has no utilization."""
    uses = measure_commitments(
        [
            CommitmentLine(None, Decimal(30), Decimal(30)),
            CommitmentLine("idle", Decimal(36), is_used=False),
            CommitmentLine("busy", Decimal("0.1"), Decimal("0.4")),
            CommitmentLine("busy", Decimal("0.2"), Decimal("0.4")),
        ]
    )
    assert list(uses) == ["busy", "idle", None]
    assert (uses["busy"].used_cost, uses["busy"].effective_savings_share) == (Decimal("0.3"), Decimal("0.625"))
    assert (uses["idle"].utilization_share, uses["idle"].effective_savings_share) == (0, None)
    assert (uses[None].utilization_share, uses[None].coverage_share) == (None, 0)


REMAINDER_SETTINGS = settings(max_examples=150, deadline=None, derandomize=True, database=None)
TOTALS = st.integers(-(10**12), 10**12) | st.integers(-3, 3) | st.integers(-(10**30), 10**30)
WEIGHTS = st.lists(
    st.integers(0, 1000) | st.decimals(0, 1000, places=9) | st.floats(0, 1e6) | st.just(0) | st.fractions(0, 5),
    min_size=1,
    max_size=30,
)
AMOUNTS = st.decimals(-1000, 1000, places=6) | st.sampled_from([Decimal("0.5"), Decimal("-0.5"), Decimal(0)])


@pytest.mark.long
@REMAINDER_SETTINGS
@given(TOTALS, WEIGHTS)
def test_shares_are_whole_sum_and_stay_within_one_unit(
    total: int, weights: list[int | Decimal | float | Fraction]
) -> None:
    """Whatever is divided, shares sum to it, lie less than one unit from the exact quota, and a weight of 0 gets nothing."""
    exact = [Fraction(weight) for weight in weights]
    if not sum(exact):
        if total:
            with pytest.raises(InputError, match="all 0"):
                largest_remainder(total, weights)
        return
    shares = largest_remainder(total, weights)
    assert sum(shares) == total
    for share, weight in zip(shares, exact, strict=True):
        assert abs(share - total * weight / sum(exact)) < 1
        assert weight or not share
    assert largest_remainder(-total, weights) == [-share for share in shares]


@REMAINDER_SETTINGS
@given(TOTALS, st.dictionaries(st.text(max_size=3), st.integers(0, 4), min_size=1, max_size=12), st.randoms())
def test_the_order_of_rows_changes_nothing(total: int, weights: dict[str, int], random: object) -> None:
    """With keys to decide ties, everybody's share is the same in whatever order the rows come."""
    if not sum(weights.values()):
        return
    keys = list(weights)
    shares = dict(zip(keys, largest_remainder(total, [weights[key] for key in keys], keys), strict=True))
    random.shuffle(keys)  # type: ignore[attr-defined]
    assert dict(zip(keys, largest_remainder(total, [weights[key] for key in keys], keys), strict=True)) == shares


@REMAINDER_SETTINGS
@given(st.lists(AMOUNTS, min_size=1, max_size=30))
def test_amounts_of_either_sign_are_rounded_to_their_rounded_sum(amounts: list[Decimal]) -> None:
    """Charges and credits together keep their rounded sum; opposite amounts have opposite shares; a whole amount stays."""
    quotas = [Fraction(amount) for amount in amounts]
    total = round(sum(quotas))
    shares = round_shares(total, quotas)
    assert sum(shares) == total
    for share, quota in zip(shares, quotas, strict=True):
        assert abs(share - quota) < 1
        assert quota.denominator > 1 or share == quota
    assert round_shares(-total, [-quota for quota in quotas]) == [-share for share in shares]


NAMES = st.none() | st.sampled_from("abc")


@pytest.mark.long
@REMAINDER_SETTINGS
@given(st.dictionaries(st.tuples(NAMES, NAMES, NAMES), AMOUNTS, min_size=1, max_size=40))
def test_children_sum_to_parents_on_three_levels(amounts: dict[tuple[str | None, ...], Decimal]) -> None:
    """On every level each share is within one unit of its quota, and a parent is the same without its children."""
    quotas = {path: Fraction(amount) for path, amount in amounts.items()}
    total = round(sum(quotas.values()))
    leaves = round_levels(total, quotas)
    assert sum(leaves.values()) == total
    for depth in (1, 2, 3):
        of_parent: dict[tuple[str | None, ...], Fraction] = {}
        charged: dict[tuple[str | None, ...], int] = {}
        for path, quota in quotas.items():
            of_parent[path[:depth]] = of_parent.get(path[:depth], Fraction(0)) + quota
            charged[path[:depth]] = charged.get(path[:depth], 0) + leaves[path]
        assert all(abs(charged[path] - quota) < 1 for path, quota in of_parent.items())
        assert round_levels(total, of_parent) == charged
    assert round_levels(total, dict(reversed(quotas.items()))) == leaves


def test_a_thousand_owners_share_native_and_wide_integers_alike() -> None:
    """A total beyond 64 bits is divided by Python's integers with the same result as a part of it by native ones."""
    weights = [Decimal(n * 37 % 1009) / 7 for n in range(1000)]
    shares = largest_remainder(123_456_789, weights)
    assert sum(shares) == 123_456_789
    widened = largest_remainder(123_456_789, [weight * 10**30 for weight in weights])
    assert widened == shares
    assert sum(largest_remainder(10**40 + 1, weights)) == 10**40 + 1


def test_what_cannot_be_divided_is_refused() -> None:
    """A negative weight, a key that comes twice, and shares that are not near the total: one line each."""
    with pytest.raises(InputError, match="negative: -1"):
        largest_remainder(10, [1, -1])
    with pytest.raises(InputError, match="two shares have one key"):
        largest_remainder(10, [1, 1], ["a", "a"])
    with pytest.raises(InputError, match="cannot be rounded to 5"):
        round_shares(5, [Fraction(1), Fraction(1, 2)])
    assert largest_remainder(0, []) == largest_remainder(0, [])
    assert largest_remainder(0, [0, 0]) == [0, 0]
