"""Rows of tables say their software in words: frameworks, releases, precisions and techniques."""

from collections.abc import Mapping

import pytest

from loadfactor.catalog.accelerators import accelerator
from loadfactor.planner.training.machine import Software, find_software
from loadfactor.planner.validation.measurement_files import RowRefused
from loadfactor.planner.validation.row_software import list_unread, read_datatype, recognize_software
from loadfactor.planner.validation.training import compare_rows

TITAN = {
    "model": "llama-3.1-8b", "gpu": "h100-sxm", "gpus": "8", "seq": "8192", "global_batch": "16", "micro_batch": "2",
    "tp": "1", "pp": "1", "zero": "3", "recompute": "selective (op)", "tokens_per_s_per_gpu": "6000",
    "source": "pytorch/torchtitan",
}  # fmt: skip


def recognize(row: Mapping[str, str], card: str = "h100-sxm") -> Software:
    return recognize_software(row, " ".join(row.values()), accelerator(card))


@pytest.mark.parametrize(
    ("row", "card", "name"),
    [
        ({"source": "pytorch/torchtitan", "techniques": "FSDP"}, "h100-sxm", "torchtitan-eager"),
        ({"source": "huggingface/trl"}, "a100-sxm", "eager"),
        ({"source": "mosaicml/llm-foundry", "sharding": "FULL_SHARD"}, "a100-sxm", "mosaic-2023"),
        ({"source": "NVIDIA/NeMo", "release": "NeMo 24.07"}, "h100-sxm", "nemo-2024"),
        ({"source": "NVIDIA/NeMo", "release": "NeMo container 25.11"}, "b200-sxm", "nemo"),
        ({"source": "NVIDIA/Megatron-LM"}, "h100-sxm", "modern"),
        ({"source": "AI-Hypercomputer/maxtext"}, "tpu-v6e", "xla"),
    ],
)
def test_a_row_names_its_framework(row: Mapping[str, str], card: str, name: str) -> None:
    """The source and the release say whose kernels ran, and how old they are."""
    assert recognize(row, card) == find_software(name)


def test_techniques_change_what_a_framework_does() -> None:
    """torch.compile fuses, asynchronous tensor parallelism hides, rows have scales of their own, offloading moves states."""
    base = {"source": "pytorch/torchtitan"}
    assert recognize({**base, "techniques": "Async TP + torch.compile"}).overlaps_tensor
    assert not recognize({**base, "techniques": "Vanilla TP + torch.compile"}).overlaps_tensor
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
