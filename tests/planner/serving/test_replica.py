"""The equations of one replica count what a step reads and computes, and refuse what cannot be."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from loadfactor.base.errors import InputError, PlanError
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import network
from loadfactor.planner.hardware import EngineName
from loadfactor.planner.serving.latency import predict_latency, predict_offline, prompt_time
from loadfactor.planner.serving.layouts import ReplicaLayout, choose_precision
from loadfactor.planner.serving.levers import compute_batch_gains
from loadfactor.planner.serving.matrices import count_pass_values
from loadfactor.planner.serving.service import Traffic, evaluate_batch, find_capacity
from loadfactor.planner.serving.simulation.fleet import Slo, Speculation, tabulate_costs
from loadfactor.planner.serving.step import (
    Replica,
    cache_bytes_per_sequence,
    check_fits,
    measure_memory,
    most_sequences,
    step_time,
)


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
    """A replica of the catalog."""
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
    """An H200 takes the H100's constants, an A100 the medians; both say that they are estimates."""
    assert not read_engine_constants(accelerator("h100-sxm"), "vllm").is_estimate
    kin = read_engine_constants(accelerator("h200-sxm"), "vllm")
    assert kin.is_estimate
    assert kin.matmul_share == read_engine_constants(accelerator("h100-sxm"), "vllm").matmul_share
    assert "medians" in read_engine_constants(accelerator("a100-sxm"), "vllm").fitted_on
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
