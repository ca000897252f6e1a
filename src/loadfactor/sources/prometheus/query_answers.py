"""Answers of Prometheus and VictoriaMetrics to `/api/v1/query` with a range selector: the raw samples of each series, as points."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import EARLIEST_MS, LATEST_MS, shorten
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S
from loadfactor.sources.base import SKIPPED, Gap, Input, ReadOptions, Rows, Skip, Source
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.parsing.steps import EXPORTER_STEP_S
from loadfactor.sources.parsing.text_blocks import join_pieces
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.families import list_names
from loadfactor.sources.prometheus.node_source import list_node_names
from loadfactor.sources.prometheus.remote_write import NOT_UNDERSTOOD, Points
from loadfactor.sources.serving_engines import engines

DCGM_PREFIX: Final = "DCGM_FI_(DEV|PROF)_.*"
EXPORTERS: Final = (DCGM_PREFIX, *list_names(), *list_node_names())
ENGINES: Final = tuple(engines.list_names())
ALL: Final = (*EXPORTERS, *ENGINES)
"""The names of what exporters tell, of what serving engines tell, and of both."""


def write_selector(match: str = "", names: Iterable[str] = ALL) -> str:
    """The series of these names; `match` holds further matchers in braces, {cluster="a"}.

    >>> write_selector('{cluster="a"}').startswith('{__name__=~"DCGM_FI_(DEV|PROF)_.*|'), write_selector('{cluster="a"}')[-14:]
    (True, '",cluster="a"}')
    """
    further = match.strip().removeprefix("{").removesuffix("}").strip().strip(",")
    return f'{{__name__=~"{"|".join(names)}"{"," if further else ""}{further}}}'


_WRONG: Final = "the answer is no matrix of samples"


def read_answer(answer: bytes, identify: Callable[[dict[str, str]], int], skip: Callable[[Skip], object]) -> Points:
    """The points of understood series, series by series in the order of time. What cannot be kept is given to `skip`.

    `identify` gives the number of a series, or NOT_UNDERSTOOD. Raises SourceError, of one line, for anything but the JSON of
    https://prometheus.io/docs/prometheus/latest/querying/api with `resultType` matrix: an error of the server in its own words.
    """
    series, times, values = [], [], []
    entries = _list_series(answer)
    readable = [entry for entry in map(_read_series, entries) if entry is not None]
    if entries and not readable:
        raise SourceError(f"{_WRONG}: a series without its labels or values")
    if len(readable) < len(entries):
        skip(Skip("unreadable", "", len(entries) - len(readable), is_read=True))
    for labels, samples in readable:
        number = identify(labels)
        if number == NOT_UNDERSTOOD:
            continue
        at_ms, value, skipped = _read_samples(samples)
        for reason, count in skipped.items():
            skip(Skip(reason, labels.get("__name__", ""), count, is_read=True))
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
        reason = found.get("error") if isinstance(found, dict) else None
        reason = next(iter(str(reason or "").split("\n")), "") or "no success"
        raise SourceError(f"the server answers with an error: {shorten(reason)}")
    data = found.get("data")
    kind, result = (data.get("resultType"), data.get("result")) if isinstance(data, dict) else (None, None)
    if kind != "matrix" or not isinstance(result, list):
        raise SourceError(f"{_WRONG}: resultType {shorten(str(kind))}; ask with a range selector, such as up[1h]")
    return result


def _read_series(entry: Any) -> tuple[dict[str, str], list[Any]] | None:
    if isinstance(entry, dict):
        labels, samples = entry.get("metric"), entry.get("values", [])
        if isinstance(labels, dict) and isinstance(samples, list) and all(isinstance(v, str) for v in labels.values()):
            return labels, samples
    return None


def _read_samples(samples: list[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64], Counter[str]]:
    """Times (ms) and values of the samples that are some, and how many of the others by reason."""
    try:
        seconds = np.array([at for at, _ in samples], np.float64)
        values = np.array([float(value) for _, value in samples], np.float64)
    except (TypeError, ValueError, OverflowError):
        if len(samples) == 1:
            return np.empty(0, np.int64), np.empty(0), Counter(unreadable=1)
        ones = [_read_samples([sample]) for sample in samples]
        at_ms, found, skipped = zip(*ones, strict=True)
        return np.concatenate(at_ms), np.concatenate(found), sum(skipped, Counter())
    times = seconds * MS_PER_S
    kept = (times >= EARLIEST_MS) & (times <= LATEST_MS)
    skipped_times = Counter({"no_instant": int((~kept).sum())}) if not kept.all() else Counter()
    return np.rint(times[kept]).astype(np.int64), values[kept], skipped_times


_OF_KUBERNETES: Final = (
    " (kube-state-metrics: save `kubectl get pods,nodes -A -o json` for `loadfactor import kubernetes`)"
)
STILL_HELD: Final = "holders of GPUs that labels named to the last sample: held until then, the latest until"
LARGEST_FILE_BYTES: Final = 256 * BYTES_PER_MIB


def decode_answers(answers: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The rows of all answers together. The job of serving engines is `held_by`, else what labels say.

    Raises SourceError naming the file that is no answer with the samples of series.
    """
    decoder = PrometheusDecoder(is_live=False)

    def identify(labels: dict[str, str]) -> int:
        return decoder.identify({**labels, "job": options.held_by} if options.held_by else labels)

    skips: list[Skip] = []
    for number, answer in enumerate(answers, 1):
        try:
            content = join_pieces(answer.label, answer.chunks, LARGEST_FILE_BYTES, "ask for shorter times")
            points = read_answer(content, identify, skips.append)
        except SourceError as error:
            reason = str(error)
            raise SourceError(reason if answer.label in reason else f"{answer.label}: {reason}") from None
        decoder.feed(points, number, 0.0)
    for item in decoder.drain(None):
        yield name_source(item) if isinstance(item, Rows) else item
    where = answers[0].label if len(answers) == 1 else f"{answers[0].label} …"
    still: list[int] = []
    for item in decoder.end():
        if isinstance(item, Rows) and item.table == "allocations":
            still += [at_ms for at_ms in item.data["to_utc"].to_pylist() if at_ms is not None]
        yield item
    if still:
        yield Gap(
            where,
            f"{STILL_HELD} {datetime.fromtimestamp(max(still) / MS_PER_S, UTC):%Y-%m-%d %H:%M:%S} UTC",
            len(still),
        )
    yield from list_gaps(where, skips)
    for name, series in decoder.not_understood.items():
        yield Gap(where, f"series not understood: {name}{_OF_KUBERNETES if name.startswith('kube_') else ''}", series)


def list_gaps(where: str, skips: Iterable[Skip]) -> Iterator[Gap]:
    """What was skipped, as gaps."""
    for skip in skips:
        yield Gap(where, f"samples {SKIPPED[skip.reason]}, of {skip.example}", skip.count, skip.reason)


def name_source(rows: Rows) -> Rows:
    """Samples with the exporter that took them: one import has several. Other rows say it themselves."""
    if rows.table != "samples":
        return rows
    source = pa.array([rows.where] * rows.data.num_rows, pa.string())
    return replace(rows, data=rows.data.append_column("source", source))


SOURCE = Source(
    "prometheus",
    find_with((".json",), "saved answer of a Prometheus"),
    read_with(decode_answers),
    EXPORTER_STEP_S,
    watches=True,
    uses=("job", "step"),
)
