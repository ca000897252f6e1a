"""Golden values about batching, duty, bursts, serving replicas and waiting lines are met, by id, without any file but our own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadfactor.planner.serving.fleet_run import duty_multiplier, exponential_peak_multiplier
from loadfactor.planner.serving.service import batch_speedup, cache_to_weights, compute_share, steady_batch
from loadfactor.planner.sizing.closed_forms import erlang_c, queue_wait

Formula = Callable[[dict[str, Any]], float]
VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "serving.json").read_text(encoding="utf-8"))


def _batch(i: dict[str, Any]) -> float:
    kappa = i.get("kappa") or cache_to_weights(i["N"], i["kv_bytes_per_token"], i["ctx"])
    return batch_speedup(i["b"], kappa)


STATIONS = ("0.8.1", "1.8.2", "8.10", "80.100", "90.100")
FORMULAS: dict[str, Formula] = {
    "batch.kappa27": _batch,
    "batch.llama2_7b.512": _batch,
    "batch.llama3_8b.2048": _batch,
    "batch.llama2_13b.1024": _batch,
    "decode.b1.compute_util.a100_80": lambda i: compute_share(1, 0.0, i["bw"], i["peak"]),
    "duty.40": lambda i: duty_multiplier(i["duty"]).multiplier,
    "bursty.low": lambda i: duty_multiplier(i["duty"], i["fill"]).multiplier,
    "bursty.high": lambda i: duty_multiplier(i["duty"], i["fill"]).multiplier,
    "bursty.exp.p95": lambda i: exponential_peak_multiplier(i["q"]),
    "serve.concurrency": lambda i: steady_batch(i["alpha"], i["beta"], i["u"]),
    "md1.Wq": lambda i: queue_wait(i["rho"], 1.0, 1, service_cv2=0.0).mean_s,
    "mg1.Wq.cs2_4": lambda i: queue_wait(i["rho"], 1.0, 1, service_cv2=i["cs2"]).mean_s,
    "kingman": lambda i: queue_wait(i["rho"], 1.0, 1, i["ca2"], i["cs2"]).mean_s,
    "mmk.p_wait_gt": lambda i: queue_wait(i["lam"], 1.0, i["k"]).longer_share(i["t"]),
    **{f"mmk.{x}.C": lambda i: erlang_c(i["lam"] / i["mu"], i["k"]) for x in STATIONS},
    **{f"mmk.{x}.Wq": lambda i: queue_wait(i["lam"], 1 / i["mu"], i["k"]).mean_s for x in STATIONS},
}


def test_every_golden_value_has_its_formula() -> None:
    """None of the golden values is left out, and no formula is without one."""
    assert {v["id"] for v in VECTORS} == set(FORMULAS)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v["id"])
def test_golden_values(vector: dict[str, Any]) -> None:
    """The product's own function gives the golden value, to 1e-9 or its own tolerance where that is tighter."""
    kind, _, size = vector["tolerance"].partition(" ")
    tolerance = 0.0 if kind == "exact" else min(float(size), 1e-9)
    got = FORMULAS[vector["id"]](vector["inputs"])
    assert got == pytest.approx(vector["expected"], rel=tolerance, abs=tolerance)


def test_our_copy_is_the_published_one(shared: Path) -> None:
    """Inputs and expected values are those of the file they were retyped from."""
    there = {v["id"]: v for v in json.loads((shared / "truth" / "test_vectors.json").read_text(encoding="utf-8"))}
    for vector in VECTORS:
        assert (vector["inputs"], vector["expected"]) == (
            there[vector["id"]]["inputs"],
            there[vector["id"]]["expected"],
        )
