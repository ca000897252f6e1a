"""Ranges in which the numbers that people give make sense: wide enough for the largest fleet and the smallest test."""

from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Final

from loadfactor.base.units import BYTES_PER_GIB, BYTES_PER_MIB, MS_PER_S, S_PER_DAY

_LONGEST_SHOWN: Final = 40


@dataclass(frozen=True)
class Limits:
    """The range in which a number makes sense; None where it is open. `above` and `below` are not included."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None

    def admit(self, value: float) -> bool:
        """True when the value lies inside."""
        return (
            isfinite(value)
            and (self.above is None or value > self.above)
            and (self.at_least is None or value >= self.at_least)
            and (self.below is None or value < self.below)
            and (self.at_most is None or value <= self.at_most)
        )

    @property
    def words(self) -> str:
        """The range as a person says it.

        >>> Limits(above=0, at_most=1).words, Limits().words
        ('above 0 and at most 1', 'finite')
        """
        named = (("above", self.above), ("at least", self.at_least), ("below", self.below), ("at most", self.at_most))
        return " and ".join(f"{name} {bound:,.15g}" for name, bound in named if bound is not None) or "finite"


def shorten(value: object) -> str:
    """An input as a message repeats it: text in quotation marks where it is no plain word, never long.

    >>> shorten("-1"), shorten(""), shorten(10**300)
    ('-1', "''", '1000000000000000000000000000000000000000…')
    """
    text = value if isinstance(value, str) and value.isprintable() and value.strip() else repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


MOST_GPUS: Final = 10_000_000
"""More than any company has; arrays with one entry a GPU still fit into memory."""
MOST_CLUSTER_GPUS: Final = 1_000_000
"""Of one cluster whose nodes are simulated one by one; of one job, queue or quota."""
MOST_ESTIMATED_GPUS: Final = 100_000
"""Of all that are known from jobs alone: they are booked one by one, and their number is as wrong as the largest job."""
MOST_JOB_GPU_HOURS: Final = 1e9
"""Of one job: a hundred thousand GPUs for more than a year. They are booked hour by hour."""
MOST_NODE_GPUS: Final = 10_000
"""Of one node, MIG instances counted one by one."""
MOST_COUNT: Final = 1e15  # of anything; exact as a floating-point number
MOST_AMOUNT: Final = 1e30  # of work or of what is measured: sums of these, and their products with prices, stay finite
MOST_RATE: Final = 1e12  # of one currency for another
MOST_YEARS: Final = 50

GPU_COUNT: Final = Limits(at_least=1, at_most=MOST_GPUS)
CLUSTER_GPUS: Final = Limits(at_least=1, at_most=MOST_CLUSTER_GPUS)
GPU_HOUR_PRICE: Final = Limits(at_least=0.0001, at_most=1e7)  # in any currency
COST: Final = Limits(at_least=0, at_most=1e12)
PAUSE_S: Final = Limits(at_least=0, at_most=S_PER_DAY)  # of a checkpoint, a restart, a notice
WAIT_H: Final = Limits(at_least=0.01, at_most=1e9)  # between failures or interruptions
TOKEN_COUNT: Final = Limits(at_least=1, at_most=1e8)  # of one request or sequence
LATENCY_S: Final = Limits(at_least=0.000_001, at_most=S_PER_DAY)
LATENCY_MS: Final = Limits(at_least=0.001, at_most=S_PER_DAY * MS_PER_S)
SEED: Final = Limits(at_least=0, at_most=1e15)  # exact as a floating-point number
GROWTH_PERCENT: Final = Limits(at_least=-99, at_most=1000)  # a year

MOST_INPUT_S: Final = 60
"""Of reading one database from outside. Text is read for as long as it is, because its rows cost their bytes."""
MOST_INPUT_BYTES: Final = 2 * BYTES_PER_GIB
"""Of cells read from one database, of what one packed database unpacks to, and of a table that is read whole."""
MOST_INPUT_ROWS: Final = 10_000_000
"""Of one database, and of a table that is read whole. A Parquet file read batch by batch may have more: see MOST_UNPACKED_TIMES."""
MOST_UNPACKED_TIMES: Final = 250
"""Its size that a packed file unpacks to: gzip reaches 1,030 with one byte repeated; logs and tables stay below 50."""
MOST_TEXT_BYTES: Final = 128 * BYTES_PER_MIB
"""Of a column that is read at once from a table that may have any number of rows."""
UNPACKED_FREELY_BYTES: Final = 64 * BYTES_PER_MIB
"""A file that unpacks to no more may have any ratio."""

EARLIEST_MS: Final = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp()) * MS_PER_S
"""No GPU was booked before: an earlier instant is a sentinel, such as 0, or a mistaken unit."""
LATEST_MS: Final = int(datetime(2101, 1, 1, tzinfo=UTC).timestamp()) * MS_PER_S - 1
"""A later instant is a mistaken unit."""
