"""Nodes as they become known: their GPUs, and when they were out of use."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from loadfactor.sources.base import Rows
from loadfactor.sources.slurm.node_rows import NodeRecord, is_out_of_use, list_nodes, say_reason
from loadfactor.sources.slurm.notes import Notes
from loadfactor.tables.schema import OUTAGES


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
