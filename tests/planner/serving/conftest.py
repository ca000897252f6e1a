"""Replicas and fleets small enough to follow by hand."""

import numpy as np
import pytest

from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import network
from loadfactor.planner.serving.layouts import ReplicaLayout, choose_precision
from loadfactor.planner.serving.simulation.fleet import Batching, ServingFleet
from loadfactor.planner.serving.simulation.simulate import Arrivals
from loadfactor.planner.serving.simulation.state import Costs, StepRates, as_record
from loadfactor.planner.serving.step import Replica


@pytest.fixture(scope="session")
def llama_8b() -> Replica:
    """Llama 3.1 8B in 16 bits on one H100."""
    chip, net = accelerator("h100-sxm"), network("llama-3.1-8b")
    return Replica(net, chip, ReplicaLayout(1), choose_precision(net, "bf16"), read_engine_constants(chip, "vllm"))


@pytest.fixture(scope="session")
def simple_costs() -> Costs:
    """A step takes 10 ms and 1 µs a token."""
    rates = StepRates(1e-6, 0.0, 0.0, 0.0, 1e15, 0.0, 0.0, 1, 1.0, 0.0, 0.0, 0.0, 0.0)
    tokens = np.arange(3000.0) * 1e-6 + 0.01
    tokens[0] = 0.0
    return Costs(as_record(rates), tokens, np.zeros(300), np.ones(3000))


@pytest.fixture
def simple_fleet(simple_costs: Costs) -> ServingFleet:
    """One replica of `simple_costs`: 64 sequences, chunks of 512, 4,000 tokens of cache."""
    return ServingFleet(
        simple_costs, Batching(cache_tokens=4000, max_sequences=64, chunk_tokens=512, max_context=2000), 1
    )


@pytest.fixture
def many_requests() -> Arrivals:
    """2,000 requests in 100 seconds, prompts to 300 and outputs to 60 tokens."""
    rng = np.random.default_rng(5)
    at = np.sort(rng.uniform(0, 100e9, 2000)).astype(np.int64)
    return Arrivals(at, rng.integers(1, 300, 2000), rng.integers(1, 60, 2000))
