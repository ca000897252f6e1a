"""What is remembered of the nodes of a source, as tables and back."""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.sources.prometheus.engine_source import EngineSource
from loadfactor.sources.prometheus.gpu_memory import FORGET_AFTER_MS
from loadfactor.sources.prometheus.node_source import NodeSource
from loadfactor.sources.prometheus.running_steps import GAPS

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
    """The nodes that were seen not long ago, by number."""
    last_ms = source.steps.last_ms[: len(source.known.gpus)]
    return np.flatnonzero((last_ms >= 0) & (last_ms >= last_ms.max(initial=0) - FORGET_AFTER_MS))
