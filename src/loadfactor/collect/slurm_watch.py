"""Polling a Slurm cluster: what the controller knows now, and accounting in windows that overlap.

Accounting learns of the end of a job late, after an interruption very late. So every window begins before the last one ended, once
an hour a day before, and jobs that were open and are in no answer are queried by their number. A missing answer ends no job.
"""

import json
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from loadfactor.base.clock import now_ms
from loadfactor.base.units import MS_PER_S, S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.collect.polling import Keep, PolledSource
from loadfactor.collect.slurm_commands import Answer, NodeAnswer, TooMuchOutputError, to_ids
from loadfactor.sources.slurm.live_decoder import (
    ACCOUNTING,
    ALL_NODES,
    DROPPED,
    NODES,
    QUEUE,
    THROUGH,
    VANISHED,
    JobReport,
    is_open,
    list_job_reports,
    list_node_values,
)
from loadfactor.store.source_status import SourceStatus

OVERLAP_S: Final = S_PER_HOUR
"""So much of accounting is requested again."""
LATE_EVERY_S: Final = S_PER_HOUR
LATE_S: Final = S_PER_DAY
"""So often that much of it is, for what accounting learnt very late."""
LONGEST_CHUNK_S: Final = S_PER_DAY
SHORTEST_CHUNK_S: Final = S_PER_MIN
ROWS_AT_ONCE: Final = 2000
"""Jobs in a payload."""
MISSED_TIMES: Final = 3
"""A job that was open and that nobody knows so many times in a row is over."""
HALF_KNOWN_S: Final = 10 * S_PER_MIN
"""So long accounting may take to learn of the start of a job whose end it knows; then what it knows counts."""
MOST_SEEN: Final = 200_000
REACHED, SEEN_AT, OPEN = "reached", "asked", "open"
"""Of the cursor: through when accounting was taken (s), when jobs were seen last (ms), ids of jobs that are open."""


class Slurm(Protocol):
    """Connection to a cluster: its commands, or slurmrestd. Its methods raise CommandError."""

    def list_queue(self) -> Answer:
        """The GPU jobs that the controller knows."""

    def list_nodes(self) -> NodeAnswer:
        """The nodes that it knows."""

    def list_accounting(self, from_s: int, to_s: int) -> Answer:
        """The runs of GPU jobs between two instants."""

    def find_jobs(self, ids: Sequence[str]) -> Answer:
        """These jobs in accounting."""


class SlurmWatch(PolledSource):
    """One cluster."""

    def __init__(
        self,
        stream_id: str,
        slurm: Slurm,
        every_s: float,
        begin_s: int,
        cursor: Mapping[str, str],
        keep: Keep,
        stopped: threading.Event,
        before: Mapping[str, SourceStatus] | None = None,
    ) -> None:
        """`begin_s`: where it begins the first time. `cursor`: where it goes on. The rest as every polled source."""
        super().__init__(stream_id, ("jobs", "nodes", "accounting"), every_s, keep, before, stopped)
        self._slurm = slurm
        self._reached_s = int(cursor.get(REACHED) or begin_s)
        self._is_new = not cursor.get(REACHED)
        seen_ms = int(cursor.get(SEEN_AT) or 0)
        self._open = dict.fromkeys(filter(None, cursor.get(OPEN, "").split(" ")), seen_ms)
        """When jobs that are open were seen last (ms)."""
        self._missed: dict[str, int] = {}
        self._checks: dict[str, int] = {}
        self._node_checks: dict[str, int] = {}
        self._late_s = 0.0

    def poll(self) -> None:
        """Every question once; one that fails hinders no other."""
        seen: set[str] = set()
        before = dict(self._open)
        self._attempt("nodes", self._ask_nodes)
        knows_now = self._attempt("jobs", lambda: self._ask_queue(seen))
        knows_past = self._attempt("accounting", lambda: self._ask_accounting(seen))
        if knows_now:
            self._attempt("jobs", lambda: self._drop_shared([id_ for id_ in before if id_ not in seen and "[" in id_]))
        if knows_past:
            self._attempt("accounting", lambda: self._find_missing(seen, knows_now))
        if knows_now or knows_past:
            self._keep_events([], {SEEN_AT: str(now_ms()), OPEN: " ".join(self._open)})

    def _ask_nodes(self) -> str:
        answer = self._slurm.list_nodes()
        at_ms = now_ms()
        nodes = {node.name: replace(node, at_ms=None) for node in answer.nodes}
        checks = {name: zlib.crc32(repr(list_node_values(node)).encode()) for name, node in nodes.items()}
        new = [list_node_values(nodes[name]) for name, check in checks.items() if self._node_checks.get(name) != check]
        events: list[Any] = [[at_ms, NODES, new]] if new else []
        if checks.keys() != self._node_checks.keys() and checks and not answer.unread:
            events.append([at_ms, ALL_NODES, sorted(checks)])
        if events:
            self._keep_events(events)
        self._node_checks = checks
        return _show_unread(answer.unread, answer.why)

    def _ask_queue(self, seen: set[str]) -> str:
        answer = self._slurm.list_queue()
        self._keep_jobs(QUEUE, answer, now_ms(), seen)
        return _show_unread(answer.unread, answer.why)

    def _ask_accounting(self, seen: set[str]) -> str:
        """All windows until now. What was taken of them is taken, also where a later one fails."""
        unread = ""
        now_s = int(time.time())
        self._reached_s = min(self._reached_s, now_s)  # our clock may have been ahead
        back_s = 0 if self._is_new else OVERLAP_S
        if not self._is_new and time.monotonic() - self._late_s > LATE_EVERY_S:
            back_s, self._late_s = LATE_S, time.monotonic()
        chunk_s = LONGEST_CHUNK_S
        while not self._stopped.is_set():
            from_s = self._reached_s - back_s
            to_s = min(now_s, from_s + back_s + chunk_s)
            try:
                answer = self._slurm.list_accounting(from_s, to_s)
            except TooMuchOutputError:
                if chunk_s <= SHORTEST_CHUNK_S:
                    raise
                chunk_s, back_s = max(SHORTEST_CHUNK_S, chunk_s // 4), min(back_s, OVERLAP_S)
                continue
            self._keep_jobs(ACCOUNTING, answer, to_s * MS_PER_S, seen)
            self._keep_events([[to_s * MS_PER_S, THROUGH, None]], {REACHED: str(to_s)})
            self._reached_s, self._is_new, back_s = max(self._reached_s, to_s), False, OVERLAP_S
            unread = unread or _show_unread(answer.unread, answer.why)
            if to_s >= now_s:
                break
        return unread

    def _find_missing(self, seen: set[str], is_whole: bool) -> str:
        """Ask for open jobs that are in no answer. `is_whole`: the controller answered as well."""
        missing = [name for name in self._open if name not in seen]
        before = self._status["accounting"].error
        if not missing:
            self._missed.clear()
            return before
        answer = self._slurm.find_jobs(to_ids(missing))
        found: set[str] = set()
        self._keep_jobs(ACCOUNTING, answer, now_ms(), found)
        lost = [name for name in missing if name not in found and name in self._open]
        self._missed = {name: self._missed.get(name, 0) + is_whole for name in lost}
        over = {name: self._open[name] for name, times in self._missed.items() if times >= MISSED_TIMES}
        if over:
            self._keep_events([[now_ms(), VANISHED, over]])
            for name in over:
                del self._open[name], self._missed[name]
        return before or _show_unread(answer.unread, answer.why)

    def _drop_shared(self, names: list[str]) -> str:
        """Lines of waiting tasks that nobody writes any more: other lines have their tasks."""
        if names:
            self._keep_events([[now_ms(), DROPPED, names]])
            for name in names:
                self._open.pop(name, None)
        return self._status["jobs"].error

    def _keep_jobs(self, kind: str, answer: Answer, at_ms: int, seen: set[str]) -> None:
        """Keep what is new in an answer, and know which jobs are open."""
        records = [
            record for record in list_job_reports(answer.jobs) if not (kind == ACCOUNTING and _is_half_known(record))
        ]
        new = [record for record in records if self._checks.get(_name(kind, record)) != _check(record)]
        for first in range(0, len(new), ROWS_AT_ONCE):
            self._keep_events([[at_ms, kind, new[first : first + ROWS_AT_ONCE]]])
        at_ms = now_ms()
        for record in records:
            self._checks[_name(kind, record)] = _check(record)
        for name, is_going_on in _list_ids(records).items():
            seen.add(name)
            if is_going_on:
                self._open[name] = at_ms
            else:
                self._open.pop(name, None)
        if len(self._checks) > MOST_SEEN:
            self._checks.clear()


def _is_half_known(record: JobReport) -> bool:
    """Whether accounting heard of the end of a job before its start: its id, times and holder are not right yet."""
    last_ms = record.get("ended") or record.get("started") or 0
    return "started" in record and "eligible" not in record and now_ms() - last_ms < HALF_KNOWN_S * MS_PER_S


def _list_ids(records: Iterable[JobReport]) -> dict[str, bool]:
    """The job ids, and whether any run of each goes on."""
    found: dict[str, bool] = {}
    for record in records:
        found[record["job_id"]] = found.get(record["job_id"], False) or is_open(record)
    return found


def _name(kind: str, record: JobReport) -> str:
    parts = (
        kind,
        record["job_id"],
        record.get("cluster"),
        record.get("submitted"),
        record.get("started") if kind == ACCOUNTING else "",
    )
    return "\n".join(map(str, parts))


def _check(record: JobReport) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())


def _show_unread(count: int, why: str) -> str:
    return f"{count:,} lines are not understood, and left out: {why}" if count else ""
