"""Predictions beside published training runs, and measurements of serving replicas read row by row."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from loadfactor import plan_training
from loadfactor.base.errors import SourceError
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.constants import read_left_out_errors
from loadfactor.catalog.measurements import read_published_rows
from loadfactor.planner.training.distance import MEANINGS
from loadfactor.planner.training.software import TRAITS, Software, find_software
from loadfactor.planner.validation.measurement_files import RowRefused, fill_sources, read_measurement_files
from loadfactor.planner.validation.memory import validate_memory
from loadfactor.planner.validation.request import MemoryValidationRequest
from loadfactor.planner.validation.serving import SweepRow, read_sweeps
from loadfactor.planner.validation.serving import compare_rows as compare_serving
from loadfactor.planner.validation.training import Comparison, compare_rows, summarize_errors
from loadfactor.planner.validation.training_rows import list_unread, read_datatype, read_row, recognize_software

TITAN = {
    "model": "llama-3.1-8b", "gpu": "h100-sxm", "gpus": "8", "seq": "8192", "global_batch": "16", "micro_batch": "2",
    "tp": "1", "pp": "1", "zero": "3", "recompute": "selective (op)", "tokens_per_s_per_gpu": "6000",
    "source": "pytorch/torchtitan",
}  # fmt: skip


def recognize(row: Mapping[str, str], card: str = "h100-sxm") -> Software:
    return recognize_software(row, " ".join(row.values()), accelerator(card))


@pytest.mark.parametrize(
    ("row", "card", "name", "release"),
    [
        ({"source": "pytorch/torchtitan", "techniques": "FSDP"}, "h100-sxm", "torchtitan", "2026-01"),
        ({"source": "huggingface/trl"}, "a100-sxm", "transformers", "2026-01"),
        ({"source": "mosaicml/llm-foundry", "sharding": "FULL_SHARD"}, "a100-sxm", "composer", "2026-01"),
        ({"source": "NVIDIA/NeMo", "release": "NeMo 24.07"}, "h100-sxm", "nemo", "2024-07"),
        ({"source": "NVIDIA/NeMo", "release": "NeMo container 25.11"}, "b200-sxm", "nemo", "2025-11"),
        ({"source": "NVIDIA/Megatron-LM"}, "h100-sxm", "megatron", "2026-01"),
        ({"source": "arXiv:2104.04473", "note": "Megatron-LM"}, "a100-sxm", "megatron", "2021-04"),
        ({"source": "arXiv:2311.05610", "techniques": "fused softmax of Megatron"}, "a100-sxm", "unnamed", "2023-11"),
        ({"source": "AI-Hypercomputer/maxtext"}, "tpu-v6e", "maxtext", "2026-01"),
    ],
)
def test_a_row_names_its_framework(row: Mapping[str, str], card: str, name: str, release: str) -> None:
    """The source and the release say whose kernels ran, and how old they are."""
    found, expected = recognize(row, card), find_software(name, release)
    differing = {t for t in TRAITS if getattr(found, t) != getattr(expected, t)}
    assert found.framework == name
    assert differing <= {trait for trait, _ in found.given}


def test_techniques_change_what_a_framework_does() -> None:
    """torch.compile fuses, asynchronous tensor parallelism hides, rows have scales of their own, offloading moves states."""
    base = {"source": "pytorch/torchtitan"}
    assert recognize({**base, "techniques": "Async TP + torch.compile"}).tp_overlap
    assert not recognize({**base, "techniques": "Vanilla TP + torch.compile"}).tp_overlap
    assert recognize({**base, "techniques": "FSDP + torch.compile"}).fused
    assert recognize({**base, "precision": "float8 rowwise"}).scaling == "row"
    assert recognize({**base, "note": "CPU offload with fused optimizer"}).optimizer_on_host
    assert recognize({**base, "techniques": "packed, 8-bit AdamW"}).optimizer_bytes == 2
    assert recognize({**base, "note": "tokendrop"}).expert_sizes == "even"
    assert recognize({**base, "note": "token-dropless"}).expert_sizes == "host"
    assert recognize({**base, "techniques": "HybridEP"}).expert_sizes == "device"


@pytest.mark.parametrize(
    ("said", "card", "datatype"),
    [
        ("bf16 + float8 linear", "h100-sxm", "fp8"), ("float8 tensorwise", "h100-sxm", "fp8"), ("fp8-mx", "b200-sxm", "fp8"),
        ("NVFP4", "b200-sxm", "fp4"), ("amp_bf16", "a100-sxm", "bf16"), ("fp8", "tpu-v6e", "bf16"), ("", "h100-sxm", "bf16"),
    ],
)  # fmt: skip
def test_precisions_are_read_as_tables_write_them(said: str, card: str, datatype: str) -> None:
    """Eight and four bits by any of their names; what an accelerator has no units for is computed in 16 bits."""
    assert read_datatype({"precision": said}, accelerator(card)) == datatype


def test_a_precision_that_is_none_is_refused() -> None:
    """Nothing is silently predicted as bf16."""
    with pytest.raises(RowRefused, match="'posit8' is not one of"):
        read_datatype({"precision": "posit8"}, accelerator("h100-sxm"))


def test_what_nothing_is_made_of_is_said() -> None:
    """Known words of a technique are taken, the rest is named with the row."""
    assert list_unread({"techniques": "FSDP + torch.compile + Float8"}) == ()
    rows = [{**TITAN, "techniques": "FSDP + torch.compile, Muon"}]
    assert compare_rows("mine.csv", rows)[0][0].unread == ("muon",)


@pytest.mark.parametrize(
    ("said", "recomputed", "unread"),
    [
        ("full activation checkpointing", "full recompute", ()), ("Gradient checkpointing", "full recompute", ()),
        ("core_attn", "selective recompute", ()), ("Off", "none recompute", ()), ("", None, ()),
        ("every third MLP", None, ("recompute: every third mlp",)),
    ],
)  # fmt: skip
def test_recomputation_is_read_as_it_is_written(said: str, recomputed: str | None, unread: tuple[str, ...]) -> None:
    """By its usual names; what is none of them is searched, and said to be unread."""
    row = compare_rows("mine.csv", [{**TITAN, "recompute": said}])[0][0]
    assert row.unread == unread
    assert recomputed is None or recomputed in str(row.layout)


def test_embedding_and_head_may_fill_places_of_a_pipeline() -> None:
    """Llama 3.1 405B on 16 stages of 8 chunks: 126 layers, embedding and head in 128 places; 144 places are too many."""
    row = {
        **TITAN,
        "model": "llama-3.1-405b",
        "gpus": "1024",
        "tp": "8",
        "pp": "16",
        "zero": "1",
        "global_batch": "512",
    }
    plan = {**row, "micro_batch": "not given", "source": "NVIDIA/NeMo", "recompute": "none"}
    (found,), skipped = compare_rows("mine.csv", [{**plan, "interleave_v": "8"}])
    assert not skipped
    assert found.run.layout.interleave == 8
    with pytest.raises(RowRefused, match="fewer than 16 stages of 9 chunks"):
        read_row({**plan, "interleave_v": "9"})


def test_a_shape_that_contradicts_the_network_is_refused() -> None:
    """A row that names a network and gives its shape has that network; another shape is said, not taken for GPT-2's."""
    shape = {"layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn": "14336"}
    assert read_row({**TITAN, **shape}).job.network == read_row(TITAN).job.network
    with pytest.raises(RowRefused, match=r"llama-3\.1-8b has 32 layers, and the row says 40"):
        read_row({**TITAN, **shape, "layers": "40"})


@pytest.mark.parametrize(
    ("shape", "billions"),
    [
        ({"params_b": "8.03", "ffn": "14336", "vocab": "128256"}, 8.0),
        ({"ffn_hidden": "14336", "vocab": "128256"}, 8.0),
        ({"params_b": "6.7"}, 6.7),
        ({"gated_mlp": "true"}, 9.2),
    ],
)
def test_a_network_of_a_table_is_as_gated_as_its_parameters_say(shape: Mapping[str, str], billions: float) -> None:
    """Where nothing says it: by the count of parameters, else by a width that is not four times the hidden size."""
    row = {**TITAN, "model": "mine", "layers": "32", "hidden": "4096", "heads": "32", **shape}
    kv = {"kv_heads": "8"} if "ffn" in shape or "ffn_hidden" in shape else {}
    assert read_row({**row, **kv}).job.network.parameters / 1e9 == pytest.approx(billions, rel=0.03)


def test_hybrid_sharding_is_full_sharding_inside_a_domain() -> None:
    """HSDP is ZeRO-3 among the GPUs of a node, copied between nodes."""
    row = {**TITAN, "techniques": "HSDP", "gpus": "16", "global_batch": "32", "zero": ""}
    assert recognize(row).shards_inside
    assert "ZeRO-3" in str(compare_rows("mine.csv", [row])[0][0].layout)


def test_eager_rows_are_slower_than_compiled_ones_and_eight_bits_faster() -> None:
    """The same run in three rows: eager, compiled, with float8."""
    rows = [
        {**TITAN, "techniques": "FSDP", "precision": "bf16"},
        {**TITAN, "techniques": "FSDP + torch.compile", "precision": "bf16"},
        {**TITAN, "techniques": "FSDP + torch.compile + Float8", "precision": "bf16 + float8 linear"},
    ]
    eager, compiled, narrow = (one.predicted for one in compare_rows("mine.csv", rows)[0])
    assert eager < compiled < narrow


RAN = (
    "megatron_sc21_table1", "megatron_h100_weak_scaling", "mosaic_mpt_training", "nemo_performance", "dgx_cloud_h100",
    "megatron_bridge_2025", "tpu_maxtext", "torchtitan_llama31_8b", "lora",
)  # fmt: skip


@pytest.mark.long
def test_published_runs_are_said_to_fit(shared: Path) -> None:
    """Of the runs that ran, 99 % fit by the equations; of what does not, the largest part is named."""
    files = tuple(shared / "truth" / f"{name}.csv" for name in RAN)
    found = validate_memory(MemoryValidationRequest(rows=files))
    assert len(found.rows) > 500
    assert found.right / len(found.rows) >= 0.99
    assert {row.largest_part for row in found.rows if not row.fits} <= {"optimizer", "activations", "gathered"}


def test_published_peaks_are_near(shared: Path) -> None:
    """TorchTitan prints the peak of ten runs with and without recomputation: 15 % on average."""
    found = validate_memory(MemoryValidationRequest(rows=(shared / "truth" / "torchtitan_llama31_8b.csv",)))
    errors = [abs(row.error) for row in found.rows if row.error is not None]
    assert len(errors) == 10
    assert sum(errors) / len(errors) < 0.15


STUDY = "model,gpus,gpu,seq,global_batch,micro_batch,tp,pp,dp,recompute,zero,iteration_s,result\n"


def test_the_layout_recommended_of_a_study(tmp_path: Path) -> None:
    """Of those that are said to fit the fastest; one that ran out of memory has a regret of 1, and needs no time."""
    file = tmp_path / "study.csv"
    job = "llama-3.1-8b,8,h100-sxm,8192,32"
    lines = (f"{job},1,2,1,4,none,1,10,ok", f"{job},4,1,1,8,none,1,,OOM Error", f"{job},1,8,1,1,none,1,15,ok")
    file.write_text(STUDY + "\n".join(lines))
    found = validate_memory(MemoryValidationRequest(rows=(file,)))
    assert [(row.ran, row.fits) for row in found.rows] == [(True, True), (False, False), (True, True)]
    assert [row.recommended for row in found.rows] == [True, False, False]
    assert found.rows[1].fits_probability < 0.01 < 0.9 < found.rows[2].fits_probability
    assert [(job.ran, job.regret, job.layouts) for job in found.jobs] == [(True, 0.0, 3)]
    file.write_text(STUDY + lines[0].replace("10,ok", ",out of memory") + "\n" + lines[2])
    (job_,) = validate_memory(MemoryValidationRequest(rows=(file,))).jobs
    assert (job_.ran, job_.regret) == (False, 1.0)


def test_what_a_study_leaves_free_is_as_the_plan_would_choose(tmp_path: Path) -> None:
    """A row that says nothing of recomputation is not taken to fill the memory: it has room for what peaks are off by."""
    file = tmp_path / "study.csv"
    job = "llama-3.1-70b,64,gb200-nvl72,8192,128"
    file.write_text(f"{STUDY}{job},1,1,1,64,,3,4.03,ok\n{job},1,2,8,4,none,1,6.29,ok\n")
    found = validate_memory(MemoryValidationRequest(rows=(file,)))
    assert found.rows[0].predicted_bytes < 0.9 * found.rows[0].usable_bytes
    assert [row.recommended for row in found.rows] == [True, False]
    assert [job.regret for job in found.jobs] == [0.0]


@pytest.mark.long
def test_what_ran_out_of_memory_is_known(shared: Path) -> None:
    """422 layouts of a study, of which 257 ran out: 97 % are judged rightly, and all recommended ones ran and were fast."""
    found = validate_memory(MemoryValidationRequest(rows=(shared / "truth" / "layouts_a100_13b.csv",)))
    assert len(found.rows) == 422
    assert found.right / 422 > 0.97
    assert len(found.jobs) == 4
    assert all(job.ran for job in found.jobs)
    assert found.mean_regret is not None
    assert found.mean_regret < 0.04
    assert max(job.regret or 0.0 for job in found.jobs) < 0.15


def compared(shared: Path, name: str) -> list[Comparison]:
    (file,) = read_measurement_files([shared / "truth" / name])
    return compare_rows(name, file.rows)[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "rows", "mean", "worst"),
    [
        ("megatron_sc21_table1.csv", 10, 0.034, 0.08),
        ("korthikanti2022_table5.csv", 8, 0.036, 0.088),
        ("korthikanti2022_fig1_memory_gib.csv", 12, 0.05, 0.10),
        ("megatron_h100_weak_scaling.csv", 9, 0.08, 0.15),
        ("megatron_sc21_table2_zero3_vs_ptd.csv", 12, 0.05, 0.15),
        ("mosaic_mpt_training.csv", 139, 0.10, 0.6),
        ("vtrain_a100_multi.csv", 73, 0.10, 0.6),
        ("vtrain_a100_single.csv", 720, 0.20, 0.5),
        ("nemo_performance.csv", 96, 0.10, 1.6),
        ("dgx_cloud_h100.csv", 91, 0.10, 0.3),
        ("megatron_bridge_2025.csv", 58, 0.14, 1.2),
        ("tpu_maxtext.csv", 63, 0.10, 0.4),
        ("torchtitan_llama31_8b.csv", 16, 0.12, 0.4),
        ("full_finetune_torchtune.csv", 10, 0.15, 0.4),
        ("lora.csv", 28, 0.20, 0.6),
        ("internevo_a100.csv", 43, 0.06, 0.2),
    ],
)
def test_published_measurements_are_predicted(shared: Path, name: str, rows: int, mean: float, worst: float) -> None:
    """Every row of the file that does not contradict itself is used; mean and worst errors stay within the promise."""
    results = compared(shared, name)
    found = summarize_errors(results)
    assert len(results) == rows
    assert found.mean_abs_error is not None
    assert found.max_abs_error is not None
    assert found.mean_abs_error <= mean
    assert found.max_abs_error <= worst


@pytest.mark.parametrize(
    ("name", "rows", "mean", "worst", "at_least_inside"),
    [
        ("mosaic_mpt_h100.csv", 77, 0.05, 0.35, 0.9),
        ("adapters_eager.csv", 26, 0.11, 0.3, 0.7),
        ("megatron_deepspeed_a100.csv", 65, 0.19, 0.4, 0.3),
    ],
)
def test_tables_that_come_with_the_program_are_predicted(
    name: str, rows: int, mean: float, worst: float, at_least_inside: float
) -> None:
    """FSDP on 8 to 512 H100 with 512 to 65,536 tokens; LoRA without a compiler; BLOOM's layouts, which are slower."""
    results = compare_rows(name, fill_sources(read_published_rows(name)))[0]
    found = summarize_errors(results)
    assert len(results) == rows
    assert (found.mean_abs_error or 1) <= mean
    assert (found.max_abs_error or 1) <= worst
    assert (found.range_coverage or 0) >= at_least_inside


def test_the_error_of_fsdp_does_not_grow_with_the_sequence() -> None:
    """On 8 H100, sequences of 512 to 65,536 tokens in 16 bits: the mean of each length is within 12 %."""
    rows = [r for r in read_published_rows("mosaic_mpt_h100.csv") if r["gpus"] == "8" and r["precision"] == "amp_bf16"]
    errors: dict[str, list[float]] = {}
    for row, found in zip(rows, compare_rows("mosaic_mpt_h100.csv", rows)[0], strict=True):
        errors.setdefault(row["seq"], []).append(found.error)
    assert set(errors) >= {"512", "65536"}
    assert all(abs(sum(of) / len(of)) < 0.12 for of in errors.values())


def test_the_layout_picked_is_nearly_the_best_measured(shared: Path) -> None:
    """Choosing by prediction among measured multi-node layouts costs at most 1 % on average and 4 % at worst."""
    found = summarize_errors(compared(shared, "vtrain_a100_multi.csv"))
    assert found.regret_mean is not None
    assert found.regret_max is not None
    assert found.regret_mean <= 0.01
    assert found.regret_max <= 0.04


def test_the_flat_band_rises_as_published(shared: Path) -> None:
    """SC'21's hardware TFLOP/s lie in a flat band and rise from 18B to 530B, and MFU is about three quarters of HFU."""
    results = compared(shared, "megatron_sc21_table1.csv")
    by_name = {r.model: r.predicted for r in results}
    assert 125 < min(by_name.values()) < max(by_name.values()) < 180
    assert by_name["18B"] < by_name["145B"] < by_name["530B"]
    shares = [r.run.compute_utilization(r.predicted_layout, r.predicted) for r in results]
    assert all(0.73 < s.mfu_share / s.hfu_share < 0.78 for s in shares)


def test_zero3_collapses_with_scale_and_three_dimensions_do_not(shared: Path) -> None:
    """Doubling the GPUs of a fixed batch halves ZeRO-3's speed per GPU; pipeline and tensor parallelism lose little."""
    results = compared(shared, "megatron_sc21_table2_zero3_vs_ptd.csv")
    zero = [r.predicted for r in results[:3]]
    cut = [r.predicted for r in results[6:9]]
    assert zero[2] < 0.4 * zero[0]
    assert cut[2] > 0.85 * cut[0]


def test_rows_of_lora_are_not_predicted_as_full_training(shared: Path) -> None:
    """28 published rows of LoRA and QLoRA: 67 % off as full training, 10 % with frozen weights."""
    results = compared(shared, "lora.csv")
    found = summarize_errors(results)
    assert len(results) == 28
    assert all(r.run.job.adapters for r in results)
    assert found.mean_abs_error is not None
    assert found.mean_abs_error <= 0.12


def test_ranges_hold_as_often_as_they_say() -> None:
    """Left out in turn, the sources are off by 15 % at most on average, and four of five of their rows lie in the stated range."""
    errors = read_left_out_errors()
    assert len(errors.sources) >= 14
    assert errors.left_out_error <= 0.15
    assert 0.75 <= errors.covered_share <= 0.9


@pytest.mark.long
def test_what_is_farther_from_what_was_fitted_has_the_wider_range() -> None:
    """One word beside every headline and in the JSON; a range holds those of all that is nearer."""
    given = {"model": "llama-3.1-70b", "tokens": 1e12, "seq": 8192, "datatype": "fp8"}
    places = (
        ("measured nearby", "nemo", "h100-sxm", 512, ()),
        ("same stack", "nemo", "h100-sxm", 16_384, ()),
        ("other stack", "internevo", "h100-sxm", 512, ()),
        ("never seen", "megatron", "mi300x", 512, ()),
        ("measured nearby", "megatron", "mi300x", 512, ("step=9s",)),
    )
    for word, framework, card, gpus, measured in places:
        page = plan_training(**given, framework=framework, accelerator=card, gpus=(gpus,), measured=measured)
        assert page.data.plans[0].distance == word
        assert f"({word})" in page.headline
    for ranges in read_left_out_errors().ranges.values():
        ends = [ranges[word] for word in MEANINGS]
        assert all(far[0] <= near[0] < near[1] <= far[1] for near, far in pairwise(ends))


def test_errors_of_a_source_are_kept_apart() -> None:
    """Fitted to, left out, and the share in the range of the others; a file of one's own was never fitted."""
    rows = [{**TITAN, "techniques": "FSDP + torch.compile"}, {**TITAN, "tokens_per_s_per_gpu": "600"}]
    mine = summarize_errors(compare_rows("mine.csv", rows)[0], "mine.csv")
    assert mine.in_fit is None
    assert mine.left_out == mine.mean_abs_error
    assert mine.range_coverage == 0.5
    known = summarize_errors(compare_rows("lora.csv", rows)[0], "lora.csv")
    source = next(one for one in read_left_out_errors().sources if one.file == "lora.csv")
    assert (known.in_fit, known.left_out) == (source.fitted_error, source.left_out_error)
    assert known.range_coverage == source.covered_share


HEAD = "model,system,backend,precision,isl,osl,tp,moe_ep,attention_dp,concurrency,tpot_ms,ttft_ms\n"


def rows(folder: Path, *lines: str, head: str = HEAD) -> list[SweepRow | tuple[int, str]]:
    file = folder / "sweep.csv"
    file.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    return list(read_sweeps(file))


def test_a_row_is_read_and_its_throughput_derived(tmp_path: Path) -> None:
    """Throughput follows from concurrency and latencies where it is not given: 4 × 100 tokens in 0.1 s + 99 × 10 ms."""
    (row,) = rows(tmp_path, "m,h100_sxm,vllm,,512,100,1,,,4,10,100")
    assert isinstance(row, SweepRow)
    assert (row.precision, row.moe_ep, row.attention_dp) == (None, 1, 1)
    assert row.output_tokens_per_s == pytest.approx(400 / 1.09)


def test_unusable_rows_say_why(tmp_path: Path) -> None:
    """Zero lengths, words for numbers, nothing measured and negative times are left out, each with its line and reason."""
    found = rows(
        tmp_path,
        "m,h100_sxm,vllm,,0,100,1,1,1,4,10,100",
        "m,h100_sxm,vllm,,512,many,1,1,1,4,10,100",
        "m,h100_sxm,vllm,,512,100,1,1,1,4,,",
        "m,h100_sxm,vllm,,512,100,1,1,1,4,-1,100",
    )
    assert [line for line, _ in found] == [2, 3, 4, 5]  # type: ignore[misc]
    for (_, why), word in zip(found, ("prompt_tokens", "got many", "nothing measured", "at least"), strict=True):  # type: ignore[misc]
        assert word in why


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    """A file without the width of its replicas cannot be validated, and the message says so."""
    with pytest.raises(SourceError, match="no column tp"):
        rows(tmp_path, "m,h,v,1,1,1", head="model,system,backend,isl,osl,tpot_ms\n")


def test_offline_rows_need_a_throughput(tmp_path: Path) -> None:
    """Without a concurrency all requests are there from the start: the throughput is read, latencies alone mean nothing."""
    head = "model,system,backend,isl,osl,tp,concurrency,requests,tpot_ms,output_tok_per_s\n"
    good, bad = rows(tmp_path, "m,h,v,128,128,1,,3000,,29000", "m,h,v,128,128,1,,3000,10,", head=head)
    assert isinstance(good, SweepRow)
    assert (good.concurrency, good.requests, good.output_tokens_per_s) == (None, 3000, 29000)
    assert bad == (3, "no concurrency, and no throughput of a run with all requests at once")


def test_offline_throughput_is_predicted(shared: Path) -> None:
    """184 published maxima of TensorRT-LLM on A100, H100, H200 and L40S, none of them fitted, are met within 15 % on average."""
    found = compare_serving(read_sweeps(shared / "truth" / "serving_offline_max_trtllm_0_17.csv"), {})
    errors = [abs(row.throughput_error) for row in found if row.throughput_error is not None]
    assert len(errors) == 184
    assert sum(errors) / len(errors) <= 0.12
    assert max(errors) <= 0.5


@pytest.mark.long
def test_groups_of_serving_rows_are_met_as_when_each_pair_had_its_own_constants(shared: Path) -> None:
    """What a fit of shared constants gave up before: experts of 4 bits, releases, and the time to the first token."""
    path = shared / "truth" / "serving_concurrency_sweeps_from_silicon_sample.csv"
    most = {
        ("openai/gpt-oss-120b", "b200_sxm", "vllm"): (0.108, 0.16),
        ("openai/gpt-oss-120b", "b200_sxm", "trtllm"): (0.101, 0.18),
        ("meta-llama/Llama-3.1-70B", "h100_sxm", "vllm"): (0.063, 0.267),
    }
    sweeps = [r for r in read_sweeps(path) if isinstance(r, SweepRow) and (r.model, r.system, r.backend) in most]
    found = compare_serving(sweeps, {})
    for (model, system, backend), limits in most.items():
        rows = [r for r in found if (r.model, r.system, r.backend) == (model, system, backend)]
        errors = [[abs(e) for r in rows if (e := getattr(r, q)) is not None] for q in ("tpot_error", "ttft_error")]
        for one, limit in zip(errors, limits, strict=True):
            assert sum(one) / len(one) <= limit
