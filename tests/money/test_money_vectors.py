"""Every golden value about ownership, commitments, spot, allocation and budgets, by id, of bills and of plans."""

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from loadfactor.base.units import W_PER_KW
from loadfactor.money.commitments import CommitmentLine, CommitmentUse, measure_commitments
from loadfactor.money.currency import largest_remainder
from loadfactor.money.spending import compute_burn_rate, project_run_rate
from loadfactor.planner.economics.ownership import OwnedCost, OwnedServer, capital_recovery_factor, compute_owned_cost
from loadfactor.planner.economics.renting import Commitment, SpotOffer, cost_spot

Inputs = Mapping[str, Any]
ANSWERED = r"(tco|commit|spot|lr|budget)\..*"
"""Ids of golden values that are this table's."""
VECTORS: dict[str, dict[str, Any]] = {
    vector["id"]: vector
    for vector in json.loads((Path(__file__).parents[1] / "vectors" / "money.json").read_text(encoding="utf-8"))
}


def _owned(v: Inputs) -> OwnedCost:
    return compute_owned_cost(
        OwnedServer(
            server_price=v["server_usd"],
            gpus=v["gpus"],
            life_years=v["life_y"],
            discount_rate_share=v["wacc"],
            residual_share=v["residual"],
            power_w=v["server_kw"] * W_PER_KW,
            load_share=v["load"],
            pue=v["pue"],
            price_per_kwh=v["usd_per_kwh"],
            network_share=v["network_share"],
            support_share=v["support"],
            staff_cost_per_year=v["staff_usd"],
            availability_share=v["availability"],
        )
    )


# The break-even against a price uses the golden server: the vectors name only its cost per hour.
GOLDEN_SERVER = compute_owned_cost(OwnedServer(server_price=300_000))


def _planned(v: Inputs) -> Commitment:
    return Commitment(v.get("committed", 1), v["rate"], v["od"], v.get("used", 1))


def _billed(v: Inputs) -> CommitmentUse:
    rate, on_demand = Decimal(str(v["rate"])), Decimal(str(v["od"]))
    used = CommitmentLine("ri", v["used"] * rate, v["used"] * on_demand)
    unused = CommitmentLine("ri", (v["committed"] - v["used"]) * rate, is_used=False)
    return measure_commitments((used, unused))["ri"]


# id pattern → what plans and bills answer for the vector's inputs
ANSWERS: tuple[tuple[str, Callable[[Inputs], Any]], ...] = (
    (r"tco\.crf", lambda v: capital_recovery_factor(v["wacc"], v["life_y"])),
    (r"tco\.annualized_capital", lambda v: _owned(v).capital_cost),
    (r"tco\.straight_line", lambda v: _owned(v).straight_line_capital_cost),
    (r"tco\.energy", lambda v: _owned(v).energy_cost),
    (r"tco\.network_annualized", lambda v: _owned(v).network_cost),
    (r"tco\.total_year", lambda v: _owned(v).total_cost),
    (r"tco\.per_gpu_hour", lambda v: _owned(v).price_per_gpu_hour),
    (r"tco\.per_available_gpu_hour", lambda v: _owned(v).cost_per_available_gpu_hour),
    (r"tco\.breakeven_util_vs_.*", lambda v: GOLDEN_SERVER.break_even_share(v["p"])),
    (r"spot\.effective_price", lambda v: cost_spot(SpotOffer(v["p_spot"], 4)).cost_per_useful_gpu_hour),
    (r"commit\.esr", lambda v: _planned(v).effective_savings_share),
    (r"commit\.esr", lambda v: float(_billed(v).effective_savings_share or 0)),
    (r"commit\.breakeven", lambda v: _planned(v).break_even_share),
    (r"lr\..*", lambda v: largest_remainder(v["cents"], v["weights"])),
    (r"budget\.projection", lambda v: float(project_run_rate(Decimal(v["mtd"]), v["day"], v["days"]))),
    (r"budget\.burn", lambda v: float(compute_burn_rate(Decimal(v["mtd"]), Decimal(v["budget"]), v["day"], v["days"]))),
)


def tolerance(vector: Mapping[str, Any]) -> dict[str, float]:
    """The vector's own tolerance as pytest.approx understands it."""
    kind, _, size = vector["tolerance"].partition(" ")
    return {"rel": 0.0, "abs": 0.0} | ({kind: float(size)} if kind in ("rel", "abs") else {})


@pytest.mark.parametrize(("pattern", "answer"), ANSWERS, ids=[pattern for pattern, _ in ANSWERS])
def test_golden_values(pattern: str, answer: Callable[[Inputs], Any]) -> None:
    """Each golden value is reproduced within its own tolerance, and every pattern of the table names at least one."""
    matching = [v for name, v in VECTORS.items() if re.fullmatch(pattern, name)]
    assert matching
    for vector in matching:
        got = answer(vector["inputs"])
        assert got == pytest.approx(vector["expected"], **tolerance(vector)), vector["id"]


def test_every_vector_is_answered() -> None:
    """No golden value of the file is left out."""
    assert set(VECTORS) == {name for name in VECTORS for pattern, _ in ANSWERS if re.fullmatch(pattern, name)}


def test_the_values_are_all_those_published_beside_the_checkout(shared: Path) -> None:
    """None of the published values on these subjects is missing; inputs, expected values and tolerances are theirs."""
    listed = json.loads((shared / "truth" / "test_vectors.json").read_text(encoding="utf-8"))
    published = {v["id"]: v for v in listed if re.fullmatch(ANSWERED, v["id"])}
    assert set(published) == set(VECTORS)
    for name, vector in VECTORS.items():
        for key in ("inputs", "expected", "tolerance"):
            assert vector[key] == published[name][key], name
