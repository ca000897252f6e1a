"""Measurements of serving replicas are read row by row; what cannot be used says why."""

from pathlib import Path

import pytest

from loadfactor.base.errors import SourceError
from loadfactor.planner.validation.serving import SweepRow, read_sweeps
from loadfactor.planner.validation.serving import compare_rows as compare_serving

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
