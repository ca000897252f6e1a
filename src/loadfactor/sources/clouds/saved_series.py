"""Saved series of a cloud → rows: all points of the inputs, in the order of time."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, Rows
from loadfactor.sources.clouds.cloud_series import CloudSeries
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.remote_write import NOT_UNDERSTOOD, Points

POINTS_AT_ONCE = 2_000_000
"""So many are put in order together; those of a later portion that are older find their place in the store."""

ReadSeries = Callable[[Input, Callable[[str], None]], Iterator[CloudSeries]]
"""The series of an input; the function is told what is left out."""


def decode_series(inputs: Iterable[Input], read: ReadSeries) -> Iterator[Rows | Gap]:
    """The rows of all inputs. Raises SourceError where none has series of GPUs."""
    decoder = PrometheusDecoder()
    gaps: Counter[tuple[str, str]] = Counter()
    waiting: list[tuple[int, int, float]] = []
    labels: list[str] = []
    body, found = 0, 0
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
                body += 1
                yield from _take(decoder, waiting, body)
                waiting = []
    if not found:
        others = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        said = "; ".join(f"{what}: {count}" for (_, what), count in gaps.most_common(3))
        raise SourceError(f"no series of GPUs in {labels[0]}{others}{f' ({said})' if said else ''}")
    yield from _take(decoder, waiting, body + 1)
    for (where, what), count in gaps.items():
        yield Gap(where, what, count)


def _take(decoder: PrometheusDecoder, points: list[tuple[int, int, float]], body: int) -> Iterator[Rows | Gap]:
    if not points:
        return
    series, at_ms, value = zip(*sorted(set(points), key=lambda point: point[:2]), strict=True)
    kept = Points(np.array(series, np.int32), np.array(at_ms, np.int64), np.array(value, np.float64))
    decoder.put(kept, body, 0.0)
    yield from decoder.take(None)
