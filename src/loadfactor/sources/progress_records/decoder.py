"""Decoder of progress files: all of a folder together, so that what restarts lost is seen over all processes of a run."""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.parsing.text_blocks import split_blocks
from loadfactor.sources.progress_records.records import (
    STEP,
    Begin,
    ProcessProgress,
    Span,
    StepPiece,
    read_line,
    read_record,
    sum_amount,
)
from loadfactor.tables.schema import RUN, table
from loadfactor.tables.work import SECTION_KINDS

RESTART: Final = "restart"
NETWORK: Final = "network"
"""The tag with what a run says of its network, as JSON."""
Row = dict[str, Any]
BATCH_ROWS = 50_000
BY_EPOCH = "runs that number their steps anew in every epoch: what their restarts lost is not known"


def list_rows(processes: Sequence[ProcessProgress]) -> Iterator[tuple[str, Row]]:
    """The rows of one run, each with its table. The same records make the same keys, however many of them are there yet."""
    in_order = sorted(processes, key=lambda process: process.begin.at_ms)
    began = [process.begin.at_ms for process in in_order]
    is_unknown = any(process.is_by_epoch for process in in_order)
    later: list[list[Span]] = [[]]
    for process in reversed(in_order):
        later.append(_unite([*later[-1], *map(_as_span, process.stretches)]))
    later.reverse()
    for process in in_order:
        after = later[bisect_left(began, max(process.to_ms, process.begin.at_ms + 1))]
        for name, row in _list_of_process(process, [] if is_unknown else after, is_unknown):
            yield name, {"job_id": process.begin.job, **row}
        for row in _list_holdings(process):
            yield "allocations", {"job_id": process.begin.job, **row}


def _list_of_process(process: ProcessProgress, after: list[Span], is_unknown: bool) -> Iterator[tuple[str, Row]]:
    """`after`: steps that later processes made again."""
    counts_once = not process.begin.is_rank or process.begin.rank == 0
    lost_in = [
        _unite([*after, *(() if is_unknown else map(_as_span, process.stretches[place + 1 :]))])
        for place in range(max(1, len(process.stretches)))
    ]
    for one in process.bins:
        amounts: defaultdict[tuple[str, bool], float] = defaultdict(float)
        for piece in one.pieces:
            for unit, kept, lost in _divide(piece, lost_in[piece.stretch], counts_once):
                amounts[unit, True] += kept
                amounts[unit, False] += lost
        for (unit, is_kept), amount in amounts.items():
            if is_kept or amount:
                row = {"from_utc": one.from_ms, "to_utc": one.to_ms, "unit": unit, "amount": amount}
                yield "progress", {**row, **_loss(is_kept), "replica": process.begin.replica}
    if counts_once:
        yield from _list_epochs(process, lost_in)
        for (_, kind), (from_ms, length_ms) in process.sections.items():
            if kind in SECTION_KINDS:
                row = {
                    "attempt": process.begin.attempt,
                    "from_utc": from_ms,
                    "to_utc": from_ms + length_ms,
                    "kind": kind,
                }
                yield "job_sections", row


def _list_holdings(process: ProcessProgress) -> Iterator[Row]:
    """Whose the run is, from its begin to its last word: on the GPUs that it sees, or on none where it knows of none."""
    begin = process.begin
    row = {
        "attempt": begin.attempt,
        "user": begin.user,
        "experiment_id": begin.experiment,
        "tags": json.dumps({NETWORK: json.dumps(process.network)}) if process.network else None,
        "from_utc": begin.at_ms,
        "to_utc": process.to_ms,
        "known_from": RUN,
    }
    if process.to_ms > begin.at_ms:
        for device in process.devices or (None,):
            yield {**row, "device_id": device, "gpus": None if device else 0.0}


def _list_epochs(process: ProcessProgress, lost_in: Sequence[Sequence[Span]]) -> Iterator[tuple[str, Row]]:
    ended: defaultdict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for epoch, index in zip(process.epochs, process.epoch_stretches, strict=True):
        is_lost = epoch.step is not None and _overlap(lost_in[max(index, 0)], epoch.step, epoch.step) > 0
        ended[epoch.at_ms][is_lost] += 1.0
    for at_ms, (kept, lost) in ended.items():
        row = {"from_utc": at_ms, "to_utc": at_ms, "unit": "epoch", "replica": process.begin.replica}
        yield "progress", {**row, "amount": kept, **_loss(True)}
        if lost:
            yield "progress", {**row, "amount": lost, **_loss(False)}


def _loss(is_kept: bool) -> Row:
    return {"kept": is_kept, "cause": None if is_kept else RESTART}


def _divide(piece: StepPiece, lost: Iterable[Span], counts_once: bool) -> Iterator[tuple[str, float, float]]:
    parts = [] if piece.first is None else _cut(lost, piece.first, piece.first + piece.span - 1)
    for unit, amount in piece.amounts.items():
        gone = sum(sum_amount(amount, start, stop) for start, stop in parts)
        yield unit, sum_amount(amount, 0, piece.span) - gone, gone
    if counts_once and piece.steps:
        gone = sum(stop - start for start, stop in parts)
        yield STEP, piece.steps - gone, gone


def _cut(spans: Iterable[Span], first: int, last: int) -> list[Span]:
    """The parts of spans inside of another one, as places from its first step on, the last one not included.

    >>> _cut([(0, 3), (8, 20)], 2, 9)
    [(0, 2), (6, 8)]
    """
    return [(max(a, first) - first, min(b, last) - first + 1) for a, b in spans if a <= last and b >= first]


def _overlap(spans: Iterable[Span], first: int, last: int) -> int:
    return sum(stop - start for start, stop in _cut(spans, first, last))


def _as_span(interval: Sequence[int]) -> Span:
    return interval[0], interval[1]


def _unite(spans: Iterable[Span]) -> list[Span]:
    """Spans that touch or overlap as one.

    >>> _unite([(5, 9), (0, 3), (4, 6), (20, 21)])
    [(0, 9), (20, 21)]
    """
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def decode_progress(files: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """Rows of `progress`, `job_sections` and `allocations`. Lines that cannot be read are gaps; a kill may leave half of one."""
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
    found = read_record(record)
    if isinstance(found, Begin):
        return processes.setdefault(found.file, ProcessProgress(found, to_ms=found.at_ms))
    if current is None:
        raise SourceError("comes before a line of kind begin")
    number = record.get("n")
    if found is not None and (not isinstance(number, int) or number > current.through):
        current.take(found)
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
