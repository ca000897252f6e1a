"""Traces of each kind, cut and with bytes changed at random: one line or a partial answer, no traceback, no file changed."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from tests.sources.traces.kineto_text import HAND, call, host, kernel
from tests.sources.traces.test_nsight import write_folder, write_sqlite
from tests.sources.traces.test_xplane import GPU, HOST

from loadfactor.base.errors import SourceError
from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.insight.traces.report import DeviceReport
from loadfactor.sources.traces.read import read_trace

ROUNDS = 120
KINDS = ("kineto", "packed", "xplane", "sqlite", "parquet", "arrow")


def make_trace(folder: Path, kind: str) -> Path:
    """A whole trace of a kind, of two GPUs where that is easy."""
    if kind in ("kineto", "packed"):
        events = [*HAND, kernel("gemm", 5, 10, 11, device=1), call(4, 1, 11), host("ProfilerStep#1", 0, 44)]
        text = json.dumps(
            {"schemaVersion": 1, "traceEvents": [{**e, "ts": e["ts"] + 50 * n} for n in range(20) for e in events]}
        )
        path = folder / "trace.json"
        path.write_bytes(gzip.compress(text.encode()) if kind == "packed" else text.encode())
        return path
    if kind == "xplane":
        path = folder / "host.xplane.pb"
        path.write_bytes(GPU + HOST)
        return path
    return (
        write_sqlite(folder / "export.sqlite") if kind == "sqlite" else write_folder(folder / "export", _format(kind))
    )


def _format(kind: str) -> str:
    return "parquet" if kind == "parquet" else "file"


def damage(content: bytes, rng: np.random.Generator) -> bytes:
    """The bytes cut, with some changed, with a piece left out or twice."""
    at = int(rng.integers(len(content)))
    way = int(rng.integers(4))
    if way == 0:
        return content[:at]
    if way == 1:
        changed = bytearray(content)
        for place in rng.integers(len(content), size=int(rng.integers(1, 6))):
            changed[place] = int(rng.integers(256))
        return bytes(changed)
    until = min(len(content), at + int(rng.integers(1, 200)))
    return content[:at] + content[until:] if way == 2 else content[:until] + content[at:]


def check(report: DeviceReport) -> None:
    """What is said of a GPU adds up, whatever was lost."""
    if report.gpu_span_us is None:  # nothing is left of it
        assert report.can_judge is not True
        return
    parts = report.busy_us + report.idle_us
    assert parts == pytest.approx(report.gpu_span_us, abs=0.01, rel=1e-6)
    exposed = report.compute_us + report.comm_exposed_us + report.memcpy_exposed_us + report.memset_exposed_us
    assert exposed == pytest.approx(report.busy_us, abs=0.01, rel=1e-6)
    causes = report.idle_host_us + report.idle_launch_us + report.idle_device_us + report.idle_unknown_us
    assert causes == pytest.approx(report.idle_us, abs=0.01, rel=1e-6)


def find_refusal(path: Path) -> str:
    """The line with which a trace is refused; empty where it is read, and what is said of it adds up."""
    try:
        found = diagnose_captures(read_trace(path)).traces
    except SourceError as refused:
        return str(refused)
    for report in found:
        check(report)
    return ""


@pytest.mark.parametrize("kind", KINDS)
def test_any_damage_is_one_line_or_a_partial_answer(tmp_path: Path, kind: str) -> None:
    """Cut anywhere, or with bytes changed: refused in one line, or what is left adds up; the file is as it was."""
    rng = np.random.default_rng(17)
    path = make_trace(tmp_path, kind)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    whole = {file: file.read_bytes() for file in files}
    for _ in range(ROUNDS):
        file = files[int(rng.integers(len(files)))]
        broken = damage(whole[file], rng)
        file.write_bytes(broken)
        before = sorted(tmp_path.rglob("*"))
        refused = find_refusal(path)
        assert "\n" not in refused
        assert path.name in refused or not refused
        assert file.read_bytes() == broken
        assert sorted(tmp_path.rglob("*")) == before
        file.write_bytes(whole[file])
