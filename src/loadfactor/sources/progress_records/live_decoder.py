"""Decoder of progress that processes send: what they said last is kept, so that a restart can still make it lost.

An event is a record as a file has it; in every body the first one is of kind begin. A record that comes twice counts once.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_DAY
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.progress_records.decoder import BATCH_ROWS, Row, list_rows, make_batch, take_record
from loadfactor.sources.progress_records.records import Begin, Bin, Epoch, ProcessProgress, StepPiece
from loadfactor.tables.schema import table

PROGRESS_ORIGIN: Final = "progress"
KEPT_BINS: Final = 240
"""Minutes of a process that a restart can still make lost."""
KEPT_MS: Final = 2 * MS_PER_DAY
"""A run of which nobody heard for so long is forgotten; its rows stay."""
_VERSION: Final = 1
_QUICK: Final = 1


class LiveProgressDecoder:
    """Runs that report, by process."""

    def __init__(self, name: str, state: bytes = b"") -> None:
        """`state`: as `state()` gave it; empty for a new one. Raises SourceError where it is none."""
        del name
        self._processes: dict[str, ProcessProgress] = {}
        self._told: dict[str, dict[tuple[Any, ...], Row]] = defaultdict(dict)
        """Rows of a run as they were told last, by key."""
        self._touched: set[str] = set()
        if state:
            self._restore(state)

    def put(self, events: Sequence[dict[str, Any]]) -> None:
        """Records of one or more processes, each behind its first line."""
        current: ProcessProgress | None = None
        for record in events:
            current = take_record(record, current, self._processes)
            if current is not None:
                self._touched.add(current.begin.lineage)

    def take(self) -> Iterator[Rows | Gap]:
        """The rows that are new or changed since they were taken last."""
        changed: defaultdict[str, list[Row]] = defaultdict(list)
        for lineage in sorted(self._touched):
            processes = [p for p in self._processes.values() if p.begin.lineage == lineage]
            before, now = self._told[lineage], {}
            for name, row in list_rows(processes):
                key = (name, *(row.get(column) for column in table(name).key))
                now[key] = row
                if before.get(key) != row:
                    changed[name].append(row)
            for process in processes:
                process.forget_before(KEPT_BINS)
            self._told[lineage] = now
        self._touched.clear()
        self._forget_silent()
        for name, rows in changed.items():
            for start in range(0, len(rows), BATCH_ROWS):
                yield make_batch(name, rows[start : start + BATCH_ROWS], PROGRESS_ORIGIN)

    def _forget_silent(self) -> None:
        """Forget runs of which nobody heard for long, as the records tell the time."""
        last: defaultdict[str, int] = defaultdict(int)
        for process in self._processes.values():
            last[process.begin.lineage] = max(last[process.begin.lineage], process.to_ms)
        now_ms = max(last.values(), default=0)
        silent = {lineage for lineage, to_ms in last.items() if now_ms - to_ms > KEPT_MS}
        if silent:
            self._processes = {k: p for k, p in self._processes.items() if p.begin.lineage not in silent}
            for lineage in silent:
                self._told.pop(lineage, None)

    def state(self) -> bytes:
        """All that is needed to go on in another process."""
        content = [_VERSION, [_store_process(process) for process in self._processes.values()]]
        return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), _QUICK)

    def _restore(self, state: bytes) -> None:
        try:
            version, processes = json.loads(zlib.decompress(state))
            if version != _VERSION:
                raise ValueError(f"version {version}")
            for said in processes:
                process = _restore_process(said)
                self._processes[process.begin.file] = process
        except (zlib.error, ValueError, TypeError, KeyError) as error:
            raise SourceError(f"the state of progress cannot be read: {error}") from error
        for lineage in {p.begin.lineage for p in self._processes.values()}:
            rows = list_rows([p for p in self._processes.values() if p.begin.lineage == lineage])
            self._told[lineage] = {(name, *(row.get(c) for c in table(name).key)): row for name, row in rows}


def _store_process(process: ProcessProgress) -> dict[str, Any]:
    sections = [[minute, kind, *spent] for (minute, kind), spent in process.sections.items()]
    return {**asdict(process), "sections": sections}


def _restore_process(said: dict[str, Any]) -> ProcessProgress:
    bins = [
        Bin(one["from_ms"], one["to_ms"], [_restore_piece(piece) for piece in one["pieces"]]) for one in said["bins"]
    ]
    return ProcessProgress(
        **{
            **said,
            "begin": Begin(**said["begin"]),
            "bins": bins,
            "epochs": [Epoch(**epoch) for epoch in said["epochs"]],
            "sections": {(minute, kind): [from_ms, length_ms] for minute, kind, from_ms, length_ms in said["sections"]},
        }
    )


def _restore_piece(said: dict[str, Any]) -> StepPiece:
    amounts = {unit: tuple(amount) if isinstance(amount, list) else amount for unit, amount in said["amounts"].items()}
    return StepPiece(**{**said, "amounts": amounts})
