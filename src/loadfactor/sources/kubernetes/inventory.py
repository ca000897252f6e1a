"""The GPUs of nodes as slices list them: each since when, until when, told as `devices` when either is known.

A whole GPU with a UUID is called by it. One that MIG or partitions divide, or without a UUID, is known by its number (`node:gpu7`),
behind those of its node with a UUID: where exporters name it, or the instances it is cut into, it counts once (`ledger.unlisted`).
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from loadfactor.base.units import MS_PER_S, S_PER_MIN
from loadfactor.sources.kubernetes.slices import SliceFacts, SliceGpu, join_devices
from loadfactor.tables.schema import LIST

Row = dict[str, Any]

RETURNS_MS: Final = 15 * S_PER_MIN * MS_PER_S
"""A GPU that is listed again within this time was there all the while: drivers publish their slices anew when they restart."""


class Installed(NamedTuple):
    """A GPU on its node since `from_ms`; `to_ms`: until when it was listed, None while it is."""

    node: str
    accelerator: str
    from_ms: int
    to_ms: int | None = None


class Inventory:
    """Slices as they are, the GPUs they list, and the rows of what came or went."""

    def __init__(self, backdates: bool) -> None:
        """`backdates`: GPUs that are there at first were so since their slices were created, else since they were seen."""
        self.slices: dict[str, SliceFacts] = {}
        self.installed: dict[str, Installed] = {}
        """By the name of the GPU, those that went a little while ago too."""
        self._changed: dict[str, int | None] = {}
        """Nodes of which slices changed, and when that was seen."""
        self._backdates = backdates

    def has_gpus(self, node: str) -> bool:
        """Whether any slice lists a GPU of a node."""
        return any(gpu.node == node for facts in self.slices.values() for gpu in facts.gpus)

    def put(self, facts: SliceFacts, at_ms: int | None) -> bool:
        """A slice as it is now; whether that is new."""
        before = self.slices.get(facts.name)
        if before == facts:
            return False
        self.slices[facts.name] = facts
        for one in (facts, *([before] if before else [])):
            self._mark(one, at_ms)
        return True

    def remove(self, name: str, at_ms: int | None) -> None:
        """A slice is gone."""
        facts = self.slices.pop(name, None)
        if facts is not None:
            self._mark(facts, at_ms)

    def take(self) -> Iterator[Row]:
        """The rows since they were taken last."""
        by_node: dict[str, list[SliceFacts]] = {node: [] for node in self._changed}
        for facts in self.slices.values() if self._changed else ():
            for node in {gpu.node for gpu in facts.gpus} & by_node.keys():
                by_node[node].append(facts)
        there: dict[str, list[str]] = {}
        for name, gpu in self.installed.items() if self._changed else ():
            there.setdefault(gpu.node, []).append(name)
        for node, slices in by_node.items():
            yield from self._compare(node, slices, there.get(node, []), self._changed[node])
        self._forget(max((at_ms for at_ms in self._changed.values() if at_ms is not None), default=0))
        self._changed = {}

    def _forget(self, now_ms: int) -> None:
        """Know GPUs no longer that went too long ago to be back."""
        old = [
            name for name, gpu in self.installed.items() if gpu.to_ms is not None and now_ms - gpu.to_ms > RETURNS_MS
        ]
        for name in old:
            del self.installed[name]

    def _mark(self, facts: SliceFacts, at_ms: int | None) -> None:
        for node in {gpu.node for gpu in facts.gpus if gpu.node}:
            self._changed[node] = at_ms

    def _compare(self, node: str, slices: list[SliceFacts], before: list[str], at_ms: int | None) -> Iterator[Row]:
        """What came to a node and what went from it since its GPUs were `before`."""
        current = _pick_current(slices)
        now = _name_gpus(node, join_devices(g for facts in current for g in facts.gpus if g.node == node))
        since_ms = at_ms
        if at_ms is None or (self._backdates and not before):
            since_ms = min((facts.from_ms for facts in current if facts.from_ms is not None), default=at_ms)
        for name, model in now.items():
            known = self.installed.get(name)
            if known is not None and known.node == node and _is_back(known, at_ms):
                if known.to_ms is not None or known.accelerator != model:
                    yield self._tell(name, Installed(node, model, known.from_ms))
            elif since_ms is not None and (known is None or known.from_ms < since_ms):
                if known is not None and known.to_ms is None:  # it was moved here
                    yield self._tell(name, known._replace(to_ms=since_ms))
                yield self._tell(name, Installed(node, model, since_ms))
        for name in before:
            known = self.installed[name]
            if name not in now and known.node == node and known.to_ms is None and at_ms is not None:
                yield self._tell(name, known._replace(to_ms=max(at_ms, known.from_ms)))

    def _tell(self, name: str, gpu: Installed) -> Row:
        self.installed[name] = gpu
        ended = {} if gpu.to_ms is None else {"to_utc": gpu.to_ms, "known_from": LIST}
        return {
            "device_id": name,
            "node": gpu.node,
            "accelerator": gpu.accelerator or None,
            "from_utc": gpu.from_ms,
            **ended,
        }


def _pick_current(slices: list[SliceFacts]) -> list[SliceFacts]:
    """Of each pool the slices of its newest generation of which all are there, else of its newest one."""
    pools: dict[tuple[str, str], dict[float, list[SliceFacts]]] = {}
    for facts in slices:
        pools.setdefault((facts.driver, facts.pool), {}).setdefault(facts.generation, []).append(facts)
    found = []
    for generations in pools.values():
        whole = [number for number, of in generations.items() if len(of) >= of[0].slices]
        found += generations[max(whole or generations)]
    return found


def _name_gpus(node: str, gpus: list[SliceGpu]) -> dict[str, str]:
    """Models of the GPUs of a node by name."""
    named = {gpu.uuid: gpu.model for gpu in gpus if gpu.uuid and not gpu.is_divided}
    others = sorted(gpu for gpu in gpus if not gpu.uuid or gpu.is_divided)
    numbered = {f"{node}:gpu{number}": gpu.model for number, gpu in enumerate(others, len(named))}
    return named | numbered


def _is_back(known: Installed, at_ms: int | None) -> bool:
    return known.to_ms is None or at_ms is None or at_ms - known.to_ms <= RETURNS_MS
