"""Jobs → rows of the books: what held GPUs as `allocations`, what waits or never started as `queue_events`.

A job that was started waited as its allocation's times say; it has queue events only where they say more: why it waited. A
suspended job holds its GPUs, because Slurm keeps them allocated while its processes stand still.
"""

import base64
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB, H_PER_YEAR, MS_PER_HOUR, MS_PER_MIN, PERCENT
from loadfactor.sources.base import Rows
from loadfactor.sources.slurm.gpus import (
    JobGpus,
    Notes,
    Places,
    ShardSizes,
    expand_hostlist,
    measure_gpus,
    name_model,
    note_unsized,
    place_jobs,
    write_instant,
    write_placed,
)
from loadfactor.sources.slurm.jobs import OPEN_STATES

ROWS_AT_ONCE: Final = 50_000
SLACK_MS: Final = MS_PER_MIN
"""So much earlier than what Slurm says may be reported when it was queried."""
LONGEST_RUN_MS: Final = 10 * H_PER_YEAR * MS_PER_HOUR
NO_GPUS_AT_ALL: Final = "jobs without GPUs: not booked"
NO_MOMENT: Final = (
    "jobs that still ran, and nothing says when Slurm was queried: held as long as the books go on; add ElapsedRaw to"
    " sacct's --format, or give --at"
)
NO_START: Final = (
    "jobs that ran, and nothing says since when: not booked (Slurm-web's lists leave times out; save `squeue --json` or"
    " /api/agents/CLUSTER/job/ID of each)"
)
NO_END: Final = "jobs that ended, and nobody says when: not booked"
BACKWARDS: Final = "jobs that end before they start, or after ten years: not booked"
LATE_SUBMIT: Final = "jobs that were submitted after they started: their wait is unknown"
GIVEN_NONE: Final = "jobs that asked for GPUs and were given none: not booked"
PARTS_REQUESTED: Final = "jobs with parts of GPUs (MIG, shards, MPS): the part that they requested, not what they used"
REQUESTED_ONLY: Final = "jobs of which nobody says what they were given: what they asked for is booked"
MOST_TASKS: Final = 1_000_000  # of one array; Slurm allows 4 million, and nobody waits with so many
_CONDENSED: Final = re.compile(r"(\d+)_\[([^\]]*)\]?")
_TASKS: Final = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
TAGS: Final = (
    "account", "admin_comment", "cluster", "comment", "job_name", "partition", "qos", "reservation", "wckey",
)  # fmt: skip
"""Keys of tags, sorted; each a column of JOBS."""
_SPECIAL: Final = r'["\\\x00-\x1f]'
CUT_OFF: Final = (
    "lists of waiting tasks of arrays that Slurm cut off: the tasks that are named wait (sacct --array names all)"
)
HELD: Final = ("JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue")
"""Reasons of jobs that somebody holds back."""
LATER: Final = ("BeginTime", "Dependency", *HELD)
"""Reasons of jobs that may not start yet, whatever their eligible time says."""
MARK: Final = "JS1:"
"""The first letters of a summary."""
UNREADABLE: Final = "summaries of jobstats that cannot be read: left out"
NOT_ITS_GPUS: Final = "summaries of jobstats that name other nodes, or more GPUs, than the job held: left out"
SHARED: Final = "summaries of jobstats of jobs that hold parts of GPUs: left out, they measure whole ones"
_EMPTY: Final = ("", "None", "Short")
"""Words in place of a summary, of a job that was not measured, or too short to be."""
_MOST_BYTES: Final = BYTES_PER_MIB
_GZIP: Final = 16 + zlib.MAX_WBITS


@dataclass(frozen=True)
class JobSurroundings:
    """Facts of an import besides a job's own row: shards of a GPU, the pool where no node is known, when Slurm was queried.

    `is_watched`: what Slurm says of jobs that still run is followed, so that their end will be known.
    """

    sizes: ShardSizes = field(default_factory=ShardSizes)
    pool: str | None = None
    at_ms: int | None = None
    is_watched: bool = False


def book_jobs(jobs: pa.Table, around: JobSurroundings, notes: Notes, label: str) -> Iterator[Rows]:
    """The rows of jobs (JOBS and `attempt`). SourceError names the line of resources or nodes that are none."""
    if not jobs.num_rows:
        return
    gpus = measure_gpus(jobs, around.sizes, label)
    note_unsized(notes, label, gpus, jobs["line"])
    notes.add(label, NO_GPUS_AT_ALL, int(((gpus.held == 0) & (gpus.requested == 0)).sum()))
    jobs = _set_right(jobs, notes, label)
    begun = jobs["started"].is_valid().to_numpy()
    has_grant = jobs["held"].is_valid().to_numpy()
    ran = begun & (has_grant | ~_is_state(jobs, ("cancelled",)))
    _note(notes, label, NO_START, ~begun & _is_state(jobs, OPEN_STATES) & ~(gpus.held == 0), jobs)
    assumed = ran & ~has_grant & (gpus.requested > 0)
    _note(notes, label, REQUESTED_ONLY, assumed, jobs)
    held = np.where(assumed, gpus.requested, gpus.held)
    _note(notes, label, GIVEN_NONE, ran & (held == 0) & (gpus.requested > 0), jobs)
    open_end = jobs["ended"].is_null().to_numpy()
    nobody_knows = ran & (held > 0) & open_end & ~(_is_state(jobs, OPEN_STATES) | jobs["state"].is_null().to_numpy())
    _note(notes, label, NO_END, nobody_knows, jobs)
    length: NDArray[np.int64] = pc.fill_null(pc.subtract(jobs["ended"], jobs["started"]), 0).to_numpy()
    backwards = ran & (held > 0) & ((length < 0) | (length > LONGEST_RUN_MS))
    _note(notes, label, BACKWARDS, backwards, jobs)
    booked = ran & (held > 0) & ~nobody_knows & ~backwards  # NaN, shards of unknown size, is not above 0
    _note(notes, label, PARTS_REQUESTED, booked & ~np.isnan(gpus.share) | booked & (held % 1 > 0), jobs)
    chosen = JobGpus(held, gpus.share, gpus.requested)
    jobs = _end_open(jobs, booked & open_end, around, notes, label)
    for rows in _allocate(jobs, booked, chosen, around, label, notes):
        yield Rows("allocations", rows, label)
    requested = np.where(gpus.requested > 0, gpus.requested, gpus.held)
    for rows in list_events(jobs, ~ran & (requested > 0), booked, requested, around.pool, label, notes):
        yield from (Rows("queue_events", part, label) for part in slices(rows))


def slices(rows: pa.Table) -> Iterator[pa.Table]:
    """A table in parts of a bounded number of rows."""
    for first in range(0, rows.num_rows, ROWS_AT_ONCE):
        yield rows.slice(first, ROWS_AT_ONCE)


def _allocate(
    jobs: pa.Table, booked: NDArray[np.bool_], gpus: JobGpus, around: JobSurroundings, label: str, notes: Notes
) -> Iterator[pa.Table]:
    if not booked.any():
        return
    kept = jobs.filter(pa.array(booked))
    held = gpus.held[booked]
    summaries = read_summaries(kept, held, gpus.share[booked], notes, label)
    places = place_jobs(summaries.place(kept, held), held, label)
    tags = write_tags(kept)
    pools = pa.array([around.pool], pa.string()).take(pa.array(np.zeros(kept.num_rows, dtype=np.int64)))
    grants = pc.coalesce(kept["held"], kept["requested"]).to_pylist(), kept["gres"].to_pylist()
    own = {
        "job_id": kept["job_id"],
        "job_number": kept["job_number"],
        "attempt": kept["attempt"],
        "pool": pc.coalesce(pools, kept["partition"].combine_chunks()),
        "share": pa.array(gpus.share[booked], mask=np.isnan(gpus.share[booked])),
        "user": kept["user"],
        "team": kept["account"],
        "queue": kept["partition"],
        "tags": tags,
        "submitted_utc": kept["submitted"],
        "eligible_utc": kept["eligible"],
        "from_utc": kept["started"],
        "to_utc": pc.coalesce(kept["ended"], kept["known_until"]),
        "end_state": kept["state"],
        "accelerator": pa.array(
            [name_model(grant) or name_model(gres) for grant, gres in zip(*grants, strict=True)], pa.string()
        ),
    }
    for first in range(0, len(places.row), ROWS_AT_ONCE):
        part = places.slice(first, ROWS_AT_ONCE)
        rows = pa.table(own).take(part.row)
        rows = rows.set_column(
            rows.column_names.index("pool"),
            "pool",
            pc.if_else(part.node.is_valid(), pa.scalar(None, pa.string()), rows["pool"]),
        )
        there = {"node": part.node, "gpus": part.gpus, "known_from": part.known_from, "gpu_indices": part.indices}
        for name, values in (there | summaries.list_columns(part)).items():
            rows = rows.append_column(name, values)
        yield rows


def _end_open(jobs: pa.Table, still: NDArray[np.bool_], around: JobSurroundings, notes: Notes, label: str) -> pa.Table:
    """Jobs with `known_until` of those that `still` run, and of no others. SourceError where --at is before what was known."""
    of = jobs["known_until"].combine_chunks()
    seen_ms: NDArray[np.int64] = pc.if_else(pa.array(still), of, None).fill_null(0).to_numpy(zero_copy_only=False)
    known_ms = np.maximum(seen_ms, np.where(still, jobs["started"].fill_null(0).to_numpy(), 0))
    if around.at_ms is not None:
        late = still & (known_ms > around.at_ms + SLACK_MS)
        if late.any():
            row = int(known_ms.argmax())
            raise SourceError(
                f"{label}, job {jobs['job_id'][row].as_py()}: it still ran at {write_instant(int(known_ms[row]))}, after"
                f" --at {write_instant(around.at_ms)}; give when Slurm was queried, or leave --at out"
            )
        seen_ms = np.where(still, np.maximum(around.at_ms, known_ms), 0)
    elif not around.is_watched:
        _note(notes, label, NO_MOMENT, still & (seen_ms == 0), jobs)
    notes.keep_open(label, int((seen_ms > 0).sum()), int(seen_ms.max()))
    until = pa.array(seen_ms, mask=seen_ms == 0)
    return jobs.set_column(jobs.column_names.index("known_until"), "known_until", until)


def _set_right(jobs: pa.Table, notes: Notes, label: str) -> pa.Table:
    """Jobs with times that fit together: what waits has not begun, and nobody is eligible before being submitted."""
    begun, submitted, able = (
        jobs["started"].combine_chunks(),
        jobs["submitted"].combine_chunks(),
        jobs["eligible"].combine_chunks(),
    )
    pending = pa.array(_is_state(jobs, ("pending",)))
    nothing = pa.scalar(None, pa.int64())
    begun = pc.if_else(pending, nothing, begun)
    late = pc.fill_null(pc.greater(submitted, begun), False)
    _note(notes, label, LATE_SUBMIT, late.to_numpy(zero_copy_only=False), jobs)
    submitted = pc.if_else(late, nothing, submitted)
    able = pc.if_else(pc.fill_null(pc.or_(pc.greater(able, begun), late), False), nothing, able)
    able = pc.if_else(pc.fill_null(pc.greater(able, jobs["ended"].combine_chunks()), False), nothing, able)
    able = pc.if_else(pc.fill_null(pc.less(able, submitted), False), submitted, able)
    for name, values in (("started", begun), ("submitted", submitted), ("eligible", able)):
        jobs = jobs.set_column(jobs.column_names.index(name), name, values)
    return jobs


def _is_state(jobs: pa.Table, states: tuple[str, ...]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.is_in(jobs["state"], pa.array(states)).to_numpy()
    return found


def _note(notes: Notes, label: str, what: str, wrong: NDArray[np.bool_], jobs: pa.Table) -> None:
    if wrong.any():
        notes.add(label, what, int(wrong.sum()), jobs["line"][int(wrong.argmax())].as_py())


def expand_array(job_id: str) -> tuple[list[str], bool]:
    """The jobs of a line: of waiting tasks that share one each of them, else the job itself; and whether the list was cut off.

    >>> expand_array("2_[3-5,8%2]"), expand_array("7_[1-5:2,...]"), expand_array("7_1")
    ((['2_3', '2_4', '2_5', '2_8'], False), (['7_1', '7_3', '7_5'], True), (['7_1'], False))
    """
    found = _CONDENSED.fullmatch(job_id)
    if found is None:
        return [job_id], False
    listed, _, _ = found[2].partition("%")
    tasks: dict[int, None] = {}
    is_cut = not job_id.endswith("]")
    for part in listed.split(","):
        span = _TASKS.fullmatch(part)
        if span is None:  # Slurm ends a list that is too long with …
            is_cut = True
            continue
        first, last, step = int(span[1]), int(span[2] or span[1]), int(span[3] or 1)
        if step < 1 or not 0 <= last - first < MOST_TASKS or len(tasks) > MOST_TASKS:
            is_cut = True
            continue
        tasks.update(dict.fromkeys(range(first, last + 1, step)))
    if not tasks:
        return [job_id], True
    return [f"{found[1]}_{task}" for task in tasks], is_cut


def write_tags(jobs: pa.Table) -> pa.Array:
    """The tags of each job; null where it has none."""
    parts = []
    for name in TAGS:
        texts = jobs[name].combine_chunks()
        if name == "admin_comment":
            summary = pc.fill_null(pc.starts_with(texts, MARK), False)
            texts = pc.if_else(summary, pa.scalar(None, pa.string()), texts)
        if texts.null_count < len(texts):
            parts.append(pc.binary_join_element_wise(f'"{name}":', _quote(texts), ""))
    if not parts:
        return pa.nulls(jobs.num_rows, pa.string())
    members = pc.binary_join_element_wise(*parts, ",", null_handling="skip")
    objects = pc.binary_join_element_wise("{", members, "}", "")
    return pc.if_else(pc.equal(members, ""), pa.scalar(None, pa.string()), objects)


def _quote(texts: pa.Array) -> pa.Array:
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    special = pc.fill_null(pc.match_substring_regex(texts, _SPECIAL), False)
    if not pc.any(special).as_py():
        return quoted
    escaped = [json.dumps(t, ensure_ascii=False) for t in texts.filter(special).to_pylist()]
    return pc.replace_with_mask(quoted, special, pa.array(escaped, pa.string()))


def list_events(
    jobs: pa.Table,
    waits: NDArray[np.bool_],
    booked: NDArray[np.bool_],
    gpus: NDArray[np.float64],
    pool: str | None,
    label: str,
    notes: Notes,
) -> Iterator[pa.Table]:
    """Events of jobs that were never started (`waits`), and of those `booked` whose reason is known, with the GPUs requested."""
    explained = booked & jobs["reason"].is_valid().to_numpy()
    chosen_rows = waits | explained
    if not chosen_rows.any():
        return
    chosen, gpus, waits = jobs.filter(pa.array(chosen_rows)), gpus[chosen_rows], waits[chosen_rows]
    own = pa.table(
        {
            "job_id": chosen["job_id"],
            "job_number": chosen["job_number"],
            "gpus": pa.array(gpus),
            "reason": chosen["reason"],
            "pool": pa.array([pool] * chosen.num_rows, pa.string()),
            "queue": chosen["partition"],
            "user": chosen["user"],
            "team": chosen["account"],
            "tags": write_tags(chosen),
        }
    )
    rows = _expand_tasks(chosen, waits, label, notes)
    pending = pc.is_in(chosen["state"], pa.array(["pending"])).to_numpy() & waits
    reasons = chosen["reason"]
    later = pc.is_in(reasons, pa.array(LATER))
    early = pending & later.to_numpy()
    held = pending & pc.is_in(reasons, pa.array(HELD)).to_numpy()
    may_start = own.set_column(own.schema.get_field_index("reason"), "reason", pc.if_else(later, None, reasons))
    again = pc.fill_null(pc.greater(chosen["attempt"], 0.0), False).to_numpy()
    for event, column, here in (
        ("submitted", "submitted", ~again),
        ("requeued", "submitted", again),
        ("held", "submitted", held),
        ("eligible", "eligible", ~early),
        ("cancelled", "ended", waits & ~pending),
    ):
        at = chosen[column].combine_chunks()
        here = here & at.is_valid().to_numpy(zero_copy_only=False)
        if here.any():
            picked = rows.filter(pa.array(here[rows["row"].to_numpy()]))
            events = (may_start if event == "eligible" else own).take(picked["row"])
            events = events.set_column(0, "job_id", picked["job_id"])
            yield events.append_column("at_utc", at.take(picked["row"].combine_chunks())).append_column(
                "event", pa.array(np.full(events.num_rows, event), pa.string())
            )


def _expand_tasks(jobs: pa.Table, waits: NDArray[np.bool_], label: str, notes: Notes) -> pa.Table:
    """One entry a job: its row and its id; a condensed line of an array is one job a task."""
    rows, ids = np.arange(jobs.num_rows), jobs["job_id"]
    condensed = waits & pc.match_substring(ids, "[").to_numpy()
    if not condensed.any():
        return pa.table({"row": rows, "job_id": ids})
    plain = pa.table({"row": rows, "job_id": ids}).filter(pa.array(~condensed))
    parts = [plain]
    for row in np.flatnonzero(condensed):
        tasks, is_cut = expand_array(ids[int(row)].as_py())
        notes.add(label, CUT_OFF, int(is_cut), jobs["line"][int(row)].as_py())
        parts.append(pa.table({"row": np.full(len(tasks), row), "job_id": tasks}))
    return pa.concat_tables(parts).combine_chunks()


@dataclass(frozen=True)
class NodeSummary:
    """A summary of a job's GPUs on one node. `named` of them are spoken of; of `measured` ones the mean utilization is known."""

    named: int
    measured: int
    busy_share: float | None  # mean over the measured ones
    mem_peak_share: float | None  # of the memory of the measured ones; None where it is not known of all


def read_summary(text: str) -> dict[str, NodeSummary]:
    """Summaries by node; empty where the job was not measured. ValueError where it cannot be read.

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
        """The jobs with what their summaries say and Slurm does not: their nodes; GPUs by node where every GPU held is named."""
        if not self.of:
            return jobs
        placed, listed = jobs["placed"].to_pylist(), jobs["nodes"].to_pylist()
        for row, nodes in self.of.items():
            listed[row] = listed[row] or ",".join(nodes)
            named = {node: float(summaries.named) for node, summaries in nodes.items()}
            if len(nodes) > 1 and placed[row] is None and all(named.values()) and sum(named.values()) == gpus[row]:
                placed[row] = write_placed(named)
        for name, values in (("placed", placed), ("nodes", listed)):
            jobs = jobs.set_column(jobs.column_names.index(name), name, pa.array(values, pa.string()))
        return jobs

    def list_columns(self, places: Places) -> dict[str, pa.Array]:
        """The columns of `allocations` that say them, by entry of `places`; none of them where there is no summary."""
        if not self.of:
            return {}
        summaries = [
            self.of.get(row, {}).get(node)
            for row, node in zip(places.row.to_pylist(), places.node.to_pylist(), strict=True)
        ]
        known = [one if one is not None and one.measured else None for one in summaries]
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
            summaries, held_on = read_summary(text), expand_hostlist(nodes) if nodes else ()
        except ValueError:
            notes.add(label, UNREADABLE, 1, line)
            continue
        if not any(node.named for node in summaries.values()):
            continue
        if not np.isnan(share[row]):
            notes.add(label, SHARED, 1, line)
            continue
        matched = _match_nodes(summaries, held_on)
        if matched is None or sum(node.named for node in summaries.values()) > gpus[row]:
            notes.add(label, NOT_ITS_GPUS, 1, line)
            continue
        found[row] = matched
    return JobSummaries(found)


def _match_nodes(summaries: Mapping[str, NodeSummary], nodes: Sequence[str]) -> dict[str, NodeSummary] | None:
    """The summaries by the job's names of its nodes, or their own where it lists none; None where it is of other ones.

    Exporters may be known by a name with a domain; of a job on one node that is the one, whatever it is called.
    """
    if not nodes:
        return dict(summaries) if all(_is_name(name) for name in summaries) else None
    if len(summaries) == 1 == len(nodes):
        return {nodes[0]: next(iter(summaries.values()))}
    own = {node.partition(".")[0]: node for node in nodes}
    named = {own.get(name.partition(".")[0], ""): one for name, one in summaries.items()}
    return None if "" in named or len(named) < len(summaries) or len(own) < len(nodes) else named


def _is_name(name: str) -> bool:
    """Whether a text names one node."""
    try:
        return expand_hostlist(name) == (name,)
    except ValueError:
        return False
