"""What Prometheus and VictoriaMetrics answer: the samples of each series as points; answers and pages that were saved, as rows."""

import codecs
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
from loadfactor.sources.parsing.text_blocks import join_pieces, strip_endings
from loadfactor.sources.prometheus.cluster_states import ClusterStates
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.families import list_names
from loadfactor.sources.prometheus.metrics_page import PageReader
from loadfactor.sources.prometheus.node_source import list_node_names
from loadfactor.sources.prometheus.remote_write import NOT_UNDERSTOOD, Points
from loadfactor.sources.prometheus.saved_pages import split_pages
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
    https://prometheus.io/docs/prometheus/latest/querying/api with `resultType` matrix or vector, and the lines of VictoriaMetrics'
    /api/v1/export: an error of the server in its own words.
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
        if (exported := _list_exported(answer)) is not None:
            return exported
        raise SourceError("the answer is no JSON; is it the address of a Prometheus?") from None
    if isinstance(found, dict) and "timestamps" in found:
        return [found]
    if not isinstance(found, dict) or not {"status", "error"} & found.keys():
        raise SourceError("the answer is JSON, and none of a Prometheus; is it the right address, or file?")
    if found.get("status") != "success":
        reason = found.get("error")
        reason = next(iter(str(reason or "").split("\n")), "") or "no success"
        raise SourceError(f"the server answers with an error: {shorten(reason)}")
    data = found.get("data")
    kind, result = (data.get("resultType"), data.get("result")) if isinstance(data, dict) else (None, None)
    if kind not in ("matrix", "vector") or not isinstance(result, list):
        raise SourceError(f"{_WRONG}: resultType {shorten(str(kind))}; ask with a range selector, such as up[1h]")
    return result


def _list_exported(answer: bytes) -> list[Any] | None:
    """The series of VictoriaMetrics' export, a line each; None where a line is none."""
    try:
        found = [json.loads(line) for line in answer.removeprefix(codecs.BOM_UTF8).splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None
    return found if found and all(isinstance(one, dict) and "timestamps" in one for one in found) else None


def _read_series(entry: Any) -> tuple[dict[str, str], list[Any]] | None:
    if isinstance(entry, dict):
        labels, samples, times = entry.get("metric"), entry.get("values", []), entry.get("timestamps")
        if isinstance(entry.get("value"), list):
            samples = [entry["value"]]
        elif isinstance(times, list) and isinstance(samples, list) and len(times) == len(samples):  # in ms
            samples = [[at / MS_PER_S if isinstance(at, int) else at, v] for at, v in zip(times, samples, strict=True)]
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


STILL_HELD: Final = "holders of GPUs that labels named to the last sample: held until then, the latest until"
LARGEST_FILE_BYTES: Final = 256 * BYTES_PER_MIB


def decode_answers(answers: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The rows of all answers and pages together. The job of serving engines is `held_by`, else what labels say.

    Raises SourceError naming the file that is neither an answer with the samples of series nor a page of metrics with its time.
    """
    decoder, clusters = PrometheusDecoder(is_live=False), ClusterStates()

    def identify(labels: dict[str, str]) -> int:
        if (number := clusters.number(labels)) is not None:
            return number
        return decoder.identify({**labels, "job": options.held_by} if options.held_by else labels)

    skips: list[Skip] = []
    number = 0
    for answer in answers:
        try:
            for points in _read_saved(answer, options, identify, skips.append):
                decoder.feed(clusters.take(points), number := number + 1, 0.0)
        except SourceError as error:
            reason = str(error)
            raise SourceError(reason if answer.label in reason else f"{answer.label}: {reason}") from None
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
    yield from clusters.decode(where)
    yield from list_gaps(where, skips)
    beside = 0
    for name, series in decoder.not_understood.items():
        if name.startswith("kube_"):
            beside += series
        else:
            yield Gap(where, f"series not understood: {name}", series)
    if beside:
        yield Gap(where, "series of kube-state-metrics that say nothing of GPUs or who holds them", beside)


def _read_saved(
    saved: Input, options: ReadOptions, identify: Callable[[dict[str, str]], int], skip: Callable[[Skip], object]
) -> Iterator[Points]:
    """The points of a file: JSON that a server answered, else pages of an exporter, which the file's name calls by its node."""
    if _begins_as_json(saved):
        content = join_pieces(saved.label, saved.chunks, LARGEST_FILE_BYTES, "ask for shorter times")
        yield read_answer(content, identify, skip)
        return
    reader = PageReader(identify, skip)
    target = (("instance", f"{options.node or strip_endings(saved.name or saved.label)}:0"),)
    for at_ms, page in split_pages(saved, options):
        yield reader.read(page, target, at_ms)


def _begins_as_json(saved: Input) -> bool:
    first = next((chunk for chunk in saved.chunks if chunk.strip()), b"")
    return first.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"[")


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
    find_with((".json", ".jsonl", ".prom", ".txt", ".om"), "saved answer of a Prometheus, or page of an exporter"),
    read_with(decode_answers),
    EXPORTER_STEP_S,
    watches=True,
    uses=("at", "step", "node", "job"),
)
