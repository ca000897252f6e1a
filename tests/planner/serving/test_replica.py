"""The equations of one replica, in one domain and beyond, what they refuse, and golden values by id."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from loadfactor.base.errors import InputError, PlanError
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import network
from loadfactor.planner.hardware import EngineName
from loadfactor.planner.serving.fleet_run import duty_multiplier, exponential_peak_multiplier
from loadfactor.planner.serving.latency import fill_s, predict_latency, predict_offline, prompt_time
from loadfactor.planner.serving.layouts import (
    FixedLayout,
    ReplicaLayout,
    choose_precision,
    explain_no_layout,
    list_layouts,
)
from loadfactor.planner.serving.levers import compute_batch_gains
from loadfactor.planner.serving.matrices import count_pass_values
from loadfactor.planner.serving.service import (
    Traffic,
    batch_speedup,
    cache_to_weights,
    compute_share,
    evaluate_batch,
    find_capacity,
    list_options,
    steady_batch,
)
from loadfactor.planner.serving.simulation.fleet import Slo, Speculation, tabulate_costs
from loadfactor.planner.serving.step import (
    Replica,
    cache_bytes_per_sequence,
    check_fits,
    links_s,
    measure_memory,
    most_sequences,
    step_time,
)
from loadfactor.planner.sizing.closed_forms import erlang_c, queue_wait


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


def replica(
    model: str, chip: str = "h100-sxm", gpus: int = 1, weights: str | None = None, dp: int = 1, ep: int = 1
) -> Replica:
    card, net = accelerator(chip), network(model)
    return Replica(
        net, card, ReplicaLayout(gpus, dp, ep), choose_precision(net, weights), read_engine_constants(card, "vllm")
    )


def test_decoding_reads_the_weights_once(llama_8b: Replica) -> None:
    """A step of one sequence takes at least as long as reading 16 GB at full bandwidth, and one of two hardly longer."""
    one, two = (float(step_time(llama_8b, n, n * 1000.0).total_s) for n in (1.0, 2.0))
    least = llama_8b.network.matmul_parameters * 2 / llama_8b.accelerator.memory_bandwidth_bytes_per_s
    assert least < one < 2 * least
    assert two < 1.05 * one


def test_step_is_the_sum_of_its_parts_and_takes_arrays(llama_8b: Replica) -> None:
    """An array of batches gives what each batch gives alone."""
    batches = np.array([1.0, 8.0, 64.0])
    together = step_time(llama_8b, batches, batches * 500).total_s
    alone = [float(step_time(llama_8b, b, b * 500).total_s) for b in batches]
    assert np.allclose(np.asarray(together), alone)


def test_experts_are_read_as_they_are_touched() -> None:
    """Mixture layers read few experts for one token and all of them for many; time grows in between."""
    r = replica("qwen3-235b-a22b", gpus=4, weights="fp8", ep=4)
    few, some, many = (float(np.asarray(step_time(r, n, 0.0).experts_s)) for n in (1.0, 16.0, 256.0))
    whole = r.network.parts["experts"] / 4 / r.accelerator.memory_bandwidth_bytes_per_s
    assert few < 0.3 * whole
    assert few < some < many
    assert many > whole


def test_latent_cache_is_held_whole_and_sliding_windows_are_short() -> None:
    """DeepSeek's cache does not shrink with tensor parallelism, attention copies divide it; a window keeps gpt-oss's small."""
    split, copies = replica("deepseek-v3", "b200-sxm", 8), replica("deepseek-v3", "b200-sxm", 8, dp=8, ep=8)
    assert cache_bytes_per_sequence(split, 4096) == cache_bytes_per_sequence(copies, 4096)
    assert most_sequences(copies, 4096) > 5 * most_sequences(split, 4096)
    windowed = replica("gpt-oss-120b", weights="fp4")
    grown = cache_bytes_per_sequence(windowed, 8192) / cache_bytes_per_sequence(windowed, 4096)
    assert 1.9 < grown < 2.0


def test_what_does_not_fit_says_what_would() -> None:
    """70 billion parameters in 16 bits on one H100 is refused, and two are named as the least."""
    with pytest.raises(PlanError, match="at least 2 of them"):
        check_fits(replica("llama-3.1-70b", weights="bf16"), 2048)
    assert measure_memory(replica("llama-3.1-70b", gpus=4, weights="bf16")).fits


def test_narrow_weights_keep_experts_alone_narrow() -> None:
    """Four-bit checkpoints of mixtures narrow their experts; attention stays at what the network was published in."""
    assert choose_precision(network("deepseek-v3"), "fp4").attention_bits == 8
    assert choose_precision(network("gpt-oss-120b")).expert_bits == 4.5
    assert choose_precision(network("llama-3.1-70b"), "fp4").attention_bits == 4.5
    with pytest.raises(PlanError, match="not known"):
        choose_precision(network("llama-3.1-70b"), "fp3")


def test_every_engine_that_may_be_chosen_is_known() -> None:
    """Each engine of the command line has constants; another name gets the nearest."""
    for engine in get_args(EngineName):
        assert read_engine_constants(accelerator("h100-sxm"), engine).matmul_share > 0
    with pytest.raises(InputError, match="did you mean 'sglang'"):
        read_engine_constants(accelerator("h100-sxm"), "sg-lang")


def test_an_accelerator_nobody_fitted_borrows_from_its_kin() -> None:
    """An H200 takes what the H100's architecture and the engine have; an A100 the values without factors; both are estimates."""
    assert not read_engine_constants(accelerator("h100-sxm"), "vllm").is_estimate
    kin = read_engine_constants(accelerator("h200-sxm"), "sglang")
    assert kin.is_estimate
    assert kin.kin
    assert kin.kernel_s == read_engine_constants(accelerator("h100-sxm"), "sglang").kernel_s
    blackwell = read_engine_constants(accelerator("b300-sxm"), "sglang")
    assert (
        blackwell.fp8_matmul_factor
        == read_engine_constants(accelerator("b200-sxm"), "trtllm").fp8_matmul_factor
        != kin.fp8_matmul_factor
    )
    assert not read_engine_constants(accelerator("mi300x"), "vllm").kin
    with pytest.raises(InputError, match="no engine"):
        read_engine_constants(accelerator("h100-sxm"), "abacus")


def test_a_load_test_saturates(llama_8b: Replica) -> None:
    """Throughput and waits grow with concurrency; when the cache is full the rest waits for whole cycles."""
    seen = predict_latency(llama_8b, np.array([1.0, 16.0, 256.0, 2048.0]), 1024.0, 256.0)
    assert (np.diff(seen.output_tokens_per_s) > 0).all()
    assert (np.diff(seen.ttft_s) > 0).all()
    assert seen.batch[-1] < 2048
    assert seen.ttft_s[-1] > 10 * seen.ttft_s[1]


def test_the_first_token_takes_at_least_its_prompt(llama_8b: Replica) -> None:
    """Alone a request waits for its prompt (80 to 100 % of the nominal length) and the host; four at once wait for each other."""
    seen = predict_latency(llama_8b, np.array([1.0, 4.0]), 4096.0, 256.0)
    alone, _ = prompt_time(llama_8b, 4096.0)
    host = llama_8b.engine.request_s
    assert 0.8 * float(alone) < float(seen.ttft_s[0]) - host < float(alone)
    assert float(seen.ttft_s[1]) - host > 1.1 * (float(seen.ttft_s[0]) - host)


def test_an_engine_that_seldom_looks_lets_requests_wait(llama_8b: Replica) -> None:
    """With a look for new requests in every 30th step the first token takes some 15 decode steps longer."""
    seldom = replace(llama_8b, engine=replace(llama_8b.engine, poll_steps=30))
    often, late = (predict_latency(r, 16.0, 1024.0, 512.0) for r in (llama_8b, seldom))
    assert 8 < float((late.ttft_s - often.ttft_s) / often.decode_step_s) < 25


def test_an_engine_looks_once_in_so_many_of_its_own_steps(llama_8b: Replica) -> None:
    """Steps that yield three tokens are as many between two looks as steps that yield one: three times the tokens go by."""
    drafts = Speculation(2, 0.999, 0.0)
    seldom = replace(llama_8b, engine=replace(llama_8b.engine, poll_steps=30))
    often, late = (predict_latency(r, 16.0, 1024.0, 512.0, speculation=drafts) for r in (llama_8b, seldom))
    assert 15 < float((late.ttft_s - often.ttft_s) / often.decode_step_s) / 3 < 30


def test_prompts_wait_for_others_where_the_engine_lets_them(llama_8b: Replica) -> None:
    """A prompt beside others waits 20 steps (batch_wait_timeout_iters), one alone not at all, and none once a step is full."""
    waits = replace(llama_8b, engine=replace(llama_8b.engine, wait_steps=20))
    alone, few = (predict_latency(waits, n, 1024.0, 512.0).ttft_s for n in (1.0, 4.0))
    assert alone == predict_latency(llama_8b, 1.0, 1024.0, 512.0).ttft_s
    plain = predict_latency(llama_8b, 4.0, 1024.0, 512.0)
    assert 15 < float((few - plain.ttft_s) / plain.decode_step_s) < 25
    full = replace(waits, engine=replace(waits.engine, chunk_tokens=1024))
    now = replace(llama_8b, engine=replace(llama_8b.engine, chunk_tokens=1024))
    late = predict_latency(full, 64.0, 1024.0, 128.0).ttft_s - predict_latency(now, 64.0, 1024.0, 128.0).ttft_s
    assert float(late / plain.decode_step_s) < 10


def test_requests_of_one_length_come_back_one_after_the_other(llama_8b: Replica) -> None:
    """Of eight alike, a prompt a step, a first token waits for half a prompt, its own, and those of two steps launched ahead."""
    one = replace(llama_8b, engine=replace(llama_8b.engine, chunk_tokens=4096, chunk_is_prompts=True))
    seen = predict_latency(one, 8.0, 4096.0, 512.0, alike=True)
    assert 3 < (float(seen.ttft_s) - one.engine.request_s) / float(seen.prompt_s) < 4.5


def test_prompts_that_share_a_step_add_less_than_alone(llama_8b: Replica) -> None:
    """Eight short prompts in one step launch its kernels once, and read the weights once; no more share it than it holds."""
    alone, shared = (float(prompt_time(llama_8b, 16.0, together=n)[1]) for n in (1.0, 8.0))
    assert alone / 8 < shared < alone / 4
    whole = replace(llama_8b, engine=replace(llama_8b.engine, chunk_tokens=16))
    assert float(prompt_time(whole, 16.0, together=8.0)[1]) == pytest.approx(alone)


def test_switches_that_add_up_save_an_all_reduce_of_eight_a_third() -> None:
    """Of 8 GPUs (n+1)/n of a message goes by NVLink 4 where a ring sends 2(n-1)/n of it; of 2 the ring sends less, and is taken."""
    for ranks, share in ((8, 9 / 14), (2, 1.0)):
        hopper, ampere = (build_replica("llama-3.1-70b", card) for card in ("h100-sxm", "a100-sxm"))
        slow = replace(hopper.accelerator, interconnect=ampere.accelerator.interconnect)
        layout = ReplicaLayout(ranks)
        large, small = 1e6, 1e3
        with_, without = (
            links_s(replace(hopper, layout=layout, accelerator=chip), large)
            - links_s(replace(hopper, layout=layout, accelerator=chip), small)
            for chip in (hopper.accelerator, slow)
        )
        assert float(with_ / without) == pytest.approx(share)


def test_a_load_test_with_drafts_is_quicker_by_what_they_yield(llama_8b: Replica) -> None:
    """Drafts at a small batch yield their tokens per step, less the wider step, in latencies too; none change nothing."""
    plain, none, drafted = (
        predict_latency(llama_8b, 2.0, 512.0, 256.0, speculation=s)
        for s in (Speculation(), Speculation(0, 0.5), Speculation(3, 0.7))
    )
    assert none == plain
    speed = Speculation(3, 0.7).speed
    assert 0.6 * speed < float(plain.tpot_s / drafted.tpot_s) < speed


def test_constants_of_a_release_are_used_where_it_was_measured() -> None:
    """A release has its own factors by its first two numbers; one that was not measured has what all releases have in common."""
    b200 = accelerator("b200-sxm")
    common, unknown, known = (read_engine_constants(b200, "vllm", r) for r in ("", "0.99.1", "0.19.0"))
    assert replace(unknown, release="") == common
    assert known.kernel_s > 1.1 * common.kernel_s


def test_a_first_token_waits_for_steps_launched_ahead(llama_8b: Replica) -> None:
    """Beside running sequences it waits two steps of overlapped scheduling more; a request alone waits for none."""
    plain = replace(llama_8b, engine=replace(llama_8b.engine, ahead_steps=0.0))
    busy, alone = (
        float(predict_latency(llama_8b, n, 512.0, 256.0).ttft_s - predict_latency(plain, n, 512.0, 256.0).ttft_s)
        for n in (16.0, 1.0)
    )
    assert busy == pytest.approx(2 * float(predict_latency(plain, 16.0, 512.0, 256.0).tpot_s))
    assert alone == 0


def test_experts_move_every_token_as_often_as_they_compute_it() -> None:
    """Ranks of split experts gather eight copies of each token, ranks that spread them an eighth of that."""
    n = network("qwen3-235b-a22b")
    split, spread = (count_pass_values(n, ReplicaLayout(8, 1, ep)) for ep in (1, 8))
    assert split - spread == pytest.approx(n.moe_layers * 4 * n.hidden * (8 - 1))


def test_capacity_keeps_the_objective(llama_8b: Replica) -> None:
    """The largest batch within the objective meets it with nothing to spare, and a tighter one takes fewer requests."""
    traffic = Traffic(1000, 200)
    loose, tight = (find_capacity(llama_8b, traffic, Slo(2.0, tpot)) for tpot in (0.03, 0.012))
    assert loose is not None
    assert tight is not None
    assert loose.tpot_s == pytest.approx(0.03, rel=1e-6)
    assert tight.requests_per_s < loose.requests_per_s
    assert find_capacity(llama_8b, traffic, Slo(2.0, 0.001)) is None


def test_options_do_what_they_are_for(llama_8b: Replica) -> None:
    """Prefix hits and disaggregation free decoding from prompts; speculation is faster per token at the same batch."""
    plain = evaluate_batch(llama_8b, 32.0, Traffic(2000, 200))
    assert (
        evaluate_batch(llama_8b, 32.0, Traffic(2000, 200, cached_share=0.8)).requests_per_s > 1.4 * plain.requests_per_s
    )
    assert evaluate_batch(llama_8b, 32.0, Traffic(2000, 200, disaggregated=True)).tpot_s < plain.tpot_s
    drafted = evaluate_batch(llama_8b, 4.0, Traffic(2000, 200, speculation=Speculation(3, 0.7)))
    assert drafted.tpot_s < 0.7 * evaluate_batch(llama_8b, 4.0, Traffic(2000, 200)).tpot_s


def test_tables_are_the_equations(llama_8b: Replica) -> None:
    """The simulation's tables hold the step equation's own numbers."""
    table = tabulate_costs(llama_8b, 512, 64)
    for tokens in (1, 7, 64, 500):
        parts = step_time(llama_8b, float(tokens), 0.0)
        wanted = (
            parts.dense_s + parts.experts_s + parts.passes_s + parts.links_s + parts.launches_s + llama_8b.engine.step_s
        )
        assert table.tokens_s[tokens] == pytest.approx(float(np.asarray(wanted)))


def test_a_large_gain_and_half_of_the_chip_exclude_each_other() -> None:
    """Where batching gains 27 times, half of the chip is out of reach: an A100 with an 8B model at a context near 2,700 tokens."""
    card, net = accelerator("a100-sxm"), network("llama-3.1-8b")
    r = Replica(net, card, ReplicaLayout(1), choose_precision(net, "bf16"), read_engine_constants(card, "vllm"))
    gains = compute_batch_gains(r, 2724)
    assert gains.roofline_speedup_at_64 == pytest.approx(27.0, rel=0.01)
    assert gains.batch_for_half is None
    assert compute_batch_gains(r, 256).batch_for_half is not None


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
