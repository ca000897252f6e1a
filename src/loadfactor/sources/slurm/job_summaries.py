"""Summaries that jobstats writes into AdminComment when a job ends: means and peaks of its GPUs over the whole run, by node.

They are no samples: a job that worked an hour and stood still for nine has the mean of one that worked a tenth all the time.
"""

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.base.units import BYTES_PER_MIB, PERCENT
from loadfactor.sources.slurm.hostlists import expand_hostlist
from loadfactor.sources.slurm.notes import Notes
from loadfactor.sources.slurm.placing import Places, write_placed

MARK: Final = "JS1:"
"""What a summary begins with."""
UNREADABLE: Final = "summaries of jobstats that cannot be read: left out"
NOT_ITS_GPUS: Final = "summaries of jobstats that name other nodes, or more GPUs, than the job held: left out"
SHARED: Final = "summaries of jobstats of jobs that hold parts of GPUs: left out, they measure whole ones"
_EMPTY: Final = ("", "None", "Short")
"""What stands there of a job that was not measured, or too short to be."""
_MOST_BYTES: Final = BYTES_PER_MIB
_GZIP: Final = 16 + zlib.MAX_WBITS


@dataclass(frozen=True)
class NodeSummary:
    """What is said of a job's GPUs on one node. `named` of them are spoken of; of `measured` ones the mean utilization is known."""

    named: int
    measured: int
    busy_share: float | None  # mean over the measured ones
    mem_peak_share: float | None  # of the memory of the measured ones; None where it is not known of all


def read_summary(text: str) -> dict[str, NodeSummary]:
    """What a summary says, by node; empty where the job was not measured. ValueError where it cannot be read.

    >>> read_summary("JS1:Short")
    {}
    """
    packed = "".join(text.removeprefix(MARK).split())
    if packed in _EMPTY:
        return {}
    try:
        stream = zlib.decompressobj(_GZIP)
        data = stream.decompress(base64.b64decode(packed, validate=True), _MOST_BYTES)
        if not stream.eof:
            raise ValueError("it breaks off, or is too large")
        nodes = json.loads(data)["nodes"]
        return {str(name): _read_node(node) for name, node in nodes.items()}
    except (zlib.error, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _read_node(node: Mapping[str, Any]) -> NodeSummary:
    """ValueError where a number is none, or cannot be true."""
    busy, used, total = (
        {gpu: _read_number(value) for gpu, value in node.get(name, {}).items()}
        for name in ("gpu_utilization", "gpu_used_memory", "gpu_total_memory")
    )
    if any(value > PERCENT for value in busy.values()):
        raise ValueError("a GPU is busy for more than all of the time")
    if any(value > total.get(gpu, value) for gpu, value in used.items()):
        raise ValueError("a GPU uses more memory than it has")
    memory = sum(total.get(gpu, 0.0) for gpu in busy)
    is_known = bool(memory) and all(gpu in used and total.get(gpu) for gpu in busy)
    return NodeSummary(
        len({*busy, *used, *total}),
        len(busy),
        sum(busy.values()) / len(busy) / PERCENT if busy else None,
        sum(used[gpu] for gpu in busy) / memory if is_known else None,
    )


def _read_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is no measurement")
    return float(value)


@dataclass(frozen=True)
class JobSummaries:
    """Summaries of a table of jobs, by row and by the job's own name of the node."""

    of: Mapping[int, Mapping[str, NodeSummary]]

    def place(self, jobs: pa.Table, gpus: NDArray[np.float64]) -> pa.Table:
        """The jobs with GPUs by node (`placed`) where a summary speaks of every GPU that the job held, and Slurm does not say."""
        if not self.of:
            return jobs
        placed = jobs["placed"].to_pylist()
        for row, nodes in self.of.items():
            named = {node: float(said.named) for node, said in nodes.items()}
            if len(nodes) > 1 and placed[row] is None and all(named.values()) and sum(named.values()) == gpus[row]:
                placed[row] = write_placed(named)
        return jobs.set_column(jobs.column_names.index("placed"), "placed", pa.array(placed, pa.string()))

    def list_columns(self, places: Places) -> dict[str, pa.Array]:
        """The columns of `allocations` that say them, by entry of `places`; none of them where there is no summary."""
        if not self.of:
            return {}
        said = [
            self.of.get(row, {}).get(node)
            for row, node in zip(places.row.to_pylist(), places.node.to_pylist(), strict=True)
        ]
        known = [one if one is not None and one.measured else None for one in said]
        return {
            "summary_gpus": pa.array([one and float(one.measured) for one in known], pa.float64()),
            "summary_busy_share": pa.array([one and one.busy_share for one in known], pa.float64()),
            "summary_mem_peak_share": pa.array([one and one.mem_peak_share for one in known], pa.float64()),
        }


def read_summaries(
    jobs: pa.Table, gpus: NDArray[np.float64], share: NDArray[np.float64], notes: Notes, label: str
) -> JobSummaries:
    """The summaries of jobs that held so many GPUs, or parts of them (`share`, NaN for whole ones). What is wrong is counted."""
    found: dict[int, dict[str, NodeSummary]] = {}
    summed = pc.fill_null(pc.starts_with(jobs["admin_comment"].combine_chunks(), MARK), False)
    rows = np.flatnonzero(summed.to_numpy(zero_copy_only=False))
    columns = (jobs.take(pa.array(rows))[name].to_pylist() for name in ("admin_comment", "nodes", "line"))
    for row, text, nodes, line in zip(rows.tolist(), *columns, strict=True):
        try:
            said, held_on = read_summary(text), expand_hostlist(nodes) if nodes else ()
        except ValueError:
            notes.add(label, UNREADABLE, 1, line)
            continue
        if not any(node.named for node in said.values()):
            continue
        if not np.isnan(share[row]):
            notes.add(label, SHARED, 1, line)
            continue
        matched = _match_nodes(said, held_on)
        if matched is None or sum(node.named for node in said.values()) > gpus[row]:
            notes.add(label, NOT_ITS_GPUS, 1, line)
            continue
        found[row] = matched
    return JobSummaries(found)


def _match_nodes(said: Mapping[str, NodeSummary], nodes: Sequence[str]) -> dict[str, NodeSummary] | None:
    """What is said, by the names that the job has of its nodes; None where it is of other ones.

    Exporters may be known by a name with a domain; of a job on one node that is the one, whatever it is called.
    """
    if len(said) == 1 == len(nodes):
        return {nodes[0]: next(iter(said.values()))}
    own = {node.partition(".")[0]: node for node in nodes}
    named = {own.get(name.partition(".")[0], ""): one for name, one in said.items()}
    return None if "" in named or len(named) < len(said) or len(own) < len(nodes) else named
