"""Nodes → rows of the books: their GPUs as `devices`, nodes that may not be used as `outages`.

Slurm knows the GPUs of a node by their number, not their name: they are called `node:gpu0`, and count only while nothing else lists
as many GPUs of the node (`ledger/inventory.py`). Where the jobs of all users are known, nobody holds the others.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Rows
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.slurm.gpus import MOST_ON_NODE, Notes, ShardSizes, measure_share, tally
from loadfactor.tables.schema import DEVICES, OUTAGES, SCHEDULED

NO_SINCE: Final = "nodes out of use, and nobody says since when: give --at, when the output was taken"
STILL_DOWN: Final = "nodes out of use: taken to be so until further notice; --at says until when that is known"
NO_GPUS_HERE: Final = "nodes without GPUs: not listed"
FREE: Final = "GPUs of nodes that are listed beside all jobs: unallocated where no job held them, down where a node was out of use"
NO_JOBS: Final = (
    "GPUs of nodes that are listed without jobs: nobody says which of them were free; import what sacct prints in the"
    " same command, beside the list of nodes"
)
ONE_USER: Final = (
    "GPUs of nodes that are listed beside jobs of one user: nobody says whether others held them; export jobs with"
    " `sacct --allusers`"
)
_OUT_OF_USE: Final = frozenset(
    (
        "down",
        "drain",
        "drained",
        "draining",
        "drng",
        "fail",
        "failing",
        "failg",
        "failed",
        "error",
        "maint",
        "not_responding",
    )
)
_SYMBOLS: Final = {"*": "not_responding", "$": "maint"}
_FLAG: Final = re.compile(r"([A-Za-z_]+)([^A-Za-z_]*)")


@dataclass(frozen=True)
class NodeRecord:
    """A node as a command reports it: its GRES, the words of its state, and why and since when (ms) it is out of use."""

    name: str
    gres: str | None
    state: frozenset[str]
    reason: str | None
    since_ms: int | None
    partitions: tuple[str, ...] = ()
    at_ms: int | None = None  # when that was reported


def read_node_state(text: str) -> frozenset[str]:
    """The words of a node's state; of its symbols a star says that it does not respond, a dollar that it is maintained.

    >>> sorted(read_node_state("IDLE*+DRAIN")), sorted(read_node_state("MIXED"))
    (['drain', 'idle', 'not_responding'], ['mixed'])
    """
    words = set()
    for name, symbols in _FLAG.findall(text):
        words.add(name.lower())
        words |= {_SYMBOLS[symbol] for symbol in symbols if symbol in _SYMBOLS}
    return frozenset(words)


def list_nodes(
    nodes: Iterable[NodeRecord],
    pool: str | None,
    at_ms: int | None,
    label: str,
    notes: Notes,
    users: Collection[str | None],
) -> Iterator[Rows]:
    """The GPUs of nodes and the nodes out of use. SourceError names a node whose GRES counts no GPUs.

    `users`: of the jobs that are known with them, None where a job names nobody. Jobs of one user alone may be those that this user
    may see, so that others may hold the rest.
    """
    devices, outages = [], []
    knows_all = len(users) > 1 or None in users
    for node in merge_nodes(nodes):
        gpus = list(_list_gpus(node, label))
        notes.add(label, NO_GPUS_HERE, int(not gpus))
        where = pool or (node.partitions[0] if len(node.partitions) == 1 else None)
        devices += [
            {
                "device_id": f"{node.name}:gpu{number}",
                "node": node.name,
                "accelerator": kind,
                "pool": where,
                "share": share,
                "known_from": SCHEDULED if knows_all else None,
            }
            for number, (kind, share) in enumerate(gpus)
        ]
        if gpus and is_out_of_use(node):
            taken = at_ms if at_ms is not None else node.at_ms
            since = node.since_ms if node.since_ms is not None else taken
            if since is None:
                notes.add(label, NO_SINCE)
                continue
            notes.add(label, STILL_DOWN, int(taken is None))
            until = None if taken is None else max(since, taken)
            outages.append({"node": node.name, "from_utc": since, "to_utc": until, "reason": say_reason(node)})
    notes.add(label, FREE if knows_all else ONE_USER if users else NO_JOBS, len(devices))
    for table, rows in ((DEVICES, devices), (OUTAGES, outages)):
        if rows:
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            schema = pa.schema([table.schema.field(name) for name in columns])
            yield Rows(table.name, pa.table(columns, schema=schema), label)


def merge_nodes(nodes: Iterable[NodeRecord]) -> Iterable[NodeRecord]:
    """Each node once, as it is named last, in all partitions that it is named in."""
    found: dict[str, NodeRecord] = {}
    for node in nodes:
        before = found[node.name].partitions if node.name in found else ()
        found[node.name] = replace(node, partitions=tuple(dict.fromkeys((*before, *node.partitions))))
    return found.values()


def measure_shards(nodes: Iterable[NodeRecord]) -> ShardSizes:
    """How many shards and MPS percentages make a GPU, where the nodes that have some agree."""
    found: dict[str, set[float]] = {"shard": set(), "mps": set()}
    for node in nodes:
        try:
            total, typed, others = tally(node.gres or "")
        except ValueError:
            continue
        gpus = max(total, sum(typed.values()))
        for name, count in others.items():
            if gpus and count:
                found[name].add(count / gpus)
    return ShardSizes({name: sizes.pop() for name, sizes in found.items() if len(sizes) == 1})


def _list_gpus(node: NodeRecord, label: str) -> Iterator[tuple[str | None, float | None]]:
    try:
        total, typed, _ = tally(node.gres or "")
    except ValueError as error:
        raise SourceError(f"{label}: node {node.name}: {quote(node.gres)} {error}") from None
    if max(total, sum(typed.values())) > MOST_ON_NODE:
        raise SourceError(f"{label}: node {node.name}: {quote(node.gres)} counts more GPUs than a node has")
    for kind, count in typed.items():
        share = measure_share(kind)
        yield from [(None if share else kind, share)] * int(count)
    yield from [(None, None)] * int(max(0.0, total - sum(typed.values())))


def is_out_of_use(node: NodeRecord) -> bool:
    """Whether nothing new may start on a node, or it does not answer."""
    return bool(node.state & _OUT_OF_USE)


def say_reason(node: NodeRecord) -> str:
    """Why a node is out of use: what somebody wrote, else its state."""
    return node.reason or "+".join(sorted(node.state & _OUT_OF_USE))
