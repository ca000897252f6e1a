"""Decoder of `sacct -P` text: the rows of jobs as `JOBS`; steps repeat what their job holds and are not counted."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Input
from loadfactor.sources.slurm.job_rows import NO_GPUS_AT_ALL
from loadfactor.sources.slurm.job_table import INSTANTS, JOBS, NEVER, read_state
from loadfactor.sources.slurm.job_times import JobTimes, parse_elapsed_s
from loadfactor.sources.slurm.notes import Notes
from loadfactor.sources.slurm.sacct_text import TRES_FIELDS, CellBatch, split_sacct
from loadfactor.sources.slurm.tres import MENTIONS

_PLAIN: Final = {
    "cluster": "cluster",
    "user": "user",
    "account": "account",
    "wckey": "wckey",
    "qos": "qos",
    "partition": "partition",
    "job_name": "jobname",
    "comment": "comment",
    "admin_comment": "admincomment",
    "reservation": "reservation",
    "reason": "reason",
}
"""Columns of JOBS and the fields of sacct that say them as they stand."""
_TIMES: Final = dict(zip(INSTANTS, ("submit", "eligible", "start", "end"), strict=True))
_HELD: Final = ("alloctres", "tresallocstr", "allocgres")
_ASKED: Final = ("reqtres", "tresreqstr", "reqgres")
_OTHERS: Final = ("jobid", "jobidraw", "state", "nodelist", "restarts", "elapsedraw", "elapsed", "suspended")
_WANTED: Final = frozenset((*_PLAIN.values(), *_TIMES.values(), *TRES_FIELDS, *_OTHERS))
_FOR_KEYS: Final = frozenset(("jobid", "jobidraw", *TRES_FIELDS))
NOT_SAID: Final = "no field says which GPUs jobs were given (AllocTRES): those they asked for are booked"


@dataclass(frozen=True)
class SacctText:
    """One input of sacct text; may be gone through more than once."""

    source: Input
    zone: tzinfo | None

    def list_keys(self) -> Iterator[NDArray[np.int64]]:
        """A number for the id of each row of a GPU job: equal ids have equal ones."""
        for batch in split_sacct(self.source, _FOR_KEYS):
            yield make_keys(_find_ids(batch.cells.filter(_mark_gpu_jobs(batch.cells))))

    def decode(self, notes: Notes) -> Iterator[pa.Table]:
        """The GPU jobs, batch by batch. SourceError as `split_sacct` and `JobTimes.convert`."""
        times = JobTimes(self.source.label, self.zone, notes)
        for batch in split_sacct(self.source, _WANTED):
            if batch.cut_off is not None:
                notes.add(self.source.label, "the last line breaks off: left out", 1, batch.cut_off)
            yield _decode_batch(batch, times, notes)


def make_keys(ids: pa.Array) -> NDArray[np.int64]:
    """A number for each id of a job, the same throughout a process."""
    digits = pc.match_substring_regex(ids, r"^\d{1,18}$")
    if pc.all(digits).as_py() is not False:
        numbers: NDArray[np.int64] = ids.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return numbers
    plain = digits.to_numpy(zero_copy_only=False)
    return np.array(
        [int(t) if is_plain else hash(t) for t, is_plain in zip(ids.to_pylist(), plain, strict=True)], np.int64
    )


def _find_ids(cells: pa.Table) -> pa.Array:
    """The id of each row, as people write it: JobID, else JobIDRaw."""
    name = "jobid" if "jobid" in cells.column_names else "jobidraw"
    return pc.fill_null(cells[name].combine_chunks(), "")


def _mark_gpu_jobs(cells: pa.Table) -> pa.Array:
    """True for rows of jobs, not of their steps, in which anything is said of GPUs."""
    speaks = pa.array(np.zeros(cells.num_rows, dtype=bool))
    for name in TRES_FIELDS:
        if name in cells.column_names:
            speaks = pc.or_(speaks, pc.fill_null(pc.match_substring_regex(cells[name], MENTIONS), False))
    return _flatten(pc.and_(speaks, pc.invert(_mark_steps(cells))))


def _mark_steps(cells: pa.Table) -> pa.Array:
    return _flatten(pc.match_substring(_find_ids(cells), "."))


def _flatten(values: Any) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _decode_batch(batch: CellBatch, times: JobTimes, notes: Notes) -> pa.Table:
    cells, label = batch.cells, batch.label
    wanted = _mark_gpu_jobs(cells)
    jobs = cells.num_rows - int(pc.sum(_mark_steps(cells)).as_py() or 0)
    picked = wanted.to_numpy(zero_copy_only=False)
    notes.add(label, NO_GPUS_AT_ALL, jobs - int(picked.sum()))
    cells, lines = cells.filter(wanted).combine_chunks(), batch.lines[picked]
    if not cells.num_rows:
        return JOBS.empty_table()
    names = set(cells.column_names)

    def column(name: str) -> pa.Array:
        return cells[name].combine_chunks() if name in names else pa.nulls(cells.num_rows, pa.string())

    ids = _find_ids(cells)
    raw = column("jobidraw")
    texts = {ours: column(theirs) for ours, theirs in _TIMES.items() if theirs in names}
    found = times.convert(texts, lines, _measure_runs(cells, names))
    held = [column(name) for name in _HELD if name in names]
    asked = [column(name) for name in _ASKED if name in names]
    if not held:
        notes.add(label, NOT_SAID, cells.num_rows)
    given: dict[str, pa.Array] = {ours: clear_nothing(column(theirs)) for ours, theirs in _PLAIN.items()}
    given |= {
        "job_id": ids,
        "job_number": pc.if_else(pc.equal(raw, ids), pa.scalar(None, pa.string()), raw),
        "state": _map_distinct(column("state"), read_state),
        "held": pc.coalesce(*held) if held else pc.coalesce(*asked),
        "asked": pc.coalesce(*asked) if asked else pa.nulls(cells.num_rows, pa.string()),
        "nodes": column("nodelist"),
        "restarts": _map_distinct(column("restarts"), _read_count).cast(pa.int64()),
        "line": pa.array(lines),
        **found,
    }
    nothing = {field.name: field.type for field in JOBS}
    return pa.table(
        [given[name] if name in given else pa.nulls(cells.num_rows, of) for name, of in nothing.items()], schema=JOBS
    )


def clear_nothing(texts: pa.Array) -> pa.Array:
    """Texts, null where Slurm writes that there is none."""
    nothing = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), pa.array(NEVER))
    return pc.if_else(nothing, pa.scalar(None, pa.string()), texts)


def _map_distinct(texts: pa.Array, convert: Any) -> pa.Array:
    """What `convert` makes of each text, asked once for each distinct one."""
    encoded = texts.dictionary_encode()
    return pa.array([convert(t) for t in encoded.dictionary.to_pylist()], pa.string()).take(encoded.indices)


def _measure_runs(cells: pa.Table, names: set[str]) -> pa.Array | None:
    """How long each job lasted from start to end, in ms: what sacct calls elapsed leaves out the time it was suspended."""
    field = next((name for name in ("elapsedraw", "elapsed") if name in names), None)
    if field is None:
        return None

    def seconds(name: str) -> pa.Array:
        encoded = cells[name].combine_chunks().dictionary_encode()
        return pa.array([parse_elapsed_s(t) for t in encoded.dictionary.to_pylist()], pa.int64()).take(encoded.indices)

    ran = seconds(field)
    if "suspended" in names:
        ran = pc.add(ran, pc.fill_null(seconds("suspended"), 0))
    return pc.multiply(ran, MS_PER_S)


def _read_count(text: str) -> str | None:
    return text if text.isascii() and text.isdigit() and len(text) < len(str(2**32)) else None
