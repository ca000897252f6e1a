"""History of a Prometheus-compatible server, read once as rows: for an import by hand."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_S
from loadfactor.collect.http_fetch import FetchError, RequestPools
from loadfactor.collect.prometheus_server import PrometheusServer
from loadfactor.collect.pull import Chunk, Pull
from loadfactor.sources.base import Gap, Rows, Skip, Source
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.query_answers import (
    ALL,
    ENGINES,
    SOURCE,
    list_gaps,
    name_source,
    read_answer,
    write_selector,
)
from loadfactor.sources.serving_engines.counting import ROW_MS, find_part
from loadfactor.store.importing import Progress, Receipt
from loadfactor.tables.schema import Span

SETTLED_MS = MS_PER_HOUR
"""So long after its end a day may still get samples."""
TRIES = 3
PAUSE_S = 2.0
AddRows = Callable[[Source, Iterable[Rows | Gap], str, Progress], Receipt]


def import_history(
    add_rows: AddRows, server: PrometheusServer, match: str, window: Span, progress: Progress
) -> Receipt:
    """Add what a server has of a window, a UTC day an import; the receipts of all days as one.

    A day that is over is imported once: where a later try begins again it is not fetched.
    """
    at_ms = now_ms()
    receipts = []
    for from_ms, to_ms in _cut_at_midnights(window):
        day = datetime.fromtimestamp(from_ms / MS_PER_S, UTC)
        is_whole = to_ms - from_ms == MS_PER_DAY and to_ms < at_ms - SETTLED_MS
        name = f"{server.name} {day:%Y-%m-%d}{match}" if is_whole else f"{server.name} {from_ms}-{at_ms}{match}"

        def report(share: float, text: str = f"asking {server.name} for {day:%Y-%m-%d}") -> None:
            progress(text, share)

        receipts.append(add_rows(SOURCE, read_history(server, match, (from_ms, to_ms), report), name, progress))
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
    server: PrometheusServer, match: str, window: Span, report: Callable[[float], None]
) -> Iterator[Rows | Gap]:
    """Rows of all samples of a window, its end included; `report` gets which share of the time is behind us.

    What engines made counts from the last page before the window, in rows that are the same whichever window has them.
    Raises InputError where the server does not answer with samples.
    """
    from_ms, to_ms = window
    decoder = PrometheusDecoder(is_live=False)
    pull = Pull(server, write_selector(match, ALL), 0.0, from_ms, _keep_nothing, RequestPools())
    begin_ms = from_ms // ROW_MS * ROW_MS
    before = Pull(server, write_selector(match, ENGINES), 0.0, begin_ms - ROW_MS, _keep_nothing, RequestPools())
    skips: list[Skip] = []
    with asyncio.Runner() as runner:
        number, through_ms = 0, from_ms
        decoder.feed(
            read_answer(runner.run(_fetch(before, from_ms)).answer, decoder.identify, skips.append), number, 0.0
        )
        while through_ms < to_ms:
            chunk = runner.run(_fetch(pull, to_ms))
            if chunk.to_ms <= through_ms:
                break  # the clock of the server is a little behind ours
            number, through_ms = number + 1, chunk.to_ms
            points = read_answer(chunk.answer, decoder.identify, skips.append)
            decoder.feed(points, number, 0.0)
            for item in decoder.drain(None):
                yield name_source(item) if isinstance(item, Rows) else item
            report((through_ms - from_ms) / (to_ms - from_ms))
            pull.go_on(through_ms, overlap_s=0.0)  # nothing is stored late in the past
    for item in decoder.end():
        yield _leave_out_before(item, begin_ms) if isinstance(item, Rows) and item.table == "progress" else item
    yield from list_gaps(server.name, skips)
    for name, series in decoder.not_understood.items():
        yield Gap(server.name, f"series not understood: {name}", series)


async def _fetch(pull: Pull, to_ms: int) -> Chunk:
    """The next chunk; a server that fails is queried again before that ends the import."""
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


async def _keep_nothing(_answer: bytes, _from_ms: int, _to_ms: int) -> None:
    """The chunks of a history are fetched one by one."""


def _leave_out_before(rows: Rows, begin_ms: int) -> Rows:
    parts = [find_part(to_ms) for to_ms in rows.data["to_utc"].to_pylist()]
    return replace(rows, data=rows.data.filter(pa.array([part >= begin_ms // ROW_MS for part in parts], pa.bool_())))
