"""Readings of accelerators as their tools print them, gathered as columns of text for the builder of samples."""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S
from loadfactor.sources.base import Decoder, Gap, Gaps, Input, ReadOptions, Rows, Source
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.nvidia_smi.cells import MISSING, TIMESTAMP, encode_cells
from loadfactor.sources.nvidia_smi.samples import SampleBuilder
from loadfactor.sources.parsing.steps import DevicesSeen
from loadfactor.sources.parsing.text_blocks import split_blocks

AT: Final = "at"
"""The key of a row for its time as seconds since 1970; local times are under `timestamp`."""
JSON_LIMIT_BYTES: Final = 64 * BYTES_PER_MIB
_DEFAULT_STEP_S: Final = 1.0  # a reading alone speaks for at most the second before it
_LEARN_FROM: Final = 1024
_HELD_ROWS: Final = 5000
_WHO: Final = ("uuid", "index", "bus_id")
_YEAR_2000_S: Final = 946_684_800
_YEAR_2100_S: Final = 4_102_444_800


@dataclass(frozen=True)
class Column:
    """A column of a tool: what it becomes (a name of `--query-gpu`, or a column of samples) and the unit where none is written."""

    name: str
    unit: str = ""

    def write(self, text: str) -> str:
        """The text with its unit.

        >>> Column("power_w", "W").write("61.5"), Column("power_w", "W").write("N/A")
        ('61.5 W', 'N/A')
        """
        return f"{text} {self.unit}" if self.unit and text[-1:].isdigit() else text


Row = dict[str, str]
"""Texts of one reading of one device, under our names."""
ReadRows = Callable[[Input, ReadOptions, Gaps], Iterator[Row]]


class ToolLog:
    """Rows of one log, handed on as samples a few thousand at once. Rows without a time follow each other from --at by --step."""

    def __init__(self, log: Input, options: ReadOptions, seen: DevicesSeen, gaps: Gaps, record: str) -> None:
        self._options, self._label, self._record = options, log.label, record
        self._builder = SampleBuilder(log, options, seen, gaps)
        self._turns: Counter[tuple[str, ...]] = Counter()
        self._held: list[tuple[Row, int | None]] = []

    def read(self, rows: Iterable[Row]) -> Iterator[Rows]:
        """All samples. SourceError where there is no reading, or where nothing says when they were taken."""
        found = False
        for row in rows:
            found = True
            self._held.append((row, self._find_instant(row)))
            if len(self._held) >= _HELD_ROWS:
                yield from self._flush()
        yield from self._flush()
        if not found:
            raise SourceError(f"{self._label}: no readings in it; record with {self._record}")

    def _find_instant(self, row: Row) -> int | None:
        """The instant of a row in ms since 1970, MISSING where it cannot be read; None where it has a local time."""
        if TIMESTAMP in row:
            return None
        if AT in row:
            return _read_epoch_ms(row.pop(AT))
        if self._options.at_ms is None:
            raise SourceError(
                f"{self._label}: it does not say when it was taken; say when it began with --at, or record with {self._record}"
            )
        who = tuple(row.get(name, "") for name in _WHO)
        turn, self._turns[who] = self._turns[who], self._turns[who] + 1
        if turn and self._options.step_s is None:
            raise SourceError(
                f"{self._label}: several readings of a device and no times; say how many seconds lie between them with --step"
            )
        return self._options.at_ms + round(turn * (self._options.step_s or 0) * MS_PER_S)

    def _flush(self) -> Iterator[Rows]:
        held, self._held = self._held, []
        for is_local in (True, False):
            rows = [(row, at_ms) for row, at_ms in held if (at_ms is None) is is_local]
            names = dict.fromkeys(name for row, _ in rows for name in row)
            columns = {
                name: encode_cells(name, None, pa.array([row.get(name, "") for row, _ in rows], pa.string()))
                for name in names
            }
            if rows:
                instants = None if is_local else np.array([at_ms for _, at_ms in rows], np.int64)
                if instants is not None:
                    self._builder.gaps.add(self._label, "row without a readable time", int((instants == MISSING).sum()))
                yield from self._builder.build(columns, 1, instants)


def _read_epoch_ms(text: str) -> int:
    """The instant of seconds since 1970, MISSING where they are none of the years 2000 to 2100.

    >>> _read_epoch_ms("1788256800.25"), _read_epoch_ms("1e99") == MISSING
    (1788256800250, True)
    """
    try:
        at_s = float(text)
    except ValueError:
        return int(MISSING)
    return round(at_s * MS_PER_S) if _YEAR_2000_S <= at_s < _YEAR_2100_S else int(MISSING)


def make_source(
    name: str, endings: tuple[str, ...], record: str, read_rows: ReadRows, local_times: bool = False
) -> Source:
    """The source of a tool, from what makes rows of one log; `record` is the command that gives the best log."""

    def decode(logs: Iterable[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
        seen, gaps = DevicesSeen(options, _DEFAULT_STEP_S, _LEARN_FROM), Gaps()
        for log in logs:
            yield from ToolLog(log, options, seen, gaps, record).read(read_rows(log, options, gaps))
            yield from gaps.drain()
        yield from seen.make_rows()

    decoder: Decoder = decode
    return Source(
        name,
        find_with(endings, f"logs of {name}", rotated=True),
        read_with(decoder),
        _DEFAULT_STEP_S,
        watches=True,
        uses=(*(("timezone",) if local_times else ()), "at", "step", "node", "pool", "job"),
    )


def list_lines(log: Input) -> Iterator[tuple[str, bool]]:
    """The lines of a log that are not empty, and whether each has its end; the last one may lack it, and be cut off."""
    for block in split_blocks(log):
        lines = block.data.decode().split("\n")
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield line, number < len(lines)


def begins_json(log: Input, is_heading: Callable[[list[str]], bool]) -> bool:
    """Whether JSON begins before any heading of CSV does; what a tool says before it reads is passed over."""
    for line, _ in list_lines(log):
        if line.lstrip().startswith(("{", "[")):
            return True
        if is_heading(split_cells(line)):
            return False
    return False


def split_cells(line: str) -> list[str]:
    """Cells of a line of CSV, trimmed; the line itself where its quotes are none.

    >>> split_cells("0, '61', \\"[1, 2]\\"")
    ['0', "'61'", '[1, 2]']
    """
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error:
        return [line]


def read_tables(
    log: Input,
    gaps: Gaps,
    is_heading: Callable[[list[str]], bool],
    split: Callable[[str], list[str]] = split_cells,
    split_heading: Callable[[str], list[str]] | None = None,
) -> Iterator[tuple[tuple[str, ...], Row]]:
    """The rows below headings, each with its heading; lines before the first and those that are no rows are counted."""
    names: tuple[str, ...] = ()
    for line, is_whole in list_lines(log):
        heading = (split_heading or split)(line)
        if is_heading(heading):
            names = tuple(heading)
            continue
        cells = split(line)
        if not names or len(cells) != len(names):
            gaps.add(log.label, "skipped: a line that is no row of its heading" if is_whole else "last line, cut off")
            continue
        if not is_whole:
            gaps.add(log.label, "last cell of a last line without an end: it may be cut off")
            cells[-1] = ""
        yield names, dict(zip(names, cells, strict=True))


def rename(row: Mapping[str, str], columns: Mapping[str, Column]) -> Row:
    """The cells that are kept, under our names; of several that become one, the first in `columns` with a number counts."""
    found: Row = {}
    for theirs, column in columns.items():
        if theirs in row and not any(c.isdigit() for c in found.get(column.name, "")):
            found[column.name] = column.write(row[theirs])
    return found


_ZONED_CTIME: Final = re.compile(r"(\w{3} \w{3} +\d+ \d\d:\d\d:\d\d(?:\.\d+)?) ([A-Z]{2,5}) (\d{4})")


def drop_zone_name(text: str) -> str:
    """A time as `date` prints it without the name of its zone; UTC alone is kept, in a form that says so.

    >>> drop_zone_name("Tue Sep  1 10:00:00 CEST 2026"), drop_zone_name("2026-09-01 10:00:00")
    ('Tue Sep  1 10:00:00 2026', '2026-09-01 10:00:00')
    """
    found = _ZONED_CTIME.fullmatch(text)
    return f"{found[1]} {found[3]}" if found else text
