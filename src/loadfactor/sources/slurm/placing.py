"""The nodes of jobs: GPUs by node where Slurm says them, else the GPUs of a job split evenly over its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.sources.slurm.hostlists import expand_hostlist
from loadfactor.sources.slurm.job_gpus import refuse
from loadfactor.sources.slurm.tres import count_gpus, list_indices
from loadfactor.tables.schema import KNOWN_FROM

EVEN_SPLIT: Final = KNOWN_FROM[1]
MOST_PLACES: Final = 50_000_000  # nodes of all jobs of a batch


@dataclass(frozen=True)
class Places:
    """One entry a job and node: the job's row, the node (null: not known), GPUs there, what that is known from, which they are."""

    row: pa.Array
    node: pa.Array
    gpus: pa.Array
    known_from: pa.Array
    indices: pa.Array

    def slice(self, first: int, count: int) -> "Places":
        """So many entries from the first on."""
        return Places(
            *(of.slice(first, count) for of in (self.row, self.node, self.gpus, self.known_from, self.indices))
        )


def place_jobs(jobs: pa.Table, gpus: NDArray[np.float64], label: str) -> Places:
    """Where the GPUs of each job are. SourceError names the line of a text that is no list of nodes.

    GPUs on one node are known to be there; on several they are split evenly, as a fraction where that does not come out even.
    """
    encoded = jobs["nodes"].combine_chunks().dictionary_encode()
    names: list[tuple[str | None, ...]] = []
    for text in encoded.dictionary.to_pylist():
        try:
            names.append(expand_hostlist(text) or (None,))
        except ValueError as error:
            raise refuse(jobs, "nodes", text, label, str(error)) from None
    names.append((None,))
    codes = encoded.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)
    counts = np.array([len(nodes) for nodes in names], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    each = counts[codes]
    if each.sum() > MOST_PLACES:
        raise refuse(
            jobs, "nodes", jobs["nodes"][int(each.argmax())].as_py(), label, "and the others name too many nodes"
        )
    row = np.repeat(np.arange(len(codes)), each)
    within = np.arange(len(row)) - np.repeat(np.cumsum(each) - each, each)
    flat = pa.array([node for nodes in names for node in nodes], pa.string())
    node = flat.take(pa.array(starts[codes][row] + within))
    shared = (gpus / each)[row]
    known = pa.array(np.where(each[row] > 1, EVEN_SPLIT, ""), pa.string())
    places = Places(
        pa.array(row),
        node,
        pa.array(shared),
        pc.if_else(pc.equal(known, ""), pa.scalar(None, pa.string()), known),
        pa.nulls(len(row), pa.string()),
    )
    return _take_counted(jobs, places) if jobs["placed"].null_count < jobs.num_rows else places


def _take_counted(jobs: pa.Table, places: Places) -> Places:
    """The same with the GPUs by node of jobs of which Slurm says them (`placed`, `indices`), whose other nodes have none."""
    counted = {at: parse_placed(text) for at, text in enumerate(jobs["placed"].to_pylist()) if text}
    named = {at: parse_indices(jobs["indices"][at].as_py()) for at in counted}
    rows = [
        entry
        for entry in zip(
            places.row.to_pylist(),
            places.node.to_pylist(),
            places.gpus.to_pylist(),
            places.known_from.to_pylist(),
            places.indices.to_pylist(),
            strict=True,
        )
        if entry[0] not in counted
    ]
    rows += [
        (at, node, gpus, None, named[at].get(node)) for at, nodes in counted.items() for node, gpus in nodes.items()
    ]
    columns = list(zip(*rows, strict=True))
    types = (pa.int64(), pa.string(), pa.float64(), pa.string(), pa.string())
    return Places(*(pa.array(values, of) for values, of in zip(columns, types, strict=True)))


def parse_placed(text: str) -> dict[str, float]:
    """GPUs by node, as `placed` of a job has them.

    >>> parse_placed("n1=3,n2=1")
    {'n1': 3.0, 'n2': 1.0}
    """
    pairs = (item.rpartition("=") for item in text.split(","))
    return {node: float(count) for node, _, count in pairs if float(count) > 0}


def parse_indices(text: str | None) -> dict[str, str]:
    """Numbers of GPUs by node, as `indices` of a job has them.

    >>> parse_indices("n1=0 1 2,n2=5")
    {'n1': '0,1,2', 'n2': '5'}
    """
    pairs = (item.rpartition("=") for item in (text or "").split(",") if item)
    return {node: numbers.replace(" ", ",") for node, _, numbers in pairs}


def count_placed(gres: Mapping[str, str]) -> dict[str, float]:
    """GPUs by node, of what each node gave as GRES. ValueError where a number of them is none."""
    return {node: count for node, text in gres.items() if (count := count_gpus(text).gpus)}


def write_indices(gres: Mapping[str, str]) -> str | None:
    """Numbers of GPUs by node as one text; None where none are said.

    >>> write_indices({"n1": "gpu:h100:3(IDX:0-2)", "n2": "gpu:h100:1(IDX:5)", "n3": "gpu:h100:1"})
    'n1=0 1 2,n2=5'
    """
    found = {node: list_indices(text) for node, text in gres.items()}
    return ",".join(f"{node}={' '.join(map(str, numbers))}" for node, numbers in found.items() if numbers) or None


def write_placed(gpus: dict[str, float]) -> str | None:
    """GPUs by node as one text; None where there are none."""
    return ",".join(f"{node}={count}" for node, count in gpus.items() if count) or None
