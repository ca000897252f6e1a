"""One file of a bill in batches of cells, in bounded memory: CSV (or semicolons), lines of JSON, both gzipped or not, Parquet."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.base.spelling import spell_out_bytes
from loadfactor.sources.base import Gap
from loadfactor.sources.billing.amounts import AmountNotes, DayOrder, is_ambiguous, list_slashed
from loadfactor.sources.billing.decimal_commas import learn_decimals, write_points
from loadfactor.sources.billing.json_rows import is_array, split_json
from loadfactor.sources.files import FileChunks, check_plain
from loadfactor.sources.parquet_files import check_texts, open_parquet
from loadfactor.sources.parsing.cells import CellPosition, quote
from loadfactor.sources.parsing.csv_text import BATCH_ROWS, NO_END, TextBatch, WatchedEnd, split_csv

_PARQUET: Final = b"PAR1"
_IN_BRACKETS: Final = re.compile(r"\(([A-Za-z0-9]+)\)\s*$")
_PERIOD_STARTS: Final = ("billingperiodstart", "billingperiodstartdate", "billbillingperiodstartdate")


def fold_name(name: str) -> str:
    """A column's name without what differs between exports: case, separators, a translation before its brackets.

    >>> fold_name("lineItem/UnblendedCost"), fold_name("line_item_unblended_cost"), fold_name("Ressourcensatz (ResourceRate)")
    ('lineitemunblendedcost', 'lineitemunblendedcost', 'resourcerate')
    """
    inside = _IN_BRACKETS.search(name)
    return re.sub("[^a-z0-9]", "", (inside[1] if inside else name).lower())


@dataclass
class BillFile:
    """A file of a bill, and what is learnt of it while it is read."""

    path: Path
    currency: str | None = None  # given by the caller, else the first one the file names
    month_first: bool | None = None  # what its kind of export writes in 5/1/25 when nothing in the file shows it
    order: DayOrder = field(default_factory=DayOrder)
    notes: AmountNotes = field(default_factory=AmountNotes)
    counts: dict[str, int] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name of the file in messages."""
        return spell_out_bytes(str(self.path))

    def read(self) -> Iterator[TextBatch]:
        """Its rows in batches of at most 65,536; the cells of CSV and JSON are texts, those of Parquet what they are stored as.

        Raises SourceError: no file, neither CSV, JSON nor Parquet, truncated or damaged.
        """
        check_plain(self.path)
        chunks = FileChunks(self.path)
        with self.path.open("rb") as file:
            magic = file.read(len(_PARQUET))
        if magic == _PARQUET:
            yield from self._read_parquet()
            return
        start = next(iter(chunks), b"").lstrip(b"\xef\xbb\xbf \r\n\t")
        if is_array(start) or start.startswith(b"{"):
            for batch in split_json(chunks.as_input(), is_array(start), self.count):
                self.names = tuple(dict.fromkeys((*self.names, *batch.cells.schema.names)))
                yield batch
        else:
            yield from self._read_csv(chunks)
        for gap in chunks.note_growth():
            self.count(gap.what)

    def check_columns(self, what: str, needs: Sequence[tuple[str, ...]]) -> None:
        """SourceError naming the column of which (or of whose other names) there is none."""
        known = {fold_name(name) for name in self.names}
        for names in needs:
            if not known.intersection(map(fold_name, names)):
                near = get_close_matches(names[0], self.names, 1, 0.0)
                raise SourceError(
                    f"{self.label}: {what} needs the column {' or '.join(names)}; the nearest it has is "
                    f"{quote(near[0] if near else '')}; export it with that column, or name another source"
                )

    def count(self, what: str, times: int = 1) -> None:
        """Count something that is reported at the end."""
        if times:
            self.counts[what] = self.counts.get(what, 0) + times

    def note_gaps(self) -> Iterator[Gap]:
        """Everything counted, once the file is read."""
        for what, times in self.counts.items():
            yield Gap(self.label, what, times)
        if self.notes.doubles:
            what = "amounts stored as binary floating point; read as the shortest decimals that are them"
            yield Gap(self.label, what, self.notes.doubles)
        if self.notes.rounded:
            what = f"amounts with more than 18 decimals; rounded half-even to 18, which took away {self.notes.taken} in all"
            yield Gap(self.label, what, self.notes.rounded)

    def learn_days(self, name: str, cells: pa.Array, position: CellPosition) -> None:
        """Learn how days with slashes are written here, from these cells and, where they leave it open, the whole file.

        Raises SourceError when they are mixed, or could be either.
        """
        days = list_slashed(cells)
        self.order.learn(self.label, days, name in _PERIOD_STARTS)
        if self.order.month_first is not None or not any(map(is_ambiguous, days)):
            return
        for batch in BillFile(self.path).read():
            for column, written in zip(batch.cells.columns, batch.cells.schema.names, strict=True):
                if pa.types.is_string(column.type):
                    self.order.learn(self.label, list_slashed(column), fold_name(written) in _PERIOD_STARTS)
            if self.order.month_first is not None:
                return
        self.order.month_first = self.month_first
        day = next(filter(is_ambiguous, days))
        if self.month_first is None:
            index = pc.index(cells, day).as_py()
            raise position.refuse(
                index, day, "could be two days, and nothing in the file shows which; write 2025-05-01"
            )
        self.count(f"days such as {day} are read with the month first, as this export writes them")

    def _read_csv(self, chunks: FileChunks) -> Iterator[TextBatch]:
        watched, mark = WatchedEnd(chunks.as_input()), ";" if _has_semicolons(chunks) else ","
        has_commas = mark == ";" and learn_decimals(self.label, split_csv(chunks.as_input(), mark)[1])
        self.names, batches = split_csv(watched.input, mark)
        for batch in batches:
            yield write_points(batch) if has_commas else batch
        if not watched.has_end:
            self.count(NO_END)

    def _read_parquet(self) -> Iterator[TextBatch]:
        try:
            with pa.OSFile(os.fsencode(self.path)) as stored, open_parquet(stored, self.label) as file:
                nothing = pa.RecordBatch.from_pylist([], schema=file.schema_arrow)
                self.names = tuple(name for name, _ in _flatten(nothing))
                row = 1
                for batch in file.iter_batches(batch_size=BATCH_ROWS, use_threads=False):
                    check_texts(self.label, batch, row)
                    flat = dict(_flatten(batch))
                    yield TextBatch(pa.RecordBatch.from_arrays(list(flat.values()), names=list(flat)), row)
                    row += batch.num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise SourceError(
                f"{self.label} is not a whole Parquet file ({reason[:120]}); export or copy it again"
            ) from None


def _has_semicolons(chunks: FileChunks) -> bool:
    """True where the first line is one of several names that semicolons separate."""
    line = next(iter(chunks), b"").lstrip(b"\xef\xbb\xbf\r\n").partition(b"\n")[0]
    return b";" in line and b"," not in line


def _flatten(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        yield from _flatten_column(name, column)


def _flatten_column(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if pa.types.is_dictionary(column.type):
        yield name, column.dictionary_decode()
    elif pa.types.is_struct(column.type):
        for part, inner in zip(column.type, column.flatten(), strict=True):
            yield from _flatten_column(f"{name}.{part.name}", inner)
    else:
        yield name, column
