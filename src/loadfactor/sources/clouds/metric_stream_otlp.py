"""Files of CloudWatch's metric streams in the formats OpenTelemetry 1.0 and 0.7: messages of OTLP, each after its length.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch-metric-streams-formats-opentelemetry-100.html
https://github.com/open-telemetry/opentelemetry-proto (v1.0.0, v0.7.0) has the numbers of fields. The formats differ in where a
point's attributes are: 1.0 keeps dimensions as a list in one of them, 0.7 beside the others.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S, NS_PER_S
from loadfactor.sources.clouds.cloudwatch_metrics import NAMES, CloudWatchMetric

Fields = Iterator[tuple[int, bytes]]
MetricPoints = dict[CloudWatchMetric, list[tuple[int, float]]]
"""The points of each metric: when the interval ends (ms since 1970 UTC), and its mean."""

_VARINT, _FIXED64, _PARTS, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES: Final = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_VARINT: Final = 10
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
        _, at = _read_varint(head, 0)
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
        size, at = _read_varint(content, at)
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
        key, said = _read_pair(value)
        if number == _LABELS:
            text = said.decode()
        elif key == _DIMENSIONS_KEY:
            listed = dict(_read_fields(said)).get(_LIST, b"")
            dimensions += [(name, _read_text(one)) for name, one in map(_read_pair, _take(listed, _OF_LIST))]
            continue
        else:
            text = _read_text(said)
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


def _read_fields(message: bytes) -> Fields:
    """The fields of a message with their numbers; numbers of variable length are passed over. Raises ValueError."""
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        if tag & 7 == _VARINT:
            _, at = _read_varint(message, at)
            continue
        if tag & 7 == _PARTS:
            size, at = _read_varint(message, at)
        elif tag & 7 in _FIXED_BYTES:
            size = _FIXED_BYTES[tag & 7]
        else:
            raise ValueError("a field of a kind that protobuf does not have")
        if size > len(message) - at:
            raise ValueError("a field ends after its message")
        yield tag >> 3, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(at, min(at + _LONGEST_VARINT, len(message))):
        number |= (message[place] & 0x7F) << 7 * (place - at)
        if message[place] < 0x80:
            return number, place + 1
    raise ValueError("it ends within a number")
