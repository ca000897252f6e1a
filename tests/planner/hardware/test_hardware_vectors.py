"""The golden values of collectives and checkpoints: tensor parallelism's cliff, Young, Daly, and failures of large jobs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadfactor.base.units import H_PER_DAY, S_PER_DAY, S_PER_HOUR
from loadfactor.planner.hardware.checkpoint import daly_interval_s, job_mtbf_s, plan_checkpoints, young_interval_s
from loadfactor.planner.hardware.kernels import Fabric, all_reduce_s

Inputs = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "vectors"
LLAMA3_GPUS, LLAMA3_GPU_MTBF_H = 16_384, 16_384 * 54 * H_PER_DAY / 419
META_NODE_MTBF_H = H_PER_DAY / 6.5e-3


def read_vectors(topic: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((FOLDER / f"{topic}.json").read_text(encoding="utf-8"))
    return loaded


def ettr(i: Inputs) -> float:
    """Meta's effective-training-time ratio, whose inputs are in days."""
    mtbf_s = job_mtbf_s(H_PER_DAY / i["rf"], i["nodes"])
    return plan_checkpoints(
        i["w"] * S_PER_DAY, mtbf_s, i["u0"] * S_PER_DAY, i["dt"] * S_PER_DAY
    ).first_order_efficiency_share


CHECKPOINTS: dict[str, Callable[[Inputs], float]] = {
    "ckpt.young": lambda i: young_interval_s(i["delta"], i["M"]),
    "ckpt.daly": lambda i: daly_interval_s(i["delta"], i["M"]),
    "ckpt.eff": lambda i: plan_checkpoints(i["delta"], i["M"], i["R"]).efficiency_share,
    "llama3.mtti_h": lambda _: job_mtbf_s(LLAMA3_GPU_MTBF_H, LLAMA3_GPUS) / S_PER_HOUR,
    "llama3.gpu_mtbf_h": lambda _: job_mtbf_s(LLAMA3_GPU_MTBF_H, 1) / S_PER_HOUR,
    "meta.mtti_16384_h": lambda _: job_mtbf_s(META_NODE_MTBF_H, 2048) / S_PER_HOUR,
    "meta.ettr": ettr,
}


@pytest.mark.parametrize("vector", read_vectors("checkpoints"), ids=lambda v: v["id"])
def test_checkpoints_and_failures(vector: dict[str, Any]) -> None:
    """Intervals, shares of kept work, and interruptions of Llama 3's and Meta's jobs."""
    formula = next(f for name, f in CHECKPOINTS.items() if vector["id"].startswith(name))
    assert formula(vector["inputs"]) == pytest.approx(vector["expected"], rel=1e-9)


@pytest.mark.parametrize("vector", read_vectors("collectives"), ids=lambda v: v["id"])
def test_tensor_parallelism_falls_off_a_cliff(vector: dict[str, Any]) -> None:
    """Efficiency c/(c+v/bw) of a layer: 93 % for 8 ranks on NVLink, 40 % for 16 through one adapter each."""
    t, bw = vector["inputs"]["t"], vector["inputs"]["bw"]
    h, seq = 12288, 2048
    compute_s = 72 * seq * h**2 * (1 + seq / (6 * h)) / (t * 140e12)
    flat = Fabric(t, bw, bw, 1, 1, 0, 0)  # one flat ring over links of this speed
    exchange_s = 4 * float(all_reduce_s(2 * seq * h, t, 1, flat))
    assert compute_s / (compute_s + exchange_s) == pytest.approx(vector["expected"], abs=1e-3)
