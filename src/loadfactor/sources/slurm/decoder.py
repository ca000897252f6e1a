"""Decoder of what Slurm writes: every input by its kind, the jobs of all of them together."""

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.slurm.gpus import Notes
from loadfactor.sources.slurm.job_rows import JobSurroundings, book_jobs
from loadfactor.sources.slurm.jobs import find_repeated, number_runs, number_single_runs
from loadfactor.sources.slurm.node_rows import NodeRecord, is_out_of_use, list_nodes, measure_shards
from loadfactor.sources.slurm.rest_json import count_others, decode_rest_jobs, decode_rest_nodes, parse_documents
from loadfactor.sources.slurm.sacct import SacctText, make_keys
from loadfactor.sources.slurm.scontrol import KINDS, decode_scontrol_jobs, decode_scontrol_nodes
from loadfactor.sources.slurm.sinfo import IS_SINFO, decode_sinfo
from loadfactor.sources.slurm.squeue import IS_SQUEUE, decode_squeue

_CONTROL: Final = re.compile(rb"\s*(?:%s)=" % "|".join(KINDS).encode())
NO_USE_OF_AT: Final = "--at changed nothing: no job still ran, and no node was out of use"
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class JobsAtHand:
    """Jobs that lie in memory, and the input they were in."""

    label: str
    jobs: pa.Table

    def list_keys(self) -> Iterator[NDArray[np.int64]]:
        """As of `SacctText`."""
        yield make_keys(self.jobs["job_id"].combine_chunks())

    def decode(self, _notes: Notes) -> Iterator[pa.Table]:
        """The jobs."""
        yield self.jobs


Jobs = SacctText | JobsAtHand


def decode_slurm(inputs: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The rows and gaps of inputs of any kinds, in any order. SourceError names the input and the line of what cannot be read."""
    notes = Notes()
    jobs: list[Jobs] = []
    nodes: list[NodeRecord] = []
    for source in inputs:
        kind = find_kind(source)
        if kind == "json":
            for document in parse_documents(source):
                jobs.append(JobsAtHand(source.label, decode_rest_jobs(document, source.label)))
                nodes += decode_rest_nodes(document)
                for name, count in count_others(document).items():
                    notes.add(source.label, f"{name}: not booked", count)
        elif kind == "scontrol":
            jobs.append(JobsAtHand(source.label, decode_scontrol_jobs(source, options.timezone, notes)))
            nodes += decode_scontrol_nodes(source, options.timezone, notes)
        elif kind == "squeue":
            jobs.append(JobsAtHand(source.label, decode_squeue(source, options.timezone, notes)))
        elif kind == "sinfo":
            nodes += decode_sinfo(source, options.timezone, notes)
        else:
            jobs.append(SacctText(source, options.timezone))
    users: set[str | None] = set()
    for rows in decode_jobs(jobs, JobSurroundings(measure_shards(nodes), options.pool, options.at_ms), notes):
        if nodes and len(users) < 2:
            users.update(rows.data["user"].unique().to_pylist())
        yield rows
    yield from list_nodes(nodes, options.pool, options.at_ms, inputs[0].label, notes, users)
    if options.at_ms is not None and not notes.open_until and not any(map(is_out_of_use, nodes)):
        notes.add(inputs[0].label, NO_USE_OF_AT)
    yield from notes.make_gaps()


def find_kind(source: Input) -> str:
    """The format of an input, by how it begins: `json`, text of `scontrol`, `squeue` or `sinfo`, else that of `sacct`."""
    start = next((chunk for chunk in source.chunks if chunk), b"").removeprefix(_BOM)
    if start.startswith(_UTF_16):
        start = start[: len(start) // 2 * 2].decode("utf-16", "replace").encode(errors="replace")
    if start.lstrip()[:1] in (b"{", b"["):
        return "json"
    if _CONTROL.match(start):
        return "scontrol"
    return "squeue" if IS_SQUEUE.match(start) else "sinfo" if IS_SINFO.match(start) else "sacct"


def decode_jobs(inputs: Sequence[Jobs], around: JobSurroundings, notes: Notes) -> Iterator[Rows]:
    """Allocations and queue events of jobs.

    Text is gone through twice: ids that come several times are found first, because their rows belong together wherever they stand.
    All others are handed on batch by batch, so that memory holds a number a job.
    """
    keys = [part for one in inputs for part in one.list_keys()]
    repeated = find_repeated(np.concatenate(keys)) if keys else np.empty(0, np.int64)
    del keys
    aside: list[pa.Table] = []
    for one in inputs:
        label = one.source.label if isinstance(one, SacctText) else one.label
        for jobs in one.decode(notes):
            again = np.isin(make_keys(jobs["job_id"].combine_chunks()), repeated)
            if again.any():
                aside.append(jobs.filter(pa.array(again)))
                jobs = jobs.filter(pa.array(~again))
            yield from book_jobs(number_single_runs(jobs, notes, label), around, notes, label)
    if aside:
        first = inputs[0]
        label = first.source.label if isinstance(first, SacctText) else first.label
        yield from book_jobs(number_runs(pa.concat_tables(aside), notes, label), around, notes, label)
