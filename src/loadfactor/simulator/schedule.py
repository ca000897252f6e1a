"""The queue of each pool: first come, first served, with backfill that never delays the head.

Gangs of up to one node go to the fullest node that fits them, larger ones to whole nodes. The head of the queue reserves the nodes
that will be free first; later jobs may run there only if their time limit ends before it (EASY backfill). A failed node
or GPU kills what runs on it, and the job is requeued; a drained node finishes its work first.
"""

import heapq
from bisect import bisect_left, insort
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_S
from loadfactor.simulator.demand import FOREVER_MS, SubmittedJob
from loadfactor.simulator.fleet import Incident, Node, SimulatedFleet
from loadfactor.simulator.scenario import WORKLOADS, Scenario, find_workload

LONGEST_LIMIT = 3.0  # times what a job needs; people do not know better
BACKFILL_DEPTH = 16  # jobs looked at behind a head that cannot start
END, UP, BUY, DOWN, RETIRE, DRAIN, ARRIVE, CANCEL = range(8)  # at one instant, in this order
PODS = (("notebook", 0.25), ("small-batch", 0.125), ("serving", 0.5))
"""Workload and share. The signals of the GPU are those of the last pod that holds it: a collector sees the GPU, not the pod."""


@dataclass(slots=True)
class ScheduledRun:
    """One attempt of a job: when, where, how it ended, and what of its compute had been done and kept before."""

    job: SubmittedJob
    attempt: int
    from_ms: int
    to_ms: int
    end_state: str
    devices: tuple[int, ...]
    work_from_ms: int  # start-up over
    work_to_ms: int  # the idle tail begins
    share: float = 1.0
    alive: bool = True


@dataclass(frozen=True, slots=True)
class ScheduledWait:
    """One wait of a job, from `since_ms` until it started, was cancelled, or the simulation ended (until_ms None).

    `reason`: why it did not start at once, if it did not, in Slurm's words.
    """

    job: SubmittedJob
    attempt: int
    since_ms: int
    reason: str
    until_ms: int | None = None
    started: bool = False


@dataclass(frozen=True, slots=True)
class Outage:
    """GPUs of one node that could not be used."""

    devices: tuple[int, ...]
    whole_node: str | None
    from_ms: int
    to_ms: int
    reason: str


@dataclass
class Schedule:
    """The runs, waits and outages of one pool."""

    runs: list[ScheduledRun] = field(default_factory=list)
    waits: list[ScheduledWait] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)


def schedule_jobs(jobs: list[SubmittedJob], nodes: list[Node], incidents: list[Incident], end_ms: int) -> Schedule:
    """Play the queue of one pool until the end of the simulation."""
    queue = _PoolQueue(nodes, end_ms)
    for job in jobs:
        queue.add_event(job.eligible_ms, ARRIVE, job, 0)
    for n, node in enumerate(nodes):
        queue.add_event(node.from_ms, BUY, n, 0)
        if node.to_ms < end_ms:
            queue.add_event(node.to_ms, RETIRE, n, 0)
    for incident in incidents:
        queue.add_event(incident.from_ms, DRAIN if incident.reason == "drained" else DOWN, incident, 0)
    return queue.play()


class _PoolQueue:
    """The state of one pool. Free GPUs of a node are the bits of an integer."""

    def __init__(self, nodes: list[Node], end_ms: int) -> None:
        self.nodes, self.end_ms = nodes, end_ms
        self.per_node = max(len(n.whole) for n in nodes)
        self.place = {d: (n, 1 << i) for n, node in enumerate(nodes) for i, d in enumerate(node.whole)}
        self.free = [0] * len(nodes)  # bits that are installed, usable and held by nobody
        self.grantable = [0] * len(nodes)  # how many of them may be given away now
        self.nodes_by_grantable = [len(nodes)] + [0] * self.per_node
        self.draining: list[Incident | None] = [None] * len(nodes)
        self.gone = [True] * len(nodes)  # not bought yet, down, or retired
        self.on: list[list[tuple[int, ScheduledRun]]] = [[] for _ in nodes]  # (time limit, run)
        self.clear = [0] * len(nodes)  # when the last of them reaches its limit
        self.waiting: list[tuple[tuple[int, int], int, ScheduledWait]] = []
        self.done: dict[int, int] = {}  # compute kept from earlier attempts, by id of the job
        self.events: list[tuple[int, int, int, object, int]] = []
        self.serial = count()
        self.out = Schedule()

    def add_event(self, when_ms: int, kind: int, what: object, attempt: int) -> None:
        heapq.heappush(self.events, (when_ms, kind, next(self.serial), what, attempt))

    def play(self) -> Schedule:
        while self.events and self.events[0][0] < self.end_ms:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, kind, _, what, attempt = heapq.heappop(self.events)
                self._handle(now, kind, what, attempt)
            if self.waiting:
                self._start_fitting(now)
        self.out.waits += [wait for _, _, wait in self.waiting]
        for running in self.on:
            for _, run in running:
                if run.alive:
                    run.alive, run.to_ms, run.end_state = False, self.end_ms, "running"
                    run.work_to_ms = min(run.work_to_ms, self.end_ms)
        self.out.runs.sort(key=lambda r: (r.from_ms, r.job.job_id))
        return self.out

    def _handle(self, now: int, kind: int, what: object, attempt: int) -> None:
        if isinstance(what, SubmittedJob):
            if kind == ARRIVE:
                self._enqueue(now, what, attempt)
                if attempt == 0 and what.patience_ms < FOREVER_MS:
                    self.add_event(now + what.patience_ms, CANCEL, what, 0)
            else:
                self._cancel(now, what)
        elif isinstance(what, ScheduledRun):
            if what.alive:
                self._end(now, what, what.end_state)
        elif isinstance(what, Incident):
            self._handle_incident(now, kind, what)
        elif isinstance(what, int):
            bought = kind == BUY
            if not bought:
                self._kill(now, what, self._all_bits(what), "preempted")
            self.gone[what] = not bought
            self.free[what] = self._all_bits(what) if bought else 0
            self._count_grantable(what)

    def _enqueue(self, now: int, job: SubmittedJob, attempt: int) -> None:
        behind = self.waiting and self.waiting[0][0] <= job.order
        wait = ScheduledWait(job, attempt, now, "Priority" if behind else "Resources")
        insort(self.waiting, (job.order, next(self.serial), wait))

    def _cancel(self, now: int, job: SubmittedJob) -> None:
        i = bisect_left(self.waiting, job.order, key=lambda entry: entry[0])
        while i < len(self.waiting) and self.waiting[i][0] == job.order:
            wait = self.waiting[i][2]
            if wait.job is job and wait.attempt == 0:
                del self.waiting[i]
                self.out.waits.append(replace(wait, until_ms=now))
                return
            i += 1

    def _handle_incident(self, now: int, kind: int, incident: Incident) -> None:
        n = incident.node
        bits = self._all_bits(n) if incident.gpu is None else 1 << incident.gpu
        if kind == UP:
            self.free[n] |= bits
            if incident.gpu is None:
                self.gone[n] = False
            self._finish_drain(now, n)
        elif self.gone[n] or self.draining[n] is not None or (kind == DOWN and not self._has_all(n, bits)):
            return  # an incident holds it already
        elif kind == DRAIN:
            self.draining[n] = incident
            self._finish_drain(now, n)
        else:
            self._kill(now, n, bits, "node_fail")
            self._take_out(now, n, incident, bits)
        self._count_grantable(n)

    def _has_all(self, n: int, bits: int) -> bool:
        held = 0
        for _, run in self.on[n]:
            held |= self._find_bits(n, run)
        return (self.free[n] | held) & bits == bits

    def _finish_drain(self, now: int, n: int) -> None:
        incident = self.draining[n]
        if incident is not None and self.free[n] == self._all_bits(n):
            self.draining[n] = None
            self._take_out(now, n, incident, self._all_bits(n))

    def _take_out(self, now: int, n: int, incident: Incident, bits: int) -> None:
        node = self.nodes[n]
        until = min(now + incident.lasts_ms, node.to_ms)
        self.free[n] &= ~bits
        if incident.gpu is None:
            self.gone[n] = True
        devices = tuple(d for i, d in enumerate(node.whole) if bits >> i & 1)
        if until > now:
            whole_node = node.name if incident.gpu is None else None
            self.out.outages.append(Outage(devices, whole_node, now, until, incident.reason))
        if until < node.to_ms:
            self.add_event(until, UP, incident, 0)

    def _kill(self, now: int, n: int, bits: int, state: str) -> None:
        for _, run in list(self.on[n]):
            if self._find_bits(n, run) & bits:
                self._end(now, run, state)

    def _all_bits(self, n: int) -> int:
        return (1 << len(self.nodes[n].whole)) - 1

    def _find_bits(self, n: int, run: ScheduledRun) -> int:
        return sum(bit for where, bit in map(self.place.__getitem__, run.devices) if where == n)

    def _count_grantable(self, n: int) -> None:
        grantable = 0 if self.gone[n] or self.draining[n] is not None else self.free[n].bit_count()
        self.nodes_by_grantable[self.grantable[n]] -= 1
        self.nodes_by_grantable[grantable] += 1
        self.grantable[n] = grantable

    def _end(self, now: int, run: ScheduledRun, state: str) -> None:
        run.alive, run.to_ms, run.end_state = False, now, state
        run.work_to_ms = max(run.work_from_ms, min(run.work_to_ms, now))
        for n in sorted({self.place[d][0] for d in run.devices}):
            self.on[n] = [(t, r) for t, r in self.on[n] if r is not run]
            self.free[n] |= self._find_bits(n, run)
            self.clear[n] = max((limit for limit, _ in self.on[n]), default=0)
            self._finish_drain(now, n)
            self._count_grantable(n)
        job = run.job
        if state in ("node_fail", "preempted") or (state == "failed" and job.restarts):
            every = WORKLOADS[job.workload].checkpoint_s * MS_PER_S
            worked = run.work_to_ms - run.work_from_ms
            self.done[id(job)] = self.done.get(id(job), 0) + (worked // every * every if every else 0)
            self._enqueue(now, job, run.attempt + 1)

    def _start_fitting(self, now: int) -> None:
        reserved: frozenset[int] | None = None
        shadow = 0
        i = looked = 0
        while i < len(self.waiting) and looked < BACKFILL_DEPTH:
            wait = self.waiting[i][2]
            job, chosen = wait.job, None
            if self._may_fit(job.gpus):
                if looked and reserved is None:
                    reserved, shadow = self._reserve(now, self.waiting[0][2].job.gpus)
                may_delay = reserved is not None and now + _find_limit_ms(job) > shadow
                chosen = self._place(job.gpus, reserved if may_delay and reserved else frozenset())
            if chosen is None:
                looked += 1
                i += 1
                if not any(self.nodes_by_grantable[1:]):
                    return
            else:
                del self.waiting[i]
                self._start(now, wait, chosen)

    def _may_fit(self, gpus: int) -> bool:
        """False when a gang certainly finds no place now."""
        if gpus <= self.per_node:
            return any(self.nodes_by_grantable[gpus:])
        return self.nodes_by_grantable[self.per_node] * self.per_node >= gpus

    def _place(self, gpus: int, avoid: frozenset[int]) -> list[int] | None:
        """The nodes for a gang, or None: the fullest node that fits, or as many empty nodes as it takes."""
        if gpus <= self.per_node:
            best, least = -1, self.per_node + 1
            for n, free in enumerate(self.grantable):
                if gpus <= free < least and n not in avoid:
                    best, least = n, free
            return [best] if best >= 0 else None
        need = gpus // self.per_node
        empty = [n for n, free in enumerate(self.grantable) if free == self.per_node and n not in avoid]
        return empty[:need] if len(empty) >= need else None

    def _reserve(self, now: int, gpus: int) -> tuple[frozenset[int], int]:
        """The nodes that the head will get, and when at the latest: those whose running jobs reach their limits first."""
        need = max(1, gpus // self.per_node)
        size = min(gpus, self.per_node)
        clear = [
            (max(self.clear[n], now), n)
            for n in range(len(self.nodes))
            if not self.gone[n] and self.draining[n] is None and len(self.nodes[n].whole) >= size
        ]
        first = heapq.nsmallest(need, clear)
        return frozenset(n for _, n in first), max((t for t, _ in first), default=now)

    def _start(self, now: int, wait: ScheduledWait, chosen: list[int]) -> None:
        job, attempt = wait.job, wait.attempt
        limit_ms = _find_limit_ms(job)
        w = WORKLOADS[job.workload]
        work = max(MS_PER_S, job.work_ms - self.done.get(id(job), 0))
        tail, state = job.tail_ms, "completed"
        if attempt == 0 and job.crash_after_ms < work:
            work, tail, state = job.crash_after_ms, 0, "failed"
        startup = w.startup_s * MS_PER_S
        if startup + work > limit_ms and w.shape != "notebook":
            work, tail, state = max(0, limit_ms - startup), 0, "timeout"
        work_from = now + startup
        devices: list[int] = []
        for n in chosen:
            take = min(self.per_node, job.gpus - len(devices))
            for i, device in enumerate(self.nodes[n].whole):
                if take and self.free[n] >> i & 1:
                    self.free[n] &= ~(1 << i)
                    devices.append(device)
                    take -= 1
            self._count_grantable(n)
        end = work_from + work + tail
        run = ScheduledRun(job, attempt, now, end, state, tuple(devices), work_from, work_from + work)
        for n in chosen:
            self.on[n].append((now + limit_ms + tail, run))
            self.clear[n] = max(self.clear[n], now + limit_ms + tail)
        self.out.runs.append(run)
        self.out.waits.append(replace(wait, until_ms=now, started=True))
        if end < self.end_ms:
            self.add_event(end, END, run, attempt)


def _find_limit_ms(job: SubmittedJob) -> int:
    if job.urgent:
        return FOREVER_MS
    need = WORKLOADS[job.workload].startup_s * MS_PER_S + job.work_ms
    return round(need * min(job.limit_ratio, LONGEST_LIMIT) / MS_PER_S) * MS_PER_S


def build_shared_runs(scenario: Scenario, fleet: SimulatedFleet) -> list[ScheduledRun]:
    """The runs on divided GPUs. An eighth of the divided GPU is never given away."""
    rng = np.random.default_rng((scenario.seed, 5))
    runs: list[ScheduledRun] = []
    if fleet.divided is not None:
        for p, (work, share) in enumerate(PODS):
            # From some time in the first day to some time in the last, so that the GPU is also seen half free.
            since = scenario.start_ms + int(rng.integers(0, MS_PER_DAY // MS_PER_S // 2)) * MS_PER_S
            until = scenario.end_ms - int(rng.integers(1, MS_PER_DAY // MS_PER_S // 2)) * MS_PER_S
            runs.append(_build_run(scenario, f"pod-{p}-{work}", work, fleet.divided, share, since, until, rng))
    for m, device in enumerate(fleet.mig):
        at, number = scenario.start_ms, 0
        while at < scenario.end_ms:
            since = at + int(rng.exponential(5 * MS_PER_HOUR) / MS_PER_S) * MS_PER_S
            until = since + int(rng.lognormal(np.log(6), 0.7) * MS_PER_HOUR / MS_PER_S) * MS_PER_S
            if since >= scenario.end_ms:
                break
            work = "notebook" if rng.random() < 0.7 else "sweep"
            runs.append(_build_run(scenario, f"mig-{m}-{number}", work, device, 1.0, since, until, rng))
            at, number = until, number + 1
    return runs


def _build_run(
    scenario: Scenario,
    job_id: str,
    work: str,
    device: int,
    share: float,
    since: int,
    until: int,
    rng: np.random.Generator,
) -> ScheduledRun:
    kind = find_workload(work)
    team = scenario.teams[int(rng.integers(0, len(scenario.teams)))]
    job = SubmittedJob(
        job_id=job_id,
        workload=kind,
        team=team.name,
        user=team.users[int(rng.integers(0, len(team.users)))],
        project=team.projects[int(rng.integers(0, len(team.projects)))],
        experiment_id=None,
        pool="",
        gpus=1,
        submitted_ms=since,
        eligible_ms=since,
        work_ms=FOREVER_MS,
    )
    work_from = min(since + WORKLOADS[kind].startup_s * MS_PER_S, until)
    end, state = (until, "completed") if until <= scenario.end_ms else (scenario.end_ms, "running")
    return ScheduledRun(job, 0, since, end, state, (device,), work_from, end, share)
