"""Series as a cloud keeps them, with labels as exporters write them, and as the answer of a query that the decoder reads."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Gap, Input, Rows
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.remote_write import NOT_UNDERSTOOD, Points

NAME: Final = "__name__"


class CloudSeries(NamedTuple):
    """One series. `points`: when each value's interval ends (ms since 1970 UTC), and the value in the units of its metric."""

    labels: Mapping[str, str]
    points: Sequence[tuple[int, float]]


def write_matrix(series: Iterable[CloudSeries]) -> bytes:
    """The answer that Prometheus would give: points of each series in the order of time, one at an instant.

    >>> write_matrix([CloudSeries({"gpu": "0"}, [(2000, 5.0), (1000, 4.0)])])[50:]
    b'"result":[{"metric":{"gpu":"0"},"values":[[1.0,"4.0"],[2.0,"5.0"]]}]}}'
    """
    result = [
        {"metric": dict(labels), "values": [[at / MS_PER_S, repr(v)] for at, v in sorted(dict(points).items())]}
        for labels, points in series
    ]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return json.dumps(answer, separators=(",", ":")).encode()


def name_gpu(node: str, index: str, labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of a GPU that is known by its node and number, with others; nvidia0, as the device file is called, is 0."""
    return {**labels, "hostname": node, "gpu": index.removeprefix("nvidia")}


def as_object(value: Any, what: str) -> dict[str, Any]:
    """A JSON object. Raises SourceError where it is none."""
    if not isinstance(value, dict):
        raise SourceError(f"{what} is no object; is it whole?")
    return value


def as_list(value: Any, what: str) -> list[Any]:
    """A JSON list, an empty one where there is none. Raises SourceError for anything else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise SourceError(f"{what} is no list; is it whole?")
    return value


def split_documents(text: str) -> Iterator[Any]:
    """The JSON documents of a text, one after the other. Raises ValueError where something else is between them."""
    decoder, at = json.JSONDecoder(), 0
    while (at := next((i for i in range(at, len(text)) if not text[i].isspace()), -1)) >= 0:
        found, at = decoder.raw_decode(text, at)
        yield found


POINTS_AT_ONCE = 2_000_000
"""So many are put in order together; those of a later portion that are older find their place in the store."""
ReadSeries = Callable[[Input, Callable[[str], None]], Iterator[CloudSeries]]
"""The series of an input; the function gets what is left out."""


def decode_series(inputs: Iterable[Input], read: ReadSeries) -> Iterator[Rows | Gap]:
    """The rows of all inputs. Raises SourceError where none has series of GPUs."""
    decoder = PrometheusDecoder(is_live=False)
    gaps: Counter[tuple[str, str]] = Counter()
    waiting: list[tuple[int, int, float]] = []
    labels: list[str] = []
    payload, found = 0, 0
    for source in inputs:
        labels.append(source.label)

        def leave_out(what: str, label: str = source.label) -> None:
            gaps[label, what] += 1

        for series in read(source, leave_out):
            number = decoder.identify(series.labels)
            if number == NOT_UNDERSTOOD:
                leave_out("series not understood")
                continue
            found += 1
            waiting.extend((number, at_ms, value) for at_ms, value in series.points)
            if len(waiting) >= POINTS_AT_ONCE:
                payload += 1
                yield from _take(decoder, waiting, payload)
                waiting = []
    if not found:
        others = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        why = "; ".join(f"{what}: {count}" for (_, what), count in gaps.most_common(3))
        raise SourceError(f"no series of GPUs in {labels[0]}{others}{f' ({why})' if why else ''}")
    yield from _take(decoder, waiting, payload + 1)
    yield from decoder.end()
    for (where, what), count in gaps.items():
        yield Gap(where, what, count)


def _take(decoder: PrometheusDecoder, points: list[tuple[int, int, float]], payload: int) -> Iterator[Rows | Gap]:
    if not points:
        return
    series, at_ms, value = zip(*sorted(set(points), key=lambda point: point[:2]), strict=True)
    kept = Points(np.array(series, np.int32), np.array(at_ms, np.int64), np.array(value, np.float64))
    decoder.feed(kept, payload, 0.0)
    yield from decoder.drain(None)
