"""Measurements of serving replicas are read row by row; what cannot be used says why."""

from pathlib import Path

import pytest

from loadfactor.errors import SourceError
from loadfactor.validation.serving_sweeps import SweepRow, read_sweeps

HEAD = "model,system,backend,precision,isl,osl,tp,moe_ep,attention_dp,concurrency,tpot_ms,ttft_ms\n"


def rows(folder: Path, *lines: str, head: str = HEAD) -> list[SweepRow | tuple[int, str]]:
    """What is read of these lines."""
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
    for (_, why), word in zip(found, ("prompt_tokens", "'many'", "nothing measured", "at least"), strict=True):  # type: ignore[misc]
        assert word in why


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    """A file without concurrency cannot be validated, and the message says so."""
    with pytest.raises(SourceError, match="no column concurrency"):
        rows(tmp_path, "m,h,v,1,1,1,1", head="model,system,backend,isl,osl,tp,tpot_ms\n")
