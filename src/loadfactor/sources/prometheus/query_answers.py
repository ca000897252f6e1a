"""Answers of Prometheus and VictoriaMetrics to `/api/v1/query` with a range selector: the raw samples of each series, as points."""

import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import EARLIEST_MS, LATEST_MS, shorten
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.prometheus.remote_write import NOT_UNDERSTOOD, Points

_WRONG: Final = "the answer is no matrix of samples"


def read_answer(answer: bytes, identify: Callable[[dict[str, str]], int]) -> Points:
    """The points of understood series, series by series in the order of time.

    `identify` gives the number of a series, or NOT_UNDERSTOOD. Raises SourceError, of one line, for anything but the JSON of
    https://prometheus.io/docs/prometheus/latest/querying/api with `resultType` matrix: an error of the server in its own words.
    """
    series, times, values = [], [], []
    for entry in _list_series(answer):
        labels, samples = _read_series(entry)
        number = identify(labels)
        if number != NOT_UNDERSTOOD:
            at_ms, value = _read_samples(samples)
            series.append(np.full(len(value), number, np.int32))
            times.append(at_ms)
            values.append(value)
    if not series:
        return Points(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0))
    return Points(np.concatenate(series), np.concatenate(times), np.concatenate(values))


def _list_series(answer: bytes) -> list[Any]:
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        raise SourceError("the answer is no JSON; is it the address of a Prometheus?") from None
    if not isinstance(found, dict) or found.get("status") != "success":
        said = found.get("error") if isinstance(found, dict) else None
        said = next(iter(str(said or "").split("\n")), "") or "no success"
        raise SourceError(f"the server answers with an error: {shorten(said)}")
    data = found.get("data")
    kind, result = (data.get("resultType"), data.get("result")) if isinstance(data, dict) else (None, None)
    if kind != "matrix" or not isinstance(result, list):
        raise SourceError(f"{_WRONG}: resultType {shorten(str(kind))}; ask with a range selector, such as up[1h]")
    return result


def _read_series(entry: Any) -> tuple[dict[str, str], list[Any]]:
    if isinstance(entry, dict):
        labels, samples = entry.get("metric"), entry.get("values", [])
        if isinstance(labels, dict) and isinstance(samples, list) and all(isinstance(v, str) for v in labels.values()):
            return labels, samples
    raise SourceError(f"{_WRONG}: a series without its labels or values")


def _read_samples(samples: list[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    try:
        seconds = np.array([at for at, _ in samples], np.float64)
        values = np.array([float(value) for _, value in samples], np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SourceError(f"{_WRONG}: a sample that is not a time and a value") from None
    at_ms = seconds * MS_PER_S
    if not ((at_ms >= EARLIEST_MS) & (at_ms <= LATEST_MS)).all():
        raise SourceError(f"{_WRONG}: a time that cannot be")
    return np.rint(at_ms).astype(np.int64), values
