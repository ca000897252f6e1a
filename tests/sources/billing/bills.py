"""What the tests of bills share: what a bill decodes to, the decimal sum of a file, and files to write."""

import csv
import gzip
import io
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.tables.charges import CHARGES

NO_TEXT = ("", "NULL", "null")


@dataclass(frozen=True)
class Bill:
    """The charges of an import, and what was said beside them."""

    charges: pa.Table
    gaps: tuple[Gap, ...]

    def total(self, name: str) -> Decimal:
        """The exact sum of one column of money; unknown cells add nothing."""
        return sum((value for value in self.column(name) if value is not None), Decimal(0))

    def column(self, name: str) -> list:
        return self.charges[name].to_pylist()

    def rows(self) -> list[dict[str, object]]:
        """The rows, without cells that say nothing."""
        return [{k: v for k, v in row.items() if v is not None} for row in self.charges.to_pylist()]


def read_bill(source: Source, *paths: Path, currency: str | None = None) -> Bill:
    """The charges of these paths; every batch has the schema of the table and a bounded size."""
    tables, gaps = [], []
    for item in source.read(source.files(paths), ReadOptions(currency=currency)):
        if isinstance(item, Rows):
            assert item.table == "charges"
            assert item.data.schema == CHARGES.schema
            assert item.data.num_rows <= 2 * 65_536
            tables.append(item.data)
        else:
            gaps.append(item)
    return Bill(pa.concat_tables(tables) if tables else CHARGES.schema.empty_table(), tuple(gaps))


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV, gzipped or not, as Python's own reader has them."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text)))


def sum_column(path: Path, name: str) -> Decimal:
    """The sum of a column of a CSV by Python's decimals: $, commas and spaces taken away."""
    cells = (row[name] for row in read_rows(path))
    return sum((Decimal(c.strip().strip("$").replace(",", "")) for c in cells if c not in NO_TEXT), Decimal(0))


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    """These rows as a CSV, their columns those of the first row; gzipped where the name says so."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    data = text.getvalue().encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path
