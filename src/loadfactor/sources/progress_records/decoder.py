"""Decoder of progress files: all of a folder together, so that what restarts lost is seen over all processes of a run."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.parsing.text_blocks import split_blocks
from loadfactor.sources.progress_records.lineage import Row, list_rows
from loadfactor.sources.progress_records.process import ProcessProgress
from loadfactor.sources.progress_records.records import Begin, read_line, read_record
from loadfactor.tables.schema import table
from loadfactor.tables.work import SECTION_KINDS

BATCH_ROWS = 50_000
BY_EPOCH = "runs that number their steps anew in every epoch: what their restarts lost is not known"


def decode_progress(files: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """Rows of `progress` and `job_sections` of these files. Lines that cannot be read are gaps; a kill may leave half of one."""
    del options
    processes: dict[str, ProcessProgress] = {}
    for file in files:
        yield from _read_file(file, processes)
    label = files[0].label if len(files) == 1 else f"{len(files)} files" if files else ""
    yield from make_rows(processes.values(), label)


def make_rows(processes: Iterable[ProcessProgress], label: str) -> Iterator[Rows | Gap]:
    """The rows of processes, run by run, and what is not known of them."""
    lineages: defaultdict[str, list[ProcessProgress]] = defaultdict(list)
    for process in processes:
        lineages[process.begin.lineage].append(process)
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for lineage in lineages.values():
        for name, row in list_rows(lineage):
            rows[name].append(row)
            if len(rows[name]) >= BATCH_ROWS:
                yield make_batch(name, rows.pop(name), label)
    for name, left in rows.items():
        yield make_batch(name, left, label)
    yield from _list_gaps(lineages, label)


def make_batch(name: str, rows: Sequence[Row], label: str) -> Rows:
    """Rows of a table as a batch."""
    schema = table(name).schema
    used = pa.schema([field for field in schema if field.name in rows[0]])
    return Rows(name, pa.Table.from_pylist(list(rows), schema=used), label)


def _read_file(file: Input, processes: dict[str, ProcessProgress]) -> Iterator[Gap]:
    """Take the lines of a file. The same record of a process counts once, however often it is there."""
    current: ProcessProgress | None = None
    for block in split_blocks(file):
        for line in block.data.split(b"\n"):
            if not line.strip():
                continue
            try:
                record = read_line(line)
                current = take_record(record, current, processes)
            except SourceError as error:
                yield Gap(file.label, f"lines that cannot be read: one {error}"[:200])


def take_record(
    record: dict[str, Any], current: ProcessProgress | None, processes: dict[str, ProcessProgress]
) -> ProcessProgress | None:
    """Take a record; of which process the next one is. Raises SourceError for what is none."""
    said = read_record(record)
    if isinstance(said, Begin):
        return processes.setdefault(said.file, ProcessProgress(said, to_ms=said.at_ms))
    if current is None:
        raise SourceError("comes before a line of kind begin")
    number = record.get("n")
    if said is not None and (not isinstance(number, int) or number > current.through):
        current.take(said)
    if isinstance(number, int):
        current.through = max(current.through, number)
    return current


def _list_gaps(lineages: dict[str, list[ProcessProgress]], label: str) -> Iterator[Gap]:
    every = [process for lineage in lineages.values() for process in lineage]
    if dropped := sum(process.dropped for process in every):
        yield Gap(label, "records that a full disk or a full queue lost", dropped)
    if by_epoch := sum(any(process.is_by_epoch for process in lineage) for lineage in lineages.values()):
        yield Gap(label, BY_EPOCH, by_epoch)
    if unknown := sum(kind not in SECTION_KINDS for process in every for _, kind in process.sections):
        yield Gap(label, f"sections of a kind that is none of {', '.join(SECTION_KINDS)}", unknown)
