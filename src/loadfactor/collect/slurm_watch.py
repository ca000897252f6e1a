"""Asking a Slurm cluster again and again: what the controller knows now, and accounting in windows that overlap.

Accounting learns of the end of a job late, after an interruption very late. So every window begins before the last one ended, once
an hour a day before, and jobs that were open and are in no answer are asked for by their number. Whoever says nothing ends no job.
"""

import asyncio
import json
import random
import threading
import time
import zlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from loadfactor.base.errors import LoadfactorError
from loadfactor.base.units import MS_PER_S, S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.collect.commands import CommandError, TooMuchSaidError
from loadfactor.collect.listed_body import pack_listed
from loadfactor.collect.part_status import PartStatus
from loadfactor.collect.slurm_commands import Answer, NodeAnswer, to_ids
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
"""So much of accounting is asked for again."""
LATE_EVERY_S: Final = S_PER_HOUR
LATE_S: Final = S_PER_DAY
"""So often that much of it is, for what accounting learnt very late."""
LONGEST_CHUNK_S: Final = S_PER_DAY
SHORTEST_CHUNK_S: Final = S_PER_MIN
ROWS_AT_ONCE: Final = 2000
"""Jobs in a body."""
MISSED_TIMES: Final = 3
"""A job that was open and that nobody knows so many times in a row is over."""
HALF_KNOWN_S: Final = 10 * S_PER_MIN
"""So long accounting may take to learn of the start of a job whose end it knows; then what it knows counts."""
LONGEST_KEEP_S: Final = float(S_PER_MIN)
MOST_SEEN: Final = 200_000
REACHED, ASKED, OPEN = "reached", "asked", "open"
"""Marks: through when accounting was taken (s), when jobs were seen last (ms), ids of jobs that are open."""

Take = Callable[[bytes], Coroutine[Any, Any, None]]
"""Given a body; done when it is durable."""


class Slurm(Protocol):
    """What a cluster is asked through: its commands, or slurmrestd. Its methods raise CommandError."""

    def list_queue(self) -> Answer:
        """The GPU jobs that the controller knows."""

    def list_nodes(self) -> NodeAnswer:
        """The nodes that it knows."""

    def list_accounting(self, from_s: int, to_s: int) -> Answer:
        """The runs of GPU jobs between two instants."""

    def find_jobs(self, ids: Sequence[str]) -> Answer:
        """What accounting knows of these jobs."""


class SlurmWatch:
    """One cluster, on a thread of its own."""

    def __init__(
        self,
        origin: str,
        slurm: Slurm,
        every_s: float,
        begin_s: int,
        marks: Mapping[str, str],
        take: Take,
        stopped: threading.Event,
        said: Mapping[str, SourceStatus] | None = None,
    ) -> None:
        """`begin_s`: where it begins the first time. `marks`: where it goes on. `said`: how it fared in an earlier process."""
        self._slurm = slurm
        self._every_s = every_s
        self._take = take
        self._stopped = stopped
        self._loop: asyncio.AbstractEventLoop | None = None
        self._names = {part: f"{origin}: {part}" for part in ("jobs", "nodes", "accounting")}
        before = {part: (said or {}).get(name) for part, name in self._names.items()}
        self._said = {part: PartStatus(over=was.failures if was else ()) for part, was in before.items()}
        self._reached_s = int(marks.get(REACHED) or begin_s)
        self._is_new = not marks.get(REACHED)
        asked_ms = int(marks.get(ASKED) or 0)
        self._open = dict.fromkeys(filter(None, marks.get(OPEN, "").split(" ")), asked_ms)
        """When jobs that are open were seen last (ms)."""
        self._missed: dict[str, int] = {}
        self._checks: dict[str, int] = {}
        self._node_checks: dict[str, int] = {}
        self._late_s = 0.0

    async def run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask until cancelled, on a thread that ends with the process at the latest."""
        self._loop = loop
        try:
            threading.Thread(target=self._repeat, name=self._names["jobs"], daemon=True).start()
            await asyncio.Event().wait()
        finally:
            self._stopped.set()

    def statuses(self) -> list[SourceStatus]:
        """How each question fares."""
        return [said.describe(self._names[part]) for part, said in self._said.items()]

    def _repeat(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self.ask()
            except Exception as error:  # a defect of ours must not end the watch
                self._fail("jobs", f"{type(error).__name__}: {error}")
            pause_s = self._every_s * random.uniform(0.95, 1.05)
            self._stopped.wait(max(0.05, began + pause_s - time.monotonic()))

    def ask(self) -> None:
        """Every question once; one that fails hinders no other."""
        seen: set[str] = set()
        was = dict(self._open)
        answered = [self._try("nodes", self._ask_nodes), self._try("jobs", lambda: self._ask_queue(seen))]
        answered.append(self._try("accounting", lambda: self._ask_accounting(seen)))
        if answered[1]:
            self._try("jobs", lambda: self._drop_shared([name for name in was if name not in seen and "[" in name]))
        if answered[2]:
            self._try("accounting", lambda: self._find_missing(seen, answered[1]))
        if answered[1] or answered[2]:
            self._keep([], {ASKED: str(_now_ms()), OPEN: " ".join(self._open)})

    def _try(self, part: str, ask: Callable[[], str]) -> bool:
        """Ask, and say how it went."""
        try:
            unread = ask()
        except LoadfactorError as error:
            self._fail(part, str(error))
            return False
        except Exception as error:  # a defect of ours must not hinder the others
            self._fail(part, f"{type(error).__name__}: {error}")
            return False
        self._said[part] = self._said[part].succeed(unread)
        return True

    def _ask_nodes(self) -> str:
        answer = self._slurm.list_nodes()
        at_ms = _now_ms()
        nodes = {node.name: replace(node, at_ms=None) for node in answer.nodes}
        checks = {name: zlib.crc32(repr(list_node_values(node)).encode()) for name, node in nodes.items()}
        new = [list_node_values(nodes[name]) for name, check in checks.items() if self._node_checks.get(name) != check]
        events: list[Any] = [[at_ms, NODES, new]] if new else []
        if checks.keys() != self._node_checks.keys() and checks and not answer.unread:
            events.append([at_ms, ALL_NODES, sorted(checks)])
        if events:
            self._keep(events, {})
        self._node_checks = checks
        return _say_unread(answer.unread, answer.why)

    def _ask_queue(self, seen: set[str]) -> str:
        answer = self._slurm.list_queue()
        self._keep_jobs(QUEUE, answer, _now_ms(), seen)
        return _say_unread(answer.unread, answer.why)

    def _ask_accounting(self, seen: set[str]) -> str:
        """All windows until now. What was taken of them is taken, also where a later one fails."""
        unread = ""
        now_s = int(time.time())
        back_s = 0 if self._is_new else OVERLAP_S
        if not self._is_new and time.monotonic() - self._late_s > LATE_EVERY_S:
            back_s, self._late_s = LATE_S, time.monotonic()
        chunk_s = LONGEST_CHUNK_S
        while not self._stopped.is_set():
            from_s = self._reached_s - back_s
            to_s = min(now_s, from_s + back_s + chunk_s)
            try:
                answer = self._slurm.list_accounting(from_s, to_s)
            except TooMuchSaidError:
                if chunk_s <= SHORTEST_CHUNK_S:
                    raise
                chunk_s, back_s = max(SHORTEST_CHUNK_S, chunk_s // 4), min(back_s, OVERLAP_S)
                continue
            self._keep_jobs(ACCOUNTING, answer, to_s * MS_PER_S, seen)
            self._keep([[to_s * MS_PER_S, THROUGH, None]], {REACHED: str(to_s)})
            self._reached_s, self._is_new, back_s = max(self._reached_s, to_s), False, OVERLAP_S
            unread = unread or _say_unread(answer.unread, answer.why)
            if to_s >= now_s:
                break
        return unread

    def _find_missing(self, seen: set[str], is_whole: bool) -> str:
        """Ask for open jobs that are in no answer. `is_whole`: the controller answered as well."""
        missing = [name for name in self._open if name not in seen]
        said = self._said["accounting"].error
        if not missing:
            self._missed.clear()
            return said
        answer = self._slurm.find_jobs(to_ids(missing))
        found: set[str] = set()
        self._keep_jobs(ACCOUNTING, answer, _now_ms(), found)
        lost = [name for name in missing if name not in found and name in self._open]
        self._missed = {name: self._missed.get(name, 0) + is_whole for name in lost}
        over = {name: self._open[name] for name, times in self._missed.items() if times >= MISSED_TIMES}
        if over:
            self._keep([[_now_ms(), VANISHED, over]], {})
            for name in over:
                del self._open[name], self._missed[name]
        return said or _say_unread(answer.unread, answer.why)

    def _drop_shared(self, names: list[str]) -> str:
        """Lines of waiting tasks that nobody writes any more: other lines have their tasks."""
        if names:
            self._keep([[_now_ms(), DROPPED, names]], {})
            for name in names:
                self._open.pop(name, None)
        return self._said["jobs"].error

    def _keep_jobs(self, kind: str, answer: Answer, at_ms: int, seen: set[str]) -> None:
        """Keep what an answer says that is new, and know which jobs are open."""
        sayings = [one for one in list_job_reports(answer.jobs) if not (kind == ACCOUNTING and _is_half_known(one))]
        new = [one for one in sayings if self._is_new_saying(kind, one)]
        for first in range(0, len(new), ROWS_AT_ONCE):
            self._keep([[at_ms, kind, new[first : first + ROWS_AT_ONCE]]], {})
        now_ms = _now_ms()
        for one in sayings:
            self._checks[_name(kind, one)] = _check(one)
        for name, is_going_on in _list_ids(sayings).items():
            seen.add(name)
            if is_going_on:
                self._open[name] = now_ms
            else:
                self._open.pop(name, None)
        if len(self._checks) > MOST_SEEN:
            self._checks.clear()

    def _is_new_saying(self, kind: str, one: JobReport) -> bool:
        return self._checks.get(_name(kind, one)) != _check(one)

    def _keep(self, events: list[Any], marks: Mapping[str, str]) -> None:
        """Returns when it is durable. Raises LoadfactorError where it cannot be kept: then it is asked for again."""
        assert self._loop is not None
        try:
            asyncio.run_coroutine_threadsafe(self._take(pack_listed(events, marks)), self._loop).result(LONGEST_KEEP_S)
        except TimeoutError as error:
            raise CommandError("what it said cannot be kept just now") from error

    def _fail(self, part: str, error: str) -> None:
        self._said[part] = self._said[part].fail(error)


def _is_half_known(one: JobReport) -> bool:
    """Whether accounting heard of the end of a job before its start: its id, times and holder are not right yet."""
    last_ms = one.get("ended") or one.get("started") or 0
    return "started" in one and "eligible" not in one and _now_ms() - last_ms < HALF_KNOWN_S * MS_PER_S


def _list_ids(sayings: Iterable[JobReport]) -> dict[str, bool]:
    """The job ids, and whether any run of each goes on."""
    found: dict[str, bool] = {}
    for one in sayings:
        found[one["job_id"]] = found.get(one["job_id"], False) or is_open(one)
    return found


def _name(kind: str, one: JobReport) -> str:
    parts = (
        kind,
        one["job_id"],
        one.get("cluster"),
        one.get("submitted"),
        one.get("started") if kind == ACCOUNTING else "",
    )
    return "\n".join(map(str, parts))


def _check(one: JobReport) -> int:
    return zlib.crc32(json.dumps(one, sort_keys=True).encode())


def _say_unread(count: int, why: str) -> str:
    return f"{count:,} lines are not understood, and left out: {why}" if count else ""


def _now_ms() -> int:
    return int(time.time() * MS_PER_S)
