"""A run over its restarts: which steps came again later, and the rows that follow.

A step that comes again was lost the first time: in the same process where its numbers went back, or in one that began after the
other had said its last word. Processes that work at the same time do not replace each other. Where numbers begin anew with every
epoch, or there are none, nobody knows what was lost, and all of it counts as kept.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from loadfactor.sources.progress_records.process import STEP, ProcessProgress, Span, StepPiece
from loadfactor.sources.progress_records.records import sum_amount
from loadfactor.tables.work import SECTION_KINDS

RESTART: Final = "restart"
Row = dict[str, Any]


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
        for table, row in _list_of_process(process, [] if is_unknown else after, is_unknown):
            yield table, {"job_id": process.begin.job, **row}


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


def _list_epochs(process: ProcessProgress, lost_in: Sequence[Sequence[Span]]) -> Iterator[tuple[str, Row]]:
    """Epochs by the instants they ended at; one is lost with the last step before its end."""
    ended: defaultdict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for epoch, stretch in zip(process.epochs, process.epoch_stretches, strict=True):
        is_lost = epoch.step is not None and _overlap(lost_in[max(stretch, 0)], epoch.step, epoch.step) > 0
        ended[epoch.at_ms][is_lost] += 1.0
    for at_ms, (kept, lost) in ended.items():
        row = {"from_utc": at_ms, "to_utc": at_ms, "unit": "epoch", "replica": process.begin.replica}
        yield "progress", {**row, "amount": kept, **_loss(True)}
        if lost:
            yield "progress", {**row, "amount": lost, **_loss(False)}


def _loss(is_kept: bool) -> Row:
    return {"kept": is_kept, "cause": None if is_kept else RESTART}


def _divide(piece: StepPiece, lost: Iterable[Span], counts_once: bool) -> Iterator[tuple[str, float, float]]:
    """What of a piece was kept and what was lost, by unit."""
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


def _as_span(stretch: Sequence[int]) -> Span:
    return stretch[0], stretch[1]


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
