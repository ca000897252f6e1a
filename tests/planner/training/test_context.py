"""Context ranks that pass keys and values round a ring, beside those that exchange heads."""

from dataclasses import replace

import numpy as np
import pytest

from loadfactor import plan_training
from loadfactor.base.errors import PlanError
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.models import network
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import TrainingLayout
from loadfactor.planner.training.machine import MODERN, build_machine
from loadfactor.planner.training.step import context_exchange_s
from loadfactor.planner.validation.row_software import list_unread, recognize_software

H100 = build_machine(accelerator("h100-sxm"))
RING = TrainingJob(network("llama-3.1-8b"), 131_072, 8, H100)
HEADS = replace(RING, software=replace(MODERN, context_by="all-to-all"))
EIGHT = TrainingLayout(context=8).as_arrays()


def test_heads_go_out_and_come_back() -> None:
    """Of 16,384 tokens a rank 32 × 256 + 2 × 8 × 128 values of 2 bytes, 7/8 of them over NVLink, forward and backward."""
    moved = 2 * 16_384 * (32 * 256 + 2 * 8 * 128) * 2 * 7 / 8
    seconds = float(np.ravel(context_exchange_s(HEADS, EIGHT))[0])
    assert seconds == pytest.approx(moved / H100.fabric.up_bytes_per_s, rel=0.05)


def test_more_ranks_exchange_less_by_heads_and_not_by_a_ring() -> None:
    """What a rank sends falls with the ranks by all-to-all (arXiv:2309.14509 table 2); round a ring it does not."""
    four = TrainingLayout(context=4).as_arrays()
    ring, heads = (
        float(np.ravel(context_exchange_s(job, EIGHT) / context_exchange_s(job, four))[0]) for job in (RING, HEADS)
    )
    assert heads < 0.65
    assert ring > 1


def test_ranks_must_divide_heads() -> None:
    """Eight tensor and eight context ranks would share 32 heads."""
    with pytest.raises(PlanError, match="32 heads do not divide over 8 tensor × 8 context ranks"):
        plan_training(model="llama-3.1-8b", gpus=(64,), tp=(8,), cp=(8,), context_by="all-to-all")


def test_rows_name_it() -> None:
    """Ulysses is an all-to-all, and nothing of it is left unread."""
    row = {"source": "NVIDIA/Megatron-LM", "techniques": "Ulysses"}
    assert recognize_software(row, "", accelerator("h100-sxm")).context_by == "all-to-all"
    assert list_unread(row) == ()
