"""CloudWatch: files of metric streams, and saved answers of get-metric-data."""

import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S, NS_PER_S, S_PER_MIN
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows, Source
from loadfactor.sources.clouds.cloud_series import NAME, CloudSeries, as_list, as_object, decode_series, name_gpu
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.parsing.text_blocks import join_pieces, split_lines
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.families import CLOUDWATCH, CLOUDWATCH_FAMILY
from loadfactor.sources.prometheus.remote_write import NOT_UNDERSTOOD, Points
from loadfactor.sources.protobuf import VARINT, read_varint, walk


class CloudWatchMetric(NamedTuple):
    """A metric: its namespace, name and dimensions, sorted."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]

    def query(self) -> dict[str, Any]:
        """As get_metric_data asks for it."""
        dimensions = [{"Name": name, "Value": value} for name, value in self.dimensions]
        return {"Namespace": self.namespace, "MetricName": self.name, "Dimensions": dimensions}


MetricPoints = dict[CloudWatchMetric, list[tuple[int, float]]]
"""The points of each metric: when the interval ends (ms since 1970 UTC), and its mean."""
_REQUEST_BEGINS: Final = 0x0A  # the field resource_metrics
# numbers of fields
_RESOURCE_METRICS, _SCOPE_METRICS, _METRICS, _NAME, _SUMMARY, _POINTS = 1, 2, 2, 1, 11, 1
_LABELS, _END_NS, _COUNT, _SUM, _ATTRIBUTES = 1, 3, 4, 5, 7
_KEY, _VALUE, _TEXT, _LIST, _OF_LIST = 1, 2, 1, 6, 1
_OWN_KEYS: Final = ("Namespace", "MetricName")
_DIMENSIONS_KEY: Final = "Dimensions"


def is_otlp(head: bytes) -> bool:
    """Whether a file that begins so holds messages of OTLP.

    >>> is_otlp(bytes.fromhex("0c0a0a1208") + bytes(8)), is_otlp(b'{"metric_name": "x"}')
    (True, False)
    """
    try:
        _, at = read_varint(memoryview(head), 0, len(head))
    except ValueError:
        return False
    return b"\0" in head and head[at : at + 1] == bytes([_REQUEST_BEGINS])


def read_otlp(content: bytes, label: str, leave_out: Callable[[str], None]) -> MetricPoints:
    """The points of a file; of metrics of GPUs alone. Raises SourceError for what is no whole message."""
    points: MetricPoints = {}
    try:
        for summary in _find_summaries(content, leave_out):
            for metric, end_ms, mean in map(_read_point, _take(summary, _POINTS)):
                points.setdefault(metric, []).append((end_ms, mean))
    except (ValueError, struct.error, ZeroDivisionError, OverflowError) as error:
        raise SourceError(f"{label}: no metric stream in OpenTelemetry's format ({error}); is it whole?") from None
    return points


def _find_summaries(content: bytes, leave_out: Callable[[str], None]) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        size, at = read_varint(memoryview(content), at, len(content))
        if size > len(content) - at:
            raise ValueError("it ends within a message")
        request = content[at : at + size]
        at += size
        for resource in _take(request, _RESOURCE_METRICS):
            for scope in _take(resource, _SCOPE_METRICS):
                for metric in _take(scope, _METRICS):
                    name = next(_take(metric, _NAME), b"")  # such as amazonaws.com/CWAgent/nvidia_smi_power_draw
                    if name.decode().rpartition("/")[2] in NAMES:
                        yield from _take(metric, _SUMMARY)
                    else:
                        leave_out("metrics that are not of GPUs")


def _read_point(point: bytes) -> tuple[CloudWatchMetric, int, float]:
    own = dict[str, str]()
    dimensions = list[tuple[str, str]]()
    found = dict[int, bytes]()
    for number, value in _read_fields(point):
        if number not in (_LABELS, _ATTRIBUTES):
            found[number] = value
            continue
        key, record = _read_pair(value)
        if number == _LABELS:
            text = record.decode()
        elif key == _DIMENSIONS_KEY:
            listed = dict(_read_fields(record)).get(_LIST, b"")
            dimensions += [(name, _read_text(one)) for name, one in map(_read_pair, _take(listed, _OF_LIST))]
            continue
        else:
            text = _read_text(record)
        if key in _OWN_KEYS and key not in own:  # Container Insights has a dimension of the name Namespace
            own[key] = text
        else:
            dimensions.append((key, text))
    (end_ns,) = struct.unpack("<Q", found.get(_END_NS, b""))
    (count,) = struct.unpack("<Q", found.get(_COUNT, b""))
    (total,) = struct.unpack("<d", found.get(_SUM, bytes(8)))  # what is 0 need not be written
    namespace, name = (own.get(key, "") for key in _OWN_KEYS)
    return CloudWatchMetric(namespace, name, tuple(sorted(dimensions))), end_ns * MS_PER_S // NS_PER_S, total / count


def _read_pair(pair: bytes) -> tuple[str, bytes]:
    fields = dict(_read_fields(pair))
    return fields.get(_KEY, b"").decode(), fields.get(_VALUE, b"")


def _read_text(value: bytes) -> str:
    return dict(_read_fields(value)).get(_TEXT, b"").decode()


def _take(message: bytes, number: int) -> Iterator[bytes]:
    return (value for found, value in _read_fields(message) if found == number)


def _read_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message with their numbers; numbers of variable length are passed over. Raises ValueError."""
    for number, begin, end, wire in walk(memoryview(message), 0, len(message)):
        if wire != VARINT:
            yield number, message[begin:end]


NAMES: Final = frozenset(name.removeprefix(f"{CLOUDWATCH}/") for name in CLOUDWATCH_FAMILY.by_name)
"""The metrics that are requested."""
_NODES: Final = ("InstanceId", "host", "NodeName")
_PODS: Final = ("FullPodName", "PodName")


def read_metric(record: Mapping[str, Any]) -> CloudWatchMetric | None:
    """A metric as list_metrics and the queries of get_metric_data write it; None where nothing is kept of it."""
    name = record.get("MetricName")
    if not isinstance(name, str) or name not in NAMES:
        return None
    dimensions = record.get("Dimensions") or ()
    pairs = sorted({(str(one.get("Name")), str(one.get("Value"))) for one in dimensions if isinstance(one, dict)})
    return CloudWatchMetric(str(record.get("Namespace", "")), name, tuple(pairs))


def read_labels(metric: CloudWatchMetric, job: str) -> dict[str, str] | None:
    """The labels of the series of a metric; None where it is a sum over GPUs, or does not say where its GPU is.

    >>> dimensions = (("InstanceId", "i-1"), ("index", "0"), ("name", "NVIDIA A10G"))
    >>> read_labels(CloudWatchMetric("CWAgent", "nvidia_smi_power_draw", dimensions), "prod")["hostname"]
    'i-1'
    """
    record = dict(metric.dimensions)
    node = next((record[name] for name in _NODES if record.get(name)), None)
    index = record.get("index") or record.get("GpuDevice")
    if node is None or not index:
        return None
    labels = {NAME: f"{CLOUDWATCH}/{metric.name}", "job": job}
    if record.get("name"):
        labels["modelname"] = record["name"]
    pod = next((record[name] for name in _PODS if record.get(name)), None)
    if pod and not metric.name.startswith("node_"):
        labels |= {"pod": pod, "namespace": record.get("Namespace", "")}
    return name_gpu(node, index, labels)


def choose_metrics(found: Iterable[CloudWatchMetric], job: str) -> dict[CloudWatchMetric, dict[str, str]]:
    """The metrics to ask for, with the labels of their series: each once, and of one metric that is kept with several sets of
    dimensions for the same GPU the one that says most.
    """
    best: dict[tuple[str, str, str, str], tuple[CloudWatchMetric, dict[str, str]]] = {}
    for metric in found:
        labels = read_labels(metric, job)
        if labels is None:
            continue
        key = (labels[NAME], labels["hostname"], labels["gpu"], labels.get("pod", ""))
        if key not in best or _rank(metric) > _rank(best[key][0]):
            best[key] = metric, labels
    return dict(sorted(best.values(), key=lambda one: one[0]))


def _rank(metric: CloudWatchMetric) -> tuple[int, CloudWatchMetric]:
    return len(metric.dimensions), metric


def end_points(began_ms: Iterable[int], values: Iterable[float], period_ms: int) -> list[tuple[int, float]]:
    """Points of a result: CloudWatch tells when the period of a value begins, a sample when it ends.

    >>> end_points([60_000], [5.0], 60_000)
    [(120000, 5.0)]
    """
    return [(at_ms + period_ms, float(value)) for at_ms, value in zip(began_ms, values, strict=True)]


LARGEST_FILE_BYTES: Final = 256 * BYTES_PER_MIB
STREAM_PERIOD_MS: Final = S_PER_MIN * MS_PER_S
"""Metric streams send a line for each metric and minute."""
LeaveOut = Callable[[str], None]


def decode_saved_cloudwatch(inputs: Sequence[Input], _options: ReadOptions) -> Iterator[Rows | Gap]:
    """Rows of metric streams and of answers of get-metric-data. Raises SourceError for what is neither."""
    yield from decode_series(inputs, read_cloudwatch)


def read_cloudwatch(source: Input, leave_out: LeaveOut, job: str = "") -> Iterator[CloudSeries]:
    """The series of GPUs in a file; `job`: what to call where it comes from. Raises SourceError for what is none."""
    if is_otlp(next((piece for piece in source.chunks if piece), b"")):
        content = join_pieces(source.label, source.chunks, LARGEST_FILE_BYTES, "let Firehose write smaller files")
        return _choose(read_otlp(content, source.label, leave_out), leave_out, job)
    first = next(iter(split_lines(source)), "")
    try:
        is_stream = "metric_name" in json.loads(first)
    except (ValueError, TypeError, RecursionError):
        is_stream = False
    return (
        _choose(_read_lines(source, leave_out), leave_out, job) if is_stream else _read_answer(source, leave_out, job)
    )


def _read_lines(source: Input, leave_out: LeaveOut) -> MetricPoints:
    points: MetricPoints = {}
    for number, line in enumerate(split_lines(source), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            name, dimensions = record["metric_name"], record["dimensions"].items()
            metric = read_metric({"MetricName": name, "Namespace": record["namespace"]})
            if metric is None:
                leave_out("metrics that are not of GPUs")
                continue
            value, began_ms = record["value"], int(record["timestamp"])
            mean = float(value["sum"]) / float(value["count"])
        except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError, RecursionError) as error:
            raise SourceError(
                f"{source.label}, line {number}: no line of a metric stream in JSON ({type(error).__name__}); is it whole?"
            ) from None
        metric = metric._replace(dimensions=tuple(sorted((str(k), str(v)) for k, v in dimensions)))
        points.setdefault(metric, []).append((began_ms + STREAM_PERIOD_MS, mean))
    return points


def _choose(points: MetricPoints, leave_out: LeaveOut, job: str) -> Iterator[CloudSeries]:
    chosen = choose_metrics(points, job)
    for _ in range(len(points) - len(chosen)):
        leave_out("sums over GPUs, and the same by fewer dimensions")
    for metric, labels in chosen.items():
        yield CloudSeries(labels, points[metric])


def _read_answer(source: Input, leave_out: LeaveOut, job: str) -> Iterator[CloudSeries]:
    content = join_pieces(source.label, source.chunks, LARGEST_FILE_BYTES, "save shorter times")
    try:
        record = as_object(json.loads(content), source.label)
    except (ValueError, RecursionError):
        raise SourceError(f"{source.label} is neither a metric stream nor an answer of get-metric-data") from None
    if "MetricDataResults" not in record or "MetricDataQueries" not in record:
        raise SourceError(
            f"{source.label} has no MetricDataQueries beside MetricDataResults; docs/connect-clouds.md says how to save both"
        )
    listed = as_list(record["MetricDataQueries"], source.label)
    queries = {str(one.get("Id")): one for one in (as_object(one, "a query of get-metric-data") for one in listed)}
    metrics = {id_: found for id_, one in queries.items() if (found := _find_metric(one)) is not None}
    chosen = choose_metrics(metrics.values(), job)
    for result in as_list(record["MetricDataResults"], source.label):
        id_ = str(as_object(result, source.label).get("Id"))
        metric = metrics.get(id_)
        if metric is None or metric not in chosen:
            leave_out("results that are not of GPUs, or of another statistic than Average")
            continue
        began = [_read_instant(at, source.label) for at in as_list(result.get("Timestamps"), source.label)]
        values = as_list(result.get("Values"), source.label)
        if len(began) != len(values):
            raise SourceError(f"{source.label}: {id_} has {len(began)} times and {len(values)} values; is it whole?")
        period_ms = int(queries[id_]["MetricStat"].get("Period", S_PER_MIN)) * MS_PER_S
        yield CloudSeries(chosen[metric], end_points(began, values, period_ms))


def _find_metric(query: dict[str, Any]) -> CloudWatchMetric | None:
    stat = query.get("MetricStat")
    if not isinstance(stat, dict) or stat.get("Stat") != "Average" or not isinstance(stat.get("Metric"), dict):
        return None
    return read_metric(stat["Metric"])


def _read_instant(text: Any, label: str) -> int:
    try:
        return round(datetime.fromisoformat(str(text)).timestamp() * MS_PER_S)
    except ValueError:
        raise SourceError(f"{label}: {str(text)[:40]!r} is no time") from None


_OF_FIREHOSE: Final = re.compile(r"-\d{4}(?:-\d\d){5}-[0-9a-f]{8}-")
"""In the name of every file that Firehose writes, in a folder for each hour: an instant, and the beginning of a UUID."""
SOURCE = Source(
    "cloudwatch",
    find_with((".json", ".jsonl", ".ndjson"), "output of CloudWatch", deep=True, without_ending=_OF_FIREHOSE),
    read_with(decode_saved_cloudwatch),
    S_PER_MIN,
    watches=True,
    uses=("step", "job"),
)
METRIC_STREAM: Final = "metric-stream"
"""The first word of such stream ids."""
SERIES, ASIDE = "series", "aside"
SET_ASIDE: Final = "objects of the metric stream that cannot be read"
_NUMBER_BYTES: Final = 8


class LiveMetricStreamDecoder:
    """The rows of one metric stream, and its state."""

    def __init__(self, name: str, state: bytes = b"") -> None:
        """`name`: of the account. `state`: as `state()` gave it; empty for a new one."""
        self._label = f"cloudwatch:{name}" if name else "cloudwatch"
        self._payloads = int.from_bytes(state[:_NUMBER_BYTES], "little")
        self._decoder = PrometheusDecoder(state[_NUMBER_BYTES:])
        self._aside = 0

    def feed(self, events: Sequence[Sequence[Any]]) -> None:
        """Events in the order in which they came."""
        for _, kind, record in events:
            if kind == ASIDE:
                self._aside += len(record)
                continue
            points: list[tuple[int, int, float]] = []
            for labels, some in record:
                number = self._decoder.identify(labels)
                if number != NOT_UNDERSTOOD:
                    points += ((number, at_ms, value) for at_ms, value in some)
            if not points:
                continue
            series, at_ms, values = zip(*sorted(set(points), key=lambda point: point[:2]), strict=True)
            self._payloads += 1
            kept = Points(np.array(series, np.int32), np.array(at_ms, np.int64), np.array(values, np.float64))
            self._decoder.feed(kept, self._payloads, 0.0)

    def drain(self) -> Iterator[Rows | Gap]:
        """The rows that are new."""
        yield from self._decoder.drain(None)
        if self._aside:
            yield Gap(self._label, SET_ASIDE, self._aside)
            self._aside = 0
        if self._decoder.is_large:  # series come and go: what is not seen any more is forgotten
            self._decoder = PrometheusDecoder(self._decoder.state())

    def state(self) -> bytes:
        """All of it, to go on from here in another process."""
        return self._payloads.to_bytes(_NUMBER_BYTES, "little") + self._decoder.state()
