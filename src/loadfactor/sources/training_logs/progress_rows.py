"""Intervals of a run as rows of the table `progress`."""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from loadfactor.sources.base import Rows
from loadfactor.sources.training_logs.intervals import StepInterval
from loadfactor.sources.training_logs.lost_work import SKIPPED
from loadfactor.tables.work import PROGRESS

BATCH_ROWS: Final = 50_000
_COLUMNS: Final = ("job_id", "from_utc", "to_utc", "unit", "amount", "kept", "cause")


def list_rows(job: str, intervals: Iterable[StepInterval], where: str) -> Iterator[Rows]:
    """The rows, in batches. What took less than a millisecond is put into the interval after it."""
    batch: list[tuple[object, ...]] = []
    for one in _join_short(intervals):
        start, end = round(one.from_ms), round(one.to_ms)
        for unit, amount in one.amounts.items():
            lost = amount if one.cause else one.lost.get(unit, 0.0)
            for kept, part in ((True, amount - lost), (False, lost)):
                cause = None if kept else (one.cause or SKIPPED)
                if part > 0:
                    batch.append((job, start, end, unit, part, kept, cause))
        if len(batch) >= BATCH_ROWS - 100:
            yield _rows(batch, where)
            batch = []
    if batch:
        yield _rows(batch, where)


def _join_short(intervals: Iterable[StepInterval]) -> Iterator[StepInterval]:
    waiting: StepInterval | None = None
    for one in intervals:
        if waiting is not None and waiting.cause == one.cause and one.from_ms - waiting.to_ms < 1:
            one = StepInterval(
                waiting.from_ms,
                one.to_ms,
                waiting.first,
                one.last,
                _add(waiting.amounts, one.amounts),
                _add(waiting.lost, one.lost),
                one.cause,
            )
        elif waiting is not None:
            yield _lengthen(waiting)
            one.from_ms = max(one.from_ms, waiting.to_ms)  # no two begin at once: a row is known by its start
            one.to_ms = max(one.to_ms, one.from_ms)
        if round(one.to_ms) > round(one.from_ms):
            yield one
            waiting = None
        else:
            waiting = one
    if waiting is not None:
        yield _lengthen(waiting)


def _lengthen(one: StepInterval) -> StepInterval:
    one.to_ms = round(one.from_ms) + 1.0
    return one


def _add(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {unit: one.get(unit, 0.0) + other.get(unit, 0.0) for unit in one | other}


def _rows(batch: list[tuple[object, ...]], where: str) -> Rows:
    columns = dict(zip(_COLUMNS, map(list, zip(*batch, strict=True)), strict=True))
    types = {c.name: PROGRESS.schema.field(c.name).type for c in PROGRESS.columns}
    return Rows("progress", pa.table({name: pa.array(cells, types[name]) for name, cells in columns.items()}), where)
