"""Traces stream in whole, in order, with what is missing counted; time running backwards is an error that names the line."""

import json
from pathlib import Path

import numpy as np
import pytest

from loadfactor.base.errors import SourceError
from loadfactor.sources.public_traces.request_traces import RequestChunk, TraceReport, read_requests


def azure(path: Path, *rows: str) -> Path:
    file = path / "azure.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return file


def whole(chunks: list[RequestChunk]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return tuple(np.concatenate([getattr(c, n) for c in chunks]) for n in ("at_ns", "prompt_tokens", "output_tokens"))  # type: ignore[return-value]


def test_azure_keeps_hundred_nanosecond_ticks(tmp_path: Path) -> None:
    """Times count from the first request, to the tick."""
    rows = ("2023-11-16 18:17:03.9799600,4808,10", "2023-11-16 18:17:04.0319600,110,27")
    at, prompts, outputs = whole(list(read_requests(azure(tmp_path, *rows))))
    assert (at.tolist(), prompts.tolist(), outputs.tolist()) == ([0, 52_000_000], [4808, 110], [10, 27])


def test_holes_are_counted_and_left_out(tmp_path: Path) -> None:
    """A row without a number is no request of 0 tokens: it is left out, counted, and its line named."""
    rows = (
        "2023-11-16 18:00:00.0,100,10",
        "2023-11-16 18:00:01.0,,10",
        "2023-11-16 18:00:02.0,nan,5",
        "2023-11-16 18:10:00.0,70,3",
    )
    report = TraceReport()
    at, _, _ = whole(list(read_requests(azure(tmp_path, *rows), report)))
    assert at.size == report.requests == 2
    assert (report.unreadable, report.first_unreadable_line) == (2, 3)
    assert report.longest_gap_s == report.span_s == 600.0


def test_time_running_backwards_names_the_line(tmp_path: Path) -> None:
    """A trace that is not sorted is refused."""
    rows = ("2023-11-16 18:00:01.0,100,10", "2023-11-16 18:00:00.0,100,10")
    with pytest.raises(SourceError, match="line 3"):
        list(read_requests(azure(tmp_path, *rows)))


def test_mooncake_carries_prefix_blocks(tmp_path: Path) -> None:
    """Each request has its hashes, also when it is repeated to scale the trace up; the repetition comes later."""
    lines = [
        {"timestamp": 1000 * i, "input_length": 512 * i, "output_length": 5, "hash_ids": list(range(i))}
        for i in (1, 2, 3)
    ]
    file = tmp_path / "mooncake.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    report = TraceReport()
    (chunk,) = read_requests(file, report)
    assert chunk.offsets.tolist() == [0, 1, 3, 6]
    assert chunk.hashes.tolist() == [0, 0, 1, 0, 1, 2]
    assert report.block_tokens == 512
    doubled = list(read_requests(file, scale=2.0))
    at, prompts, _ = whole(doubled)
    assert sorted(prompts.tolist()) == [512, 512, 1024, 1024, 1536, 1536]
    assert (np.diff(at) >= 0).all()
    for part in doubled:
        assert (np.diff(part.offsets) == part.prompt_tokens // 512).all()


def test_servegen_population_follows_its_rates(tmp_path: Path) -> None:
    """Clients send at their window's rate; a window without a pattern is silent."""
    (tmp_path / "chunk-0-trace.csv").write_text(
        "0,2.0,1.0,Gamma,1,1\n600,2.0,1.0,,,\n1200,4.0,1.0,Gamma,1,1\n", encoding="utf-8"
    )
    tokens = {"0": {"input_tokens": "{100: 0.5, 300: 0.5}", "output_tokens": "{20: 1.0}"}}
    (tmp_path / "chunk-0-dataset.json").write_text(json.dumps(tokens), encoding="utf-8")
    at, prompts, outputs = whole(list(read_requests(tmp_path)))
    windows = np.bincount(at // (600 * 10**9), minlength=3)
    assert windows[0] == pytest.approx(1200, rel=0.1)
    assert windows[1] == 0
    assert windows[2] == pytest.approx(2400, rel=0.1)
    assert set(prompts.tolist()) == {100, 300}
    assert set(outputs.tolist()) == {20}


def test_an_unknown_file_says_what_works(tmp_path: Path) -> None:
    """Anything else is refused with the formats that can be read."""
    file = tmp_path / "notes.txt"
    file.write_text("hello\n", encoding="utf-8")
    with pytest.raises(SourceError, match="Azure CSV"):
        read_requests(file)


def test_the_published_traces(shared: Path) -> None:
    """Azure's code service: 8,819 requests, mean 2,048 in and 27.9 out; Mooncake's first half hour: 5,719 requests."""
    folder = shared / "data" / "serving"
    _, prompts, outputs = whole(list(read_requests(folder / "AzureLLMInferenceTrace_code.csv.gz")))
    assert (prompts.size, round(prompts.mean()), round(outputs.mean(), 1)) == (8819, 2048, 27.9)
    report = TraceReport()
    assert (
        sum(c.at_ns.size for c in read_requests(folder / "mooncake_conversation_trace_first30min.jsonl.gz", report))
        == 5719
    )
