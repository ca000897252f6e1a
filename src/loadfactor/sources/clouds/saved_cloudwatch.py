"""Saved output of CloudWatch: metric streams (JSON lines, OTLP), and answers of get-metric-data with their queries beside them."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S, S_PER_MIN
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.clouds.cloud_series import CloudSeries, as_list, as_object
from loadfactor.sources.clouds.cloudwatch_metrics import CloudWatchMetric, choose_metrics, end_points, read_metric
from loadfactor.sources.clouds.metric_stream_otlp import MetricPoints, is_otlp, read_otlp
from loadfactor.sources.clouds.saved_series import decode_series
from loadfactor.sources.parsing.text_blocks import join_pieces, split_lines

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
    except (ValueError, TypeError):
        is_stream = False
    return (
        _choose(_read_lines(source, leave_out), leave_out, job) if is_stream else _read_answer(source, leave_out, job)
    )


def _read_lines(source: Input, leave_out: LeaveOut) -> MetricPoints:
    """The points of a metric stream in JSON; of GPUs alone, so that what else an account streams takes no memory."""
    points: MetricPoints = {}
    for number, line in enumerate(split_lines(source), 1):
        if not line.strip():
            continue
        try:
            said = json.loads(line)
            name, dimensions = said["metric_name"], said["dimensions"].items()
            metric = read_metric({"MetricName": name, "Namespace": said["namespace"]})
            if metric is None:
                leave_out("metrics that are not of GPUs")
                continue
            value, began_ms = said["value"], int(said["timestamp"])
            mean = float(value["sum"]) / float(value["count"])
        except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
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
        said = as_object(json.loads(content), source.label)
    except (ValueError, RecursionError):
        raise SourceError(f"{source.label} is neither a metric stream nor an answer of get-metric-data") from None
    if "MetricDataResults" not in said or "MetricDataQueries" not in said:
        raise SourceError(
            f"{source.label} has no MetricDataQueries beside MetricDataResults; docs/connect-clouds.md says how to save both"
        )
    queries = {str(one.get("Id")): one for one in map(_as_query, as_list(said["MetricDataQueries"], source.label))}
    metrics = {id_: found for id_, one in queries.items() if (found := _find_metric(one)) is not None}
    chosen = choose_metrics(metrics.values(), job)
    for result in as_list(said["MetricDataResults"], source.label):
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


def _as_query(value: Any) -> dict[str, Any]:
    return as_object(value, "a query of get-metric-data")


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
