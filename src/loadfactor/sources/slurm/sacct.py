"""Text of `sacct -P` in batches of cells: the heading names the fields and shows what stands between them.

Slurm quotes nothing, so what stands between fields may also stand in one. In a last field of free text (a job's name) it is part of
the text; in any other place nobody can say where the field ends, and the line is refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.text_blocks import TextBlock, split_blocks
from loadfactor.sources.slurm.gpus import BREAKS_OFF, MENTIONS, Notes
from loadfactor.sources.slurm.job_rows import NO_GPUS_AT_ALL
from loadfactor.sources.slurm.jobs import INSTANTS, JOBS, NEVER, JobTimes, parse_elapsed_s, read_state

FREE_TEXT: Final = ("jobname", "comment", "admincomment", "systemcomment", "submitline", "workdir", "constraints")
"""Fields whose text may hold what stands between fields."""
_NEEDED: Final = ("state", "start", "end")
TRES_FIELDS: Final = ("alloctres", "tresallocstr", "allocgres", "reqtres", "tresreqstr", "reqgres")
_BLOCK_BYTES: Final = 4 * BYTES_PER_MIB
_STAND_IN: Final = "\x1f"  # for what is several characters between fields
_BETWEEN: Final = re.compile(r"[A-Za-z0-9]+([^A-Za-z0-9]+)[A-Za-z0-9]")
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
_REQUESTED: Final = ("reqtres", "tresreqstr", "reqgres")
_OTHERS: Final = ("jobid", "jobidraw", "state", "nodelist", "restarts", "elapsedraw", "elapsed", "suspended")
_OTHERS_BEGIN: Final = tuple(
    (re.compile(shape, re.IGNORECASE), what, how)
    for shape, what, how in (
        (r"\d+(_\d+|\+\d+)?[^\w\s.-].*[^\w\s.-]", "output of sacct without its heading", "leave --noheader (-n) out"),
        (
            r"\s*Job ID: ",
            "a report of seff or jobstats on one job",
            "import what sacct has of all: `sacct -P`, with AdminComment",
        ),
        (r"=+$", "a report of jobstats on one job", "import what sacct has of all: `sacct -P`, with AdminComment"),
        (r"-+$", "a report of sreport, which has sums alone", "save `sacct -P`"),
        (r"# (HELP|TYPE) ", "text of a Prometheus exporter", "import it with `loadfactor import dcgm` or `serving`"),
        (r"(timestamp|index|name|uuid), ", "a log of nvidia-smi", "import it with `loadfactor import nvidia-smi`"),
        (
            r"(slurm_load|sacct: error|squeue: error|scontrol: error)",
            "an error of Slurm",
            "write it again where the command works",
        ),
        (r"\s*<", "HTML or XML", "save what Slurm's commands print"),
    )
)
"""What a first line shows that is no heading of sacct: its shape, what it is, and what to do."""
_FIELDS: Final = frozenset((*_PLAIN.values(), *_TIMES.values(), *TRES_FIELDS, *_OTHERS))
_FOR_KEYS: Final = frozenset(("jobid", "jobidraw", *TRES_FIELDS))
NOT_RECORDED: Final = "no field says which GPUs jobs were given (AllocTRES): those they asked for are booked"


@dataclass(frozen=True)
class CellBatch:
    """Rows whose cells are all text; an empty cell is null. `lines`: the line of each row."""

    cells: pa.Table
    lines: np.ndarray[Any, np.dtype[np.int64]]
    label: str
    cut_off: int | None = None  # the line that the input breaks off in


@dataclass(frozen=True)
class SacctHeading:
    """The first line: fields in lower case, and what stands between them."""

    text: str
    fields: tuple[str, ...]
    delimiter: str
    is_closed: bool  # also at the end of every line (sacct -p)

    @property
    def ends_in_text(self) -> bool:
        return self.fields[-1] in FREE_TEXT


def find_heading(label: str, line: str) -> SacctHeading:
    """The heading in a line. SourceError where it is none, or lacks a field that every import needs."""
    text = line.rstrip("\r\n")
    found = _BETWEEN.match(text)
    between = found[1] if found else "|"
    is_closed = text.endswith(between)
    fields = tuple(name.strip().lower() for name in text.removesuffix(between).split(between))
    known = next(((what, how) for shape, what, how in _OTHERS_BEGIN if shape.match(text)), None)
    if known is not None:
        raise SourceError(f"{label} is {known[0]}; {known[1]}")
    if "jobid" not in fields and "jobidraw" not in fields:
        raise SourceError(
            f"{label}: the first line names no JobID, so it is no output of `sacct -P` with its heading; "
            "docs/import-slurm.md has the command"
        )
    if not between.strip(" "):
        raise SourceError(f"{label}: its columns are aligned with spaces, and cut off; write it with `sacct -P`")
    missing = [name for name in _NEEDED if name not in fields]
    if missing:
        names = {"state": "State", "start": "Start", "end": "End"}
        raise SourceError(
            f"{label}: sacct's fields {', '.join(names[name] for name in missing)} are missing; add them to --format"
        )
    if not set(fields) & set(TRES_FIELDS):
        raise SourceError(f"{label}: no field says which GPUs a job has; add AllocTRES,ReqTRES to --format")
    doubled = next((name for name in fields if fields.count(name) > 1), None)
    if doubled is not None:
        raise SourceError(f"{label}: two columns are called {quote(doubled)}; keep one")
    return SacctHeading(text, fields, between, is_closed)


def split_sacct(source: Input, fields: frozenset[str]) -> Iterator[CellBatch]:
    """The rows under the heading, of these fields alone; blank lines and repeated headings are read over.

    SourceError names input and line: no heading, not text, more or fewer fields than the heading names.
    """
    heading: SacctHeading | None = None
    blocks = split_blocks(source, _BLOCK_BYTES)
    block = next(blocks, None)
    while block is not None:
        following = next(blocks, None)
        data, line = block.data, block.line
        if heading is None:
            stripped = data.lstrip(b"\n")
            line += len(data) - len(stripped)
            first, _, data = stripped.partition(b"\n")
            heading = find_heading(source.label, first.decode())
            line += 1
            if data.startswith(b"---"):
                raise SourceError(f"{source.label}: its columns are aligned with spaces; write it with `sacct -P`")
        if data and not data.isspace():
            yield _split_block(source.label, heading, TextBlock(data, line), fields, following is None)
        block = following


def _split_block(
    label: str, heading: SacctHeading, block: TextBlock, fields: frozenset[str], is_last: bool
) -> CellBatch:
    data, delimiter = _prepare(heading, block.data)
    is_broken_off = is_last and not data.endswith(b"\n")
    names = [*heading.fields, *(["(closed)"] if heading.is_closed else [])]
    wrong: list[Any] = []

    def set_aside(row: Any) -> str:
        wrong.append(row)
        return "skip"

    include = [name for name in heading.fields if name in fields]
    try:
        cells = pacsv.read_csv(
            pa.BufferReader(data),
            read_options=pacsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=pacsv.ParseOptions(
                delimiter=delimiter, quote_char=False, newlines_in_values=False, invalid_row_handler=set_aside
            ),
            convert_options=pacsv.ConvertOptions(
                include_columns=include,
                column_types=dict.fromkeys(include, pa.string()),
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
    except pa.ArrowException as error:
        raise SourceError(f"{label}, near line {block.line}: {str(error).splitlines()[0]}") from None
    numbers = np.arange(1, cells.num_rows + len(wrong) + 1)
    mended, cut_off = _mend(label, heading, block, wrong, delimiter, is_broken_off)
    if wrong:
        kept = np.delete(numbers, [row.number - 1 for row in wrong])
        cells = pa.concat_tables([cells, pa.table({n: [row[n] for _, row in mended] for n in include}, cells.schema)])
        numbers = np.concatenate([kept, np.array([number for number, _ in mended], dtype=kept.dtype)])
    first = "jobid" if "jobid" in include else include[0]
    again = pc.fill_null(pc.equal(pc.utf8_lower(cells[first]), first), False).to_numpy()
    if again.any():
        cells, numbers = cells.filter(pa.array(~again)), numbers[~again]
    return CellBatch(cells.combine_chunks(), numbers + block.line - 1, label, cut_off)


def _prepare(heading: SacctHeading, data: bytes) -> tuple[bytes, str]:
    """The block with one character between its fields, and that character."""
    if len(heading.delimiter.encode()) == 1:
        return data, heading.delimiter
    return data.replace(heading.delimiter.encode(), _STAND_IN.encode()), _STAND_IN


def _mend(
    label: str, heading: SacctHeading, block: TextBlock, wrong: list[Any], delimiter: str, is_broken_off: bool
) -> tuple[list[tuple[int, dict[str, str | None]]], int | None]:
    """Rows with more fields than the heading names, where the last one is free text; the line that the input breaks off in."""
    mended: list[tuple[int, dict[str, str | None]]] = []
    total = block.data.count(b"\n") + 1 if is_broken_off else 0
    blank = block.data.count(b"\n\n") if is_broken_off else 0
    for row in wrong:
        number = block.line + row.number - 1
        text = row.text.rstrip("\r\n")
        if heading.is_closed:
            text = text.removesuffix(delimiter)
        cells = text.split(delimiter, len(heading.fields) - 1)
        if len(cells) == len(heading.fields) and (heading.ends_in_text or delimiter not in cells[-1]):
            mended.append((row.number, dict(zip(heading.fields, (cell or None for cell in cells), strict=True))))
        elif len(cells) < len(heading.fields) and is_broken_off and row.number >= total - blank:
            return mended, number
        else:
            what = "more" if len(cells) == len(heading.fields) else "fewer"
            remedy = "; write JobName as the last field" if what == "more" else "; is it cut off?"
            raise SourceError(
                f"{label}, line {number}: {what} fields than the {len(heading.fields)} of the heading: {quote(text)}{remedy}"
            )
    return mended, None


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
        for batch in split_sacct(self.source, _FIELDS):
            if batch.cut_off is not None:
                notes.add(self.source.label, BREAKS_OFF, 1, batch.cut_off)
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
    name = "jobid" if "jobid" in cells.column_names else "jobidraw"
    return pc.fill_null(cells[name].combine_chunks(), "")


def _mark_gpu_jobs(cells: pa.Table) -> pa.Array:
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
    is_gpu_job = _mark_gpu_jobs(cells)
    jobs = cells.num_rows - int(pc.sum(_mark_steps(cells)).as_py() or 0)
    picked = is_gpu_job.to_numpy(zero_copy_only=False)
    notes.add(label, NO_GPUS_AT_ALL, jobs - int(picked.sum()))
    cells, lines = cells.filter(is_gpu_job).combine_chunks(), batch.lines[picked]
    if not cells.num_rows:
        return JOBS.empty_table()
    names = set(cells.column_names)

    def column(name: str) -> pa.Array:
        return cells[name].combine_chunks() if name in names else pa.nulls(cells.num_rows, pa.string())

    ids = _find_ids(cells)
    raw = column("jobidraw")
    texts = {ours: column(theirs) for ours, theirs in _TIMES.items() if theirs in names}
    ran_ms = _measure_runs(cells, names)
    found = times.convert(texts, lines, ran_ms)
    held = [column(name) for name in _HELD if name in names]
    requested = [column(name) for name in _REQUESTED if name in names]
    if not held:
        notes.add(label, NOT_RECORDED, cells.num_rows)
    given: dict[str, pa.Array] = {ours: clear_nothing(column(theirs)) for ours, theirs in _PLAIN.items()}
    given |= {
        "job_id": ids,
        "job_number": pc.if_else(pc.equal(raw, ids), pa.scalar(None, pa.string()), raw),
        "state": _map_distinct(column("state"), read_state),
        "held": pc.coalesce(*held) if held else pc.coalesce(*requested),
        "requested": pc.coalesce(*requested) if requested else pa.nulls(cells.num_rows, pa.string()),
        "nodes": column("nodelist"),
        "restarts": _map_distinct(column("restarts"), _read_count).cast(pa.int64()),
        "line": pa.array(lines),
        **({} if ran_ms is None else {"known_until": _find_known(found["started"], ran_ms)}),
        **found,
    }
    nothing = {field.name: field.type for field in JOBS}
    return pa.table(
        [given[name] if name in given else pa.nulls(cells.num_rows, of) for name, of in nothing.items()], schema=JOBS
    )


def clear_nothing(texts: pa.Array) -> pa.Array:
    nothing = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), pa.array(NEVER))
    return pc.if_else(nothing, pa.scalar(None, pa.string()), texts)


def _map_distinct(texts: pa.Array, convert: Any) -> pa.Array:
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


def _find_known(started: pa.Array, ran_ms: pa.Array) -> pa.Array:
    """When sacct was asked, as what it calls elapsed of each job that still runs says."""
    known = pc.add(started, pc.if_else(pc.less(ran_ms, LATEST_MS - EARLIEST_MS), ran_ms, None))
    return pc.if_else(pc.less_equal(known, LATEST_MS), known, None)


def _read_count(text: str) -> str | None:
    return text if text.isascii() and text.isdigit() and len(text) < len(str(2**32)) else None
