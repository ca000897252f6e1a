"""Diagnoses of traces that are made by hand, with times counted on fingers, and of jobs that the books know."""

from pathlib import Path

import pytest
from tests.sources.traces.kineto_text import HAND, Event, call, copy, host, kernel, write

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.insight.traces.report import DeviceReport, TraceDiagnosis
from loadfactor.sources.traces.read import read_trace

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def diagnose(*paths: Path) -> TraceDiagnosis:
    """The diagnosis of these files."""
    return diagnose_captures(capture for path in paths for capture in read_trace(path))


def only(path: Path) -> DeviceReport:
    """The one device of one file."""
    (report,) = diagnose(path).traces
    return report


def test_the_parts_of_a_span(tmp_path: Path) -> None:
    """Computing, what it does not hide, and idle time by who was late sum to the span of 44 µs."""
    report = only(write(tmp_path / "trace.json", HAND))
    assert (report.gpu_span_us, report.busy_us, report.idle_us, report.compute_us) == (44, 28, 16, 21)
    assert (report.comm_us, report.comm_exposed_us, report.comm_hidden_us) == (6, 4, 2)
    assert (report.memcpy_exposed_us, report.memset_exposed_us, report.kernel_busy_us) == (2, 1, 25)
    idle = (report.idle_host_us, report.idle_launch_us, report.idle_device_us, report.idle_unknown_us)
    assert idle == (3, 3, 7, 3)
    assert report.kernels == 4
    assert report.idle_by_cause_us == {"data": 2, "host": 1, "launch": 3, "device": 7, "unknown": 3}
    assert [(owner.name[:21], owner.idle_us) for owner in report.host_owners] == [
        ("enumerate(DataLoader)", 2),
        ("(no event on the laun", 1),
    ]


def test_the_order_of_events_says_nothing(tmp_path: Path) -> None:
    """A trace whose events are written backwards, or a day later, says the same."""
    day_us = 86_400_000_000
    later = [{**event, "ts": event["ts"] + day_us} for event in reversed(HAND)]
    one, other = only(write(tmp_path / "a.json", HAND)), only(write(tmp_path / "b.json", later))
    for name in ("busy_us", "comm_exposed_us", "idle_host_us", "idle_launch_us", "idle_device_us", "host_owners"):
        assert getattr(one, name) == getattr(other, name)


def test_two_devices_are_two_reports(tmp_path: Path) -> None:
    """The kernels of another GPU in the same file are its own."""
    other = [kernel("gemm", 100, 5, 21, device=1), kernel("gemm", 107, 3, 22, device=1), call(106, 0.5, 22)]
    first, second = diagnose(write(tmp_path / "two.json", [*HAND, *other])).traces
    assert (first.device, first.gpu_span_us) == (0, 44)
    assert (second.device, second.gpu_span_us, second.idle_host_us, second.idle_launch_us) == (1, 10, 1, 1)


def starved(steps: int, fetch_us: float = 30_000, compute_us: float = 10_000) -> list[Event]:
    """A loop that fetches its batch on the launching thread, then computes."""
    events = []
    for step in range(steps):
        at = step * (fetch_us + compute_us)
        events += [
            host(f"ProfilerStep#{step}", at, fetch_us + compute_us, "user_annotation"),
            host(LOADER, at, fetch_us, "user_annotation"),
            call(at + fetch_us, 5, step + 1),
            kernel("sm80_xmma_gemm_bf16bf16_tensor16x8x16", at + fetch_us + 10, compute_us - 10, step + 1),
        ]
    return events


def test_a_starved_loop_waits_for_data(tmp_path: Path) -> None:
    """Of 39,990 + 3 · 40,000 µs three fetches of 30,000 µs are waited for, between four steps."""
    found = diagnose(write(tmp_path / "starved.json", starved(4)))
    (report,) = found.traces
    first = found.findings[0]
    assert (first.cause, first.class_, first.sureness) == ("input_pipeline", "I/O", "high")
    assert report.can_judge is True
    assert first.share == pytest.approx(90_000 / (3 * 40_000 + 9_990))
    assert [step.idle_us for step in report.steps] == [30_010] * 4


def test_a_trace_of_one_kernel_is_not_judged(tmp_path: Path) -> None:
    """One kernel of 1.76 µs within a step of 13.3 s says nothing of a loop, however long the step is; nor do steps without work."""
    events = [
        host("ProfilerStep#1", 0, 13_300_000, "user_annotation"),
        call(5_999_990, 5, 1),
        kernel("add", 6e6, 1.76, 1),
    ]
    found = diagnose(write(tmp_path / "one.json", events))
    assert [report.can_judge for report in found.traces] == [False]
    assert found.findings == ()
    assert "too little: one event of 1.76 µs" in found.traces[0].because[0]
    empty = [host(f"ProfilerStep#{k}", 10_000_000 * k, 9_000_000, "user_annotation") for k in (2, 3, 4)]
    work = [part for k in range(6) for part in (call(100 * k, 5, k + 1), kernel("add", 100 * k + 10, 80, k + 1))]
    step = host("ProfilerStep#1", 0, 9_000_000, "user_annotation")
    (report,) = diagnose(write(tmp_path / "few.json", [step, *work, *empty])).traces
    assert report.can_judge == "partly"
    assert "It is short: 580.0 µs" in report.because[0]


def test_a_loop_of_small_kernels_waits_for_its_host(tmp_path: Path) -> None:
    """Launches every 50 µs of kernels of 10 µs: the host is what is waited for, in operators."""
    events = []
    for k in range(3000):
        events += [
            host("aten::add", 50 * k, 48, "cpu_op"),
            call(50 * k + 40, 5, k + 1),
            kernel("add", 50 * k + 45, 10, k + 1),
        ]
    found = diagnose(write(tmp_path / "launches.json", events))
    assert found.findings[0].cause == "host_bound"
    assert found.findings[0].share == pytest.approx(0.8, abs=0.01)


def test_a_loop_that_synchronizes_is_told_so(tmp_path: Path) -> None:
    """The host waits in .item() until the GPU is done, and launches the next kernel 300 µs after it."""
    events = []
    for k in range(300):
        at = 1000 * k
        events += [call(at, 5, k + 1), kernel("sgemm_tn", at + 10, 600, k + 1)]
        events.append(host("aten::item", at + 100, 895))
        events.append(call(at + 110, 880, 0, name="cudaStreamSynchronize"))
    found = diagnose(write(tmp_path / "sync.json", events))
    causes = {finding.cause: finding for finding in found.findings}
    assert causes["synchronization"].share == pytest.approx(0.385, abs=0.01)
    assert "host_bound" not in causes


def ranks(tmp_path: Path, late_us: float) -> list[Path]:
    """Two ranks with 30 collectives each; rank 1 comes late to each of them."""
    files = []
    for rank in range(2):
        events = []
        for k in range(30):
            at = 10_000 * k
            begin = at + 5_000 + (late_us if rank == 1 else 0)
            events += [
                call(at - 10, 5, 2 * k + 1),
                kernel("nvjet_gemm", at, 5_000 if rank == 0 else begin - at, 2 * k + 1, device=rank),
                call(at - 5, 5, 2 * k + 2),
                kernel(
                    "ncclDevKernel_AllReduce_Sum_bf16(x)", begin, at + 9_500 - begin, 2 * k + 2, device=rank, stream=9
                ),
            ]
        files.append(write(tmp_path / f"r{rank}.json", events, rank=rank, baseTimeNanoseconds=10**18))
    return files


def test_the_rank_that_others_wait_for(tmp_path: Path) -> None:
    """Rank 0 waits 3,000 µs in each of 30 collectives for rank 1: one finding, on rank 1, and no slow transfer."""
    found = diagnose(*ranks(tmp_path, 3_000))
    assert found.skew is not None
    assert [rank.wait_us for rank in found.skew.ranks] == [pytest.approx(90_000), 0]
    assert found.skew.straggler is not None
    assert (found.skew.straggler.rank, found.skew.straggler.caused_share) == (1, 1)
    assert found.skew.transfer_us == pytest.approx(30 * 1_500)
    first = found.findings[0]
    assert first.cause == "comm_wait_straggler"
    assert first.rank == 1
    assert first.headline.startswith("GPU 1 is late: the other waits ")
    assert first.headline.endswith(" of the time for it; look at its host, clocks, power cap and memory errors.")
    assert "comm_exposed" not in [finding.cause for finding in found.findings]


def test_ranks_that_come_together_move_data(tmp_path: Path) -> None:
    """Where nobody is late, what the shortest collectives take is transfer."""
    found = diagnose(*ranks(tmp_path, 0))
    assert "comm_transfer" in [finding.cause for finding in found.findings]
    assert "comm_wait_straggler" not in [finding.cause for finding in found.findings]


def test_clocks_that_disagree_blame_nobody(tmp_path: Path) -> None:
    """A rank whose clock runs a second ahead is no straggler."""
    files = ranks(tmp_path, 3_000)
    text = files[1].read_text(encoding="utf-8").replace("1000000000000000000", "1000000001000000000")
    files[1].write_text(text, encoding="utf-8")
    skew = diagnose(*files).skew
    assert skew is not None
    assert not skew.clocks_agree
    assert skew.straggler is None


def test_a_clock_that_jumps_is_said(tmp_path: Path) -> None:
    """A kernel at the epoch among kernels of today is left out, and that is said."""
    today = 1.7e15
    events = [{**event, "ts": event["ts"] + today} for event in HAND]
    report = only(write(tmp_path / "jump.json", [*events, kernel("gemm", 0, 1, 77)]))
    assert report.gpu_span_us == 44
    assert "clock jumps" in " ".join(report.notes)
    assert report.can_judge == "partly"


def test_copies_alone_are_no_idle_time(tmp_path: Path) -> None:
    """A GPU that only copies is busy copying, and its copies' rate is told: 4 GB in 200 ms."""
    events = [copy("Memcpy HtoD (Pinned -> Device)", 1000 * k, 990, k + 1, size=20_000_000) for k in range(200)]
    found = diagnose(write(tmp_path / "copies.json", events))
    assert found.findings[0].cause == "copy_bound"
    assert "20.2 GB/s" in " ".join(found.findings[0].evidence)


ROOT = Path(__file__).resolve().parents[3]
TRACE = ROOT / "examples" / "trace.json"


@pytest.mark.long
def test_seconds_of_a_trace_become_money_at_the_price_of_the_job(tmp_path: Path) -> None:
    """A cause costs its GPU-seconds × the job's cost ÷ its held hours; for the job, its share of the hours in which it worked."""
    Books(tmp_path / "books").add("tables", [ROOT / "examples" / "october"])
    found = loadfactor.diagnose(trace=[TRACE], job="481776", store=tmp_path / "books").data
    finding, cost = found.findings[0], found.in_books.costs[0]
    books = loadfactor.open(tmp_path / "books")
    names = ("paid_gpu_hours", "busy_gpu_hours", "cost")
    shown = books.show(names, where={"job": "481776"})
    held, busy, paid = (shown.column(name)[0] for name in names)
    assert found.in_books.price_per_gpu_hour == pytest.approx(paid / held)
    assert cost.gpu_s == pytest.approx(0.09)  # three stretches of 30 ms in which the host fetched data
    assert cost.cost == pytest.approx(0.09 / 3600 * paid / held)
    assert cost.job_gpu_hours_high == pytest.approx(finding.saved_share_high * busy)
    assert cost.job_cost_high == pytest.approx(finding.saved_share_high * busy * paid / held)
    assert cost.job_cost_high <= paid


@pytest.mark.long
def test_a_trace_of_a_job_that_the_books_do_not_know_is_refused(tmp_path: Path) -> None:
    """The message says how to list jobs."""
    Books(tmp_path / "books").add("tables", [ROOT / "examples" / "october"])
    with pytest.raises(InputError, match="no job called 'nobody'"):
        loadfactor.diagnose(trace=[TRACE], job="nobody", store=tmp_path / "books")
