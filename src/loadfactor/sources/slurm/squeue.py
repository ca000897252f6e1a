"""Decoder of squeue's text with a heading, `-o` or `--Format`."""

import re
from datetime import tzinfo
from typing import Any, Final

import numpy as np
import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Input
from loadfactor.sources.slurm.gpus import Notes, expand_hostlist, find_grant
from loadfactor.sources.slurm.jobs import (
    INSTANTS,
    JobTimes,
    make_jobs,
    name_job,
    parse_elapsed_s,
    read_state,
    read_text,
)
from loadfactor.sources.slurm.printed_tables import TableHeading, TableKind, read_table

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


def decode_squeue(source: Input, zone: tzinfo | None, notes: Notes) -> pa.Table:
    """The jobs of a table. SourceError names what is missing, and the line and column of what may be cut off."""
    records = [(line, _split_places(of)) for line, of in read_table(source, _TABLE, notes)]
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


def _check_columns(label: str, heading: TableHeading) -> None:
    names = set(heading.names)
    if not names & set(_ALONE):
        raise SourceError(f"{label} is a table of squeue that names no GPUs; {REMEDY}")
    if heading.is_cut:
        raise SourceError(f"{label} is a table of squeue whose columns are aligned to the right, and cut off; {REMEDY}")
    missing = [name for name in ("STATE", "START_TIME") if name not in names]
    if "TRES_ALLOC" not in names and not {"NODES", "NODELIST", "NODELIST(REASON)"} & names:
        missing.append("NODES")
    if missing:
        raise SourceError(f"{label} is a table of squeue without {' and '.join(missing)}; {REMEDY}")


def _split_places(of: dict[str, str]) -> dict[str, str]:
    """A row with the nodes of its job, and why it waits, apart."""
    both = of.pop("NODELIST(REASON)", None)
    if both is not None:
        of |= {"REASON": both[1:].rstrip(")"), "NODELIST": ""} if both.startswith("(") else {"NODELIST": both}
    return of


_TABLE: Final = TableKind("JOBID", _MATTERS, ("NAME", "COMMENT"), REMEDY, _check_columns)
