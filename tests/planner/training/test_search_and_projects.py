"""Search scores every legal layout as the breakdown does, projects cost what their parts do; impossible requests are refused."""

from typing import Any

import numpy as np
import pytest

from loadfactor import plan_training
from loadfactor.base.errors import InputError, PlanError
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.models import network
from loadfactor.catalog.prices import choose_price
from loadfactor.planner.training.explanations import evaluate_layout, list_open_recomputation
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import FULL, NONE, TrainingLayout
from loadfactor.planner.training.machine import build_machine
from loadfactor.planner.training.memory import estimate_memory
from loadfactor.planner.training.scaling import TrainingPlans
from loadfactor.planner.training.search import EVERYTHING, SearchSpace, find_pareto_front, pick_distinct, search_layouts
from loadfactor.planner.training.software import find_software
from loadfactor.planner.training.step import TERMS, estimate_step
from loadfactor.planner.training.training_plan import ProjectNeeds, Reliability, TrainingPlan, cost_project, plan_run

RELIABLE = Reliability(50_677, 60, 600)


def job(
    name: str = "llama-3.1-70b", card: str = "h100-sxm", seq: int = 8192, batch: int = 512, modern: bool = True
) -> TrainingJob:
    software = find_software("megatron") if modern else find_software("megatron", "2021-04")
    return TrainingJob(network(name), seq, batch, build_machine(accelerator(card)), software)


def plan(gpus: int = 512, space: SearchSpace = EVERYTHING, **what: object) -> TrainingPlan:
    return plan_run(job(**what), gpus, 1e12, RELIABLE, space, choose_price("H100", 2.0))  # type: ignore[arg-type]


def test_every_layout_is_legal_and_uses_all_gpus() -> None:
    """Degrees multiply to the GPUs, tensor ranks divide heads and share key-value heads evenly, micro-batches divide the batch."""
    found = search_layouts(job(), 512)
    x = found.layouts
    assert len(found) > 1000
    assert (x.tensor * x.pipeline * x.data * x.context == 512).all()
    assert (64 % x.tensor == 0).all()
    assert ((8 % x.tensor == 0) | (x.tensor % 8 == 0)).all()
    assert (512 % (x.data * x.micro_batch) == 0).all()
    assert ((x.interleave == 1) | (512 // (x.data * x.micro_batch) % x.pipeline == 0)).all()
    keys = np.stack([np.asarray(getattr(x, f)) for f in TrainingLayout.__dataclass_fields__])
    assert np.unique(keys, axis=1).shape[1] == len(found)


def test_the_search_scores_as_the_breakdown_does() -> None:
    """The seconds and bytes a layout has in the search are those of the same equations for it alone."""
    found, one = search_layouts(job(), 512), job()
    for i in (0, 7, len(found) - 1):
        layout = found.layouts.pick(i)
        assert float(estimate_step(one, layout).step_s[0]) == pytest.approx(found.step_s[i], rel=1e-12)
        assert float(estimate_memory(one, layout).total_bytes[0]) == pytest.approx(found.memory_bytes[i], rel=1e-12)


def test_terms_sum_to_the_step_and_none_is_negative() -> None:
    """The breakdown names every term and they add up, for dense, latent and expert networks, old software and new."""
    for one, gpus in ((job(), 512), (job("deepseek-v3", batch=1024, seq=4096), 512), (job(modern=False, seq=2048), 64)):
        found = search_layouts(one, gpus)
        parts = estimate_step(one, found.layouts)
        assert set(parts.terms) == set(TERMS)
        assert all((np.asarray(v) >= 0).all() for v in parts.terms.values())
        assert np.allclose(sum(np.asarray(v) for v in parts.terms.values()), found.step_s)


def test_best_first_and_what_fits_before_what_does_not() -> None:
    """Layouts that fit come first, each group from fast to slow; the ways to cut shown are different ones."""
    found = search_layouts(job(), 512)
    fitting = int(found.fits.sum())
    assert found.fits[:fitting].all()
    assert (np.diff(found.step_s[:fitting]) >= -1e-8).all()
    shown = pick_distinct(found, 5)
    cuts = {
        tuple(int(v) for v in (x.tensor, x.pipeline, x.expert, x.context > 1, x.zero == 3))
        for x in map(found.layouts.pick, shown)
    }
    assert len(cuts) == len(shown) == 5


def test_pareto_front_trades_time_for_memory() -> None:
    """Along the front every layout is slower than the one before it and needs less memory."""
    found = search_layouts(job(), 512)
    front = find_pareto_front(found)
    assert front[0] == 0
    assert (np.diff(found.step_s[front]) >= 0).all()
    assert (np.diff(found.memory_bytes[front]) < 0).all()


def test_tensor_ranks_stay_inside_the_domain() -> None:
    """The rule of the field comes out by itself: the best layout of a 1T model keeps tensor ranks on NVLink and pipelines."""
    best = plan(3072, name="megatron-1t", card="a100-sxm", seq=2048, batch=3072).best
    assert best.layout.tensor <= 8
    assert best.layout.pipeline > 8
    across = plan(3072, SearchSpace(tensor=(32,)), name="megatron-1t", card="a100-sxm", seq=2048, batch=3072).best
    assert across.step_s > 1.05 * best.step_s


def test_a_rack_wide_domain_moves_the_rule() -> None:
    """On NVL72 sixteen tensor ranks cost little: the domain is a fact of the accelerator, not the number eight."""

    def slowdown(card: str) -> float:
        one = job("megatron-530b", card, 2048, 1152)
        return float(
            estimate_step(one, TrainingLayout(16, 35, 2, sequence_parallel=True)).terms["tensor_s"][0]
            / estimate_step(one, TrainingLayout(8, 35, 4, sequence_parallel=True)).terms["tensor_s"][0]
        )

    assert slowdown("h100-sxm") > 4
    assert slowdown("gb200-nvl72") < 2.5


def test_runner_up_says_why_it_loses() -> None:
    """Each rival names the terms that make it slower, or its risk; a faster one without room says what it needs."""
    p = plan()
    words = ("slower", "is as fast", "but runs out of memory in")
    assert all(any(word in r.why_it_loses for word in words) for r in p.rivals)
    assert any(word in " ".join(r.why_it_loses for r in p.rivals) for word in ("bubble", "exchange", "recomputation"))
    assert all("needs" in r.why_it_loses and "faster" in r.why_it_loses for r in p.too_large)


def test_spare_nodes_follow_failures_and_repair() -> None:
    """Llama 3 on 16,384 GPUs: a failure every 3.09 hours, 7.8 nodes in repair on average, 15 in 99 of 100 hours."""
    given = {
        "model": "llama-3.1-405b",
        "tokens": 1e12,
        "gpus": (16_384,),
        "global_batch": 2048,
        "tp": (8,),
        "pp": (16,),
    }
    usual, quick = (plan_training(**given, repair_h=hours).data.plans[0] for hours in (24, 0))
    assert (usual.spare_nodes, quick.spare_nodes) == (15, 0)


def test_more_interleaving_shrinks_the_bubble() -> None:
    """(p−1)/(v·m) of the stages' work: doubling the chunks halves the bubble."""
    one = job("gpt3-175b", "a100-sxm", 2048, 64)
    plain, halved = (
        float(
            estimate_step(one, TrainingLayout(8, 8, 1, micro_batch=1, interleave=v, recompute=FULL)).terms["bubble_s"][
                0
            ]
        )
        for v in (1, 2)
    )
    assert halved == pytest.approx(plain / 2, rel=0.01)


def test_zero_stages_shed_memory_in_order() -> None:
    """Optimizer state, then gradients, then weights are divided by the data ranks."""
    one = job("llama-3.1-8b", batch=64)
    totals = [
        float(estimate_memory(one, TrainingLayout(data=64, zero=z, recompute=FULL)).total_bytes[0]) for z in range(4)
    ]
    assert totals[0] > totals[1] > totals[2] > totals[3]
    parts = estimate_memory(one, TrainingLayout(data=64, zero=3, recompute=NONE)).parts
    assert float(parts["optimizer_bytes"][0]) == pytest.approx(12 * one.network.parameters / 64, rel=1e-6)


def test_money_and_time_follow_from_the_step() -> None:
    """Days, GPU-hours and dollars are tokens × step ÷ batch, divided by the share of time that is kept work."""
    p = plan()
    steps = 1e12 / (512 * 8192)
    assert p.steady_s == pytest.approx(steps * p.best.step_s)
    assert p.wall_s == pytest.approx(p.steady_s / p.checkpoints.efficiency_share)
    assert p.cost == pytest.approx(p.wall_s * 512 / 3600 * 2.0)
    assert p.paid_mfu_share < p.mfu_share < p.hfu_share or p.best.layout.recompute == NONE


@pytest.mark.parametrize(
    ("gpus", "what", "space", "said"),
    [
        (512, {}, SearchSpace(tensor=(24,)), r"24 tensor ranks do not divide llama-3\.1-70b.s 64 heads.*that do: 16 and 32"),
        (6, {}, SearchSpace(tensor=(6,)), r"6 tensor ranks do not divide llama-3.1-70b's 64 heads; the nearest that does: 2$"),
        (64, {}, SearchSpace(tensor=(8,), pipeline=(16,)), r"take 128 GPUs, more than the 64 given"),
        (8, {"name": "mixtral-8x7b"}, SearchSpace(expert=(8,), pipeline=(2,)), r"8 expert ranks do not divide the 4 GPUs .* 4$"),
        (512, {}, SearchSpace(pipeline=(64,)), r"80 layers do not divide over 64 pipeline stages.*nearest that does: 16"),
        (100, {}, SearchSpace(tensor=(8,)), r"100 GPUs are no multiple.*96 and 104"),
        (512, {"batch": 500}, SearchSpace(tensor=(8,), pipeline=(2,)),
         r"500 sequences does not divide over 32 data ranks.*480 and 512"),
        (8, {}, EVERYTHING, r"nothing fits: llama-3\.1-70b on 8 h100-sxm needs at least .* it fits on 16 GPUs"),
        (64, {"name": "gpt3-175b"}, EVERYTHING, r"2048 learned positions.*--seq 2048"),
        (64, {}, SearchSpace(expert=(4,)), "has no experts"),
        (64, {"name": "mixtral-8x7b"}, SearchSpace(expert=(3,)), r"8 experts do not divide over 3 ranks.*2 and 4"),
        (509, {}, EVERYTHING, r"no layout of llama-3\.1-70b on 509 GPUs divides a global batch of 512.*: 509"),
        (0, {}, EVERYTHING, "at least 1 GPU"),
    ],
)  # fmt: skip
def test_impossible_requests_name_the_constraint_and_what_works(
    gpus: int, what: dict[str, object], space: SearchSpace, said: str
) -> None:
    """One line: which constraint failed, and the nearest thing that works."""
    with pytest.raises(PlanError, match=said):
        plan(gpus, space, **what)


@pytest.mark.parametrize(("name", "gpus"), [("llama-3.1-70b", 512), ("llama-3.1-70b", 64), ("llama-3.1-8b", 8)])
def test_the_risk_of_memory_decides_beside_time(name: str, gpus: int) -> None:
    """No layout is offered that is hardly faster and runs out of memory more often; what is faster says its risk."""
    one = plan(gpus, name=name)
    fastest = one.pareto[0]
    assert fastest.memory_bytes > 0.9 * fastest.usable_bytes
    assert one.best.out_of_memory_share < 0.2 < 0.35 < fastest.out_of_memory_share
    assert one.best.step_s < 1.06 * fastest.step_s
    faster = [rival for rival in one.rivals if rival.step_s < one.best.step_s]
    assert all("but runs out of memory in" in (rival.why_it_loses or "") for rival in faster)


@pytest.mark.parametrize("card", ["gh200", "trainium2"])
def test_what_may_well_run_out_of_memory_is_not_recommended(card: str) -> None:
    """Where nobody named the framework too: more is recomputed or cut, and what surely fits is offered beside it."""
    page = plan_training(model="gpt-oss-120b", accelerator=card, gpus=64)
    one = page.data.plans[-1]
    assert one.best.out_of_memory_share < 1 / 3
    assert one.safer.out_of_memory_share <= 0.1
    assert one.best.step_s < one.safer.step_s
    assert any(note.startswith("Safer: ") for note in page.document.notes)


def test_a_headline_says_where_no_layout_is_sure_to_fit() -> None:
    """What is given of the layout leaves nothing that fits in two of three cases: the safest is named beside the best."""
    page = plan_training(
        model="gpt-oss-120b", accelerator="gh200", gpus=64, tp=1, pp=1, cp=1, ep=(32, 64), recompute=("none",)
    )
    one = page.data.plans[-1]
    assert 0.5 < one.safer.out_of_memory_share < one.best.out_of_memory_share
    assert f"{one.safer.out_of_memory_share:.0%}".replace("%", " % as DP64 EP64 mb1 FSDP)") in page.headline


def test_recomputation_that_errors_can_turn_is_said_to_be_open() -> None:
    """None that misses by less than published peaks lie below predicted ones, and full where they may lie above, are open."""
    found = search_layouts(job(), 64, SearchSpace(tensor=(4,), pipeline=(2,), interleave=(3,)))
    fastest = evaluate_layout(job(), found.layouts.pick(0))
    assert fastest.layout.recompute_share < 1
    less, more = list_open_recomputation(job(), fastest)
    assert less.layout.recompute == NONE
    assert less.usable_bytes < less.memory_bytes < less.usable_bytes / job().peak_range[0]
    assert less.step_s < fastest.step_s
    assert "so it fits if that is predicted" in (less.why_it_loses or "")
    assert more.layout.recompute == FULL
    assert more.memory_bytes * job().peak_range[1] <= more.usable_bytes
    assert not plan(64, SearchSpace(recompute=(FULL,))).open_recomputation


RUN: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpus": (8,),
    "tokens": 1e9,
    "seq": 4096,
    "global_batch": 32,
    "method": "lora",
    "price_per_gpu_hour": 2.0,
}


def scaling_plan(**given: Any) -> TrainingPlans:
    answer = plan_training(**given).data
    assert isinstance(answer, TrainingPlans)
    return answer


def test_parts_sum_to_the_project() -> None:
    """Ten runs at $2: a fifth padding, 30 % retries, 50 GPU-hours of evaluation, $300 and $5,000, against a run's own hours."""
    run = scaling_plan(**RUN).plans[0]
    project = cost_project(run, ProjectNeeds(10, 30, 20, 50, 300, 5_000))
    one = run.gpu_hours * 2
    assert project.costs is not None
    assert project.costs == pytest.approx(
        {"runs": 8 * one, "padding": 2 * one, "retries": 3 * one, "evaluation": 100, "storage": 300, "staff": 5_000}
    )
    assert project.cost == pytest.approx(sum(project.costs.values()))


def test_only_runs_have_a_range() -> None:
    """Evaluation, storage and staff are as given: the range is that of the time of runs, padding and retries."""
    run = scaling_plan(**RUN).plans[0]
    project = cost_project(run, ProjectNeeds(10, 30, 20, 50, 300, 5_000))
    low, high = run.time_range
    uncertain = 13 * run.gpu_hours * 2
    assert project.cost_range == pytest.approx((5_400 + low * uncertain, 5_400 + high * uncertain))


def test_padding_makes_runs_longer() -> None:
    """Of four tokens one is padding: a run of as many real tokens works a third more, and that third is padding's cost."""
    plain, padded = scaling_plan(**RUN), scaling_plan(**RUN, padding_percent=25)
    assert padded.plans[0].gpu_hours == pytest.approx(plain.plans[0].gpu_hours * 4 / 3)
    costs = padded.projects[0].costs
    assert costs is not None
    assert costs["runs"] == pytest.approx(plain.plans[0].cost)
    assert costs["padding"] == pytest.approx(costs["runs"] / 3)


def test_a_project_of_one_run_costs_what_the_run_costs() -> None:
    """Nothing is added that was not given."""
    answer = scaling_plan(**RUN)
    assert answer.projects[0].cost == pytest.approx(answer.plans[0].cost)
    assert answer.projects[0].cost_range == pytest.approx(answer.plans[0].cost_range)


@pytest.mark.parametrize(
    "said", [{"padding_percent": 100}, {"retry_percent": -1}, {"runs": 0}, {"staff_cost": float("nan")}]
)
def test_absurd_needs_are_refused(said: dict[str, Any]) -> None:
    """A run of nothing but padding, fewer than no retries, no run, no number."""
    with pytest.raises(InputError):
        scaling_plan(**RUN, **said)


def plan_on(accelerator: str) -> TrainingPlans:
    answer = plan_training(model="llama-3.1-8b", gpus=(8,), accelerator=accelerator, tokens=1e9).data
    assert isinstance(answer, TrainingPlans)
    return answer


def test_frameworks_differ_and_the_one_that_nobody_names_is_megatron() -> None:
    """PyTorch without a compiler, Megatron, NVIDIA's recipes; what is not named is planned as Megatron's."""
    answer = plan_on("h100-sxm")
    days = answer.days_by_framework
    assert days["transformers"] > days["megatron"] > days["nemo"]
    assert days["megatron"] == pytest.approx(answer.plans[0].days)


def test_tpus_have_one_software() -> None:
    """There XLA compiles everything; nothing is compared."""
    assert plan_on("tpu-v5p").days_by_framework == {}


def step_terms(accelerator: str, datatype: str) -> Any:
    """Seconds of the best step by term."""
    run: dict[str, Any] = {"model": "llama-3.1-8b", "gpus": (8,), "tokens": 1e9, "seq": 8192, "global_batch": 128}
    layout: dict[str, Any] = {"tp": (1,), "pp": (1,), "micro_batch": (1,), "recompute": ("full",)}
    answer = plan_training(**run, **layout, accelerator=accelerator, datatype=datatype).data
    assert isinstance(answer, TrainingPlans)
    return answer.plans[0].best.terms


def test_a_scale_for_every_row_slows_products() -> None:
    """By torchao's benchmarks they run at 0.7 of the speed with one scale a tensor."""
    tensor, row = (step_terms("h100-sxm", name)["matmul_s"] for name in ("fp8", "fp8-rowwise"))
    assert row == pytest.approx(tensor / 0.7, rel=0.02)


def test_scales_of_blocks_are_found_in_a_pass_of_their_own() -> None:
    """MX computes at the peak of 8 bits; its casts move more bytes than those with one scale a tensor."""
    tensor, block = (step_terms("b200-sxm", name) for name in ("fp8", "mxfp8"))
    assert block["matmul_s"] == pytest.approx(tensor["matmul_s"])
    assert block["elementwise_s"] > tensor["elementwise_s"]


def test_nvfp4_is_fp4() -> None:
    """Every product of 4 bits has a scale for each block, whatever it is called."""
    assert step_terms("b200-sxm", "nvfp4") == step_terms("b200-sxm", "fp4")


def test_a_gpu_without_units_for_it_is_refused() -> None:
    """An A100 has none for 8-bit floats."""
    with pytest.raises(InputError, match="a100-sxm has no known fp8 peak"):
        step_terms("a100-sxm", "mxfp8")
