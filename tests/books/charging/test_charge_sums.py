"""Property tests of sums of charges: exact, whatever the order of lines, their grouping and their sign."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import settings as with_settings
from hypothesis import strategies as st

from loadfactor.books.charging.bill_lines import sum_charges
from loadfactor.money.chargeback import charge
from loadfactor.settings.money import ChargebackPolicy
from loadfactor.tables.charges import CHARGES, COSTS

LINES = st.fixed_dictionaries(
    {
        "team": st.sampled_from(["a", "b", "c", None]),
        "BilledCost": st.decimals(-1000, 1000, places=9),
        "EffectiveCost": st.decimals(-1000, 1000, places=18),
        "ChargeCategory": st.sampled_from(["Usage", "Tax", "Credit", "Purchase"]),
        "CommitmentDiscountStatus": st.sampled_from([None, "Used", "Unused"]),
        "ServiceCategory": st.sampled_from(["Compute", "Storage", "Networking", None]),
    }
)


def sum_lines(lines: list[dict[str, Any]]) -> Any:
    """Statements of lines, under a policy that spreads what is shared and unused."""
    usual = {"ListCost": Decimal(0), "ContractedCost": Decimal(0), "ResourceId": "vm"}
    schema = CHARGES.schema
    rows = pa.Table.from_pylist([{name: (usual | line).get(name) for name in schema.names} for line in lines], schema)
    session: Any = SimpleNamespace(raw=duckdb.connect(config={"threads": 1}))
    session.raw.register("rows", rows)
    session.raw.execute("CREATE VIEW lines AS SELECT *, NULL::VARCHAR AS rate, false AS is_gpu FROM rows")
    sums = sum_charges(session, ("team",), "lines")
    policy = ChargebackPolicy.model_validate({"shared": "even", "unused_commitment": "even", "storage": "apart"})
    return charge([found.line for found in sums], ("team",), COSTS, policy)


@given(st.lists(LINES, min_size=1, max_size=25), st.randoms(use_true_random=False))
@with_settings(max_examples=25)
def test_sums_are_exact_in_any_order(lines: list[dict[str, Any]], random: Any) -> None:
    """Statements sum to the rounded bill with a difference of 0, and the order of the lines changes nothing."""
    found = sum_lines(lines)
    for column in ("BilledCost", "EffectiveCost"):
        whole = sum((line[column] for line in lines), Decimal(0))
        assert found.totals[column].bill == whole
        assert found.totals[column].difference == 0
        assert sum(s.amounts[column] for s in found.statements) == found.totals[column].charged
        assert abs(found.totals[column].charged - whole) <= Decimal("0.005")
    shuffled = list(lines)
    random.shuffle(shuffled)
    assert sum_lines(shuffled).statements == found.statements
