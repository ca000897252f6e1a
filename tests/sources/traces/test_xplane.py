"""XPlanes, made by hand: the lines of streams count, those that are derived from them do not."""

from pathlib import Path

import pytest

from loadfactor.base.errors import SourceError
from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.sources.traces.read import read_trace


def varint(value: int) -> bytes:
    """A number of protobuf."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes | str) -> bytes:
    """A field of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(kind: int, at_ps: int, length_ps: int, correlation: int = 0) -> bytes:
    """An event with its correlation number."""
    stat = field(4, field(1, 1) + field(3, correlation)) if correlation else b""
    return field(4, field(1, kind) + field(2, at_ps) + field(3, length_ps) + stat)


def line(number: int, name: str, *events: bytes, at_ns: int = 1000) -> bytes:
    """A line of a plane."""
    return field(3, field(1, number) + field(2, name) + field(3, at_ns) + b"".join(events))


def plane(name: str, kinds: dict[int, str], *lines: bytes) -> bytes:
    """A plane whose events are of these kinds; statistic 1 is the correlation number."""
    named = b"".join(field(4, field(1, key) + field(2, field(1, key) + field(2, text))) for key, text in kinds.items())
    return field(
        1,
        field(2, name)
        + b"".join(lines)
        + named
        + field(5, field(1, 1) + field(2, field(1, 1) + field(2, "correlation_id"))),
    )


GPU = plane(
    "/device:GPU:0",
    {1: "gemm", 2: "MemcpyH2D", 3: "ncclDevKernel_AllReduce", 4: "7"},
    line(17, "Stream #17(Kernel)", event(1, 0, 5_000_000, 1), event(3, 12_000_000, 3_000_000, 2)),
    line(18, "Stream #18(MemcpyH2D)", event(2, 6_000_500, 1_000_000)),
    line(-559038737, "Steps", event(4, 0, 15_000_000)),
    line(-559038734, "XLA Ops", event(1, 0, 15_000_000)),
)
HOST = plane(
    "/host:CPU",
    {1: "cuLaunchKernel", 2: "IteratorGetNext"},
    line(5, "main", event(1, 10_000_000, 500_000, 2), event(2, 7_500_000, 2_000_000)),
)


def test_streams_count_and_derived_lines_do_not(tmp_path: Path) -> None:
    """15 µs: 5 computing, 1 copy, 3 communication, 6 idle; the collective's launch at 10 µs came 3 µs after the copy's end."""
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(GPU + HOST + field(4, "host-1"))
    (report,) = diagnose_captures(read_trace(path)).traces
    assert report.device == "/device:GPU:0"
    assert (report.gpu_span_us, report.busy_us, report.compute_us, report.comm_exposed_us) == (15, 9, 5, 3)
    assert report.memcpy_exposed_us == 1
    assert (report.idle_host_us, report.idle_launch_us, report.idle_unknown_us) == pytest.approx(
        (2.999, 2, 1.001), abs=0.002
    )
    assert report.idle_by_cause_us["data"] == 2
    assert [step.step for step in report.steps] == ["step 7"]


def test_a_plane_that_was_text_is_named(tmp_path: Path) -> None:
    """Bytes that were read as text and written again are told from other damage."""
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(((GPU + HOST) * 30).decode("utf-8", "replace").encode())
    with pytest.raises(SourceError, match="copy it in binary"):
        list(read_trace(path))
