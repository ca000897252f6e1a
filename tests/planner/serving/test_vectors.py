"""The golden values about batching, duty, bursts and serving replicas are met, by id."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadfactor.planner.serving.demand import exponential_peak_multiplier
from loadfactor.planner.serving.roofline import (
    batch_speedup,
    cache_to_weights,
    compute_share,
    cost_multiplier,
    steady_batch,
)
from loadfactor.planner.sizing.queueing import erlang_c, mean_wait_s, queue_wait

Formula = Callable[[dict[str, Any]], float]


def _batch(i: dict[str, Any]) -> float:
    kappa = i.get("kappa") or cache_to_weights(i["N"], i["kv_bytes_per_token"], i["ctx"])
    return batch_speedup(i["b"], kappa)


def _queue(i: dict[str, Any]) -> float:
    return mean_wait_s(i["lam"], 1 / i["mu"], i["k"])


STATIONS = ("0.8.1", "1.8.2", "8.10", "80.100", "90.100")
FORMULAS: dict[str, tuple[Formula, float]] = {
    "batch.kappa27": (_batch, 1e-9),
    "batch.llama2_7b.512": (_batch, 1e-9),
    "batch.llama3_8b.2048": (_batch, 1e-9),
    "batch.llama2_13b.1024": (_batch, 1e-9),
    "decode.b1.compute_util.a100_80": (lambda i: compute_share(1, 0.0, i["bw"], i["peak"]), 1e-9),
    "duty.40": (lambda i: cost_multiplier(i["duty"]).total, 0.0),
    "bursty.low": (lambda i: cost_multiplier(i["duty"], i["fill"]).total, 1e-9),
    "bursty.high": (lambda i: cost_multiplier(i["duty"], i["fill"]).total, 0.0),
    "bursty.exp.p95": (lambda i: exponential_peak_multiplier(i["q"]), 1e-9),
    "serve.concurrency": (lambda i: steady_batch(i["alpha"], i["beta"], i["u"]), 1e-9),
    "md1.Wq": (lambda i: mean_wait_s(i["rho"], 1.0, 1, service_cv2=0.0), 1e-12),
    "mg1.Wq.cs2_4": (lambda i: mean_wait_s(i["rho"], 1.0, 1, service_cv2=i["cs2"]), 1e-12),
    "kingman": (lambda i: mean_wait_s(i["rho"], 1.0, 1, i["ca2"], i["cs2"]), 1e-12),
    "mmk.p_wait_gt": (lambda i: queue_wait(i["lam"], 1.0, i["k"]).longer_share(i["t"]), 1e-9),
    **{
        f"mmk.{x}.C": (lambda i: erlang_c(i["lam"] / i["mu"], i["k"]), 1e-9)
        for x in ("0.8.1", "1.8.2", "8.10", "80.100", "90.100")
    },
    **{f"mmk.{x}.Wq": (_queue, 1e-9) for x in ("0.8.1", "1.8.2", "8.10", "80.100", "90.100")},
}
SERVING = ("batch.", "decode.", "duty.", "bursty.", "serve.", "mmk.", "md1.", "mg1.", "kingman")


def test_golden_values(shared: Path) -> None:
    """Every golden value of these topics is reproduced within its tolerance, and none is left out."""
    vectors = json.loads((shared / "truth" / "test_vectors.json").read_text(encoding="utf-8"))
    mine = [v for v in vectors if v["id"].startswith(SERVING)]
    assert {v["id"] for v in mine} == set(FORMULAS)
    for vector in mine:
        formula, tolerance = FORMULAS[vector["id"]]
        assert formula(vector["inputs"]) == pytest.approx(vector["expected"], rel=tolerance, abs=tolerance), vector[
            "id"
        ]
