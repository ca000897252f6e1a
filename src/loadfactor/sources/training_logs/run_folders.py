"""Runs as loggers keep them in files of their own: W&B's `run-….wandb`, MLflow's folder of metrics, and tables in CSV.

W&B's file is LevelDB's log of protobuf records, so that its own package, which is 60 MB with a service, is not needed: sources
wandb/sdk/internal/datastore.py and wandb/proto/wandb_internal.proto (wandb/wandb), doc/log_format.md (google/leveldb).
MLflow: mlflow/store/tracking/file_store.py, a file a metric with lines of `timestamp value step`. CSV: Lightning's CSVLogger.
"""

import csv
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import MOST_INPUT_BYTES
from loadfactor.base.units import BYTES_PER_GIB, BYTES_PER_KIB, BYTES_PER_MIB, MS_PER_S
from loadfactor.sources.base import Gaps, Input
from loadfactor.sources.databases import Database
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.times import SECONDS_BELOW
from loadfactor.sources.training_logs.event_files import split_fields
from loadfactor.sources.training_logs.families import read_number
from loadfactor.sources.training_logs.iteration import RunLog
from loadfactor.sources.training_logs.scalars import STEP, Scalars, is_read, make_run

WANDB: Final = b":W&B"
_OPENING: Final = 7  # :W&B, a magic number and a version
_BLOCK: Final = 32 * BYTES_PER_KIB
_HEAD: Final = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_LONGEST: Final = 16 * BYTES_PER_MIB  # of a record; larger ones hold pictures
_HISTORY, _ITEM, _KEY, _NESTED, _JSON, _NUMBER, _AT = 2, 1, 1, 2, 16, 1, 2  # of Record, HistoryRecord and HistoryItem
_LONGEST_NUMBER: Final = 40  # in JSON; what is longer is a table or a picture
_MOST_STEP: Final = 10**12


def read_wandb(source: Input, gaps: Gaps) -> RunLog:
    """The run of a `run-….wandb`: rows of its history, by their global step where they have one."""
    scalars = Scalars()
    damaged = 0
    for record in _split_records(source.chunks):
        if record is None:
            damaged += 1
            continue
        for number, history in split_fields(record):
            if number == _HISTORY and isinstance(history, bytes):
                _read_history(history, scalars)
    gaps.add(source.label, "damaged or very large record of W&B; left out", damaged)
    return make_run(source.label, "W&B", scalars)


def _split_records(chunks: Iterable[bytes]) -> Iterator[bytes | None]:
    """The data of every record, None for one that is damaged or too large. A last one that was being written is left out."""
    whole, is_whole = bytearray(), True
    for block in _split_blocks(chunks):
        at = 0
        while len(block) - at >= _HEAD.size:
            check, length, kind = _HEAD.unpack_from(block, at)
            data = block[at + _HEAD.size : at + _HEAD.size + length]
            at += _HEAD.size + length
            if kind == 0:
                break  # the rest of the block is empty
            if len(data) < length:
                break
            if kind in (_FULL, _FIRST):
                whole, is_whole = bytearray(), True
            is_whole &= zlib.crc32(data, zlib.crc32(bytes([kind]))) == check and len(whole) + length <= _LONGEST
            if is_whole:
                whole += data
            if kind in (_FULL, _LAST):
                yield bytes(whole) if is_whole else None
            elif kind not in (_FIRST, _MIDDLE):
                yield None
                break


def _split_blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks of 32 KiB; the first is shorter by what the file begins with."""
    waiting, size = bytearray(), _BLOCK - _OPENING
    is_first = True
    for chunk in chunks:
        waiting += chunk
        if is_first and len(waiting) >= _OPENING:
            del waiting[:_OPENING]
            is_first = False
        while not is_first and len(waiting) >= size:
            yield bytes(waiting[:size])
            del waiting[:size]
            size = _BLOCK
    yield bytes(waiting)


def _read_history(message: bytes, scalars: Scalars) -> None:
    values: dict[str, float] = {}
    row = 0
    for number, found in split_fields(message):
        if not isinstance(found, bytes):
            continue
        if number == _AT:
            row = next((int(n) for field, n in split_fields(found) if field == _NUMBER and isinstance(n, int)), 0)
        elif number == _ITEM:
            names, text = [], ""
            for field, part in split_fields(found):
                if field in (_KEY, _NESTED) and isinstance(part, bytes):
                    names.append(part.decode(errors="replace"))
                elif field == _JSON and isinstance(part, bytes) and len(part) <= _LONGEST_NUMBER:
                    text = part.decode(errors="replace")
            if (value := _read_json_number(text)) is not None:
                values["/".join(filter(None, names))] = value
    at_s = values.pop("_timestamp", 0.0)
    row = int(values.pop("_step", row))
    steps = [value for tag, value in values.items() if STEP.search(tag)]
    step = int(steps[0]) if steps else row
    at_ms = round(at_s * MS_PER_S) if 0 < at_s < SECONDS_BELOW else None
    for tag, value in values.items() if 0 <= step < _MOST_STEP else ():
        scalars.add(tag, step, at_ms, value)


def _read_json_number(text: str) -> float | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        return None
    return float(value)


def read_mlflow(metrics: Sequence[tuple[str, Input]], gaps: Gaps) -> RunLog:
    """The run of MLflow's folder: the files of its metrics with their names."""
    scalars = Scalars()
    where = ""
    for tag, source in metrics:
        where = where or source.label
        unreadable = 0
        for line in _split_lines(piece.decode(errors="replace") for piece in source.chunks):
            parts = line.split()
            if not parts:
                continue
            value = read_number(parts[1]) if len(parts) in (2, 3) else None
            at, step = parts[0], parts[2] if len(parts) > 2 else "0"
            if not (at.isdecimal() and step.isdecimal() and len(at) <= 13 and len(step) <= 12):
                unreadable += 1
            elif value is not None:
                scalars.add(tag, int(step), int(at), value)
        gaps.add(source.label, "line that is no `timestamp value step`", unreadable)
    return make_run(where, "MLflow", scalars.ordered())


_RUNS: Final = (
    "SELECT run_uuid, name FROM runs WHERE coalesce(lifecycle_stage, 'active') <> 'deleted'"
    " AND run_uuid IN (SELECT run_uuid FROM metrics) ORDER BY start_time DESC"
)
_METRICS_OF_RUN: Final = (
    "SELECT key, step, timestamp, value FROM metrics WHERE run_uuid = ? AND NOT coalesce(is_nan, 0)"
    " ORDER BY timestamp, step, key"
)
_TABLES: Final = ("runs", "metrics")
_SHOWN_RUNS: Final = 5


def read_mlflow_database(source: Input, job: str | None) -> RunLog:
    """The run of an `mlflow.db` that is called as the `job`, by name or id, or the only one; deleted ones do not count.

    SourceError where several runs are left, it is no such database, or over its budget.
    """
    scalars = Scalars()
    with TemporaryDirectory() as folder:  # an import may be of many files, and of one that is a name in an archive
        path = Path(folder, "mlflow.db")
        _save(source, path)
        with closing(Database(source.label, path)) as database:
            if lacking := [name for name in _TABLES if name not in database.names]:
                raise SourceError(
                    f"{source.label} has no table {lacking[0]}, so it is no database of MLflow (a view is no table); save its runs"
                    " again"
                )
            runs = [(str(run_id), str(name or run_id)) for run_id, name in database.read(_RUNS)]
            runs = [run for run in runs if job in run] or runs
            for key, step, at_ms, value in database.read(_METRICS_OF_RUN, runs[0][:1]) if len(runs) == 1 else ():
                if (
                    isinstance(step, int)
                    and isinstance(at_ms, int)
                    and isinstance(value, int | float)
                    and 0 <= step < _MOST_STEP
                    and 0 < at_ms < SECONDS_BELOW * MS_PER_S
                ):
                    scalars.add(str(key), step, at_ms, float(value))
    if len(runs) > 1:
        shown = ", ".join(quote(name) for _, name in runs[:_SHOWN_RUNS]) + (", …" if len(runs) > _SHOWN_RUNS else "")
        raise SourceError(
            f"{source.label} holds {len(runs):,} runs of MLflow ({shown}), and an import is of one: give --job the name or id of"
            " the run, or delete the others from a copy"
        )
    return make_run(source.label, "MLflow", scalars)


def _save(source: Input, path: Path) -> None:
    """Write a database to a file. Raises SourceError if it is larger than is taken."""
    size = 0
    with path.open("wb") as file:
        for piece in source.chunks:
            size += len(piece)
            if size > MOST_INPUT_BYTES:
                raise SourceError(
                    f"{source.label} is larger than {MOST_INPUT_BYTES / BYTES_PER_GIB:g} GiB; save its runs in several files"
                )
            file.write(piece)


_THROUGHPUT: Final = {"time", "batches", "samples"}
"""Columns of Lightning's ThroughputMonitor; with `lengths` and others, its own name and a bar before them or not."""


def is_table(begin: bytes) -> bool:
    """Whether a file begins with the header of a CSV with a column of steps, and more columns."""
    columns = _split_header(begin)
    return len(columns) > 1 and any(name == "step" or STEP.search(name) for name in columns)


def _split_header(begin: bytes) -> list[str]:
    line = begin.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].strip()
    try:
        return next(csv.reader([line.decode()], delimiter=_find_delimiter(line)), [])
    except (UnicodeDecodeError, csv.Error):
        return []


def _find_delimiter(line: bytes) -> str:
    return max((",", ";", "\t"), key=lambda mark: line.count(mark.encode()))


def read_csv_metrics(source: Input, gaps: Gaps) -> RunLog:
    """The run of a CSV: a row an event, a column a metric. Lightning numbers steps from 0, LitGPT's rows count themselves."""
    pieces = (piece.decode("utf-8", "replace") for piece in source.chunks)
    lines = _split_lines(pieces)
    header = next(lines, "").removeprefix("\ufeff")
    rows = csv.reader(chain([header], lines), delimiter=_find_delimiter(header.encode()))
    columns: list[str] = []
    scalars = Scalars()
    odd = 0
    try:
        for row in rows:
            if not columns:
                columns = [
                    f"train|{name}" if set(row) >= _THROUGHPUT and name in (*_THROUGHPUT, "lengths") else name
                    for name in row
                ]
                place = next((i for i, name in enumerate(columns) if name == "step" or STEP.search(name)), None)
                offset = 0 if place is None or "iter" in columns else 1
                continue
            step = read_number(row[place]) if place is not None and place < len(row) else None
            if len(row) != len(columns) or step is None or not 0 <= step < _MOST_STEP:
                odd += bool(row)
                continue
            for name, cell in zip(columns, row, strict=True):
                if cell and is_read(name) and (value := read_number(cell)) is not None:
                    scalars.add(name, int(step) + offset, None, value)
    except csv.Error:
        odd += 1
    gaps.add(source.label, "row without a step, or of another length than the header", odd)
    return make_run(source.label, "CSV", scalars)


def _split_lines(pieces: Iterable[str]) -> Iterator[str]:
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + piece).replace("\r\n", "\n").split("\n")
        rest = rest[-_LONGEST:]
        yield from lines
    if rest:
        yield rest
