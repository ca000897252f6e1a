"""Points of the nodes of one source → rows of node_samples: rates of what is counted, and memory."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.gpu_scrapes.fields import Field, FieldValues
from loadfactor.sources.gpu_scrapes.known_devices import KnownDevices, Numbering
from loadfactor.sources.gpu_scrapes.scrape_table import TextGaps
from loadfactor.sources.parsing.steps import GAPS, NEVER, RunningSteps, grow
from loadfactor.sources.prometheus.engine_source import EngineSource
from loadfactor.sources.prometheus.gpu_source import FORGET_AFTER_MS
from loadfactor.tables.schema import table

NODE_EXPORTER: Final = "node-exporter"
CPU_IDLE, CPU_WAIT, CPU_WORK, DISK_READ, DISK_WRITE, NET_RX, NET_TX, MEM_TOTAL, MEM_AVAILABLE = KINDS = (
    *("cpu_idle", "cpu_wait", "cpu_work", "disk_read", "disk_write", "net_rx", "net_tx"),
    *("mem_total", "mem_available"),
)
"""Kinds of series of a node; those of the CPU are seconds of one core, those of disks and interfaces bytes of one of them."""
KIND_NUMBER: Final = {kind: number for number, kind in enumerate(KINDS)}
COUNTED: Final = KINDS[:7]
"""Kinds that are totals which only grow."""
_FIELDS: Final = (
    Field(CPU_WORK, ("node_cpu_seconds_total", "node_cpu"), counts=True),
    Field(DISK_READ, ("node_disk_read_bytes_total", "node_disk_bytes_read"), counts=True),
    Field(DISK_WRITE, ("node_disk_written_bytes_total", "node_disk_bytes_written"), counts=True),
    Field(NET_RX, ("node_network_receive_bytes_total", "node_network_receive_bytes"), counts=True),
    Field(NET_TX, ("node_network_transmit_bytes_total", "node_network_transmit_bytes"), counts=True),
    Field(MEM_TOTAL, ("node_memory_MemTotal_bytes", "node_memory_MemTotal")),
    Field(MEM_AVAILABLE, ("node_memory_MemAvailable_bytes", "node_memory_MemAvailable")),
)
_BY_NAME: Final = {name: field for field in _FIELDS for name in field.names}
_MODES: Final = {mode: Field(kind, (mode,), counts=True) for mode, kind in (("idle", CPU_IDLE), ("iowait", CPU_WAIT))}
_NO_DISK: Final = re.compile(
    r"(?:dm-|md|loop|z?ram|fd|sr|nbd|drbd|bcache)\d.*|(?:h|s|v|xv)d[a-z]+\d+|nvme\d+n\d+p\d+|nvme\d+c\d+n\d+|mmcblk\d+(?:p|boot|rpmb).*"
)
"""Partitions, and what lies on top of disks or is none: their bytes are counted on the disks."""
_NO_INTERFACE: Final = re.compile(
    r"lo|(?:veth|cali|cilium|lxc|cni|flannel|weave|docker|virbr|vnet|br-|br\d|ovs|tap|tun|vxlan|geneve|genev|gre|wg|dummy|bond|team"
    r"|macv|ipvl|kube-|nodelocal|podman|ifb|sit|ip6|erspan|vmnet|tailscale).*|.*[.@].*"
)
"""The loopback, what only containers see, tunnels, VLANs, bridges and bonds: their bytes are counted on the interfaces below."""


def find_node_field(labels: Mapping[str, str]) -> tuple[Field, str] | None:
    """The field of a series of node-exporter, and which part of the node it is of; None for one that is not kept.

    >>> find_node_field({"__name__": "node_disk_read_bytes_total", "device": "nvme0n1"})[1]
    'nvme0n1'
    >>> find_node_field({"__name__": "node_disk_read_bytes_total", "device": "nvme0n1p2"})
    """
    field = _BY_NAME.get(labels.get("__name__", ""))
    if field is None:
        return None
    part = labels.get("device", "")
    if field.key == CPU_WORK:
        return _MODES.get(labels.get("mode", ""), field), ""  # all cores of a node are one
    if field.key in (DISK_READ, DISK_WRITE):
        return (field, part) if part and not _NO_DISK.fullmatch(part) else None
    if field.key in (NET_RX, NET_TX):
        return (field, part) if part and not _NO_INTERFACE.fullmatch(part) else None
    return field, ""


def list_node_names() -> list[str]:
    """The metrics of node-exporter."""
    return sorted(_BY_NAME)


Slot = tuple[int, str, str]
"""A node, a kind, and the part of the node: a disk, an interface, or nothing."""
_BYTES: Final = {
    "disk_read_bytes_per_s": "disk_read",
    "disk_write_bytes_per_s": "disk_write",
    "net_rx_bytes_per_s": "net_rx",
    "net_tx_bytes_per_s": "net_tx",
}


class SlotTotals:
    """The last total of each slot: when (NEVER), how much, and of how many series it is the sum."""

    def __init__(self) -> None:
        self.at_ms, self.total, self.series = np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)

    def grow(self, slots: int) -> None:
        """Room for so many."""
        self.at_ms = grow(self.at_ms, slots, NEVER)
        self.total, self.series = grow(self.total, slots, 0), grow(self.series, slots, 0)


class NodeSource:
    """The nodes that one job of Prometheus scrapes, and what is remembered of them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.known = KnownDevices()  # its GPUs are nodes here
        self.slots: Numbering[Slot] = Numbering()
        self.gaps = TextGaps()
        self.steps = RunningSteps()
        self.totals = SlotTotals()

    def decode(self, values: FieldValues, is_late: bool) -> Iterator[Rows | Gap]:
        """The rows of values, in which places are slots; late ones have rates among themselves only."""
        steps, totals = (RunningSteps(), SlotTotals()) if is_late else (self.steps, self.totals)
        steps.grow(len(self.known.gpus))
        totals.grow(len(self.slots))
        order = np.lexsort((values.at_ms, values.gpu))
        node, at_ms = values.gpu[order], values.at_ms[order]
        new = np.append(True, (node[1:] != node[:-1]) | (at_ms[1:] != at_ms[:-1]))[: len(order)]
        of_value = np.empty(len(order), np.int64)  # the row of each value
        of_value[order] = np.cumsum(new) - 1
        node, at_ms = node[new], at_ms[new]
        start_ms, _, before_ms = steps.follow(node, at_ms)
        near_ms = np.where(start_ms == before_ms, before_ms, NEVER)
        cells = _Cells(len(node))
        self._add_rates(cells, totals, values, of_value, near_ms)
        for kind in KINDS[len(COUNTED) :]:
            mine = values.key == KIND_NUMBER[kind]
            cells.set(kind, of_value[mine], values.value[mine])
        columns = _make_columns(cells)
        some = np.logical_or.reduce([known for _, known in columns.values()])
        if some.any():
            yield Rows(
                "node_samples", self._make_table(columns, node, start_ms, at_ms).filter(pa.array(some)), self.name
            )
        yield from self.gaps.drain()

    def _add_rates(
        self,
        cells: "_Cells",
        totals: SlotTotals,
        values: FieldValues,
        of_value: NDArray[np.int64],
        near_ms: NDArray[np.int64],
    ) -> None:
        """Rates since the scrape before, of each slot by itself: one that was set back, or is of other series now, has none."""
        at = np.flatnonzero(values.is_total)
        at = at[np.lexsort((values.at_ms[at], values.place[at]))]
        if not len(at):
            return
        slot, when = values.place[at], values.at_ms[at]
        begins = np.flatnonzero(np.append(True, (slot[1:] != slot[:-1]) | (when[1:] != when[:-1])))
        total = np.add.reduceat(values.value[at], begins)
        series = np.diff(np.append(begins, len(at)))
        slot, when, row, key = slot[begins], when[begins], of_value[at[begins]], values.key[at[begins]]
        is_first = np.append(True, slot[1:] != slot[:-1])
        is_last = np.append(is_first[1:], True)
        before = [np.where(is_first, old[slot], np.append(new[:1], new[:-1])) for old, new in (
            (totals.at_ms, when), (totals.total, total), (totals.series, series))]  # fmt: skip
        for old, new in ((totals.at_ms, when), (totals.total, total), (totals.series, series)):
            old[slot[is_last]] = new[is_last]
        known = (before[0] >= 0) & (before[0] == near_ms[row]) & (total >= before[1]) & (series == before[2])
        rate = (total - before[1]) * MS_PER_S / np.maximum(when - before[0], 1)
        for number, kind in enumerate(COUNTED):
            mine = key == number
            cells.add(kind, row[mine], rate[mine], known[mine])

    def _make_table(
        self,
        columns: "_Columns",
        node: NDArray[np.int32],
        start_ms: NDArray[np.int64],
        at_ms: NDArray[np.int64],
    ) -> pa.Table:
        schema = table("node_samples").schema
        names = pa.array([self.known.gpus.all[number] for number in node.tolist()], pa.string())
        data = {"node": names, "from_utc": pa.array(start_ms), "to_utc": pa.array(at_ms)}
        for name, (value, known) in columns.items():
            data[name] = pa.array(value, schema.field(name).type, mask=~known)
        return pa.table({**data, "source": pa.array([self.name] * len(node), pa.string())})


_Columns = dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]]


class _Cells:
    """Numbers by kind and row. `parts` counts what they are the sum of, `unknown` the parts without one."""

    def __init__(self, rows: int) -> None:
        self.value = {kind: np.zeros(rows) for kind in KINDS}
        self.parts = {kind: np.zeros(rows, np.int64) for kind in KINDS}
        self.unknown = {kind: np.zeros(rows, np.int64) for kind in KINDS}

    def set(self, kind: str, row: NDArray[np.int64], value: NDArray[np.float64]) -> None:
        """The value of each row."""
        self.value[kind][row], self.parts[kind][row] = value, 1

    def add(self, kind: str, row: NDArray[np.int64], value: NDArray[np.float64], known: NDArray[np.bool_]) -> None:
        """Adds a part to each row."""
        np.add.at(self.value[kind], row, np.where(known, value, 0))
        np.add.at(self.parts[kind], row, 1)
        np.add.at(self.unknown[kind], row, ~known)

    def known(self, kind: str) -> NDArray[np.bool_]:
        """True where all parts are known, one at least."""
        known: NDArray[np.bool_] = (self.parts[kind] > 0) & (self.unknown[kind] == 0)
        return known


def _make_columns(cells: _Cells) -> _Columns:
    value, known = cells.value, cells.known
    core_seconds = value["cpu_idle"] + value["cpu_wait"] + value["cpu_work"]
    no_wait = cells.parts["cpu_wait"] == 0  # only Linux counts it
    cpu = known("cpu_idle") & known("cpu_work") & (known("cpu_wait") | no_wait) & (core_seconds > 0)
    shared = np.maximum(core_seconds, np.finfo(float).tiny)
    total, available = value["mem_total"], value["mem_available"]
    memory = known("mem_total") & known("mem_available") & (available <= total)
    return {
        "cpu_busy_share": (np.clip(value["cpu_work"] / shared, 0, 1), cpu),
        "io_wait_share": (np.clip(value["cpu_wait"] / shared, 0, 1), cpu & ~no_wait),
        **{column: (value[kind], known(kind)) for column, kind in _BYTES.items()},
        "mem_used_bytes": (total - available, memory),
        "mem_total_bytes": (total, known("mem_total")),
    }


_INT: Final = pa.int64()
NODES: Final = pa.schema({"source": pa.string(), "node": pa.string(), "last_ms": _INT, "gaps_ms": pa.list_(_INT, GAPS)})
SLOTS: Final = pa.schema(
    {
        "source": pa.string(),
        "node": pa.string(),
        "kind": pa.string(),
        "part": pa.string(),
        "at_ms": _INT,
        "total": pa.float64(),
        "series": _INT,
    }
)


def list_nodes(source: NodeSource | EngineSource) -> pa.Table:
    """The nodes, or targets, that were seen not long ago."""
    kept = _find_recent(source)
    columns = [
        [source.name] * len(kept),
        [source.known.gpus.all[number] for number in kept.tolist()],
        source.steps.last_ms[kept],
        pa.FixedSizeListArray.from_arrays(pa.array(source.steps.gaps_ms[kept].ravel()), GAPS),
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, NODES, strict=True)], schema=NODES)


def list_slots(source: NodeSource) -> pa.Table:
    """Their totals."""
    recent, totals = set(_find_recent(source).tolist()), source.totals
    totals.grow(len(source.slots))
    numbers = [n for n, (node, _, _) in enumerate(source.slots.all) if node in recent and totals.at_ms[n] >= 0]
    slots = [source.slots.all[number] for number in numbers]
    columns = [
        [source.name] * len(numbers),
        [source.known.gpus.all[node] for node, _, _ in slots],
        [kind for _, kind, _ in slots],
        [part for _, _, part in slots],
        totals.at_ms[numbers],
        totals.total[numbers],
        totals.series[numbers],
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SLOTS, strict=True)], schema=SLOTS)


def restore_nodes(source: NodeSource | EngineSource, nodes: pa.Table) -> None:
    """Remembers the nodes of `list_nodes`, in a source that knows none."""
    source.steps.grow(nodes.num_rows)
    for row in nodes.to_pylist():
        number = source.known.gpus.number(row["node"])
        source.steps.last_ms[number], source.steps.gaps_ms[number] = row["last_ms"], row["gaps_ms"]


def restore_slots(source: NodeSource, slots: pa.Table) -> None:
    """Remembers the totals of `list_slots`, whose nodes are known."""
    totals = source.totals
    totals.grow(slots.num_rows)
    for row in slots.to_pylist():
        number = source.slots.number((source.known.gpus.number(row["node"]), row["kind"], row["part"]))
        totals.at_ms[number], totals.total[number], totals.series[number] = row["at_ms"], row["total"], row["series"]


def _find_recent(source: NodeSource | EngineSource) -> NDArray[np.int64]:
    last_ms = source.steps.last_ms[: len(source.known.gpus)]
    return np.flatnonzero((last_ms >= 0) & (last_ms >= last_ms.max(initial=0) - FORGET_AFTER_MS))
