"""Amounts of a replica as rows of progress, those that follow each other put together."""

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from loadfactor.base.units import MS_PER_S, S_PER_MIN
from loadfactor.sources.base import Rows
from loadfactor.sources.serving_engines.counting import Amount
from loadfactor.sources.serving_engines.engines import PREEMPTION
from loadfactor.tables.schema import table

ROW_MS: Final = 5 * S_PER_MIN * MS_PER_S
"""A row of progress has the pages of one such part of the day, so that the same pages make the same rows, whoever reads them."""
MOST_ROWS: Final = 50_000

ProgressRow = dict[str, object]


def join_amounts(amounts: Iterable[Amount], open_: dict[str, Amount]) -> list[Amount]:
    """Amounts of one replica with those that follow each other put together, those of five minutes of the clock; in order.

    `open_` has the last one of each unit, which may go on; it is brought up to date, and one that went on is given again.
    """
    joined: dict[tuple[int, str], Amount] = {}
    for new in amounts:
        before = open_.get(new.unit)
        if before is not None and before.to_ms == new.from_ms and find_part(before.to_ms) == find_part(new.to_ms):
            new = Amount(new.unit, before.from_ms, new.to_ms, before.amount + new.amount)
        open_[new.unit] = joined[new.from_ms, new.unit] = new
    return [joined[key] for key in sorted(joined)]


def find_part(to_ms: int) -> int:
    """The part of the day in which a row ends that ends then; numbered since 1970."""
    return (to_ms - 1) // ROW_MS


def make_row(job: str, replica: str, of: Amount) -> ProgressRow:
    """The row of an amount."""
    is_lost = of.unit == PREEMPTION
    told = {"job_id": job, "replica": replica, "from_utc": of.from_ms, "to_utc": of.to_ms, "unit": of.unit}
    return {**told, "amount": of.amount, "kept": not is_lost, "cause": "preemption" if is_lost else None}


def make_rows(rows: Sequence[ProgressRow], where: str) -> Rows:
    """Rows as a batch."""
    return Rows("progress", pa.Table.from_pylist(list(rows), schema=table("progress").schema), where)
