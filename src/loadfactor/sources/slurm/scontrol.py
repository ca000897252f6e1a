"""Decoder of scontrol's text: jobs as `JOBS`, nodes as `NodeRecord`s."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.text_blocks import LINE_LIMIT_BYTES, split_lines
from loadfactor.sources.slurm.gpus import (
    BREAKS_OFF,
    Notes,
    count_placed,
    expand_hostlist,
    find_grant,
    write_indices,
    write_placed,
)
from loadfactor.sources.slurm.jobs import (
    INSTANTS,
    JobTimes,
    make_jobs,
    name_job,
    parse_elapsed_s,
    read_state,
    read_text,
)
from loadfactor.sources.slurm.node_rows import NodeRecord, read_node_state

_TIMES: Final = dict(zip(INSTANTS, ("SubmitTime", "EligibleTime", "StartTime", "EndTime"), strict=True))
_REASON: Final = re.compile(r"(.*?)\s*\[[^@\[\]]*@([^\]]+)\]")  # bad GPU [root@2026-10-01T10:00:00]
KINDS: Final = ("JobId", "JobID", "NodeName", "ReservationName", "PartitionName")
"""Fields that records begin with."""
_OF_SACCT: Final = {
    "JobID": "JobId", "State": "JobState", "User": "UserId", "Submit": "SubmitTime", "Eligible": "EligibleTime",
    "Start": "StartTime", "End": "EndTime", "Elapsed": "RunTime", "ElapsedRaw": "RunTime", "Tres": "TRES", "Name": "JobName",
    "WcKey": "WCKey", "WCKey": "WCKey", "ReservationName": "Reservation",
}  # fmt: skip
"""Fields as sacct and the job completion log call them, and as scontrol does."""
MOST_RECORDS: Final = 300_000  # Slurm keeps 10,000 jobs in memory by default
_BETWEEN: Final = re.compile(r"Job[Ii][Dd]=[^|;,\s]*([|;,])[A-Za-z]\w*=")
"""What stands between the fields of a record in one line, where that is no blank."""
_FIELD: Final = re.compile(r"(?:^|\s)([A-Za-z][\w/:.-]*)=")


def decode_scontrol_jobs(source: Input, zone: tzinfo | None, notes: Notes) -> pa.Table:
    """The jobs in a text. SourceError names the line of a time or of resources that are none."""
    jobs = (record for record in split_records(source) if record.kind == "JobId" and not _is_step(record))
    records = list(islice(jobs, MOST_RECORDS + 1))
    if len(records) > MOST_RECORDS:
        raise SourceError(
            f"{source.label} has more than {MOST_RECORDS:,} jobs as keys and values; write them with `sacct -P`, which is"
            " read piece by piece"
        )
    if records and _breaks_off(source):
        notes.add(source.label, BREAKS_OFF, 1, records.pop().line)
    if not records:
        return make_jobs([])
    lines = np.array([record.line for record in records], dtype=np.int64)
    fields = [record.first() for record in records]
    texts = {ours: pa.array([of.get(theirs) for of in fields], pa.string()) for ours, theirs in _TIMES.items()}
    times = JobTimes(source.label, zone, notes).convert(texts, lines, None)
    rows = []
    for number, record in enumerate(records):
        try:
            row = _read_job(record, fields[number])
        except ValueError as error:
            raise SourceError(f"{source.label}, line {record.line}: {error}") from None
        rows.append(row | {name: times[name][number].as_py() for name in INSTANTS})
    return make_jobs(rows)


def decode_scontrol_nodes(source: Input, zone: tzinfo | None, notes: Notes) -> Iterator[NodeRecord]:
    """The nodes in a text. SourceError names the line of a time that is none."""
    clock = JobTimes(source.label, zone, notes)
    for record in split_records(source):
        if record.kind != "NodeName":
            continue
        of = record.first()
        reason = _REASON.fullmatch(of.get("Reason", ""))
        since = None
        if reason is not None:
            texts = {"since": pa.array([reason[2]], pa.string())}
            since = clock.convert(texts, np.array([record.line], dtype=np.int64), None)["since"][0].as_py()
        yield NodeRecord(
            of["NodeName"],
            read_text(of.get("Gres")),
            read_node_state(of.get("State", "")),
            read_text(reason[1] if reason else of.get("Reason")),
            since,
            tuple(filter(None, of.get("Partitions", "").split(","))),
        )


@dataclass(frozen=True)
class ControlRecord:
    """One job, node, partition or reservation: `kind` of KINDS, the line it begins in, its fields in their order."""

    kind: str
    line: int
    fields: tuple[tuple[str, str], ...]

    def first(self) -> dict[str, str]:
        """The fields by name; of several with one name the first, because texts of users may look like fields."""
        return dict(reversed(self.fields))


def _breaks_off(source: Input) -> bool:
    """Whether the last line is a job's whole record and lacks its end, so that its last number may be cut."""
    end = b""
    for chunk in source.chunks:
        end = (end + chunk)[-LINE_LIMIT_BYTES:]
    last = end.rpartition(b"\n")[2]
    return last.lstrip().startswith(b"JobID=")


def _is_step(record: ControlRecord) -> bool:
    return "." in record.fields[0][1]


def _read_job(record: ControlRecord, of: dict[str, str]) -> dict[str, Any]:
    number = of["JobId"].split()[0] if of["JobId"] else ""
    texts = {name: read_text(value) for name, value in of.items()}
    name = name_job(
        number, texts.get("ArrayJobId"), texts.get("ArrayTaskId"), texts.get("HetJobId"), texts.get("HetJobOffset")
    )
    gres = _place(record.fields)
    placed = count_placed(gres)
    nodes = len(expand_hostlist(texts.get("NodeList") or "")) or 1
    per_node = texts.get("TresPerNode") or texts.get("Gres")
    held = texts.get("AllocTRES") or texts.get("TRES")
    ran_s = parse_elapsed_s(of.get("RunTime"))
    wckey = (texts.get("WCKey") or "").lstrip("*")
    return {
        "job_id": name,
        "job_number": number if number != name else None,
        "user": (texts.get("UserId") or "").partition("(")[0] or None,
        "account": texts.get("Account"),
        "wckey": wckey or None,
        "qos": texts.get("QOS"),
        "partition": texts.get("Partition"),
        "job_name": texts.get("JobName"),
        "comment": texts.get("Comment"),
        "admin_comment": texts.get("AdminComment"),
        "reservation": texts.get("Reservation"),
        "reason": texts.get("Reason"),
        "state": read_state(of.get("JobState")),
        "held": find_grant(held, placed, per_node, nodes) if texts.get("NodeList") else None,
        "requested": find_grant(texts.get("ReqTRES") or texts.get("TRES"), {}, per_node, nodes),
        "nodes": texts.get("NodeList"),
        "placed": write_placed(placed),
        "indices": write_indices(gres),
        "gres": ",".join(gres.values()) or texts.get("JOB_GRES") or per_node,
        "restarts": int(of["Restarts"]) if of.get("Restarts", "").isdigit() else None,
        "ran_ms": None if ran_s is None else ran_s * MS_PER_S,
        "line": record.line,
    }


def _place(fields: Sequence[tuple[str, str]]) -> dict[str, str]:
    """GRES by node: `Nodes=n[1-2] CPU_IDs=… GRES=gpu:h100:3(IDX:0-2)` of -d says what each of these nodes gave."""
    nodes: tuple[str, ...] = ()
    out: dict[str, str] = {}
    for name, value in fields:
        if name == "Nodes":
            nodes = expand_hostlist(value)
        elif name == "GRES" and nodes:
            out |= dict.fromkeys(nodes, value)
            nodes = ()
    return out


def split_records(source: Input) -> Iterator[ControlRecord]:
    """The records of a text; lines before the first one are read over. SourceError where it is no text."""
    kind, begins, between = "", 0, None
    fields: list[tuple[str, str]] = []
    for number, line in enumerate(split_lines(source), 1):
        text = line.strip()
        name = next((name for name in KINDS if text.startswith(f"{name}=")), None)
        if name is not None:
            if kind:
                yield ControlRecord(kind, begins, tuple(fields))
            kind, begins, fields = _OF_SACCT.get(name, name), number, []
            between = _BETWEEN.match(text)
        if kind and text:
            split = _split_fields(text.replace(between[1], " ") if between else text)
            fields += [(_OF_SACCT.get(of, of), value) for of, value in split] if kind == "JobId" else split
    if kind:
        yield ControlRecord(kind, begins, tuple(fields))


def _split_fields(line: str) -> Iterator[tuple[str, str]]:
    """The fields of a line. A job's name, which may hold anything, goes on to the end of its line, or with -o to its user."""
    found = list(_FIELD.finditer(line))
    number = 0
    while number < len(found):
        name, start, following = found[number][1], found[number].end(), number + 1
        if name == "JobName" and found[0][1] != "JobID":
            following = next((n for n in range(number + 1, len(found)) if found[n][1] == "UserId"), len(found))
        end = found[following].start() if following < len(found) else len(line)
        yield name, line[start:end].strip()
        number = following
