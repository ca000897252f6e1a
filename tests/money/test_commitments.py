"""Commitments as billed: the same shares as planned ones have, from exact amounts."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.money.commitments import CommitmentLine, CommitmentUse, measure_commitments
from loadfactor.planner.economics.renting import Commitment

SETTINGS = settings(max_examples=100, deadline=None, derandomize=True, database=None)


@SETTINGS
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
