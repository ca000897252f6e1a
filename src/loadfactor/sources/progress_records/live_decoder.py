"""Decoder of progress that processes send: what they reported last is kept, so that a restart can still make it lost.

An event is a record as a file has it; in every body the first one is of kind begin. A record that comes twice counts once.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from loadfactor.base.units import MS_PER_DAY
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.live_state import pack_state, unpack_state
from loadfactor.sources.progress_records.decoder import BATCH_ROWS, Row, list_rows, make_batch, take_record
from loadfactor.sources.progress_records.records import ProcessProgress
from loadfactor.tables.schema import table

PROGRESS_ORIGIN: Final = "progress"
KEPT_BINS: Final = 240
"""Minutes of a process that a restart can still make lost."""
KEPT_MS: Final = 2 * MS_PER_DAY
"""A run of which nobody heard for so long is forgotten; its rows stay."""


@dataclass
class ProgressState:
    """The state that outlasts a restart."""

    processes: list[ProcessProgress]
    version: Literal[1] = 1


class LiveProgressDecoder:
    """Runs that report, by process."""

    def __init__(self, name: str, state: bytes = b"") -> None:
        """`state`: as `state()` gave it; empty for a new one. Raises SourceError where it is none."""
        del name
        self._processes: dict[str, ProcessProgress] = {}
        self._emitted: dict[str, dict[tuple[Any, ...], Row]] = defaultdict(dict)
        """Rows of a run as they were emitted last, by key."""
        self._touched: set[str] = set()
        if state:
            self._restore(state)

    def feed(self, events: Sequence[dict[str, Any]]) -> None:
        """Records of one or more processes, each behind its first line."""
        current: ProcessProgress | None = None
        for record in events:
            current = take_record(record, current, self._processes)
            if current is not None:
                self._touched.add(current.begin.lineage)

    def drain(self) -> Iterator[Rows | Gap]:
        """The rows that are new or changed since they were taken last."""
        changed: defaultdict[str, list[Row]] = defaultdict(list)
        for lineage in sorted(self._touched):
            processes = [p for p in self._processes.values() if p.begin.lineage == lineage]
            before, now = self._emitted[lineage], {}
            for name, row in list_rows(processes):
                key = (name, *(row.get(column) for column in table(name).key))
                now[key] = row
                if before.get(key) != row:
                    changed[name].append(row)
            for process in processes:
                process.forget_before(KEPT_BINS)
            self._emitted[lineage] = now
        self._touched.clear()
        self._forget_silent()
        for name, rows in changed.items():
            for start in range(0, len(rows), BATCH_ROWS):
                yield make_batch(name, rows[start : start + BATCH_ROWS], PROGRESS_ORIGIN)

    def _forget_silent(self) -> None:
        last: defaultdict[str, int] = defaultdict(int)
        for process in self._processes.values():
            last[process.begin.lineage] = max(last[process.begin.lineage], process.to_ms)
        now_ms = max(last.values(), default=0)
        silent = {lineage for lineage, to_ms in last.items() if now_ms - to_ms > KEPT_MS}
        if silent:
            self._processes = {k: p for k, p in self._processes.items() if p.begin.lineage not in silent}
            for lineage in silent:
                self._emitted.pop(lineage, None)

    def state(self) -> bytes:
        """All that is needed to go on in another process."""
        return pack_state(ProgressState(list(self._processes.values())))

    def _restore(self, state: bytes) -> None:
        stored = unpack_state(ProgressState, state, "progress")
        self._processes = {process.begin.file: process for process in stored.processes}
        for lineage in {p.begin.lineage for p in stored.processes}:
            rows = list_rows([p for p in stored.processes if p.begin.lineage == lineage])
            self._emitted[lineage] = {(name, *(row.get(c) for c in table(name).key)): row for name, row in rows}
