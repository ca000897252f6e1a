"""What a Prometheus-compatible server keeps of the past, read once as rows: for an import by hand."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from loadfactor.collect.fetch_errors import FetchError
from loadfactor.collect.lanes import Lanes
from loadfactor.collect.prometheus_server import PrometheusServer
from loadfactor.collect.pull import Chunk, Pull
from loadfactor.errors import InputError
from loadfactor.sources.base import Gap, Rows, Source
from loadfactor.sources.parsing.steps import EXPORTER_STEP_S
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.query_answers import read_answer
from loadfactor.sources.prometheus.selector import write_selector
from loadfactor.store.importing import Progress, Receipt
from loadfactor.tables import Span
from loadfactor.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_S

SOURCE = Source("prometheus", lambda paths: paths, lambda _paths, _options: iter(()), EXPORTER_STEP_S, watches=True)
"""Imports of this name bring what exporters measured: their rows name them. It reads no files."""
SETTLED_MS = MS_PER_HOUR
"""So long after its end a day may still get samples."""
TRIES = 3
PAUSE_S = 2.0
AddRows = Callable[[Source, Iterable[Rows | Gap], str, Progress], Receipt]


def import_history(
    add_rows: AddRows, server: PrometheusServer, match: str, window: Span, progress: Progress
) -> Receipt:
    """Add what a server has of a window, a UTC day an import; the receipts of all days as one.

    A day that is over is imported once: where a later try begins again it is not asked for.
    """
    now_ms = int(time.time() * MS_PER_S)
    receipts = []
    for from_ms, to_ms in _cut_at_midnights(window):
        day = datetime.fromtimestamp(from_ms / MS_PER_S, UTC)
        is_whole = to_ms - from_ms == MS_PER_DAY and to_ms < now_ms - SETTLED_MS
        name = f"{server.name} {day:%Y-%m-%d}{match}" if is_whole else f"{server.name} {from_ms}-{now_ms}{match}"
        selector = write_selector(match)

        def tell(share: float, shown: str = f"asking {server.name} for {day:%Y-%m-%d}") -> None:
            progress(shown, share)

        receipts.append(add_rows(SOURCE, read_history(server, selector, from_ms, to_ms, tell), name, progress))
    rows: Counter[str] = Counter()
    gaps: Counter[tuple[str, str]] = Counter()
    for receipt in receipts:
        rows.update(receipt.rows)
        gaps.update({(gap.where, gap.what): gap.count for gap in receipt.gaps})
    if not rows:
        raise InputError(
            f"{server.name} has no series of GPUs or nodes in that time; `--match` or another window may help"
        )
    already = all(receipt.already for receipt in receipts)
    return Receipt(SOURCE.name, dict(rows), tuple(Gap(*key, count) for key, count in gaps.items()), already)


def _cut_at_midnights(window: Span) -> Iterator[Span]:
    start, end = window
    while start < end:
        cut = min(end, (start // MS_PER_DAY + 1) * MS_PER_DAY)
        yield start, cut
        start = cut


def read_history(
    server: PrometheusServer, selector: str, from_ms: int, to_ms: int, told: Callable[[float], None]
) -> Iterator[Rows | Gap]:
    """Rows of all samples after `from_ms`, through `to_ms`; `told` hears which share of the time is behind us.

    Raises InputError where the server does not answer with samples.
    """
    decoder = PrometheusDecoder()
    pull = Pull(server, selector, 0.0, from_ms, _take_nothing, Lanes())
    with asyncio.Runner() as runner:
        number, through_ms = 0, from_ms
        while through_ms < to_ms:
            chunk = runner.run(_fetch(pull, to_ms))
            if chunk.to_ms <= through_ms:
                break  # the clock of the server is a little behind ours
            number, through_ms = number + 1, chunk.to_ms
            points = read_answer(chunk.answer, decoder.identify)
            decoder.put(points, number, 0.0)
            for item in decoder.take(None):
                yield _name_source(item) if isinstance(item, Rows) else item
            told((through_ms - from_ms) / (to_ms - from_ms))
            pull.go_on(through_ms, overlap_s=0.0)  # nothing is stored late in the past
    for name, series in decoder.not_understood.items():
        yield Gap(server.name, f"series not understood: {name}", series)


async def _fetch(pull: Pull, to_ms: int) -> Chunk:
    """The next chunk; a server that fails is asked again before that ends the import."""
    for left in reversed(range(TRIES)):
        try:
            return await pull.fetch_next(to_ms)
        except FetchError as error:
            if not left:
                raise InputError(
                    f"{pull.server.name}: {error}; check the address, or ask for less with --last"
                ) from error
            await asyncio.sleep(PAUSE_S)
    raise AssertionError("unreachable")


async def _take_nothing(_answer: bytes, _from_ms: int, _to_ms: int) -> None:
    """The chunks of a history are fetched one by one."""


def _name_source(rows: Rows) -> Rows:
    """Samples with the exporter that took them: one import has several. Other rows say it themselves."""
    if rows.table != "samples":
        return rows
    source = pa.array([rows.where] * rows.data.num_rows, pa.string())
    return replace(rows, data=rows.data.append_column("source", source))
