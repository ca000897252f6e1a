"""What frozen weights spare a training step, beside full training of the same network on the same GPUs."""

from dataclasses import replace

import pytest

from loadfactor.base.errors import InputError
from loadfactor.base.units import BYTES_PER_GIB
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.models import network
from loadfactor.planner.training.explanations import evaluate_layout
from loadfactor.planner.training.job import Adapters, TrainingJob
from loadfactor.planner.training.layout import TrainingLayout
from loadfactor.planner.training.machine import build_machine
from loadfactor.planner.training.request import TrainingRequest

FULL = TrainingJob(network("llama-3.1-8b"), 4096, 32, build_machine(accelerator("h100-sxm")))
LORA = replace(FULL, adapters=Adapters(16))
QLORA = replace(FULL, adapters=Adapters(16, quantized=True))
LAYOUT = TrainingLayout(data=8, zero=1)


def test_products_of_frozen_weights_take_two_thirds() -> None:
    """Forward and one backward product in place of two."""
    full, lora = (evaluate_layout(job, LAYOUT).terms["matmul_s"] for job in (FULL, LORA))
    assert lora == pytest.approx(2 / 3 * full)


def test_only_adapters_have_gradients_and_optimizer_states() -> None:
    """13.6 M weights with gradients of 4 bytes and a 1/8 of 12 bytes of Adam; the frozen 8 G lie in 16 bits, or in 4."""
    lora, qlora = (evaluate_layout(job, LAYOUT).memory_parts for job in (LORA, QLORA))
    assert lora["gradients_bytes"] == pytest.approx(4 * 13_631_488)
    assert lora["optimizer_bytes"] == pytest.approx(12 * 13_631_488 / 8)
    assert lora["weights_bytes"] / BYTES_PER_GIB == pytest.approx(15.0, rel=0.01)
    assert qlora["weights_bytes"] / BYTES_PER_GIB == pytest.approx(15.0 * 0.516 / 2, rel=0.01)


def test_quantized_weights_cost_time() -> None:
    """They are widened before the forward and before the backward pass."""
    lora, qlora = (evaluate_layout(job, LAYOUT).terms["dequantize_s"] for job in (LORA, QLORA))
    assert lora == 0
    per_pass_s = (
        (0.516 + 2)
        * FULL.network.parameters
        / (FULL.machine.matmul.memory_bytes_per_s * FULL.machine.matmul.memory_share)
    )
    assert qlora == pytest.approx(4 * 2 * per_pass_s)  # 32 sequences over 8 ranks are 4 micro-batches


def test_a_method_that_there_is_not_is_refused() -> None:
    """One line names the methods."""
    with pytest.raises(InputError, match="lora"):
        TrainingRequest(model="llama-3.1-8b", gpus=(8,), method="dora")  # type: ignore[arg-type]
