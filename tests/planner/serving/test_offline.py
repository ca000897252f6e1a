"""A replica that is handed all requests at once."""

from dataclasses import replace

import pytest

from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import network
from loadfactor.planner.serving.latency import predict_offline
from loadfactor.planner.serving.layouts import ReplicaLayout, choose_precision
from loadfactor.planner.serving.step import Replica, measure_memory


def build_replica(model: str = "llama-3.1-8b", card: str = "h100-sxm", engine: str = "trtllm") -> Replica:
    """One GPU with a network in 8 bits."""
    chip, shape = accelerator(card), network(model)
    return Replica(shape, chip, ReplicaLayout(1), choose_precision(shape, "fp8"), read_engine_constants(chip, engine))


def test_a_long_run_is_as_fast_as_one_without_an_end() -> None:
    """Waves that fill the memory reach the limit; a last wave that is nearly empty costs nearly a whole one."""
    r = build_replica()
    endless = predict_offline(r, None, 1000, 1000)
    assert predict_offline(r, 1e6, 1000, 1000) == pytest.approx(endless, rel=0.01)
    assert predict_offline(r, 16, 1000, 1000) < 0.3 * endless


def test_an_engine_that_shares_what_is_free_runs_large_weights_on_one_gpu() -> None:
    """70 GB of weights leave vLLM almost nothing of its 90 % of an 80-GB card; TensorRT-LLM takes 90 % of what they leave."""
    r = build_replica("llama-3.1-70b")
    of_all = replace(r, engine=replace(r.engine, shares_what_is_free=False))
    assert measure_memory(r).cache_bytes > 2 * measure_memory(of_all).cache_bytes > 0
