"""Decoder of squeue's text with a heading, `-o` or `--Format`: columns apart by anything, or padded with blanks to a width.

What is wider than its column squeue cuts off without a word, and a cut list of resources or nodes would be another one: a table in
which that may have happened is refused.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

import numpy as np
import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.text_blocks import split_lines
from loadfactor.sources.slurm.gpus import BREAKS_OFF, Notes, expand_hostlist, find_grant
from loadfactor.sources.slurm.jobs import (
    INSTANTS,
    JobTimes,
    make_jobs,
    name_job,
    parse_elapsed_s,
    read_state,
    read_text,
)
from loadfactor.sources.slurm.scontrol import MOST_RECORDS

REMEDY: Final = (
    "save `squeue --json`, or squeue --all --Format JobArrayID:40,State:20,SubmitTime:25,StartTime:25,TimeUsed:20,"
    "NumNodes:9,tres-alloc:200,tres-per-node:80,NodeList:200,UserName:40,Account:40,Partition:40"
)
IS_SQUEUE: Final = re.compile(
    rb"\s*(?=[^\n]*\bJOBID\b)"
    rb"(?=[^\n]*(?:\bST\b|\b(?:SUBMIT|START|END)_TIME\b|\bTIME(?:_LEFT|_LIMIT|_LIMI)?\b|\bTRES_\w+|NODELIST\(REASON\)))"
)
"""How its heading tells itself from that of sacct, whose fields are called otherwise."""
_TIMES: Final = dict(zip(INSTANTS, ("SUBMIT_TIME", "ELIGIBLE_TIME", "START_TIME", "END_TIME"), strict=True))
_STATES: Final = {
    "R": "RUNNING", "PD": "PENDING", "CG": "COMPLETING", "CF": "CONFIGURING", "S": "SUSPENDED", "ST": "STOPPED",
    "CD": "COMPLETED", "CA": "CANCELLED", "F": "FAILED", "TO": "TIMEOUT", "NF": "NODE_FAIL", "OOM": "OUT_OF_MEMORY",
    "PR": "PREEMPTED", "BF": "BOOT_FAIL", "DL": "DEADLINE", "RQ": "REQUEUED", "RH": "REQUEUE_HOLD", "SI": "SIGNALING",
    "SO": "STAGE_OUT", "SE": "SPECIAL_EXIT",
}  # fmt: skip
_MATTERS: Final = (
    "JOBID",
    "STATE",
    *_TIMES.values(),
    "TIME",
    "NODES",
    "NODELIST",
    "TRES_ALLOC",
    "TRES_PER_NODE",
    "TRES_PER_JOB",
    "GRES",
)
"""Columns of which no letter may be missing."""
_ALONE: Final = ("TRES_ALLOC", "TRES_PER_NODE", "TRES_PER_JOB", "GRES")
_PLAIN: Final = {
    "cluster": "CLUSTER", "user": "USER", "account": "ACCOUNT", "wckey": "WCKEY", "qos": "QOS", "partition": "PARTITION",
    "job_name": "NAME", "comment": "COMMENT", "reservation": "RESERVATION",
}  # fmt: skip


@dataclass(frozen=True)
class _Heading:
    """The names of columns; what stands between them, or where each begins; the width of those that are padded."""

    names: tuple[str, ...]
    between: str
    starts: tuple[int, ...]
    widths: tuple[int | None, ...]


def decode_squeue(source: Input, zone: tzinfo | None, notes: Notes) -> pa.Table:
    """The jobs of a table. SourceError names what is missing, and the line and column of what may be cut off."""
    records = list(_read_records(source, notes))
    lines = np.array([line for line, _ in records], dtype=np.int64)
    fields = [of for _, of in records]
    texts = {ours: pa.array([of.get(theirs) for of in fields], pa.string()) for ours, theirs in _TIMES.items()}
    times = JobTimes(source.label, zone, notes).convert(texts, lines, None)
    rows = []
    for number, (line, of) in enumerate(records):
        try:
            row = _read_job(of) | {"line": line, **{name: times[name][number].as_py() for name in INSTANTS}}
        except ValueError as error:
            raise SourceError(f"{source.label}, line {line}: {error}") from None
        rows.append(row)
    return make_jobs(rows)


def _read_job(of: dict[str, str]) -> dict[str, Any]:
    texts = {name: read_text(value) for name, value in of.items()}
    number = of["JOBID"]
    name = name_job(number, texts.get("ARRAY_JOB_ID"), texts.get("ARRAY_TASK_ID"), None, None)
    listed, (count, per_node) = (
        texts.get("NODELIST"),
        (texts.get("NODES"), texts.get("TRES_PER_NODE") or texts.get("GRES")),
    )
    nodes = int(count) if count and count.isdigit() else len(expand_hostlist(listed or "")) or 1
    tres = texts.get("TRES_ALLOC")
    if tres is None and per_node is None:
        per_node, nodes = texts.get("TRES_PER_JOB"), 1
    grant = find_grant(tres, {}, per_node, nodes)
    ran_s = parse_elapsed_s(of.get("TIME"))
    state = _STATES.get(of.get("STATE", ""), of.get("STATE", ""))
    return {
        "job_id": name,
        "job_number": number if number != name else None,
        **{ours: texts.get(theirs) for ours, theirs in _PLAIN.items()},
        "reason": texts.get("REASON"),
        "state": read_state(state),
        "held": grant if listed or "NODELIST" not in of else None,
        "requested": grant,
        "nodes": listed,
        "gres": per_node,
        "ran_ms": None if ran_s is None else ran_s * MS_PER_S,
    }


def _read_records(source: Input, notes: Notes) -> Iterator[tuple[int, dict[str, str]]]:
    heading: _Heading | None = None
    end = b"\n"
    for chunk in source.chunks:
        end = chunk[-1:] or end
    waiting: tuple[int, str] | None = None
    count = 0
    for number, line in enumerate(split_lines(source), 1):
        text = line.rstrip("\r")
        if not text.strip():
            continue
        if heading is None:
            heading = _read_heading(source.label, text)
        elif "JOBID" not in text or tuple(_split(heading, text)) != heading.names:  # repeated by --iterate
            if waiting is not None:
                yield waiting[0], _read_cells(source.label, heading, *waiting)
            waiting, count = (number, text), count + 1
            if count > MOST_RECORDS:
                raise SourceError(f"{source.label} has more than {MOST_RECORDS:,} jobs; write them with `sacct -P`")
    if heading is not None and waiting is not None:
        if end == b"\n":
            yield waiting[0], _read_cells(source.label, heading, *waiting)
        else:
            notes.add(source.label, BREAKS_OFF, 1, waiting[0])


def _read_heading(label: str, text: str) -> _Heading:
    found = re.search(r"\bJOBID *([^\w ()]+)", text) or re.search(r"([^\w ()]+) *JOBID\b", text)
    words = list(re.finditer(r"\S+", text))
    between, starts = found[1] if found else "", tuple(word.start() for word in words)
    if not between and (text.startswith(" ") or "  " in text):
        cells = [word.group() for word in words]
        widths: tuple[int | None, ...] = tuple(None for _ in cells)
    else:
        between = between or " "
        raw = text.removesuffix(between).split(between)
        cells, starts = [cell.strip() for cell in raw], ()
        widths = tuple(len(cell) if cell != cell.strip() else None for cell in raw)
    names = tuple("STATE" if cell == "ST" else cell for cell in cells)
    heading = _Heading(names, between, starts, widths)
    gpus = set(names) & set(_ALONE)
    if not gpus:
        raise SourceError(f"{label} is a table of squeue that names no GPUs; {REMEDY}")
    if text.startswith(" ") and not between:
        raise SourceError(f"{label} is a table of squeue whose columns are aligned to the right, and cut off; {REMEDY}")
    missing = [name for name in ("STATE", "START_TIME") if name not in names]
    if "TRES_ALLOC" not in names and not {"NODES", "NODELIST", "NODELIST(REASON)"} & set(names):
        missing.append("NODES")
    if missing:
        raise SourceError(f"{label} is a table of squeue without {' and '.join(missing)}; {REMEDY}")
    return heading


def _split(heading: _Heading, text: str) -> list[str]:
    if heading.between:
        return [cell.strip() for cell in text.removesuffix(heading.between).split(heading.between)]
    ends = (*heading.starts[1:], len(text))
    return [text[start:end].strip() for start, end in zip(heading.starts, ends, strict=True)]


def _read_cells(label: str, heading: _Heading, line: int, text: str) -> dict[str, str]:
    cells = _split(heading, text)
    last = len(heading.names) - 1
    if heading.between and len(cells) > len(heading.names) and heading.names[last] in ("NAME", "COMMENT"):  # free text
        cells = [*cells[:last], heading.between.join(cells[last:])]
    if len(cells) != len(heading.names):
        raise SourceError(
            f"{label}, line {line}: {len(cells)} columns where the heading has {len(heading.names)}: {quote(text)}; {REMEDY}"
        )
    raw = text.removesuffix(heading.between).split(heading.between) if heading.between else []
    for number, (name, width) in enumerate(zip(heading.names, heading.widths, strict=True)):
        is_full = width is not None and len(cells[number]) >= width
        start = heading.starts[number + 1] if not heading.between and number < last else 0
        is_full = is_full or (0 < start < len(text) and text[start - 1] != " ")
        if is_full and (name in _MATTERS or not raw):
            raise SourceError(
                f"{label}, line {line}: {name} fills its column, so it may be cut off ({quote(cells[number])}); {REMEDY}"
            )
    found = dict(reversed(list(zip(heading.names, cells, strict=True))))
    both = found.pop("NODELIST(REASON)", None)
    if both is not None:
        found |= {"REASON": both[1:].rstrip(")"), "NODELIST": ""} if both.startswith("(") else {"NODELIST": both}
    return found
