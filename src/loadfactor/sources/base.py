"""The contract of a source: what decoders take and yield, and what a reader of files promises.

A decoder turns bytes into `Rows` and `Gap`s. It takes `Input`s and `ReadOptions`, opens no file and no socket, reads no clock and
knows nothing of the store: live collection hands it the answers of exporters, a reader of files the bytes of files. A reader finds,
opens and unpacks the files that the user named. A `Source` is one kind of input: a name, a reader and, behind it, a decoder.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import Final

import pyarrow as pa


@dataclass(frozen=True)
class Rows:
    """A batch of rows of one table. `data` holds any of its columns (see `loadfactor.tables.schema`), with their types and units.

    Instants are int64 milliseconds since 1970 UTC. Columns left out are null. Keep a batch under about 100,000 rows, so
    that memory does not grow with the input. `where` is the label of the input, for messages. `inferred`: nobody listed these
    rows, they are what others mention; of what the books know already they replace nothing.
    """

    table: str
    data: pa.Table
    where: str = ""
    inferred: bool = False


@dataclass(frozen=True)
class Gap:
    """Something that was there and could not be read as a measurement, counted: `Gap("gpu.csv", "[N/A] in power.draw", 12)`."""

    where: str
    what: str
    count: int = 1
    reason: str = ""
    """One of SKIPPED, where it was a value that its exporter should not have given; what nobody measured has none."""
    example: str = ""


SKIPPED: Final[Mapping[str, str]] = {
    "no_name": "without a name",
    "no_label_name": "with a label that has no name",
    "label_twice": "with a label twice",
    "many_labels": "with more labels than are read",
    "long_labels": "with longer labels than are read",
    "late_labels": "with labels behind the samples",
    "not_utf8": "with a label that is not UTF-8",
    "no_instant": "at no instant of the years 2000 to 2100 (milliseconds since 1970)",
    "ahead": "ahead of this machine's clock, with no room to hold more of them",
    "not_finite": "NaN or infinite",
    "impossible": "that cannot be true",
    "unreadable": "of lines or answers that cannot be read",
    "histogram": "native histograms, which nothing here reads",
    "exemplar": "exemplars, which nothing here reads",
}
"""Reasons why samples that came are not kept, as metrics name them, and in words behind "samples"."""


@dataclass(frozen=True)
class Skip:
    """Samples that came and are not kept: one of SKIPPED, an example, how many, and whether a decoder reads such ones."""

    reason: str
    example: str
    count: int
    is_read: bool


@dataclass(frozen=True)
class Input:
    """Bytes to decode, in pieces of any size, and what to call them.

    `chunks` may be gone through more than once: a list of bytes, or a file that is opened again.
    """

    label: str  # in messages and gaps: a path, or an address such as node-7:9400
    chunks: Iterable[bytes]
    name: str = ""  # the file's own name; it says the format or the machine where nothing else does


@dataclass(frozen=True, order=True)
class DeviceEvent:
    """A row of `device_events`, at ms since 1970 UTC; `count` is empty where it is one."""

    at_ms: int
    device_id: str
    kind: str
    detail: str
    count: int | None = None


@dataclass(frozen=True)
class ReadOptions:
    """Facts that the caller knows and the data does not hold. Each source uses what concerns it."""

    timezone: tzinfo | None = None  # zone of times that carry none
    step_s: float | None = None  # nominal step of a series, where the data does not show it
    node: str | None = None  # the machine a log was taken on
    pool: str | None = None  # the pool its GPUs belong to
    at_ms: int | None = None  # when a snapshot without a time was taken
    held_by: str | None = (
        None  # the job that held every GPU of a log while it was recorded, or made what the log counts
    )
    price_per_gpu_hour: float | None = None  # one price for every GPU and all time, in the store's reporting currency
    currency: str | None = field(default=None, repr=False)  # of a bill whose file names none
    begun_ms: int | None = field(default=None, repr=False)  # when a run began whose log says no time
    gpus: int | None = field(default=None, repr=False)  # how many GPUs it ran on
    region: str | None = field(default=None, repr=False)  # whose prices of a cloud's price sheet count
    instance_type: str | None = field(default=None, repr=False)  # the type of machine whose prices of it count
    events_before: tuple[DeviceEvent, ...] = field(default=(), repr=False)
    """Errors that the books know already; no part of what identifies an import."""


Decoder = Callable[[Sequence[Input], ReadOptions], Iterator[Rows | Gap]]
FindFiles = Callable[[tuple[Path, ...]], tuple[Path, ...]]
ReadFiles = Callable[[tuple[Path, ...], ReadOptions], Iterator[Rows | Gap]]


@dataclass(frozen=True)
class Source:
    """One kind of input. `files` turns the paths that the user named into the files to read, or raises SourceError."""

    name: str  # as in `SOURCES`
    files: FindFiles
    read: ReadFiles
    default_step_s: float | None = None  # the step of a series with a single sample
    grows: bool = False  # a longer file of the same job takes the place of what was imported of it before
    watches: bool = False  # its devices and allocations end where its files do, not where anything ended
    uses: tuple[str, ...] = ()
    """Options of `loadfactor import` that change what it reads, as ImportRequest calls them; others are refused."""


_KINDS_MAX: Final = 200  # an input of garbage must not make a list as long as itself


class Gaps:
    """Counts gaps; `drain` hands them over and starts again."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, where: str, what: str, count: int = 1, reason: str = "") -> None:
        """`count` more of this kind; nothing when it is 0. `reason` as of a Gap."""
        if count:
            key = (where, what, reason)
            if key not in self._counts and len(self._counts) >= _KINDS_MAX:
                key = (where, "of other kinds", reason)
            self._counts[key] += int(count)

    def drain(self) -> Iterator[Gap]:
        """Every kind once, in the order first seen."""
        counts, self._counts = self._counts, Counter()
        for (where, what, reason), count in counts.items():
            yield Gap(where, what, count, reason)
