"""What does a source promise? To turn what it reads into rows of the tables, in batches, and to say what it could not read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

import pyarrow as pa


@dataclass(frozen=True)
class Rows:
    """A batch of rows of one table. `data` holds any of its columns (see `loadfactor.tables`), with their types and units.

    Instants are int64 milliseconds since 1970 UTC. Columns left out are null. Keep a batch under about 100,000 rows, so
    that memory does not grow with the file. `where` names the file, for messages.
    """

    table: str
    data: pa.Table
    where: str = ""


@dataclass(frozen=True)
class Gap:
    """Something that was there and could not be read as a measurement, counted: `Gap("gpu.csv", "[N/A] in power.draw", 12)`."""

    where: str
    what: str
    count: int = 1


@dataclass(frozen=True)
class ReadOptions:
    """What the caller knows and the files do not say. Each source uses what concerns it."""

    timezone: tzinfo | None = None  # zone of timestamps that carry none
    step_s: float | None = None  # nominal step of a series, where it cannot be seen in the data
    node: str | None = None  # the machine a node-local log was taken on
    pool: str | None = None  # the pool its GPUs belong to
    at_ms: int | None = None  # when a snapshot without a timestamp was taken
    held_by: str | None = None  # the job that held every GPU of the log while it was recorded
    price_per_gpu_hour: float | None = None  # one flat price for every GPU, booked with whatever is imported


@dataclass(frozen=True)
class Source:
    """One kind of input. `paths` expands what the user named into the files that will be read, or raises SourceError."""

    name: str
    reads: str  # one line for `loadfactor import --help`
    files: Callable[[tuple[Path, ...]], tuple[Path, ...]]
    read: Callable[[tuple[Path, ...], ReadOptions], Iterator[Rows | Gap]]
    default_step_s: float | None = None  # the step of a series with a single sample
    watches: bool = False  # its devices and allocations end where its files do, not where anything ended
