"""The golden values of the published formulas: Megatron's sizes and shares, PaLM's MFU table, tensor parallelism's cliff."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadfactor.catalog.models import network
from loadfactor.planner.hardware.checkpoint import job_mtbf_s, plan_checkpoints
from loadfactor.planner.hardware.collectives import Fabric, all_reduce_s
from loadfactor.planner.training.flops import (
    HARDWARE,
    MODEL,
    mfu_share,
    paid_mfu_share,
    palm_flops_per_token,
    training_flops_per_token,
)
from loadfactor.units import FLOPS_PER_TFLOPS, H_PER_DAY, S_PER_DAY, S_PER_HOUR
from loadfactor.validation.mfu_claims import validate_mfu

NAMES = {"18.4B": "18b", "39.1B": "39b", "76.1B": "76b", "145.6B": "145b", "310.1B": "310b", "529.6B": "530b"}


@pytest.fixture(scope="module")
def vectors(shared: Path) -> dict[str, dict[str, Any]]:
    loaded = json.loads((shared / "truth" / "test_vectors.json").read_text(encoding="utf-8"))
    rows = loaded["vectors"] if isinstance(loaded, dict) else loaded
    return {v["id"]: v for v in rows}


def megatron(vector: dict[str, Any], what: str) -> float:
    """One number of the weak-scaling table from the vector's inputs."""
    i = vector["inputs"]
    size = vector["id"].removeprefix("megatron.").rpartition(".")[0]
    rate = i.get("tflops_per_gpu", 0) * FLOPS_PER_TFLOPS
    if what == "params_B":
        catalog = {"1008.0B": "1t"}.get(size, NAMES.get(size, size.lower()))
        return network(f"megatron-{catalog}").parameters / 1e9
    if what == "pct_peak":
        return float(rate / (i["peak"] * FLOPS_PER_TFLOPS))
    if what == "aggregate_pflops":
        return float(i["gpus"] * i["tflops_per_gpu"] / 1000)
    shape = replace(network("megatron-1t"), layers=i["layers"], hidden=i["hidden"], vocabulary=i["vocab"])
    shape = replace(
        shape, heads=i["hidden"] // 128, kv_heads=i["hidden"] // 128, head_dim=128, ffn_hidden=4 * i["hidden"]
    )
    hardware, model = (training_flops_per_token(shape, i["seq"], c) for c in (HARDWARE, MODEL))
    return mfu_share(i["gpus"] * rate / hardware, model, i["gpus"], i["peak"] * FLOPS_PER_TFLOPS)


def test_megatron_weak_scaling(vectors: dict[str, dict[str, Any]]) -> None:
    """Sizes, shares of peak, aggregate speed and MFU of all ten rows follow from the formulas."""
    checked = 0
    for name, vector in vectors.items():
        kind, what = name.partition(".")[0], name.rpartition(".")[2]
        if kind == "megatron" and what in ("params_B", "pct_peak", "aggregate_pflops", "mfu"):
            assert megatron(vector, what) == pytest.approx(vector["expected"], rel=5e-4, abs=5e-4), name
            checked += 1
    assert checked == 40


def test_megatron_days(vectors: dict[str, dict[str, Any]]) -> None:
    """8·T·P/(n·X) gives the days the paper prints for 175B and 1T."""
    for name, vector in vectors.items():
        if name.startswith("megatron.") and "days" in name:
            i = vector["inputs"]
            values = {k.lower(): float(v) for k, v in i.items()}
            tokens, size = values.get("t", values.get("tokens")), values.get("p", values.get("params"))
            gpus, rate = values.get("n", values.get("gpus")), values.get("x", values.get("tflops_per_gpu"))
            assert None not in (tokens, size, gpus, rate), (name, i)
            rate *= FLOPS_PER_TFLOPS if rate < 1e6 else 1
            assert 8 * tokens * size / (gpus * rate) / S_PER_DAY == pytest.approx(vector["expected"], rel=0.01), name


def test_mfu_of_the_palm_table(vectors: dict[str, dict[str, Any]]) -> None:
    """MFU, HFU and MFU over paid hours of PaLM, MT-NLG, Gopher and GPT-3, as their own formula gives them."""
    rows = {c.model: c for c in validate_mfu().claims}
    assert rows["PaLM"].recomputed_share == pytest.approx(vectors["palm.mfu"]["expected"], abs=1e-6)
    assert rows["PaLM"].hfu_share == pytest.approx(vectors["palm.hfu"]["expected"], abs=5e-4)
    assert rows["PaLM"].paid_share == pytest.approx(vectors["palm.all_in_mfu"]["expected"], abs=1e-6)
    assert rows["MT-NLG"].recomputed_share == pytest.approx(vectors["mtnlg.mfu"]["expected"], abs=1e-6)
    assert rows["Gopher"].recomputed_share == pytest.approx(vectors["gopher.mfu"]["expected"], abs=1e-6)
    assert rows["GPT-3"].recomputed_share == pytest.approx(vectors["gpt3.mfu.formula"]["expected"], abs=1e-6)
    assert [c.model for c in validate_mfu().claims if not c.follows] == ["GPT-3"]


def test_palm_without_attention_and_its_carbon(vectors: dict[str, dict[str, Any]]) -> None:
    """45.7 % without attention, and 271.43 t of CO₂ from the same chip-hours."""
    i = vectors["palm.mfu.no_attn"]["inputs"]
    bare = mfu_share(i["tps"], palm_flops_per_token(i["N"], 0, 0, 0), i["chips"], i["peak"])
    assert bare == pytest.approx(vectors["palm.mfu.no_attn"]["expected"], abs=1e-9)
    tonnes = vectors["palm.co2"]["inputs"]["chip_h"] * 378.5 * 1.08 * 0.079 / 1e6
    assert tonnes == pytest.approx(vectors["palm.co2"]["expected"], abs=0.01)
    assert paid_mfu_share(2.56e24, 8_404_992, 275e12) == pytest.approx(0.308, abs=1e-3)


@pytest.mark.parametrize(("name", "stride", "ranks"), [("tp.8.nvlink", 1, 8), ("tp.16.ib", 1, 16)])
def test_tensor_parallelism_falls_off_a_cliff(
    vectors: dict[str, dict[str, Any]], name: str, stride: int, ranks: int
) -> None:
    """Efficiency c/(c+v/bw) of a layer: 93 % for 8 ranks on NVLink, 40 % for 16 through one adapter each."""
    i = vectors[name]["inputs"]
    h, seq, t = 12288, 2048, i["t"]
    compute_s = 72 * seq * h**2 * (1 + seq / (6 * h)) / (t * 140e12)
    flat = Fabric(t, i["bw"], i["bw"], 1, 1, 0, 0)  # one flat ring over links of this speed
    exchange_s = 4 * float(all_reduce_s(2 * seq * h, ranks, stride, flat))
    assert compute_s / (compute_s + exchange_s) == pytest.approx(vectors[name]["expected"], abs=1e-3)


def test_failures_of_large_jobs(vectors: dict[str, dict[str, Any]]) -> None:
    """Llama 3's and Meta's interruption rates and effective training time."""
    hours = vectors["llama3.gpu_mtbf_h"]["expected"]
    assert job_mtbf_s(hours, 16_384) / S_PER_HOUR == pytest.approx(vectors["llama3.mtti_h"]["expected"], abs=1e-6)
    node_mtbf_h = H_PER_DAY / 6.5e-3
    assert job_mtbf_s(node_mtbf_h, 2048) / S_PER_HOUR == pytest.approx(
        vectors["meta.mtti_16384_h"]["expected"], rel=1e-9
    )
    i = vectors["meta.ettr"]["inputs"]
    w, mtbf, u0, dt = (
        i["w"] * S_PER_DAY,
        job_mtbf_s(H_PER_DAY / i["rf"], i["nodes"]),
        i["u0"] * S_PER_DAY,
        i["dt"] * S_PER_DAY,
    )
    ratio = plan_checkpoints(w, mtbf, u0, dt).first_order_efficiency_share
    assert ratio == pytest.approx(vectors["meta.ettr"]["expected"], rel=1e-9)
