"""The reader of bills: finds files and folders of parts, and hands each that counts, batch by batch, to the decoder of its kind."""

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Gap, ReadFiles, ReadOptions, Rows, Source
from loadfactor.sources.billing.bill_batch import BillBatch
from loadfactor.sources.billing.bill_file import BillFile
from loadfactor.sources.billing.tags import add_holders
from loadfactor.sources.files import check_plain
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.schema import CURRENCY

_PERIOD: Final = re.compile(r"[0-9]{8}-[0-9]{8}|billing_period=.+", re.IGNORECASE)
_BY_TIME: Final = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}.*")
_ONE_A_RUN: Final = re.compile(r"(.*_)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}((?:\.[a-z]+)+)", re.IGNORECASE)


def find_replaced(paths: Iterable[Path]) -> dict[Path, str]:
    """Files of deliveries that a later one of the same period replaces, and the note on each.

    Raises SourceError when nothing tells which of two deliveries is the later one.
    """
    periods: dict[tuple[Path, str], dict[Path, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        period = next((folder for folder in path.parents if _PERIOD.fullmatch(folder.name)), None)
        if period is None:
            continue
        delivery = period / path.relative_to(period).parts[0]
        one = _ONE_A_RUN.fullmatch(path.name)
        if delivery != path:
            periods[period, ""][delivery].append(path)
        elif one is not None:
            periods[period, one[1]][delivery].append(path)
    replaced: dict[Path, str] = {}
    for (period, _), deliveries in periods.items():
        if len(deliveries) > 1:
            last = _find_last(period, deliveries)
            for delivery, files in deliveries.items():
                if delivery != last:
                    replaced |= dict.fromkeys(files, f"an earlier delivery of its period; {last} replaces it")
    return replaced


def _find_last(period: Path, deliveries: dict[Path, list[Path]]) -> Path:
    """The delivery that the manifest names, else the last by the times in their names, else by when they were written."""
    for manifest in sorted(period.glob("*anifest.json")):
        named = period / str(_read_manifest(manifest).get("assemblyId", ""))
        if named in deliveries:
            return named
    if all(_BY_TIME.fullmatch(delivery.name) for delivery in deliveries):
        return max(deliveries)
    written = {d: max(f.stat().st_mtime_ns for f in files) for d, files in deliveries.items()}
    last = max(written, key=written.__getitem__)
    same = [d for d, at in written.items() if at == written[last] and d != last]
    if same:
        raise SourceError(
            f"{last} and {same[0]} deliver the same period, and nothing tells which is later; name one of them"
        )
    return last


def _read_manifest(path: Path) -> dict[str, object]:
    if path.stat().st_size > BYTES_PER_MIB:
        return {}
    try:
        found = json.loads(path.read_text())
    except (ValueError, OSError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


ENDINGS: Final = (".csv", ".csv.gz", ".gz", ".parquet", ".jsonl", ".ndjson")
"""How the names of files of bills end, in a folder."""
_HIDDEN: Final = (".", "_")


class BillDecoder(ABC):
    """Rows of one kind of bill as rows of charges."""

    what: str
    """The kind of bill with its article, for messages."""
    needs: tuple[tuple[str, ...], ...]
    """Of each group of names one column must be present."""
    month_first: bool | None = None
    """Whether 5/1/25 begins with the month, where its maker documents it."""

    def open(self, file: BillFile) -> None:  # noqa: B027 - most kinds learn nothing from the names of columns
        """A file begins; its names are known."""

    @abstractmethod
    def decode(self, batch: BillBatch) -> pa.Table:
        """These rows as charges. SourceError names file, row, column and value of what cannot be read."""

    def finish(self) -> Iterator[pa.Table]:
        """Charges that follow from all rows together."""
        yield from ()


def make_source(name: str, decoder: Callable[[], BillDecoder]) -> Source:
    """The source of one kind of bill."""
    return Source(name, find_bills, read_bills(decoder), uses=("currency",))


def find_bills(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files as named, and those of bills in folders, at any depth, sorted.

    Raises SourceError: no such path, no bill in a folder.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and _is_part(p, path))
            if not inside:
                raise SourceError(f"{path} holds no bill ({', '.join(ENDINGS)}); name the files themselves")
            found += inside
        else:
            check_plain(path)
            found.append(path)
    return tuple(dict.fromkeys(found))


def read_bills(start: Callable[[], BillDecoder]) -> ReadFiles:
    """A reader that hands every file to a decoder, file by file; a copy of another file is read once."""

    def read(paths: tuple[Path, ...], options: ReadOptions) -> Iterator[Rows | Gap]:
        if options.currency is not None and not re.match(CURRENCY, options.currency):
            raise SourceError(f"{options.currency!r} is no currency; write three capital letters, like --currency USD")
        decoder = start()
        passed_over = find_replaced(paths)
        passed_over |= _find_copies([path for path in paths if path not in passed_over])
        for path in paths:
            if path in passed_over:
                yield Gap(str(path), passed_over[path])
                continue
            yield from _read_file(BillFile(path, options.currency, decoder.month_first), decoder)
        for table in decoder.finish():
            yield Rows(CHARGES.name, table)

    return read


def _read_file(file: BillFile, decoder: BillDecoder) -> Iterator[Rows | Gap]:
    first = True
    for cells in file.read():
        if first:
            file.check_columns(decoder.what, decoder.needs)
            decoder.open(file)
            first = False
        table = add_holders(decoder.decode(BillBatch(file, cells.cells, cells.first_row)))
        file.count("rows without a BilledCost; they add nothing", table["BilledCost"].null_count)
        unsaid = pc.and_(pc.is_valid(table["BilledCost"]), pc.is_null(table["EffectiveCost"]))
        file.count("rows whose effective cost is not said; it stays unknown", pc.sum(unsaid).as_py() or 0)
        lacking = pc.index(pc.is_null(table["ChargePeriodStart"]), value=True).as_py()
        if lacking >= 0:
            raise SourceError(
                f"{file.label}, row {cells.first_row + lacking}: nothing says when it was charged; fill in the start of its period"
            )
        yield Rows(CHARGES.name, table, file.label)
    if first:
        file.check_columns(decoder.what, decoder.needs)
        file.count("a header and no rows")
    yield from file.note_gaps()


def _is_part(path: Path, folder: Path) -> bool:
    hidden = any(part.startswith(_HIDDEN) for part in path.relative_to(folder).parts)
    return path.name.lower().endswith(ENDINGS) and not hidden


def _find_copies(paths: Sequence[Path]) -> dict[Path, str]:
    """Files with the bytes of an earlier one, and why they are passed over. Only those of one size are read for it."""
    by_size: dict[int, list[Path]] = {}
    for path in paths:
        by_size.setdefault(path.stat().st_size, []).append(path)
    copies: dict[Path, str] = {}
    for same in by_size.values():
        seen: dict[str, Path] = {}
        for path in same if len(same) > 1 else ():
            with path.open("rb") as file:
                first = seen.setdefault(hashlib.file_digest(file, "sha256").hexdigest(), path)
            if first != path:
                copies[path] = f"the same bytes as {first}; read once"
    return copies
