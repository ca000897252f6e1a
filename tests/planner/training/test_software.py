"""Software, accelerators and adapters change the predicted step, and golden values of the published formulas of training."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.hardware.compare_plans import compare_training

from loadfactor import plan_training
from loadfactor.base.errors import InputError, PlanError
from loadfactor.base.units import BYTES_PER_GIB, FLOPS_PER_PFLOPS, FLOPS_PER_TFLOPS, PARAMETERS_PER_BILLION, S_PER_DAY
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.constants import read_training_constants
from loadfactor.catalog.measurements import HARDWARE as MACHINES
from loadfactor.catalog.measurements import read_hardware, read_published_rows
from loadfactor.catalog.models import Network, network, networks
from loadfactor.planner.training.explanations import evaluate_layout
from loadfactor.planner.training.flops import (
    HARDWARE,
    Utilization,
    compute_utilization,
    mfu_share,
    paid_mfu_share,
    palm_flops_per_token,
    training_flops_per_token,
)
from loadfactor.planner.training.job import Adapters, TrainingJob
from loadfactor.planner.training.layout import FULL, NONE, SELECTIVE, TrainingLayout
from loadfactor.planner.training.machine import build_machine
from loadfactor.planner.training.memory import activation_bytes_per_layer
from loadfactor.planner.training.request import TrainingRequest
from loadfactor.planner.training.search import SearchSpace, search_layouts
from loadfactor.planner.training.software import Software, find_software
from loadfactor.planner.training.step import context_exchange_s
from loadfactor.planner.validation.mfu_claims import validate_mfu
from loadfactor.planner.validation.training_rows import list_unread, read_row, recognize_software

WHOLE = TrainingJob(network("llama-3.1-8b"), 4096, 32, build_machine(accelerator("h100-sxm")))
LORA = replace(WHOLE, adapters=Adapters(16))
QLORA = replace(WHOLE, adapters=Adapters(16, quantized=True))
LAYOUT = TrainingLayout(data=8, zero=1)


def test_products_of_frozen_weights_take_two_thirds() -> None:
    """Forward and one backward product in place of two."""
    full, lora = (evaluate_layout(job, LAYOUT).terms["matmul_s"] for job in (WHOLE, LORA))
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
        * WHOLE.network.parameters
        / (WHOLE.machine.matmul.memory_bytes_per_s * WHOLE.machine.matmul.memory_share)
    )
    assert qlora == pytest.approx(4 * 2 * per_pass_s)  # 32 sequences over 8 ranks are 4 micro-batches


def test_a_method_that_there_is_not_is_refused() -> None:
    """One line names the methods."""
    with pytest.raises(InputError, match="lora"):
        TrainingRequest(model="llama-3.1-8b", gpus=(8,), method="dora")  # type: ignore[arg-type]


H100 = build_machine(accelerator("h100-sxm"))
RING = TrainingJob(network("llama-3.1-8b"), 131_072, 8, H100)
HEADS = replace(RING, software=Software(context_by="all-to-all"))
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


NEMO, TORCHTITAN, XLA = map(find_software, ("nemo", "torchtitan", "maxtext"))
ONE_NODE = TrainingLayout(data=8, micro_batch=2, zero=3)


def build_job(
    card: str = "h100-sxm", software: Software = Software(), datatype: str = "bf16", seq: int = 8192
) -> TrainingJob:
    """Llama 3.1 8B on this card, two sequences a GPU of a node."""
    machine = build_machine(accelerator(card), datatype, software=software)
    return TrainingJob(network("llama-3.1-8b"), seq, 16, machine, software)


def step_s(job: TrainingJob, layout: TrainingLayout = ONE_NODE) -> float:
    return evaluate_layout(job, layout).step_s


def test_a_compiler_saves_the_passes_that_it_fuses() -> None:
    """Eager PyTorch is slower than compiled PyTorch by a tenth or two, all of it outside of matrix products and attention."""
    eager, fused = (
        evaluate_layout(build_job(software=s), ONE_NODE)
        for s in (replace(TORCHTITAN, fused=False, fused_norms=False), TORCHTITAN)
    )
    assert 1.05 < eager.step_s / fused.step_s < 1.25
    assert eager.terms["matmul_s"] == fused.terms["matmul_s"]
    assert eager.terms["elementwise_s"] > 2 * fused.terms["elementwise_s"]


def test_narrow_products_gain_less_than_their_peak() -> None:
    """Eight bits have twice the peak; the step gains less, for attention stays in 16 bits and inputs are cast; rows gain least."""
    wide = step_s(build_job(software=NEMO))
    tensor = step_s(build_job(software=NEMO, datatype="fp8"))
    rows = step_s(build_job(software=replace(NEMO, scaling="row"), datatype="fp8"))
    assert 1.15 < wide / tensor < 1.6
    assert tensor < rows < wide


def test_attention_of_its_own_generation_is_faster_on_new_accelerators_alone() -> None:
    """A kernel written for Hopper beats the ported one there; on Ampere both are the same."""
    ported, own = (build_machine(accelerator("h100-sxm"), software=s).attention_flops for s in (Software(), NEMO))
    assert own[0] > 1.3 * ported[0]
    assert own[1] > 1.1 * ported[1]
    old, same = (build_machine(accelerator("a100-sxm"), software=s).attention_flops for s in (Software(), NEMO))
    assert old == same


def test_the_first_flash_kernel_is_no_faster_on_new_accelerators_than_its_port() -> None:
    """FlashAttention of 2022 on Hopper reaches 0.6 of its share on Ampere, as its successor does (arXiv:2407.08608)."""
    first = find_software("composer")
    known = read_training_constants()
    old, new = (build_machine(accelerator(card), software=first) for card in ("a100-sxm", "h100-sxm"))
    shares = [machine.attention_flops[0] / machine.wide.peak_flops for machine in (old, new)]
    assert shares == pytest.approx([known.flash_share, known.flash_share * known.flash2_ported_share])


def test_products_in_32_bits_stay_below_the_limit_of_power() -> None:
    """An H100 SXM reaches 77 % of its 67 TFLOP/s in fp32 as measured (docs/hardware.md), and 68 to 73 % in 16 bits."""
    known = read_training_constants()
    wide, narrow = (build_machine(accelerator("h100-sxm"), d, software=NEMO).matmul for d in ("fp32", "bf16"))
    assert wide.matmul_share == known.matmul_share > 1.1 * narrow.matmul_share
    measured = read_hardware(MACHINES[0])
    (fp32,) = (one for one in compare_training(measured["training"], accelerator("h100-sxm")) if one["fault"] == "fp32")
    assert abs(fp32["error"]) < 0.06


def test_adapters_on_all_products_have_seven_and_move_more_where_nothing_is_fused() -> None:
    """By hand for Llama 3.1 8B: inputs of 4,096 and 4,096, or with the MLP 4,096 and 14,336 more; outputs 10,240 or 43,008."""
    net = network("llama-3.1-8b")
    some, every = Adapters(16), Adapters(16, targets="all")
    assert (some.kernels(net), every.kernels(net)) == (3 * 4, 3 * 7)
    assert every.parameters(net) == 41_943_040  # as peft counts all-linear adapters of rank 16
    assert some.moved_bytes_per_token(net, fused=True) == 2 * 8192 + 6 * 10_240
    assert every.moved_bytes_per_token(net, fused=True) == 2 * (8192 + 18_432) + 6 * 43_008
    assert some.moved_bytes_per_token(net, fused=False) == 7 * 4 * 4096 + 12 * 10_240
    assert every.moved_bytes_per_token(net, fused=False) == 7 * (6 * 4096 + 14_336) + 12 * 43_008


def test_deepspeed_gathers_weights_once_more_to_recompute() -> None:
    """Three gathers in place of two; FSDP keeps what it gathered for the backward pass."""
    thrice, twice = (find_software(name) for name in ("deepspeed", "fsdp"))
    layout = TrainingLayout(data=8, micro_batch=1, zero=3, recompute=FULL)
    found = [evaluate_layout(build_job(software=one, seq=256), layout).terms["data_s"] for one in (thrice, twice)]
    assert found[0] > 1.2 * found[1]
    none = replace(layout, recompute=NONE)
    found = [evaluate_layout(build_job(software=one, seq=256), none).terms["data_s"] for one in (thrice, twice)]
    assert found[0] == pytest.approx(found[1])


def test_recomputation_is_for_as_few_layers_as_memory_needs() -> None:
    """Between fitting without it and needing it in full lie layouts that recompute a part of a stage, and cost that part."""
    job = replace(build_job(), network=network("llama-3.1-70b"), global_batch=128)
    found = search_layouts(job, 64, SearchSpace((4,), (2,), (1,), micro_batch=(1,), interleave=(1,), zero=(1,)))
    best = evaluate_layout(job, found.layouts.pick(0))
    none, full = (evaluate_layout(job, replace(best.layout, recompute=r, recompute_share=1.0)) for r in (NONE, FULL))
    assert best.fits
    assert not none.fits
    assert 0 < best.layout.recompute_share < 1
    assert none.step_s < best.step_s < full.step_s
    assert best.terms["recompute_s"] == pytest.approx(full.terms["recompute_s"] * best.layout.recompute_share)


def test_slices_sum_gradients_over_their_own_network() -> None:
    """A second slice costs the exchange of what one chip holds, not a gather of every weight over the data center."""
    machine = build_machine(accelerator("tpu-v5e"), software=XLA)
    one = TrainingJob(network("llama-3.1-70b"), 2048, 256, machine, XLA)
    single = evaluate_layout(one, TrainingLayout(data=256, zero=3, recompute=FULL))
    two = evaluate_layout(replace(one, global_batch=512), TrainingLayout(data=512, zero=3, recompute=FULL))
    shard_s = 70.6e9 / 256 * 4 / machine.fabric.out_bytes_per_s  # four bytes of each gradient, half of them twice
    assert two.terms["data_s"] - single.terms["data_s"] == pytest.approx(shard_s, rel=0.02)
    assert two.step_s < 1.1 * single.step_s


def test_packed_documents_attend_to_themselves_alone() -> None:
    """Where the framework tells documents apart, packing short ones makes attention cheap and leaves the products as they are."""
    job = build_job(software=NEMO)
    packed = evaluate_layout(replace(job, document_tokens=512), ONE_NODE)
    whole = evaluate_layout(job, ONE_NODE)
    assert packed.terms["attention_s"] < 0.2 * whole.terms["attention_s"]
    assert packed.terms["matmul_s"] == whole.terms["matmul_s"]
    assert step_s(replace(build_job(), document_tokens=512)) == step_s(build_job())


def experts_launch_s(card: str, software: Software, ranks: int = 8) -> float:
    """Seconds in which GPUs wait for kernels to be started: 128 small experts over this many ranks, little work for each."""
    machine = build_machine(accelerator(card), "fp8", software=software)
    job = TrainingJob(network("qwen3-30b-a3b"), 4096, 512, machine, software)
    return evaluate_layout(job, TrainingLayout(data=64, expert=ranks, micro_batch=1)).terms["launch_s"]


def test_experts_on_one_rank_are_started_one_by_one() -> None:
    """128 experts on 8 ranks with little work each wait for the host; on 64 ranks they wait half as long."""
    assert experts_launch_s("b200-sxm", NEMO) > 1.8 * experts_launch_s("b200-sxm", NEMO, ranks=64)


def test_the_host_waits_for_the_counts_of_tokens_that_are_not_dropped() -> None:
    """Dropless routing starts experts only when it knows what each got; dropping tokens, or a rack's dispatcher, need not wait."""
    waiting = experts_launch_s("b200-sxm", NEMO)
    dropped = experts_launch_s("b200-sxm", replace(NEMO, expert_sizes="even"))
    on_device = experts_launch_s("b200-sxm", replace(NEMO, expert_sizes="device"))
    assert dropped < on_device < waiting
    assert experts_launch_s("gb200-nvl72", NEMO) < waiting


def test_the_head_stands_in_place_of_the_layers_that_the_last_stage_lacks() -> None:
    """126 layers on 8 stages of 8 chunks leave the last stage two short of 16, more than its head takes; of 128 they do not."""
    job = replace(build_job(software=NEMO), network=network("llama-3.1-405b"), global_batch=64)
    layout = TrainingLayout(8, 8, 8, 2, interleave=8, zero=1, sequence_parallel=True)
    uneven = evaluate_layout(job, layout).terms
    even = evaluate_layout(replace(job, network=replace(job.network, layers=128)), layout).terms
    assert uneven["head_s"] == 0 < even["head_s"]
    assert uneven["matmul_s"] == even["matmul_s"]
    assert uneven["bubble_s"] == pytest.approx(even["bubble_s"] * 110 / 112, rel=0.01)


def test_narrow_heads_and_experts_with_biases_are_slower() -> None:
    """Heads of 64 do as many exponentials for half of the products; biases of experts are passes of their own."""
    job = TrainingJob(network("gpt-oss-120b"), 8192, 64, build_machine(accelerator("gb200-nvl72"), software=NEMO), NEMO)
    layout = TrainingLayout(data=64, expert=64)
    known = evaluate_layout(job, layout).terms
    wide = replace(job, constants=replace(job.constants, flash3_exponentials_share=0.0))
    plain = replace(job, network=replace(job.network, linear_bias=False))
    assert known["attention_s"] == pytest.approx(1.5 * evaluate_layout(wide, layout).terms["attention_s"])
    assert known["elementwise_s"] > 1.2 * evaluate_layout(plain, layout).terms["elementwise_s"]


def test_power_decides_how_much_of_a_peak_is_reached() -> None:
    """The more FLOP/s a watt is to give, the smaller their share; cards with power to spare reach what A100s do."""
    shares = [
        build_machine(accelerator(name), software=NEMO).matmul.matmul_share
        for name in ("a100-sxm", "rtx-4090", "h100-sxm", "gb300-nvl72", "gb200-nvl72", "b200-sxm")
    ]
    assert shares[0] == shares[1]
    assert all(np.diff(shares[1:]) < 0)


Inputs = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "vectors"
TOPICS = ("training", "mfu", "memory", "collectives", "checkpoints")


def read_vectors(topic: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((FOLDER / f"{topic}.json").read_text(encoding="utf-8"))
    return loaded


def job(shape: Network, batch: int, seq: int) -> TrainingJob:
    machine = build_machine(accelerator("a100-sxm"), "fp16")
    return TrainingJob(shape, seq, batch, machine, find_software("megatron", "2022-05"))


def megatron(i: Inputs) -> tuple[Network, Utilization]:
    """A row of the weak-scaling table: its network, and its utilization at the hardware TFLOP/s it was measured at."""
    shape = next(
        n for n in networks().values() if n.name.startswith("megatron") and (n.layers, n.hidden) == (i["layers"], i["hidden"])
    )  # fmt: skip
    step_s = i["batch"] * i["seq"] * training_flops_per_token(shape, i["seq"], HARDWARE)
    step_s /= i["gpus"] * i["tflops_per_gpu"] * FLOPS_PER_TFLOPS
    layout = TrainingLayout(data=i["gpus"], recompute=FULL)
    return shape, compute_utilization(job(shape, i["batch"], i["seq"]), layout, step_s)


MEGATRON: dict[str, Callable[[Inputs], float]] = {
    "params_B": lambda i: megatron(i)[0].parameters / PARAMETERS_PER_BILLION,
    "pct_peak": lambda i: megatron(i)[1].hfu_share,
    "aggregate_pflops": lambda i: megatron(i)[1].hardware_flops_per_gpu_per_s * i["gpus"] / FLOPS_PER_PFLOPS,
    "mfu": lambda i: megatron(i)[1].mfu_share,
}


@pytest.mark.parametrize(
    "vector", [v for v in read_vectors("training") if ".days." not in v["id"]], ids=lambda v: v["id"]
)
def test_megatron_weak_scaling(vector: dict[str, Any]) -> None:
    """Sizes, shares of peak, aggregate speed and MFU of all ten rows follow from the product's own counts of FLOPs."""
    answer = MEGATRON[vector["id"].rpartition(".")[2]](vector["inputs"])
    assert answer == pytest.approx(vector["expected"], rel=5e-4, abs=5e-4)


@pytest.mark.parametrize("vector", [v for v in read_vectors("training") if ".days." in v["id"]], ids=lambda v: v["id"])
def test_megatron_days(vector: dict[str, Any]) -> None:
    """The paper's estimate of 8·T·P FLOPs leaves out attention and logits: counting them takes up to 4 % longer."""
    i = vector["inputs"]
    shape = network({"175B": "gpt3-175b", "1T": "megatron-1t"}[vector["id"].rpartition(".")[2]])
    days = i["T"] * training_flops_per_token(shape, 2048, HARDWARE) / (i["n"] * i["X"]) / S_PER_DAY
    assert 1 < days / vector["expected"] < 1.04


def claim(model: str, share: str) -> float:
    """One share of a model of the published table, recomputed."""
    return float(next(getattr(c, share) for c in validate_mfu().claims if c.model == model))


MFU: dict[str, Callable[[Inputs], float]] = {
    "palm.mfu.no_attn": lambda i: mfu_share(i["tps"], palm_flops_per_token(i["N"], 0, 0, 0), i["chips"], i["peak"]),
    "palm.mfu": lambda _: claim("PaLM", "recomputed_share"),
    "palm.hfu": lambda _: claim("PaLM", "hfu_share"),
    "palm.all_in_mfu": lambda i: paid_mfu_share(2.56e24, i["chip_h"], 275e12),
    "mtnlg.mfu": lambda _: claim("MT-NLG", "recomputed_share"),
    "gopher.mfu": lambda _: claim("Gopher", "recomputed_share"),
    "gpt3.mfu.formula": lambda _: claim("GPT-3", "recomputed_share"),
}


@pytest.mark.parametrize("vector", read_vectors("mfu"), ids=lambda v: v["id"])
def test_mfu_of_the_palm_table(vector: dict[str, Any]) -> None:
    """MFU, HFU and MFU over paid hours of PaLM, MT-NLG, Gopher and GPT-3, as their own formula gives them."""
    assert MFU[vector["id"]](vector["inputs"]) == pytest.approx(vector["expected"], abs=1e-6)


def test_only_gpt3_does_not_follow() -> None:
    """Every printed MFU but GPT-3's follows from its formula, and PaLM's over paid hours is that of its chip-hours."""
    assert [c.model for c in validate_mfu().claims if not c.follows] == ["GPT-3"]
    assert claim("PaLM", "paid_share") == pytest.approx(paid_mfu_share(2.56e24, 8_404_992, 275e12))


@pytest.mark.parametrize("vector", read_vectors("memory"), ids=lambda v: v["id"])
def test_activations_of_a_layer(vector: dict[str, Any]) -> None:
    """A layer keeps what equations 2 and 4 say, without recomputation and with selective recomputation and sequences cut."""
    i = vector["inputs"]
    lean = vector["id"].endswith("selective")
    name = vector["id"].split(".")[2]
    measured = read_row(next(r for r in read_published_rows("korthikanti2022_table5.csv") if r["model"] == name))
    layout = TrainingLayout(i["t"], micro_batch=i["b"], recompute=SELECTIVE if lean else 0, sequence_parallel=lean)
    kept = float(activation_bytes_per_layer(measured.job, layout))
    assert kept == pytest.approx(vector["expected"], rel=1e-12)


@pytest.mark.parametrize("topic", TOPICS)
def test_our_copies_are_the_published_ones(shared: Path, topic: str) -> None:
    """Inputs and expected values are those of the file they were retyped from, where it has them."""
    there = {v["id"]: v for v in json.loads((shared / "truth" / "test_vectors.json").read_text(encoding="utf-8"))}
    for vector in read_vectors(topic):
        if topic != "memory":
            published = there[vector["id"]]
            assert (vector["inputs"], vector["expected"]) == (published["inputs"], published["expected"])


EIGHT_NODES = TrainingLayout(tensor=4, data=16, micro_batch=2, zero=1)


def test_what_nobody_named_has_the_range_of_what_it_may_be() -> None:
    """From what Megatron takes to what PyTorch takes by itself; a framework that is named has its own range alone."""
    given = {"model": "llama-3.1-8b", "gpus": (64,), "tokens": 1e11, "seq": 8192, "global_batch": 512}
    unnamed, named, plain = (
        plan_training(**given, **more).data.plans[0]
        for more in ({}, {"framework": "megatron"}, {"framework": "pytorch"})
    )
    assert (named.distance, unnamed.distance, plain.distance) == ("measured nearby", "other stack", "other stack")
    assert unnamed.time_range[0] <= named.time_range[0]
    assert unnamed.time_range[1] > 1.1 * max(named.time_range[1], plain.time_range[1])
    assert plain.step_s > 1.1 * named.step_s
    assert unnamed.step_s >= named.step_s  # a layout that would fit in either


def test_every_trait_can_be_given() -> None:
    """By name, yes or no, one of its words or a number; what is none is refused with the nearest name."""
    given = {"model": "llama-3.1-8b", "gpus": (16,), "tokens": 1e11, "tp": (2,)}
    fast, slow = (
        plan_training(**given, framework="nemo", traits=traits).data.plans[0].step_s
        for traits in ((), ("tp_overlap=no", "fused_norms=no", "attention=first"))
    )
    assert slow > fast
    for traits, error in (
        (("tp-overlp=no",), "did you mean 'tp_overlap'"),
        (("tp_overlap=perhaps",), "yes or no"),
        (("attention=third",), "attention"),
        (("logit_bytes=-1",), "from 0 to"),
    ):
        with pytest.raises(InputError, match=error):
            TrainingRequest(model="llama-3.1-8b", gpus=(8,), traits=traits)
    with pytest.raises(InputError, match="--release is a month as 2025-10"):
        TrainingRequest(model="llama-3.1-8b", gpus=(8,), release="last year")


def test_memory_of_plain_pytorch() -> None:
    """A logit of 18 bytes on every tensor rank and 9 more to gather it, against 6 shared; norms and gates keep copies."""
    machine = build_machine(accelerator("a100-sxm"))
    lean, plain = (
        evaluate_layout(TrainingJob(network("llama-3.1-8b"), 2048, 64, machine, find_software(name)), EIGHT_NODES)
        for name in ("megatron", "pytorch")
    )
    logits = 2 * 2048 * 128_256
    assert lean.memory_parts["logits_bytes"] == pytest.approx(6 * logits / 4)
    assert plain.memory_parts["logits_bytes"] == pytest.approx(27 * logits)
    assert plain.memory_parts["activations_bytes"] > 1.3 * lean.memory_parts["activations_bytes"]
    assert plain.terms["head_s"] > 1.5 * lean.terms["head_s"]


def test_parts_that_ranks_send_in_turn_take_as_long_as_there_are_ranks() -> None:
    """InternEvo shares what each rank stepped by a broadcast a rank; inside a node (zero1=8) there are few of them."""
    machine = build_machine(accelerator("a100-sxm"), network_bytes_per_s=6.25e9)
    turns = find_software("internevo")
    far, near = (
        step_s(
            TrainingJob(network("llama-3.1-8b"), 2048, 2048, machine, one),
            TrainingLayout(data=1024, micro_batch=2, zero=1),
        )
        for one in (turns, turns.having({"shards_inside": True}))
    )
    assert far - near > 1024 * 0.002


def test_a_gated_mlp_has_one_sum_more_where_each_product_has_its_own() -> None:
    """Five all-reduces a layer against four; with sequence parallelism what is gathered once is summed once."""
    machine, own = build_machine(accelerator("a100-sxm")), find_software("scaling")
    for sequence_parallel, ratio in ((False, 5 / 4), (True, 1.0)):
        x = replace(EIGHT_NODES, sequence_parallel=sequence_parallel)
        each, once = (
            evaluate_layout(TrainingJob(network("llama-3.1-8b"), 2048, 64, machine, one), x).terms["tensor_s"]
            for one in (own, own.having({"reduces_by_product": False}))
        )
        assert each == pytest.approx(ratio * once)


def test_peaks_of_a_framework_that_many_layouts_tell_lie_nearer() -> None:
    """The same memory is a smaller risk where it is known how far peaks lie from predicted ones."""
    machine, own = build_machine(accelerator("a100-sxm")), find_software("scaling")
    near, wide = (
        evaluate_layout(TrainingJob(network("llama-2-13b"), 2048, 64, machine, one), TrainingLayout(data=64))
        for one in (own, replace(own, peak_range=Software().peak_range))
    )
    assert 0.85 < near.memory_bytes / near.usable_bytes < 0.97
    assert near.out_of_memory_share < wide.out_of_memory_share / 2


def test_layers_of_fixed_state_are_not_counted_as_attention() -> None:
    """Nemotron 3 Nano: 31.6 billion weights; its attention of 6 of 29 layers, and products of Mamba-2 in 23, by hand."""
    n, on = network("nemotron-3-nano-30b-a3b"), build_machine(accelerator("h100-sxm"))
    assert n.parameters == pytest.approx(31.6e9, rel=0.002)
    hybrid, plain = (TrainingJob(one, 8192, 64, on, find_software("nemo")) for one in (n, replace(n, linear=None)))
    x = TrainingLayout(data=64, expert=16)
    few, all_layers = (evaluate_layout(job, x) for job in (hybrid, plain))
    assert few.terms["attention_s"] == pytest.approx(6 / 29 * all_layers.terms["attention_s"])
    products = 23 * (n.hidden * (2 * 1024 + 2 * 4096 + 2 * 64) + 4096 * n.hidden) + 6 * n.hidden * 128 * (
        2 * 32 + 2 * 2
    )
    ordinary = 29 * n.hidden * 128 * (2 * 32 + 2 * 2)
    least_s = 6 * 8192 * (products - ordinary) / (on.matmul.peak_flops * on.matmul.matmul_share)
    assert least_s < few.terms["matmul_s"] - all_layers.terms["matmul_s"] < 1.5 * least_s
    assert (
        plan_training(model=n.name, gpus=(64,), tokens=1e12, framework="nemo").data.plans[0].distance == "other stack"
    )
