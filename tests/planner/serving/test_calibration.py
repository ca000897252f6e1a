"""Load tests that were measured move the constants of an engine by Bayes' rule."""

import json
from dataclasses import replace

import pytest

from loadfactor.base.errors import InputError, SourceError
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import network
from loadfactor.planner.serving.calibration import (
    LoadTestResult,
    calibrate,
    read_load_tests,
    read_ranges,
    read_replica_layout,
    split_measured,
    tell_distance,
)
from loadfactor.planner.serving.latency import predict_latency
from loadfactor.planner.serving.step import Replica

VLLM = {
    "backend": "vllm", "model_id": "meta-llama/Llama-3.1-8B", "num_prompts": 160, "request_rate": "inf", "max_concurrency": 16,
    "completed": 160, "total_input_tokens": 163840, "total_output_tokens": 40960, "request_throughput": 4.0,
    "mean_ttft_ms": 80.0, "mean_tpot_ms": 9.0,
}  # fmt: skip


def measure(r: Replica, concurrency: float) -> LoadTestResult:
    """What a load generator would see of this replica."""
    p = predict_latency(r, concurrency, 1024.0, 256.0)
    return LoadTestResult(concurrency, 1024.0, 256.0, float(p.ttft_s), float(p.tpot_s))


def test_results_of_both_load_generators_are_read() -> None:
    """vLLM's JSON has one run, SGLang's a run a line; without a limit the concurrency follows from Little's law."""
    (run,) = read_load_tests(json.dumps(VLLM, indent=1), "a.json")
    assert run == LoadTestResult(16, 1024, 256, 0.08, 0.009, "meta-llama/Llama-3.1-8B", None)
    open_loop = {k: v for k, v in VLLM.items() if k not in ("max_concurrency", "model_id")}
    lines = "\n".join(json.dumps(one) for one in (open_loop, VLLM | {"max_concurrency": None}))
    for run in read_load_tests(lines, "b.jsonl"):
        assert run.concurrency == pytest.approx(4.0 * (0.08 + 0.009 * 255))


def test_what_is_no_result_is_refused() -> None:
    """Another file, a run without a request that finished, a layout that is none: one line says what is taken."""
    for text in (
        "a,b\n1,2\n",
        "[]",
        "3",
        json.dumps(VLLM | {"completed": 0}),
        json.dumps(VLLM | {"mean_tpot_ms": None}),
    ):
        with pytest.raises(SourceError, match="load test"):
            read_load_tests(text, "x.json")
    for layout in ("tp0", "four", "zero1"):
        with pytest.raises(InputError, match="tp4/ep4"):
            read_replica_layout(layout)
    with pytest.raises(InputError, match="--measured"):
        split_measured(("layout=tp4",))
    assert split_measured(("a.json", "layout=tp4/ep4"))[0] == ("a.json",)


def test_runs_that_are_slower_move_the_plan_towards_them(llama_8b: Replica) -> None:
    """An engine that takes 30 % longer for everything is found again within 8 %, and the range narrows to what runs differ by."""
    names = ("matmul_share", "memory_share", "cache_share", "attention_share")
    slow = replace(
        llama_8b.engine,
        **{n: getattr(llama_8b.engine, n) / 1.3 for n in names},
        kernel_s=llama_8b.engine.kernel_s * 1.3,
    )
    runs = [measure(replace(llama_8b, engine=slow), c) for c in (1.0, 8.0, 64.0)]
    found = calibrate(llama_8b, runs)
    for run in found.runs:
        assert abs(run.tpot_s_after / run.measured_tpot_s - 1) < 0.08 < abs(run.tpot_s_before / run.measured_tpot_s - 1)
    low, high = found.ranges_after["tpot"]
    before_low, before_high = found.ranges_before["tpot"]
    assert before_low < low < 1 < high < before_high
    assert found.stack_factor > 1
    assert found.constants
    assert found.distance_before == tell_distance(llama_8b.engine, llama_8b.network)


def test_a_release_that_nobody_measured_widens_the_range() -> None:
    """Of a measured network on a measured engine: the release makes it another stack, whose ranges reach further on both sides."""
    card, net = accelerator("b200-sxm"), network("gpt-oss-120b")
    near, measured, new = (read_engine_constants(card, "vllm", release) for release in ("", "0.19.2", "0.99.0"))
    assert [tell_distance(e, net) for e in (near, measured, new)] == [
        "measured nearby",
        "measured nearby",
        "never seen",
    ]
    for quantity, (low, high) in read_ranges(near, net).items():
        further = read_ranges(new, net)[quantity]
        assert further[0] <= low < high <= further[1]
        assert further[1] / further[0] > high / low


def test_runs_as_predicted_change_little(llama_8b: Replica) -> None:
    """Where the measurement is the prediction, nothing moves by more than what ranges lie beside 1 beforehand."""
    found = calibrate(llama_8b, [measure(llama_8b, 8.0)])
    assert found.runs[0].tpot_s_after == pytest.approx(found.runs[0].measured_tpot_s, rel=0.03)


def test_a_run_of_another_replica_is_refused(llama_8b: Replica) -> None:
    """Another network, or another number of tensor-parallel ranks than the layout has, contradicts the plan."""
    run = measure(llama_8b, 8.0)
    with pytest.raises(InputError, match="the plan is for llama"):
        calibrate(llama_8b, [replace(run, model="Qwen/Qwen3-32B")])
    with pytest.raises(InputError, match="layout=tp4"):
        calibrate(llama_8b, [replace(run, gpus=4)])
