"""Traces of ../shared against the independent interval arithmetic in ../shared/truth, to 0.1 %."""

import csv
from functools import cache
from pathlib import Path

import pytest
from tests.real_data import find_shared

from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.insight.traces.report import DeviceReport, TraceDiagnosis
from loadfactor.sources.traces.read import read_trace

PROFILER = find_shared("data/profiler")
CLOSE = 1e-3
RANKS = "Baseline-12-11-"

TIMES = (
    *(
        "gpu_span_us",
        "busy_us",
        "idle_us",
        "compute_us",
        "comm_us",
        "comm_exposed_us",
        "memcpy_us",
        "memcpy_exposed_us",
    ),
    *("memset_us", "memset_exposed_us", "idle_host_us", "idle_launch_us", "idle_device_us", "idle_unknown_us"),
    *("longest_gap_us", "median_kernel_us", "kernels", "comm_kernels"),
)
OTHER_NAMES = {
    "span_us": "gpu_span_us",
    "kernel_only_union_us": "kernel_busy_us",
    "memcpys": "copies",
    "memsets": "memsets",
}


def rows_of(table: str) -> list[dict[str, str]]:
    """The rows of a table of truth."""
    with find_shared(f"truth/{table}").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def find_file(trace: str) -> Path:
    """The file of a row: as named, or packed."""
    return next(path for path in PROFILER.rglob("*") if path.name in (trace, f"{trace}.gz"))


@cache
def diagnosis_of(*traces: str) -> TraceDiagnosis:
    """The diagnosis of these traces together."""
    return diagnose_captures(capture for trace in traces for capture in read_trace(find_file(trace)))


def compare(report: DeviceReport, row: dict[str, str], names: tuple[str, ...]) -> dict[str, tuple[float | None, str]]:
    """What differs by more than 0.1 %."""
    wrong = {}
    for name in names:
        told, ours = row.get(name), getattr(report, OTHER_NAMES.get(name, name))
        if told and (ours is None or abs(ours - float(told)) > max(CLOSE * abs(float(told)), CLOSE)):
            wrong[name] = (ours, told)
    return wrong


@pytest.mark.long
@pytest.mark.parametrize("row", rows_of("profiler_traces.csv"), ids=lambda row: row["trace"][-28:])
def test_kineto_equals_the_arithmetic(row: dict[str, str]) -> None:
    """Every part of the span of every Kineto trace is that of the arithmetic; where nothing ran on a GPU nothing is said."""
    reports = diagnosis_of(row["trace"]).traces
    if not row["gpu_span_us"]:
        assert [report.can_judge for report in reports] == [False]
        return
    report = next(report for report in reports if str(report.device) == row["device"])
    assert not compare(report, row, TIMES)
    assert report.rank == (int(row["rank"]) if row["rank"] else None)


@pytest.mark.long
@pytest.mark.parametrize("row", rows_of("profiler_steps.csv"), ids=lambda row: f"{row['trace'][-24:]}-{row['step']}")
def test_steps_equal_the_arithmetic(row: dict[str, str]) -> None:
    """What of computing, exposed communication and copies lies in a step's window."""
    report = diagnosis_of(row["trace"]).traces[0]
    step = next(step for step in report.steps if step.step == row["step"])
    ours = (step.duration_us, step.busy_us, step.compute_us, step.comm_exposed_us, step.memcpy_exposed_us)
    told = ("dur_us", "gpu_busy_us", "compute_us", "comm_exposed_us", "memcpy_exposed_us")
    assert ours == pytest.approx([float(row[name]) for name in told], rel=CLOSE, abs=CLOSE)


@pytest.mark.parametrize("row", rows_of("profiler_nsys.csv"), ids=lambda row: f"{row['trace']}-{row['device']}")
def test_nsight_equals_the_arithmetic(row: dict[str, str]) -> None:
    """The same for exports of Nsight Systems, a device a row."""
    report = next(r for r in diagnosis_of(row["trace"]).traces if str(r.device) == row["device"])
    assert not compare(report, row, (*TIMES, "kernel_only_union_us", "memcpys", "memsets"))


@pytest.mark.parametrize("row", rows_of("profiler_xplane.csv"), ids=lambda row: f"{row['trace']}-{row['device']}")
def test_xplane_equals_the_arithmetic(row: dict[str, str]) -> None:
    """The same for XPlanes of GPUs and TPUs; lines that are derived from others are not counted twice."""
    report = next(r for r in diagnosis_of(row["trace"]).traces if r.device == row["device"])
    counted = (
        "span_us",
        "busy_us",
        "idle_us",
        "compute_us",
        "comm_us",
        "comm_exposed_us",
        "memcpy_us",
        "memcpy_exposed_us",
    )
    assert not compare(report, row, (*counted, "memcpys", "longest_gap_us"))
    assert report.kernels == int(row["kernels"]) + (int(row["comm_kernels"]) if row["vendor"].startswith("TPU") else 0)


@pytest.mark.long
def test_collectives_equal_the_arithmetic() -> None:
    """Waits of eight ranks in 76 collectives: who waited how long, who came last, what the transfers took."""
    table = rows_of("profiler_collective_skew.csv")
    files = sorted(path.name for path in PROFILER.rglob(f"{RANKS}*"))
    skew = diagnosis_of(*files).skew
    assert skew is not None
    assert skew.collectives == len(table)
    assert skew.transfer_us == pytest.approx(sum(float(row["transfer_us"]) for row in table), rel=CLOSE)
    for rank in skew.ranks:
        assert rank.wait_us == pytest.approx(sum(float(row[f"wait_us_rank{rank.rank}"]) for row in table), rel=CLOSE)
        caused = sum(float(row["wait_caused_us"]) for row in table if row["latest_rank"] == str(rank.rank))
        assert rank.caused_us == pytest.approx(caused, rel=CLOSE)
    finding = diagnosis_of(*files).findings[0]
    assert finding.cause == "comm_wait_straggler"
    assert finding.share == pytest.approx(0.2398, abs=1e-4)


JUDGED = {"yes": (True,), "partly": ("partly",), "no": (False,)}
JUDGEMENTS = [row for row in rows_of("profiler_diagnosis.csv") if "*" not in row["trace"]]


def names_of(row: dict[str, str]) -> str:
    """The file a judgement is of."""
    return row["trace"].replace(" (good copy)", ".good")


@pytest.mark.parametrize("row", JUDGEMENTS, ids=lambda row: row["trace"][-28:])
def test_judgements_agree(row: dict[str, str]) -> None:
    """A trace is judged, judged in part or refused as the table says; what must not be said is not, and the cause is the first."""
    name = names_of(row)
    name = name if ".xplane" in name and ".good" not in name else name.replace(".good.xplane.pb", ".good.xplane.pb")
    name = "tpu_inference_2.good.xplane.pb" if name.startswith("tpu") else name
    found = diagnosis_of(name)
    own = [r for r in found.traces if row["trace"] != "gpu_multi_worker.xplane.pb" or "GPU:4" in str(r.device)]
    assert {report.can_judge for report in own} == set(JUDGED[row["can_judge"]])
    said = " ".join(
        text
        for finding in found.findings
        for text in (finding.cause, *finding.evidence, finding.action, finding.misleads)
    ).lower()
    for forbidden in row["must_not_say"].split(";"):
        assert forbidden.strip().lower() not in said or not forbidden.strip()
    causes = [finding.cause for finding in found.findings]
    if row["can_judge"] == "no":
        assert causes == []
    elif (
        row["trace"] != "gpu_multi_worker.xplane.pb"
    ):  # one step of one device of three, of which the table is not sure
        assert causes[0] == row["primary_cause"]
