"""Decoder of a Slurm cluster that is asked again and again: what is said of jobs and nodes, and what of it outlasts a restart.

An event is [when it was said (ms), kind, said]. Kinds: `accounting` and `queue` (sayings of jobs, from slurmdbd and slurmctld),
`nodes` (records of nodes, as lists), `all nodes` (their names), `dropped` (ids that wait no longer under that name), `vanished`
(ids that nobody knows any more, and when they were seen last), `through` (jobs that ended before are all known).
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any, Final

import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.slurm.job_rows import JobSurroundings, book_jobs
from loadfactor.sources.slurm.live_jobs import KnownJobs, Saying
from loadfactor.sources.slurm.live_nodes import KnownNodes
from loadfactor.sources.slurm.node_rows import NodeRecord, measure_shards
from loadfactor.sources.slurm.notes import Notes

ACCOUNTING, QUEUE, NODES, ALL_NODES = "accounting", "queue", "nodes", "all nodes"
DROPPED, VANISHED, THROUGH = "dropped", "vanished", "through"
UNKNOWN_END: Final = "jobs that neither accounting nor the controller knows any more: held until they were seen last"
_VERSION: Final = 1
_QUICK: Final = 1

Event = Sequence[Any]


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
