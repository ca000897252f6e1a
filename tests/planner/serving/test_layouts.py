"""Replicas beyond one domain: pipeline stages, groups of attention ranks, and what is said where no layout can be."""

import numpy as np
import pytest

from loadfactor.base.errors import PlanError
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import network
from loadfactor.planner.serving.latency import fill_s
from loadfactor.planner.serving.layouts import (
    FixedLayout,
    ReplicaLayout,
    choose_precision,
    explain_no_layout,
    list_layouts,
)
from loadfactor.planner.serving.service import Traffic, list_options
from loadfactor.planner.serving.simulation.fleet import Slo, tabulate_costs
from loadfactor.planner.serving.step import Replica, cache_bytes_per_sequence, measure_memory, step_time


def build(model: str, chip: str, layout: ReplicaLayout, weights: str | None = None) -> Replica:
    """A replica of the catalog with this layout."""
    card, net = accelerator(chip), network(model)
    return Replica(net, card, layout, choose_precision(net, weights), read_engine_constants(card, "vllm"))


def test_a_stage_has_its_part_of_the_layers_and_all_sequences() -> None:
    """Two stages of 8 GPUs hold the weights and cache of 63 of 126 layers each, half of what one stage would."""
    two = build("llama-3.1-405b", "h100-sxm", ReplicaLayout(16, pipeline=2), "bf16")
    one = build("llama-3.1-405b", "h100-sxm", ReplicaLayout(8), "bf16")
    assert cache_bytes_per_sequence(two, 2000) == pytest.approx(cache_bytes_per_sequence(one, 2000) / 2)
    half = measure_memory(one).weight_bytes / 2  # one stage has the embedding, the other the head, which is as large
    assert measure_memory(two).weight_bytes == pytest.approx(half)
    assert measure_memory(one).cache_bytes < 0 < measure_memory(two).cache_bytes


def test_while_one_part_passes_the_stages_the_others_follow() -> None:
    """128 sequences on two stages take the time of 64 on one, and what is sent between stages; one sequence takes no less."""
    two = build("llama-3.1-70b", "h100-sxm", ReplicaLayout(8, pipeline=2), "fp8")
    one = build("llama-3.1-70b", "h100-sxm", ReplicaLayout(4), "fp8")
    a, b = step_time(two, 128.0, 128 * 1000.0), step_time(one, 64.0, 64 * 1000.0)
    assert float(a.dense_s) == pytest.approx(float(b.dense_s))
    assert float(a.cache_s) == pytest.approx(float(b.cache_s))
    assert float(b.links_s) < float(a.links_s) < 1.5 * float(b.links_s)
    assert float(step_time(two, 1.0, 1000.0).dense_s) == pytest.approx(float(step_time(one, 1.0, 1000.0).dense_s))


def test_a_prompt_passes_every_stage_before_its_first_token() -> None:
    """Of four stages a prompt waits for the three in which steps do not count it; on one stage for none."""
    r = build("llama-3.1-70b", "h100-sxm", ReplicaLayout(8, pipeline=4), "fp8")
    share = float(step_time(r, 0.0, 0.0, 1500.0, 1500 * 1501 / 2).dense_s)
    assert fill_s(r, 1500) > 2 * share
    assert fill_s(build("llama-3.1-70b", "h100-sxm", ReplicaLayout(8), "fp8"), 1500) == 0


def test_wide_groups_hold_whole_attention_and_few_experts_each() -> None:
    """72 ranks hold 256 experts as 288 copies, four each, one attention each, and keep the sequences of 72 caches."""
    wide = build("deepseek-v3", "gb200-nvl72", ReplicaLayout(72, 72, 72))
    assert wide.experts is not None
    assert wide.experts.count / wide.experts.ranks == 4
    parts = wide.network.parts
    least = parts["experts"] * 4 / 256 + parts["attention"]
    assert least < measure_memory(wide).weight_bytes < 1.5 * least


def test_a_rack_exchanges_tokens_faster_than_nodes_over_their_network() -> None:
    """32 attention ranks send their tokens to experts over NVLink in a rack, and over adapters between nodes of 8."""
    rack, nodes = (build("deepseek-v3", c, ReplicaLayout(32, 32, 32)) for c in ("gb200-nvl72", "b200-sxm"))
    many = 32 * 256.0
    assert 2 * float(step_time(rack, many, 0.0).links_s) < float(step_time(nodes, many, 0.0).links_s)


def test_tables_of_the_simulation_say_what_the_equations_say() -> None:
    """A step of a pipeline of wide groups is the same in both."""
    r = build("deepseek-v3", "gb200-nvl72", ReplicaLayout(64, 32, 32, 2))
    costs = tabulate_costs(r, 2048, 4096)
    n = 640
    t = step_time(r, float(n), 0.0)
    whole = float(np.asarray(t.total_s - t.head_s - t.cache_s)) - r.sequence_s * n
    assert costs.tokens_s[n] == pytest.approx(whole)
    assert costs.head_s[n] == pytest.approx(float(np.asarray(t.head_s)))


def test_what_is_asked_for_is_what_is_looked_at() -> None:
    """Ranks and stages that are given are the only ones; a number of GPUs beyond a node may be stages or a group."""
    net, chip = network("deepseek-v3"), accelerator("h200-sxm")
    asked = FixedLayout(tp=(1,), pp=(2,), ep=(32,), attention_dp=(32,))
    assert list_layouts(net, chip, asked) == [ReplicaLayout(64, 32, 32, 2)]
    wide = {str(x) for x in list_layouts(net, chip, FixedLayout(gpus=32))}
    assert {"32 GPUs, attention DP 32, EP 32", "32 GPUs, TP 8, PP 4"} <= wide
    assert max(x.gpus for x in list_layouts(net, chip)) == 8
    rack = list_layouts(net, accelerator("gb300-nvl72"))
    assert ReplicaLayout(36, 36, 36) in rack
    assert ReplicaLayout(72, 72, 72) in rack


@pytest.mark.parametrize(
    ("model", "asked", "reason"),
    [
        ("llama-3.1-70b", FixedLayout(tp=(6,)), "64 heads, which 6 tensor ranks cannot share; --tp 1, 2, 4, 8 can"),
        ("llama-3.1-70b", FixedLayout(pp=(81,)), "80 layers, fewer than 81 pipeline stages"),
        ("llama-3.1-70b", FixedLayout(ep=(8,)), "no experts to spread"),
        ("mixtral-8x7b", FixedLayout((1,), (), (16,), (16,)), "8 experts, fewer than 16 ranks"),
        ("deepseek-v3", FixedLayout((1,), (), (24,), (32,)), "--ep 24 does not divide the 32 GPUs of a stage"),
        ("llama-3.1-70b", FixedLayout(gpus=7), "no layout of llama-3.1-70b has 7 GPUs a replica"),
    ],
)
def test_a_refusal_names_what_is_in_the_way(model: str, asked: FixedLayout, reason: str) -> None:
    """Heads, layers, experts or the number itself: the true reason, and what would do."""
    net, chip = network(model), accelerator("h100-sxm")
    assert list_layouts(net, chip, asked) == []
    assert reason in explain_no_layout(net, chip, asked)
    with pytest.raises(PlanError):
        list_options(
            net, chip, choose_precision(net), read_engine_constants(chip, "vllm"), Traffic(1000, 100), Slo(), asked
        )
