"""Logs of `nvidia-smi --query-gpu=… --format=csv`: any fields, any order, units wherever they stand."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.csv

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Rows
from loadfactor.sources.nvidia_smi.cells import TIMESTAMP, Cells, encode_cells
from loadfactor.sources.nvidia_smi.columns import MEASURES, OTHER_QUERIES, QUERY_NAMES
from loadfactor.sources.nvidia_smi.samples import SampleBuilder

_CELL: Final = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9_.]*)\s*(?:\[(?P<unit>[^\]]*)\])?")
_DATA: Final = re.compile(rb"\d{4}/\d\d/\d\d \d\d:\d\d|GPU-[0-9a-f]{8}|\d (?:%|MiB|W|MHz)\s*(?:,|$)")
_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
_WHOLE: Final = re.compile(  # ends of a cell that cannot be the beginning of a longer one
    rb"(?:\d (?:%|MiB|W|MHz)|\]|GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d\d:\d\d:\d\d\.\d{3})\s*$"
)
_NAMES: Final = "|".join(sorted((re.escape(name) for name in QUERY_NAMES), key=len, reverse=True))
_BEHIND: Final = re.compile(
    rf"(?:{_NAMES})(?:\s*\[[^\]]*\])?(?:\s*,\s*{_CELL.pattern.replace('?P<name>', '?:').replace('?P<unit>', '?:')})+$".encode()
)
_VALUES: Final = frozenset(name for measure in MEASURES for name in measure.query) | {"reasons"}


@dataclass(frozen=True)
class Heading:
    """The line above the rows: each column's name there and its unit, if the heading has one."""

    names: tuple[str, ...]
    units: tuple[str | None, ...]

    @property
    def kept(self) -> dict[str, int]:
        """Our names of columns, and their positions; the first where one stands twice."""
        found: dict[str, int] = {}
        for i, name in enumerate(self.names):
            ours = QUERY_NAMES.get(name.lower())
            if ours is not None:
                found.setdefault(ours, i)
        return found

    @property
    def other(self) -> str | None:
        """The things listed, when this heads another query than that of GPUs."""
        return next((OTHER_QUERIES[name] for name in self.names if name in OTHER_QUERIES), None)


def parse_heading(line: bytes) -> Heading | None:
    """The heading in this line, or None when it is none.

    >>> parse_heading(b"index, utilization.gpu [%]")
    Heading(names=('index', 'utilization.gpu'), units=(None, '%'))
    >>> parse_heading(b"0, 97 %") is None
    True
    """
    if not line[:1].isalpha() and line[:1] != b'"':
        return None
    cells = [_CELL.fullmatch(cell.strip().strip('"')) for cell in line.decode(errors="replace").split(",")]
    if not all(cells):
        return None
    found = Heading(tuple(c["name"] for c in cells if c), tuple(c["unit"] for c in cells if c))
    return found if found.kept or found.other else None


def find_heading(line: bytes) -> int:
    """Where a heading with times begins that stands behind the beginning of a row, or 0.

    >>> find_heading(b"2024/01/31 12:34:56.789, 0, 9timestamp, index, utilization.gpu [%]")
    29
    """
    found = _BEHIND.search(line.rstrip()) if b"timestamp" in line else None
    return found.start() if found is not None and parse_heading(line[found.start() :].strip()) is not None else 0


def is_headless(line: bytes) -> bool:
    """True for a row of a query log, where its heading should stand."""
    return b"," in line and _DATA.search(line) is not None


class QueryLog:
    """One heading and the rows below it."""

    def __init__(self, head: Heading, line: bytes, builder: SampleBuilder, alone: bool) -> None:
        self.head = head
        self.line = line.strip()
        self._builder = builder
        label, gaps, kept = builder.label, builder.gaps, head.kept
        gaps.add(label, "skipped: a column that is not kept", len(head.names) - len(kept))
        self._measured = any(name in _VALUES or name.startswith("reason:") for name in kept)
        if not self._measured:
            if alone:
                raise SourceError(
                    f"{label}: none of its columns is a measurement ({', '.join(head.names)[:60]}); "
                    "ask for utilization.gpu, memory.used, power.draw, …"
                )
            gaps.add(label, "query without a measured column")

    def read(self, data: bytes, line: int) -> Iterator[Rows]:
        """The rows of whole lines; a line that is no row of this heading becomes a gap."""
        if self.line in data:  # scripts that call the tool in a loop repeat the heading every time
            data = b"".join(text + b"\n" for text in data.split(b"\n") if text.strip() != self.line)
        if not self._measured or not data or data.isspace():
            return
        columns, bad = self._split_cells(data)
        self._builder.gaps.add(self._builder.label, "skipped: a line that is no row of its heading", bad)
        if columns:
            yield from self._builder.build(columns, line)

    def _split_cells(self, data: bytes) -> tuple[dict[str, Cells], int]:
        """The columns that are kept, none where there are no rows, and how many lines are no rows."""
        names = [str(i) for i in range(len(self.head.names))]
        kept = {ours: str(i) for ours, i in self.head.kept.items()}
        types = {at: pa.string() if ours == TIMESTAMP else _DICTIONARY for ours, at in kept.items()}  # no two are alike
        bad = 0

        def skip(_row: object) -> str:
            nonlocal bad
            bad += 1
            return "skip"

        table = pa.csv.read_csv(
            io.BytesIO(data),
            read_options=pa.csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
            parse_options=pa.csv.ParseOptions(quote_char=False, invalid_row_handler=skip),
            convert_options=pa.csv.ConvertOptions(
                column_types=types, include_columns=list(kept.values()), null_values=[]
            ),
        )
        if not table.num_rows:
            return {}, bad
        columns = {
            ours: encode_cells(self.head.names[int(at)], self.head.units[int(at)], table.column(at))
            for ours, at in kept.items()
        }
        return columns, bad

    def read_last(self, line: bytes, number: int) -> Iterator[Rows]:
        """The last line of a log that ends without a line end: it may be cut, so its last cell counts only if it is whole."""
        *before, cell = line.split(b",")
        if len(before) + 1 != len(self.head.names):
            self._builder.gaps.add(self._builder.label, "last line, cut off")
            return
        if _WHOLE.search(cell) is None:
            self._builder.gaps.add(self._builder.label, "last cell of a last line without an end: it may be cut off")
            line = b",".join([*before, b""])
        yield from self.read(line + b"\n", number)
