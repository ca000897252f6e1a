"""Saved output of the clouds: which series count, in which units, and what is said of the rest."""

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.clouds.otlp_files import StreamedValue, write_stream
from tests.sources.reading import Seen, see

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_GIB, BYTES_PER_MIB
from loadfactor.sources.clouds.cloudwatch import SOURCE as CLOUDWATCH
from loadfactor.sources.clouds.cloudwatch import CloudWatchMetric, choose_metrics, read_otlp
from loadfactor.sources.clouds.monitoring import SOURCE as MONITORING

BEGAN_MS = 1_790_000_040_000
AGENT = {"InstanceId": "i-1", "index": "0", "name": "NVIDIA A10G", "arch": "Ampere", "host": "ip-10-0-0-1"}
NODE = {"ClusterName": "c", "InstanceId": "i-2", "NodeName": "n2", "GpuDevice": "nvidia1"}
POD = {**NODE, "Namespace": "nlp", "PodName": "train", "FullPodName": "train-0"}


def line(name: str, dimensions: dict[str, str], total: float, count: int, minute: int = 0) -> str:
    """A line of a metric stream."""
    value = {"max": total, "min": 0.0, "sum": total, "count": float(count)}
    said = {"metric_stream_name": "s", "account_id": "1", "region": "eu-west-1", "namespace": "x", "metric_name": name}
    at = {"dimensions": dimensions, "timestamp": BEGAN_MS + minute * 60_000, "value": value, "unit": "Percent"}
    return json.dumps(said | at)


def write(path: Path, *lines: str) -> Path:
    """A file of these lines, packed as Firehose packs it."""
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def test_a_metric_stream_of_the_agent(tmp_path: Path) -> None:
    """The mean of a minute is its sum by its count; the minute ends a minute after its time; MiB, MHz and % are ours."""
    path = write(
        tmp_path / "stream.json.gz",
        line("CPUUtilization", {"InstanceId": "i-1"}, 10, 1),
        line("nvidia_smi_utilization_gpu", AGENT, 150, 2),
        line("nvidia_smi_utilization_gpu", {"InstanceId": "i-1"}, 999, 3),
        line("nvidia_smi_utilization_gpu", {"InstanceId": "i-1", "index": "0"}, 80, 2),
        line("nvidia_smi_utilization_memory", AGENT, 99, 1),
        line("nvidia_smi_memory_used", AGENT, 2048, 2),
        line("nvidia_smi_clocks_current_sm", AGENT, 1710, 1),
        line("nvidia_smi_utilization_gpu", AGENT, 0, 2, minute=1),
    )
    seen = see(CLOUDWATCH, path)
    assert [row["to_utc"] for row in seen.samples] == [BEGAN_MS + 60_000, BEGAN_MS + 120_000]
    assert seen.measured() == {"busy_share": 0.75, "mem_used_bytes": 1024 * BYTES_PER_MIB, "sm_clock_hz": 1.71e9}
    assert seen.measured(1) == {"busy_share": 0.0}
    assert [row["device_id"] for row in seen.samples] == ["i-1/0"] * 2
    assert seen.gaps == {"metrics that are not of GPUs": 2, "sums over GPUs, and the same by fewer dimensions": 2}


def test_container_insights_say_who_held_a_gpu(tmp_path: Path) -> None:
    """Memory is in bytes; a pod's metrics give its name where they say node and GPU, else they count for nobody."""
    path = write(
        tmp_path / "stream.json",
        line("node_gpu_utilization", NODE, 40, 1),
        line("node_gpu_memory_used", NODE, 3.0 * BYTES_PER_GIB, 1),
        line("pod_gpu_utilization", POD, 40, 1),
        line("pod_gpu_utilization", {"ClusterName": "c", "PodName": "train"}, 40, 1),
    )
    seen = see(CLOUDWATCH, path)
    assert (len(seen.samples), seen.samples[0]["device_id"]) == (1, "i-2/1")
    assert seen.measured() == {"busy_share": 0.4, "mem_used_bytes": 3 * BYTES_PER_GIB}
    assert [(row["job_id"], row["team"]) for row in seen.allocations] == [("nlp/train-0", "nlp")]


STREAMED = [
    StreamedValue("AWS/EC2", "CPUUtilization", {"InstanceId": "i-1"}, BEGAN_MS, 10, 1),
    StreamedValue("CWAgent", "nvidia_smi_utilization_gpu", AGENT, BEGAN_MS, 150, 2),
    StreamedValue("CWAgent", "nvidia_smi_utilization_gpu", {"InstanceId": "i-1"}, BEGAN_MS, 999, 3),
    StreamedValue("CWAgent", "nvidia_smi_memory_used", AGENT, BEGAN_MS, 2048, 2),
    StreamedValue("CWAgent", "nvidia_smi_utilization_gpu", AGENT, BEGAN_MS + 60_000, 0, 2),
    StreamedValue("ContainerInsights", "pod_gpu_utilization", POD, BEGAN_MS, 40, 1),
]


@pytest.mark.parametrize("version", ["1.0", "0.7"])
def test_metric_streams_in_the_formats_of_opentelemetry(tmp_path: Path, version: str) -> None:
    """They say what the same stream says in JSON; a pod's namespace is its dimension, not that of the metric."""
    lines = [line(v.name, v.dimensions, v.total, v.count, (v.began_ms - BEGAN_MS) // 60_000) for v in STREAMED]
    expected = see(CLOUDWATCH, write(tmp_path / "stream.json.gz", *lines))
    path = tmp_path / "prod-stream-1-2026-11-20-10-00-00-0b8f0c8e-1c1e-4a39-9f5c-5f7f0e1c2d3a"
    path.write_bytes(write_stream(STREAMED, version))
    seen = see(CLOUDWATCH, path)
    assert seen == Seen(seen.samples, expected.devices, expected.allocations, [], expected.gaps)
    assert [(row["device_id"], row["to_utc"], row.get("busy_share")) for row in seen.samples] == [
        ("i-1/0", BEGAN_MS + 60_000, 0.75),
        ("i-1/0", BEGAN_MS + 120_000, 0.0),
        ("i-2/1", BEGAN_MS + 60_000, 0.4),
    ]
    assert (seen.samples, seen.allocations[0]["job_id"]) == (expected.samples, "nlp/train-0")


def test_a_folder_of_firehose_is_read_with_its_hours(tmp_path: Path) -> None:
    """A folder an hour, files without an ending, some without a GPU: all that there is, and what else lies there is passed over."""
    name = "prod-stream-1-2026-11-20-{hour}-00-00-0b8f0c8e-1c1e-4a39-9f5c-5f7f0e1c2d3a"
    for hour, values in (("09", STREAMED[:1]), ("10", STREAMED[1:4]), ("11", STREAMED[4:])):
        folder = tmp_path / "2026" / "11" / "20" / hour
        folder.mkdir(parents=True)
        (folder / name.format(hour=hour)).write_bytes(gzip.compress(write_stream(values, "1.0")))
        (folder / "README").write_text("not of Firehose")
    assert len(see(CLOUDWATCH, tmp_path).samples) == 3
    with pytest.raises(SourceError, match=r"no series of GPUs in .*-09-.* \(metrics that are not of GPUs: 1\)"):
        see(CLOUDWATCH, tmp_path / "2026" / "11" / "20" / "09")


@pytest.mark.parametrize("cut", [1, 40, 400])
def test_a_stream_that_was_cut_is_said(tmp_path: Path, cut: int) -> None:
    """A file that ends within a message is refused whole."""
    path = tmp_path / "stream.json"
    path.write_bytes(write_stream(STREAMED, "1.0")[:-cut])
    with pytest.raises(SourceError, match=r"no metric stream in OpenTelemetry's format \(it ends within a message\)"):
        see(CLOUDWATCH, path)


@given(st.integers(0, 10**6), st.integers(0, 255), st.sampled_from(["1.0", "0.7"]))
def test_a_stream_with_a_wrong_byte_is_read_or_refused(place: int, byte: int, version: str) -> None:
    """Points, or an error that says what is wrong: never anything else."""
    content = bytearray(write_stream(STREAMED, version))
    content[place % len(content)] = byte
    with contextlib.suppress(SourceError):
        read_otlp(bytes(content), "x", lambda _: None)


def test_a_saved_answer_needs_its_queries(tmp_path: Path) -> None:
    """Without them nobody knows whose values these are; with them each value ends a period after its time."""
    result = {"Id": "m0", "Label": "x", "Timestamps": ["2026-11-20T10:00:00+00:00"], "Values": [50.0]}
    answer: dict[str, Any] = {"MetricDataResults": [result, {**result, "Id": "m1"}]}
    metric = {
        "Namespace": "CWAgent",
        "MetricName": "nvidia_smi_utilization_gpu",
        "Dimensions": [{"Name": name, "Value": value} for name, value in AGENT.items()],
    }
    queries = [
        {"Id": f"m{i}", "MetricStat": {"Metric": metric, "Period": 300, "Stat": stat}}
        for i, stat in enumerate(("Average", "Maximum"))
    ]
    (tmp_path / "bare.json").write_text(json.dumps(answer))
    with pytest.raises(SourceError, match=r"no MetricDataQueries beside MetricDataResults; docs/connect-clouds\.md"):
        see(CLOUDWATCH, tmp_path / "bare.json")
    (tmp_path / "whole.json").write_text(json.dumps(answer | {"MetricDataQueries": queries}, indent=1))
    seen = see(CLOUDWATCH, tmp_path / "whole.json")
    assert [(row["to_utc"], row["busy_share"]) for row in seen.samples] == [(1_795_169_100_000, 0.5)]
    assert seen.gaps == {"results that are not of GPUs, or of another statistic than Average": 1}


def test_what_is_listed_twice_is_asked_once() -> None:
    """Lists have duplicates; of several sets of dimensions of one GPU the one that says most counts."""
    few = CloudWatchMetric("CWAgent", "nvidia_smi_power_draw", (("InstanceId", "i-1"), ("index", "0")))
    many = few._replace(dimensions=(*few.dimensions, ("name", "NVIDIA A10G")))
    sums = few._replace(dimensions=(("InstanceId", "i-1"),))
    assert list(choose_metrics([few, many, many, sums, few], "")) == [many]


@pytest.mark.parametrize(
    ("source", "text", "said"),
    [
        (CLOUDWATCH, "not json", "is neither a metric stream nor an answer of get-metric-data"),
        (CLOUDWATCH, '{"metric_name": "nvidia_smi_power_draw"}', "line 1: no line of a metric stream in JSON"),
        (MONITORING, "{", "is no JSON of ListTimeSeries"),
        (MONITORING, '{"timeSeries": 5}', "is no list"),
        (MONITORING, '{"timeSeries": []}', "no series of GPUs in"),
    ],
)
def test_what_is_no_such_output_is_said(tmp_path: Path, source: Any, text: str, said: str) -> None:
    """One line that names the file."""
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(SourceError, match=said):
        see(source, tmp_path / "x.json")
