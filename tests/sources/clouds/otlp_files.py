"""Files as CloudWatch's metric streams write them in the formats of OpenTelemetry, made by Google's protobuf library.

The messages are those of opentelemetry-proto 1.0.0 and 0.7.0, as far as CloudWatch fills them: names, numbers and types of fields.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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
