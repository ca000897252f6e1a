"""Saved output of the clouds: which series count, in which units; and saved lists of Compute Engine.

Messages of OpenTelemetry are those of opentelemetry-proto 1.0.0 and 0.7.0, as far as CloudWatch fills them; the JSON is that of
Amazon's documentation of metric streams, Google's documentation of instances.list and Google's documentation of timeSeries.list.
"""

import contextlib
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st
from tests.live.fake_compute_engine import ZONES, make_instance
from tests.sources.clouds.test_ec2 import break_each
from tests.sources.reading import Seen, see

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_GIB, BYTES_PER_MIB, MS_PER_HOUR, MS_PER_S
from loadfactor.books.books import Books
from loadfactor.sources.base import Input, ReadOptions
from loadfactor.sources.clouds.cloudwatch import SOURCE as CLOUDWATCH
from loadfactor.sources.clouds.cloudwatch import CloudWatchMetric, choose_metrics, read_otlp
from loadfactor.sources.clouds.gce import SOURCE, decode_gce
from loadfactor.sources.clouds.monitoring import SOURCE as MONITORING

_TYPES = {"double": 1, "fixed64": 6, "string": 9}  # of FieldDescriptorProto
_MESSAGE = 11
_MESSAGES = {
    "Request": {"resource_metrics": (1, "*ResourceMetrics")},
    "ResourceMetrics": {"resource": (1, "Resource"), "scope_metrics": (2, "*ScopeMetrics")},
    "Resource": {"attributes": (1, "*KeyValue")},
    "ScopeMetrics": {"metrics": (2, "*Metric")},
    "Metric": {"name": (1, "string"), "unit": (3, "string"), "summary": (11, "Summary")},
    "Summary": {"data_points": (1, "*Point")},
    "Point": {
        "labels": (1, "*StringKeyValue"),
        "start_time_unix_nano": (2, "fixed64"),
        "time_unix_nano": (3, "fixed64"),
        "count": (4, "fixed64"),
        "sum": (5, "double"),
        "quantile_values": (6, "*Quantile"),
        "attributes": (7, "*KeyValue"),
    },
    "Quantile": {"quantile": (1, "double"), "value": (2, "double")},
    "StringKeyValue": {"key": (1, "string"), "value": (2, "string")},
    "KeyValue": {"key": (1, "string"), "value": (2, "AnyValue")},
    "AnyValue": {"string_value": (1, "string"), "kvlist_value": (6, "KeyValueList")},
    "KeyValueList": {"values": (1, "*KeyValue")},
}


class StreamedValue(NamedTuple):
    """What a stream says of one metric and minute."""

    namespace: str
    name: str
    dimensions: dict[str, str]
    began_ms: int
    total: float
    count: int


def _make_request() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="otlp.proto", package="otlp", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            of_message = kind.lstrip("*") not in _TYPES
            message.field.add(
                name=field,
                number=number,
                label=3 if kind.startswith("*") else 1,
                type=_MESSAGE if of_message else _TYPES[kind],
                type_name=f".otlp.{kind.lstrip('*')}" if of_message else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("otlp.Request"))


_REQUEST = _make_request()


def _text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"string_value": value}}


def _write_point(value: StreamedValue, version: str) -> dict[str, Any]:
    point: dict[str, Any] = {
        "start_time_unix_nano": value.began_ms * 10**6,
        "time_unix_nano": (value.began_ms + 60_000) * 10**6,
        "count": value.count,
        "sum": value.total,
        "quantile_values": [{"quantile": at, "value": value.total / value.count} for at in (0.0, 1.0)],
    }
    own = {"Namespace": value.namespace, "MetricName": value.name}
    if version == "0.7":
        return point | {"labels": [{"key": k, "value": v} for k, v in [*own.items(), *value.dimensions.items()]]}
    listed = {"kvlist_value": {"values": [_text(k, v) for k, v in value.dimensions.items()]}}
    return point | {"attributes": [*(_text(k, v) for k, v in own.items()), {"key": "Dimensions", "value": listed}]}


def write_stream(values: Sequence[StreamedValue], version: str, a_message: int = 2) -> bytes:
    """A file: messages with so many values each, every one after its length."""
    found = b""
    for i in range(0, len(values), a_message):
        metrics = [
            {
                "name": f"amazonaws.com/{one.namespace}/{one.name}",
                "unit": "%",
                "summary": {"data_points": [_write_point(one, version)]},
            }
            for one in values[i : i + a_message]
        ]
        resource = {"attributes": [_text("cloud.provider", "aws"), _text("cloud.region", "eu-west-1")]}
        body = _REQUEST(resource_metrics=[{"resource": resource, "scope_metrics": [{"metrics": metrics}]}])
        content = body.SerializeToString()
        size = bytearray()
        rest = len(content)
        while rest > 0x7F:
            size.append(rest & 0x7F | 0x80)
            rest >>= 7
        found += bytes([*size, rest]) + content
    return found


BEGAN_MS = 1_790_000_040_000
AGENT = {"InstanceId": "i-1", "index": "0", "name": "NVIDIA A10G", "arch": "Ampere", "host": "ip-10-0-0-1"}
NODE = {"ClusterName": "c", "InstanceId": "i-2", "NodeName": "n2", "GpuDevice": "nvidia1"}
POD = {**NODE, "Namespace": "nlp", "PodName": "train", "FullPodName": "train-0"}


def line(name: str, dimensions: dict[str, str], total: float, count: int, minute: int = 0) -> str:
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


START_MS = 1_795_168_800 * MS_PER_S


def gce_write(folder: Path, *said: object) -> Path:
    path = folder / "instances.json"
    path.write_text("\n".join(map(json.dumps, said)))
    return path


def test_what_gcloud_printed_and_pages_of_the_api(tmp_path: Path) -> None:
    """The same rows; what runs ends when the list was taken, what stopped when it says so."""
    stopped = make_instance(2, "b", 4, status="SUSPENDED", lastSuspendedTimestamp="2026-11-20T10:30:00Z")
    instances = [make_instance(1, "a"), stopped, make_instance(3, "c", 0)]
    page = {"items": {f"zones/{ZONES[0]}": {"instances": instances}, f"zones/{ZONES[1]}": {"warning": {"code": "x"}}}}
    seen = [see(SOURCE, gce_write(tmp_path, one), at_ms=START_MS + MS_PER_HOUR) for one in (instances, page)]
    assert seen[0].devices == seen[1].devices
    ends = {row["device_id"]: row["to_utc"] for row in seen[0].devices}
    half = START_MS + MS_PER_HOUR // 2
    assert ends == {"a:gpu0": START_MS + MS_PER_HOUR, **{f"b:gpu{i}": half for i in range(4)}}
    assert seen[0].gaps == {"instances of a type with GPUs that list none": 1}


@pytest.mark.long
def test_gpus_that_the_ops_agent_names_count_once(tmp_path: Path) -> None:
    """Two hours of an instance with one GPU, of which the agent speaks in one, are two GPU-hours held by it."""
    books = Books.open(tmp_path / "books", create=True)
    books.add("gce", [gce_write(tmp_path, [make_instance(1, "a")])], ReadOptions(at_ms=START_MS + 2 * MS_PER_HOUR))
    series = {
        "metric": {"type": "agent.googleapis.com/gpu/utilization", "labels": {"uuid": "GPU-1", "gpu_number": "0"}},
        "resource": {"type": "gce_instance", "labels": {"instance_id": "1"}},
        "metadata": {"systemLabels": {"name": "a"}},
        "unit": "%",
        "points": [
            {"interval": {"endTime": f"2026-11-20T10:{i:02}:00Z"}, "value": {"doubleValue": 50.0}} for i in range(60)
        ],
    }
    path = tmp_path / "series.json"
    path.write_text(json.dumps({"timeSeries": [series]}))
    books.add("gcp-monitoring", [path])
    names = ("paid_gpu_hours", "allocated_gpu_hours")
    assert [one.value for one in books.show(names)] == pytest.approx([2, 2], abs=0.02)


def test_tpus_of_gke(tmp_path: Path) -> None:
    """A chip is a device by its duty cycle and memory, 10 s of each minute; what its cores computed is counted, and not kept."""

    def make_series(kind: str, value: int) -> dict[str, Any]:
        labels = {"make": "google", "model": "tpu-v5-lite-podslice", "accelerator_id": "480-0"}
        points = [
            {"interval": {"endTime": f"2026-11-20T10:{i:02}:00Z"}, "value": {"int64Value": str(value)}}
            for i in range(3)
        ]
        return {
            "metric": {"type": f"kubernetes.io/node/accelerator/{kind}", "labels": labels},
            "resource": {"type": "k8s_node", "labels": {"cluster_name": "c", "node_name": "gke-tpu-1"}},
            "points": points,
        }

    kinds = {"duty_cycle": 87, "memory_used": BYTES_PER_GIB, "memory_total": 16 * BYTES_PER_GIB}
    path = tmp_path / "series.json"
    series = [make_series(kind, value) for kind, value in {**kinds, "tensorcore_utilization": 40}.items()]
    path.write_text(json.dumps({"timeSeries": series}))
    seen = see(MONITORING, path)
    assert seen.column("busy_share") == [0.87] * 3
    assert seen.column("mem_used_bytes") == [BYTES_PER_GIB] * 3
    assert [(row["node"], row["accelerator"]) for row in seen.devices] == [("gke-tpu-1", "tpu-v5e")]
    assert list(seen.gaps.values()) == [1]


def test_an_instance_that_was_made_again_under_its_name_is_the_same_node(tmp_path: Path) -> None:
    """As managed groups do it: the node is installed twice, one after the other."""
    before = make_instance(1, "a", status="TERMINATED", lastStopTimestamp="2026-11-20T10:30:00Z")
    after = make_instance(2, "a", lastStartTimestamp="2026-11-20T10:45:00Z")
    seen = see(SOURCE, gce_write(tmp_path, [before, after]), at_ms=START_MS + MS_PER_HOUR)
    quarter = MS_PER_HOUR // 4
    assert [(row["device_id"], row["from_utc"] - START_MS, row["to_utc"] - START_MS) for row in seen.devices] == [
        ("a:gpu0", 0, 2 * quarter),
        ("a:gpu0", 3 * quarter, 4 * quarter),
    ]


def test_whatever_is_broken_is_read_or_refused() -> None:
    """Rows, or an error of one line: never anything else."""
    taken = {"operationType": "compute.instances.preempted", "targetId": "1", "insertTime": "2026-11-20T10:30:00Z"}
    whole = [make_instance(1, "a", labels={"team": "nlp"}, lastStopTimestamp="2026-11-20T10:30:00Z"), taken]
    assert len(list(decode_gce([Input("x.json", [json.dumps(whole).encode()])], ReadOptions(at_ms=START_MS + 1)))) == 3
    count = 0
    for broken in break_each(whole):
        source = Input("x.json", [json.dumps(broken).encode()])
        try:
            count += len(list(decode_gce([source], ReadOptions(at_ms=START_MS + MS_PER_HOUR))))
        except SourceError:
            count += 1
    assert count > len(whole)


def test_what_is_no_list_is_refused_in_one_line(tmp_path: Path) -> None:
    """Whatever it is."""
    for said in ({"Volumes": []}, [5], [{"name": "x"}], {"items": [{"kind": "compute#disk"}]}, "x", None):
        with pytest.raises(SourceError, match=r"instances\.json"):
            see(SOURCE, gce_write(tmp_path, said), at_ms=START_MS)
    with pytest.raises(SourceError, match="do not say when they were taken: give --at"):
        see(SOURCE, gce_write(tmp_path, [make_instance(1, "a")]))
