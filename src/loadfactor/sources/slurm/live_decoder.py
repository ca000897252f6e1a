"""Decoder of a Slurm cluster that is asked again and again: what is said of jobs and nodes, and what of it outlasts a restart.

An event is [when it was said (ms), kind, said]. Kinds: `accounting` and `queue` (sayings of jobs, from slurmdbd and slurmctld),
`nodes` (records of nodes, as lists), `all nodes` (their names), `dropped` (ids that wait no longer under that name), `vanished`
(ids that nobody knows any more, and when they were seen last), `through` (jobs that ended before are all known).
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any, Final

import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_DAY
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.slurm.gpus import Notes
from loadfactor.sources.slurm.job_rows import JobSurroundings, book_jobs
from loadfactor.sources.slurm.jobs import JOBS, OPEN_STATES, number_runs
from loadfactor.sources.slurm.node_rows import NodeRecord, is_out_of_use, list_nodes, measure_shards, say_reason
from loadfactor.tables.schema import OUTAGES

ACCOUNTING, QUEUE, NODES, ALL_NODES = "accounting", "queue", "nodes", "all nodes"
DROPPED, VANISHED, THROUGH = "dropped", "vanished", "through"
UNKNOWN_END: Final = "jobs that neither accounting nor the controller knows any more: held until they were seen last"
_VERSION: Final = 1
_QUICK: Final = 1
Event = Sequence[Any]
Saying = dict[str, Any]
Run = dict[str, Any]
"""A saying with `accounted`, whether accounting knows it, `waits` (see `_wait`), and `told_as`: its id and attempt."""
KEPT_MS: Final = MS_PER_DAY
"""So long after its last run ended a job is remembered, for runs that follow."""
UNFINISHED: Final = ("pending", *OPEN_STATES)
_CONTROLLER_ALONE: Final = ("placed", "indices", "restarts", "reason")
_SOONER: Final = ("state", "eligible", "started", "ended", "held", "nodes")
"""What the controller knows of an open job before accounting does."""


def write_sayings(jobs: pa.Table) -> list[Saying]:
    """The rows of JOBS as events have them."""
    return [{k: v for k, v in row.items() if v is not None and k != "line"} for row in jobs.to_pylist()]


def write_node(node: NodeRecord) -> list[Any]:
    """A record of a node as events have it."""
    return [sorted(value) if isinstance(value, frozenset) else value for value in astuple(node)]


class LiveSlurmDecoder:
    """The rows of one cluster, and its state."""

    def __init__(self, name: str, state: bytes = b"") -> None:
        """`name`: of the cluster. `state`: as `state()` gave it; empty for a new one. Raises SourceError where it is none."""
        self._label = f"slurm:{name}" if name else "slurm"
        self._jobs = KnownJobs()
        self._nodes = KnownNodes(self._label)
        self._told: dict[str, list[int]] = {}
        """Checksums of the rows of a job as they were told last."""
        self._through_ms = 0
        self._lost = 0
        if state:
            self._restore(state)

    def put(self, events: Sequence[Event]) -> None:
        """Events in the order in which they came."""
        for at_ms, kind, said in events:
            if kind in (ACCOUNTING, QUEUE):
                for saying in said:
                    self._jobs.put(saying, kind == ACCOUNTING, at_ms)
            elif kind == NODES:
                self._nodes.put([_read_node(node) for node in said], at_ms)
            elif kind == ALL_NODES:
                self._nodes.keep_only(said, at_ms)
            elif kind == DROPPED:
                for job_id in said:
                    self._jobs.drop(job_id)
            elif kind == VANISHED:
                self._lost += sum(self._jobs.end(job_id, seen_ms) for job_id, seen_ms in said.items())
            elif kind == THROUGH:
                self._through_ms = max(self._through_ms, at_ms)

    def take(self) -> Iterator[Rows | Gap]:
        """The rows that are new or changed since they were taken last."""
        yield from self._nodes.take()
        around = JobSurroundings(measure_shards(self._nodes.nodes.values()))
        notes = Notes()
        told: dict[str, list[int]] = {}
        for rows in book_jobs(self._jobs.number(notes, self._label), around, notes, self._label):
            yield from self._pick_new(rows, told)
        self._told |= told
        if list(self._jobs.forget(self._through_ms)):
            arrays = {job_id.partition("_")[0] for job_id in self._jobs.runs}
            self._told = {job_id: rows for job_id, rows in self._told.items() if job_id.partition("_")[0] in arrays}
        if self._lost:
            yield Gap(self._label, UNKNOWN_END, self._lost)
            self._lost = 0

    def _pick_new(self, rows: Rows, told: dict[str, list[int]]) -> Iterator[Rows]:
        """The rows that were not told as they are now."""
        new = []
        for number, row in enumerate(rows.data.to_pylist()):
            check = zlib.crc32(repr((rows.table, row)).encode(errors="replace"))
            job_id = str(row["job_id"]).partition("@")[0]
            if check not in self._told.get(job_id, ()):
                new.append(number)
            told.setdefault(job_id, []).append(check)
        if new:
            yield Rows(rows.table, rows.data.take(pa.array(new, pa.int64())), rows.where)

    def state(self) -> bytes:
        """All of it, to go on from here in another process."""
        said = {
            "version": _VERSION,
            "runs": self._jobs.runs,
            "told": self._told,
            "nodes": [write_node(node) for node in self._nodes.nodes.values()],
            "down": self._nodes.down,
            "through": self._through_ms,
        }
        return zlib.compress(json.dumps(said, separators=(",", ":")).encode(), _QUICK)

    def _restore(self, state: bytes) -> None:
        try:
            said: Mapping[str, Any] = json.loads(zlib.decompress(state))
            if said["version"] != _VERSION:
                raise SourceError(f"the state of Slurm is of version {said['version']!r}; this is another loadfactor")
            self._jobs.runs = dict(said["runs"])
            self._told = dict(said["told"])
            self._nodes.nodes = {node.name: node for node in map(_read_node, said["nodes"])}
            self._nodes.down = {name: (since, why) for name, (since, why) in said["down"].items()}
            self._through_ms = said["through"]
        except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SourceError(f"the state of Slurm cannot be read ({type(error).__name__}: {error})") from error


def _read_node(values: Sequence[Any]) -> NodeRecord:
    name, gres, state, reason, since_ms, partitions, at_ms = values
    return NodeRecord(name, gres, frozenset(state), reason, since_ms, tuple(partitions), at_ms)


class KnownNodes:
    """What the controller says of each node, and the rows of what changed."""

    def __init__(self, label: str) -> None:
        self.nodes: dict[str, NodeRecord] = {}
        self.down: dict[str, tuple[int, str]] = {}
        """Nodes out of use: since when (ms), and why."""
        self._label = label
        self._devices: list[Rows] = []
        self._outages: list[dict[str, Any]] = []

    def put(self, nodes: Sequence[NodeRecord], at_ms: int) -> None:
        """Nodes of which something is new, as they were at an instant. SourceError where one counts no GPUs."""
        for node in nodes:
            before = self.nodes.get(node.name)
            if before is None or (before.gres, before.partitions) != (node.gres, node.partitions):
                self._list_devices(node)
            self.nodes[node.name] = node
            self._watch(node, at_ms)

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

    def _list_devices(self, node: NodeRecord) -> None:
        self._devices += list_nodes([replace(node, state=frozenset())], None, None, self._label, Notes())

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
            self._tell(node.name, down, None)

    def _close(self, name: str, at_ms: int) -> None:
        if (down := self.down.pop(name, None)) is not None:
            self._tell(name, down, max(at_ms, down[0]))

    def _tell(self, name: str, down: tuple[int, str], to_ms: int | None) -> None:
        self._outages.append({"node": name, "from_utc": down[0], "to_utc": to_ms, "reason": down[1]})


def is_open(saying: Mapping[str, Any]) -> bool:
    """Whether more is to come of a run."""
    return saying.get("ended") is None and saying.get("state") in UNFINISHED


class KnownJobs:
    """The runs of each job id."""

    def __init__(self) -> None:
        self.runs: dict[str, list[Run]] = {}
        self.touched: set[str] = set()
        """Ids of which something new was said since they were numbered last."""
        self._numbers: dict[str, str] = {}
        """Ids of the tasks of arrays by their raw number."""

    def put(self, saying: Saying, is_accounting: bool, at_ms: int) -> None:
        """Take what was said at an instant."""
        saying = self._name_task(_set_right(saying, is_accounting, at_ms))
        runs = self.runs.setdefault(saying["job_id"], [])
        known = _find_run(runs, saying)
        if known is None:
            known = {"waits": {}}
            runs.append(known)
        before = dict(known)
        _merge(known, saying, is_accounting, at_ms)
        if saying.get("started") is not None:
            runs[:] = [one for one in runs if one is known or not _is_wait_of(one, known)]
        if known != before:
            self.touched.add(saying["job_id"])

    def _name_task(self, saying: Saying) -> Saying:
        """Under its id, where accounting knows the start of an array's task by its raw number only."""
        number = saying.get("job_number")
        if number is not None:
            self._numbers[number] = saying["job_id"]
            return saying
        task = self._numbers.get(saying["job_id"], "")
        began = saying.get("started")
        if began is not None and any(run.get("started") == began for run in self.runs.get(task, ())):
            return {**saying, "job_id": task, "job_number": saying["job_id"]}
        return saying

    def end(self, job_id: str, at_ms: int) -> int:
        """Nobody knows the job any more: what of it was open ended when it was seen last; how many runs."""
        found = [run for run in self.runs.get(job_id, ()) if is_open(run)]
        for run in found:
            run |= {"state": VANISHED, "ended": max(at_ms, run.get("started") or run.get("submitted") or 0)}
            self.touched.add(job_id)
        return len(found)

    def drop(self, job_id: str) -> None:
        """Forget what waits under an id that nobody uses any more: tasks of an array go on under their own."""
        self.runs.pop(job_id, None)
        self.touched.discard(job_id)

    def number(self, notes: Notes, label: str) -> pa.Table:
        """The runs of the jobs that were touched, as `number_runs` numbers them; what was told of one before stays its name."""
        at_hand = [run for job_id in sorted(self.touched) for run in self.runs.get(job_id, ())]
        self.touched.clear()
        if not at_hand:
            return JOBS.append(pa.field("attempt", pa.float64())).empty_table()
        rows = [
            {name: run.get(name) for name in JOBS.names} | {"line": line, "reason": explain(run)}
            for line, run in enumerate(at_hand)
        ]
        numbered = number_runs(pa.Table.from_pylist(rows, schema=JOBS), notes, label)
        names, attempts = [], []
        for line, name, attempt in zip(*(numbered[c].to_pylist() for c in ("line", "job_id", "attempt")), strict=True):
            told = at_hand[line].setdefault("told_as", [name, attempt])
            names.append(told[0])
            attempts.append(told[1])
        numbered = numbered.set_column(0, "job_id", pa.array(names, pa.string()))
        return numbered.set_column(numbered.num_columns - 1, "attempt", pa.array(attempts, pa.float64()))

    def forget(self, before_ms: int) -> Iterator[str]:
        """The ids whose runs all ended long enough before an instant; they are no longer known."""
        for job_id, runs in list(self.runs.items()):
            if job_id not in self.touched and all(_ended_before(run, before_ms - KEPT_MS) for run in runs):
                del self.runs[job_id]
                for run in runs:
                    self._numbers.pop(run.get("job_number") or "", None)
                yield job_id


def _ended_before(run: Run, at_ms: int) -> bool:
    return not is_open(run) and (run.get("ended") or run.get("started") or run.get("submitted") or 0) < at_ms


def _set_right(saying: Saying, is_accounting: bool, at_ms: int) -> Saying:
    """Without what did not happen: times that are only expected, the start of a job that was cancelled before.

    The reason that the controller gives of a job that waits no longer is why it ended.
    """
    wrong: tuple[str, ...] = ()
    if saying.get("state") == "pending":
        wrong = ("started", "ended", *(("eligible",) if (saying.get("eligible") or 0) > at_ms else ()))
    else:
        wrong += () if is_accounting else ("reason",)
        wrong += ("started",) if saying.get("state") == "cancelled" and not saying.get("held") else ()
    return {name: value for name, value in saying.items() if name not in wrong}


def _find_run(runs: Iterable[Run], saying: Saying) -> Run | None:
    """The run that a saying is of: the one with its start, else the one submitted with it that had none."""
    started, submitted = saying.get("started"), saying.get("submitted")
    alike = [one for one in runs if one.get("cluster") in (None, saying.get("cluster")) or not saying.get("cluster")]
    if started is not None:
        found = next((one for one in alike if one.get("started") == started), None)
        return found or next((one for one in alike if _is_wait_of(one, saying)), None)
    return next((one for one in alike if one.get("submitted") == submitted), None)


def _is_wait_of(one: Run, started: Mapping[str, Any]) -> bool:
    """Whether a run that nobody saw start is the waiting for one that started."""
    return one.get("started") is None and one.get("submitted") == started.get("submitted")


def _merge(run: Run, saying: Saying, is_accounting: bool, at_ms: int) -> None:
    """Put what is said into what is known."""
    _wait(run, saying, is_accounting, at_ms)
    if saying.get("started") is None and run.get("started") is not None:
        return  # an older saying
    is_less = run.get("accounted", False) and not is_accounting
    was_open = is_open(run)
    if run.get("state") == VANISHED:
        del run["state"], run["ended"]
    is_stale = is_open(saying) and "state" in run and not is_open(run)
    for name, value in saying.items():
        if value is None or (is_stale and name in ("state", "ended")):
            continue
        if (
            is_less
            and name not in _CONTROLLER_ALONE
            and run.get(name) is not None
            and not (was_open and name in _SOONER)
        ):
            continue
        if not is_less and name in _CONTROLLER_ALONE and is_accounting and run.get(name) is not None:
            continue
        run[name] = value
    run["accounted"] = run.get("accounted", False) or is_accounting


def _wait(run: Run, saying: Saying, is_accounting: bool, at_ms: int) -> None:
    """Count how long a job waits for which reason: `waits` has ms by reason, `waits_for` the reason now and since when."""
    if is_accounting and saying.get("started") is None and is_open(saying):
        return  # accounting repeats an old reason
    since = run.pop("waits_for", None)
    if since is not None:
        until = saying.get("started") or saying.get("ended") or at_ms
        waited = max(0, until - since[1])
        run["waits"] = run["waits"] | {since[0]: run["waits"].get(since[0], 0) + waited}
    if saying.get("state") == "pending" and saying.get("reason"):
        run["waits_for"] = [saying["reason"], at_ms]


def explain(run: Run) -> str | None:
    """Why a job waited: for the reason that it waited longest for, as far as that was seen; else what Slurm said last."""
    waits: dict[str, int] = run.get("waits", {})
    if run.get("state") == "pending" or not waits:
        said: str | None = run.get("reason")
        return said
    return max(waits, key=lambda reason: waits[reason])
