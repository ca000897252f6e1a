"""Decoder of a Slurm cluster that is queried again and again: what it reports of jobs and nodes, and what outlasts a restart.

An event is [when it was reported (ms), kind, reported]. Kinds: `accounting` and `queue` (reports of jobs, from slurmdbd and
slurmctld), `nodes` (records of nodes, as lists), `all nodes` (their names), `dropped` (ids that wait no longer under that name),
`vanished` (ids that nobody knows any more, and when they were seen last), `through` (jobs that ended before are all known).
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final, Literal

import pyarrow as pa

from loadfactor.base.units import MS_PER_DAY
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.live_state import pack_state, unpack_state
from loadfactor.sources.slurm.gpus import Notes
from loadfactor.sources.slurm.job_rows import JobSurroundings, book_jobs
from loadfactor.sources.slurm.jobs import JOBS, OPEN_STATES, number_runs
from loadfactor.sources.slurm.node_rows import NodeRecord, is_out_of_use, list_nodes, measure_shards, say_reason
from loadfactor.tables.schema import OUTAGES

ACCOUNTING, QUEUE, NODES, ALL_NODES = "accounting", "queue", "nodes", "all nodes"
DROPPED, VANISHED, THROUGH = "dropped", "vanished", "through"
UNKNOWN_END: Final = "jobs that neither accounting nor the controller knows any more: held until they were seen last"
KEPT_MS: Final = MS_PER_DAY
"""So long after its last run ended a job is remembered, for runs that follow."""
_UNFINISHED: Final = ("pending", *OPEN_STATES)
_CONTROLLER_ALONE: Final = ("placed", "indices", "gres", "restarts", "reason")
"""Columns that the controller knows and accounting does not."""
_SOONER: Final = ("state", "eligible", "started", "ended", "held", "nodes")
"""Columns of an open job that the controller knows before accounting does."""
_OF_A_FILE: Final = ("line", "known_until")
"""Columns that say something of what was printed, not of the job."""
Event = Sequence[Any]
JobReport = dict[str, Any]
"""A row of JOBS without its empty cells. Accounting (sacct, slurmdbd) counts before the controller (scontrol, slurmctld), which
knows sooner, and alone knows which GPUs of which node a job has and why it waits."""


@dataclass
class Run:
    """A run of a job, put together from all reports of it."""

    facts: JobReport = field(default_factory=dict)
    is_accounted: bool = False
    """Accounting knows it."""
    waited_ms: dict[str, int] = field(default_factory=dict)
    """By reason."""
    waits_for: tuple[str, int] | None = None
    """The reason now, and since when (ms)."""
    emitted_as: tuple[str, float | None] | None = None
    """The id and attempt of its rows, which it keeps."""


@dataclass
class SlurmState:
    """The state of a cluster that outlasts a restart."""

    runs: dict[str, list[Run]]
    emitted: dict[str, list[int]]
    nodes: list[NodeRecord]
    down: dict[str, tuple[int, str]]
    through: int
    knows_all: bool = False
    version: Literal[2] = 2


def list_job_reports(jobs: pa.Table) -> list[JobReport]:
    """The rows of JOBS as events have them."""
    return [{k: v for k, v in row.items() if v is not None and k not in _OF_A_FILE} for row in jobs.to_pylist()]


def list_node_values(node: NodeRecord) -> list[Any]:
    """A record of a node as events have it."""
    return [sorted(value) if isinstance(value, frozenset) else value for value in astuple(node)]


def is_open(report: Mapping[str, Any]) -> bool:
    """Whether more is to come of a run."""
    return report.get("ended") is None and report.get("state") in _UNFINISHED


class LiveSlurmDecoder:
    """The rows of one cluster, and its state."""

    def __init__(self, name: str, state: bytes = b"") -> None:
        """`name`: of the cluster. `state`: as `state()` gave it; empty for a new one. Raises SourceError where it is none."""
        self._label = f"slurm:{name}" if name else "slurm"
        self._jobs = KnownJobs()
        self._nodes = KnownNodes(self._label)
        self._emitted: dict[str, list[int]] = {}
        """Checksums of the rows of a job as they were emitted last."""
        self._through_ms = 0
        self._lost = 0
        if state:
            stored = unpack_state(SlurmState, state, "Slurm")
            self._jobs.runs, self._emitted, self._through_ms = stored.runs, stored.emitted, stored.through
            self._nodes.nodes, self._nodes.down = {node.name: node for node in stored.nodes}, stored.down
            self._nodes.knows_all = stored.knows_all

    def feed(self, events: Sequence[Event]) -> None:
        """Events in the order in which they came."""
        for at_ms, kind, reported in events:
            if kind in (ACCOUNTING, QUEUE):
                for report in reported:
                    self._jobs.put(report, kind == ACCOUNTING, at_ms)
            elif kind == NODES:
                self._nodes.put([_read_node(node) for node in reported], at_ms)
            elif kind == ALL_NODES:
                self._nodes.keep_only(reported, at_ms)
            elif kind == DROPPED:
                for job_id in reported:
                    self._jobs.drop(job_id)
            elif kind == VANISHED:
                self._lost += sum(self._jobs.end(job_id, seen_ms) for job_id, seen_ms in reported.items())
            elif kind == THROUGH:
                self._through_ms = max(self._through_ms, at_ms)

    def drain(self) -> Iterator[Rows | Gap]:
        """The rows that are new or changed since they were taken last."""
        if not self._nodes.knows_all and self._jobs.have_several_users():
            self._nodes.know_all()
        yield from self._nodes.take()
        around = JobSurroundings(measure_shards(self._nodes.nodes.values()), is_watched=True)
        notes = Notes()
        emitted: dict[str, list[int]] = {}
        for rows in book_jobs(self._jobs.number(notes, self._label), around, notes, self._label):
            new = []
            for number, row in enumerate(rows.data.to_pylist()):
                check = zlib.crc32(repr((rows.table, row)).encode(errors="replace"))
                job_id = str(row["job_id"]).partition("@")[0]
                if check not in self._emitted.get(job_id, ()):
                    new.append(number)
                emitted.setdefault(job_id, []).append(check)
            if new:
                yield Rows(rows.table, rows.data.take(pa.array(new, pa.int64())), rows.where)
        self._emitted |= emitted
        if self._jobs.forget(self._through_ms):
            arrays = {job_id.partition("_")[0] for job_id in self._jobs.runs}
            self._emitted = {
                job_id: rows for job_id, rows in self._emitted.items() if job_id.partition("_")[0] in arrays
            }
        if self._lost:
            yield Gap(self._label, UNKNOWN_END, self._lost)
            self._lost = 0

    def state(self) -> bytes:
        """All of it, to go on from here in another process."""
        nodes = list(self._nodes.nodes.values())
        known = self._nodes
        return pack_state(
            SlurmState(self._jobs.runs, self._emitted, nodes, known.down, self._through_ms, known.knows_all)
        )


def _read_node(values: Sequence[Any]) -> NodeRecord:
    name, gres, state, reason, since_ms, partitions, at_ms = values
    return NodeRecord(name, gres, frozenset(state), reason, since_ms, tuple(partitions), at_ms)


class KnownJobs:
    """The runs of each job id, as they become known report by report."""

    def __init__(self) -> None:
        self.runs: dict[str, list[Run]] = {}
        self.touched: set[str] = set()
        """Ids of which something new was reported since they were numbered last."""
        self._numbers: dict[str, str] = {}
        """Ids of the tasks of arrays by their raw number."""

    def put(self, report: JobReport, is_accounting: bool, at_ms: int) -> None:
        """Take what was reported at an instant."""
        report = self._name_task(_drop_expected(report, is_accounting, at_ms))
        runs = self.runs.setdefault(report["job_id"], [])
        known = _find_run(runs, report)
        if known is None:
            known = Run()
            runs.append(known)
        before = replace(known, facts=dict(known.facts))
        _merge(known, report, is_accounting, at_ms)
        if report.get("started") is not None:
            runs[:] = [run for run in runs if run is known or not _is_wait_of(run, known.facts)]
        if _end_earlier(runs, report, is_accounting, at_ms) or known != before:
            self.touched.add(report["job_id"])

    def _name_task(self, report: JobReport) -> JobReport:
        """Under its id, where accounting knows the start of an array's task by its raw number only."""
        number = report.get("job_number")
        if number is not None:
            self._numbers[number] = report["job_id"]
            return report
        task = self._numbers.get(report["job_id"], "")
        began = report.get("started")
        if began is not None and any(run.facts.get("started") == began for run in self.runs.get(task, ())):
            return {**report, "job_id": task, "job_number": report["job_id"]}
        return report

    def end(self, job_id: str, at_ms: int) -> int:
        """Nobody knows the job any more: what of it was open ended when it was seen last; how many runs."""
        found = [run.facts for run in self.runs.get(job_id, ()) if is_open(run.facts)]
        for facts in found:
            facts |= {"state": VANISHED, "ended": max(at_ms, facts.get("started") or facts.get("submitted") or 0)}
            self.touched.add(job_id)
        return len(found)

    def drop(self, job_id: str) -> None:
        """Forget what waits under an id that nobody uses any more: tasks of an array go on under their own."""
        self.runs.pop(job_id, None)
        self.touched.discard(job_id)

    def number(self, notes: Notes, label: str) -> pa.Table:
        """The runs of the jobs that were touched, as `number_runs` numbers them; one that was emitted before keeps its name."""
        runs = [run for job_id in sorted(self.touched) for run in self.runs.get(job_id, ())]
        self.touched.clear()
        if not runs:
            return JOBS.append(pa.field("attempt", pa.float64())).empty_table()
        rows = [
            {name: run.facts.get(name) for name in JOBS.names} | {"line": line, "reason": _explain(run)}
            for line, run in enumerate(runs)
        ]
        numbered = number_runs(pa.Table.from_pylist(rows, schema=JOBS), notes, label)
        names, attempts = [], []
        for line, name, attempt in zip(*(numbered[c].to_pylist() for c in ("line", "job_id", "attempt")), strict=True):
            runs[line].emitted_as = runs[line].emitted_as or (name, attempt)
            names.append(runs[line].emitted_as[0])
            attempts.append(runs[line].emitted_as[1])
        numbered = numbered.set_column(0, "job_id", pa.array(names, pa.string()))
        return numbered.set_column(numbered.num_columns - 1, "attempt", pa.array(attempts, pa.float64()))

    def have_several_users(self) -> bool:
        """Whether the runs that are known are of more than one user: so those of others may be seen."""
        users = (run.facts.get("user") for runs in self.runs.values() for run in runs)
        first = next(users, None)
        return any(user != first for user in users)

    def forget(self, before_ms: int) -> bool:
        """Know jobs no longer whose runs all ended long enough before an instant; whether there were any."""
        found = False
        for job_id, runs in list(self.runs.items()):
            ends = [run.facts.get("ended") or run.facts.get("started") or run.facts.get("submitted") for run in runs]
            is_over = (
                not any(is_open(run.facts) for run in runs)
                and max((end or 0 for end in ends), default=0) < before_ms - KEPT_MS
            )
            if is_over and job_id not in self.touched:
                found = True
                del self.runs[job_id]
                for run in runs:
                    self._numbers.pop(run.facts.get("job_number") or "", None)
        return found


def _drop_expected(report: JobReport, is_accounting: bool, at_ms: int) -> JobReport:
    """Without what did not happen: times that are only expected, the start of a job that was cancelled before.

    The reason that the controller gives of a job that waits no longer is why it ended.
    """
    wrong: tuple[str, ...] = ()
    if report.get("state") == "pending":
        wrong = ("started", "ended", *(("eligible",) if (report.get("eligible") or 0) > at_ms else ()))
        # requeued, and the nodes of the run before are not cleaned up: what it has is that run's, the count is the next one's
        wrong += ("held", "nodes", *_CONTROLLER_ALONE) if report.get("nodes") else ()
    else:
        wrong += () if is_accounting else ("reason",)
        wrong += ("started",) if report.get("state") == "cancelled" and not report.get("held") else ()
    return {name: value for name, value in report.items() if name not in wrong}


def _find_run(runs: Iterable[Run], report: JobReport) -> Run | None:
    """The run that a report is of: the one with its start, else the one submitted with it that had none."""
    started = report.get("started")
    alike = _list_alike(runs, report)
    if started is not None:
        found = next((run for run in alike if run.facts.get("started") == started), None)
        return found or next((run for run in alike if _is_wait_of(run, report)), None)
    return next((run for run in alike if run.facts.get("submitted") == report.get("submitted")), None)


def _list_alike(runs: Iterable[Run], report: JobReport) -> list[Run]:
    """The runs that may be of the job of a report, as far as its cluster is known."""
    cluster = report.get("cluster")
    return [run for run in runs if run.facts.get("cluster") in (None, cluster) or not cluster]


def _end_earlier(runs: Iterable[Run], report: JobReport, is_accounting: bool, at_ms: int) -> bool:
    """End the open runs that are over because their job was submitted or began again, or waits again; whether there were any.

    A requeue submits a job again once its nodes are cleaned up; before, a run is over by the time of the report. Accounting, which
    knows the end itself, corrects it.
    """
    waits = not is_accounting and report.get("state") == "pending"
    alike, found = _list_alike(runs, report), False
    for run in alike:
        start = run.facts.get("started")
        if start is None or not is_open(run.facts):
            continue
        times = [one.facts.get(name) for one in alike if one is not run for name in ("submitted", "started")]
        over_ms = min(
            (ms for ms in times if ms is not None and ms > start), default=max(at_ms, start) if waits else None
        )
        if over_ms is not None:
            run.facts |= {"state": "requeued", "ended": over_ms}
            found = True
    return found


def _is_wait_of(run: Run, started: JobReport) -> bool:
    return run.facts.get("started") is None and run.facts.get("submitted") == started.get("submitted")


def _merge(run: Run, report: JobReport, is_accounting: bool, at_ms: int) -> None:
    """Put what is reported into what is known: accounting counts before the controller, but for what that knows alone or sooner."""
    facts = run.facts
    if report.get("started") is None and facts.get("started") is not None:
        return  # an older report
    _count_wait(run, report, is_accounting, at_ms)
    may_replace = {name for name in report if not run.is_accounted or name in _CONTROLLER_ALONE}
    if is_accounting:
        may_replace = {name for name in report if name not in _CONTROLLER_ALONE}
    elif is_open(facts):
        may_replace.update(_SOONER)
    if facts.get("state") == VANISHED:
        del facts["state"], facts["ended"]
    is_stale = is_open(report) and "state" in facts and not is_open(facts)
    for name, value in report.items():
        may_write = name in may_replace or facts.get(name) is None
        if value is not None and may_write and not (is_stale and name in ("state", "ended")):
            facts[name] = value
    run.is_accounted |= is_accounting


def _count_wait(run: Run, report: JobReport, is_accounting: bool, at_ms: int) -> None:
    if is_accounting and report.get("started") is None and is_open(report):
        return  # accounting repeats an old reason
    if run.waits_for is not None:
        reason, since_ms = run.waits_for
        waited = max(0, (report.get("started") or report.get("ended") or at_ms) - since_ms)
        run.waited_ms = run.waited_ms | {reason: run.waited_ms.get(reason, 0) + waited}
    is_waiting = report.get("state") == "pending" and report.get("reason")
    run.waits_for = (report["reason"], at_ms) if is_waiting else None


def _explain(run: Run) -> str | None:
    """Why a job waited: for the reason that it waited longest for, as far as that was seen; else what Slurm reported last."""
    if run.facts.get("state") == "pending" or not run.waited_ms:
        reported: str | None = run.facts.get("reason")
        return reported
    return max(run.waited_ms, key=lambda reason: run.waited_ms[reason])


class KnownNodes:
    """Nodes as the controller reports them, and the rows of what changed."""

    def __init__(self, label: str) -> None:
        self.nodes: dict[str, NodeRecord] = {}
        self.down: dict[str, tuple[int, str]] = {}
        """Nodes out of use: since when (ms), and why."""
        self.knows_all = False
        """The jobs of all users are known, so nobody holds what none of them does."""
        self._label = label
        self._devices: list[Rows] = []
        self._outages: list[dict[str, Any]] = []

    def put(self, nodes: Sequence[NodeRecord], at_ms: int) -> None:
        """Nodes of which something is new, as they were at an instant. SourceError where one counts no GPUs."""
        for node in nodes:
            before = self.nodes.get(node.name)
            if before is None or (before.gres, before.partitions) != (node.gres, node.partitions):
                self._devices += self._list([node])
            self.nodes[node.name] = node
            self._watch(node, at_ms)

    def know_all(self) -> None:
        """From now on the jobs of all users are known: all nodes anew."""
        self.knows_all = True
        self._devices = self._list(self.nodes.values())

    def keep_only(self, names: Sequence[str], at_ms: int) -> None:
        """All nodes there are: others were taken out of the cluster, and nothing is out of use any more."""
        for name in self.nodes.keys() - set(names):
            self._close(name, at_ms)
            del self.nodes[name]

    def take(self) -> Iterator[Rows]:
        """The rows since they were taken last."""
        devices, self._devices = self._devices, []
        outages, self._outages = self._outages, []
        yield from devices
        if outages:
            schema = pa.schema([OUTAGES.schema.field(name) for name in outages[0]])
            yield Rows(OUTAGES.name, pa.Table.from_pylist(outages, schema), self._label)

    def _list(self, nodes: Iterable[NodeRecord]) -> list[Rows]:
        usable = [replace(node, state=frozenset()) for node in nodes]
        return list(list_nodes(usable, None, None, self._label, Notes(), (None,) if self.knows_all else ()))

    def _watch(self, node: NodeRecord, at_ms: int) -> None:
        known = self.down.get(node.name)
        if not (node.gres and is_out_of_use(node)):
            self._close(node.name, at_ms)
            return
        since, why = node.since_ms, say_reason(node) if node.reason or known is None else known[1]
        if known is not None and (since is None or since <= known[0]):
            since = known[0]
        elif known is not None and since is not None:  # somebody gave another reason, later
            self._close(node.name, since)
            known = None
        down = since if since is not None else at_ms, why
        if known != down:
            self.down[node.name] = down
            self._emit(node.name, down, None)

    def _close(self, name: str, at_ms: int) -> None:
        if (down := self.down.pop(name, None)) is not None:
            self._emit(name, down, max(at_ms, down[0]))

    def _emit(self, name: str, down: tuple[int, str], to_ms: int | None) -> None:
        self._outages.append({"node": name, "from_utc": down[0], "to_utc": to_ms, "reason": down[1]})
