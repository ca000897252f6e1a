"""Decoder of the JSON of slurmrestd, squeue, sacct, scontrol and sinfo, of any API version: jobs as `JOBS`, nodes as records."""

import codecs
import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.text_blocks import join_pieces
from loadfactor.sources.slurm.gpus import (
    count_gpus,
    count_placed,
    expand_hostlist,
    find_grant,
    write_indices,
    write_placed,
)
from loadfactor.sources.slurm.jobs import OPEN_STATES, make_jobs, name_job, read_state, read_text
from loadfactor.sources.slurm.node_rows import NodeRecord, read_node_state

LIMIT_BYTES: Final = 512 * BYTES_PER_MIB
_LISTS: Final = ("jobs", "nodes", "sinfo", "reservations", "partitions", "statistics")
Document = dict[str, Any]
_QUEUED: Final = {
    "cluster": "cluster",
    "user": "user_name",
    "account": "account",
    "wckey": "wckey",
    "qos": "qos",
    "partition": "partition",
    "job_name": "name",
    "comment": "comment",
    "admin_comment": "admin_comment",
    "reservation": "resv_name",
    "reason": "state_reason",
    "nodes": "nodes",
}
_QUEUED_TIMES: Final = {"submitted": "submit", "eligible": "eligible", "started": "start", "ended": "end"}


def parse_documents(source: Input) -> list[Document]:
    """The documents in an input, one after the other. SourceError: no JSON, or none of Slurm, or over 512 MiB."""
    data = join_pieces(
        source.label, source.chunks, LIMIT_BYTES, "write it with `sacct -P`, which is read piece by piece"
    )
    try:
        is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = data.decode("utf-16" if is_wide else "utf-8-sig")
        decoder, at, found = json.JSONDecoder(), 0, []
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            document, at = decoder.raw_decode(text, at)
            found.append(document)
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{source.label} is no whole JSON ({str(error).splitlines()[0][:80]}); write it again"
        ) from None
    documents = [_wrap(document) for document in found]
    if not documents or not all(
        isinstance(d, dict) and any(isinstance(d.get(n), list | dict) for n in _LISTS) for d in documents
    ):
        what = say_kind(found[0]) if found else "it is empty"
        raise SourceError(
            f"{source.label} is no JSON of Slurm ({what}); save `squeue --json`, `sacct --json` or `scontrol show nodes --json`"
        )
    return documents


def _wrap(document: Any) -> Any:
    """A bare list of jobs or nodes, and one job or node alone, which is how Slurm-web's gateway answers, as Slurm lists them."""
    items = document if isinstance(document, list) else [document]
    if not items or not all(isinstance(item, dict) for item in items):
        return document
    if all("job_state" in item or {"time", "state"} <= item.keys() for item in items):
        return {"jobs": [{"job_id": _find_number(item), **item} for item in items]}
    if all({"name", "state"} <= item.keys() and ("partitions" in item or "gres" in item) for item in items):
        return {"nodes": items}
    return document


def _find_number(job: Document) -> Any:
    """The number of a job that only its steps say."""
    steps = job.get("steps")
    return dig(steps[0], "step", "id", "job_id") if isinstance(steps, list) and steps else None


def say_kind(found: Any) -> str:
    """What a JSON text is, as far as its outermost names tell.

    >>> say_kind({"kind": "PodList", "items": []}), say_kind([1, 2]), say_kind({"a": 1, "b": 2})
    ('objects of Kubernetes: `loadfactor import kubernetes`', 'a list of numbers or texts', 'an object with a, b')
    """
    if isinstance(found, list):
        return say_kind(found[0]) if found and isinstance(found[0], dict) else "a list of numbers or texts"
    if not isinstance(found, dict):
        return "a single value"
    if {"apiVersion", "kind", "items"} & found.keys() and "kind" in found:
        return "objects of Kubernetes: `loadfactor import kubernetes`"
    if {"status", "data"} <= found.keys():
        return "an answer of Prometheus: `loadfactor import prometheus`"
    if found.get("errors"):
        return f"an answer with errors of slurmrestd: {quote(str(found['errors'])[:80])}"
    return (
        f"an object with {', '.join(quote(str(name)).strip(chr(39)) for name in list(found)[:3])}"
        if found
        else "an empty object"
    )


def decode_rest_jobs(document: Document, label: str, at_ms: int | None = None) -> pa.Table:
    """The jobs of a document of slurmctld (squeue) or slurmdbd (sacct), queried `at_ms` where that is known.

    SourceError names a job whose resources are none.
    """
    rows, queried_ms = [], [at_ms, *(read_seconds(document.get(name)) for name in ("last_update", "last_backfill"))]
    for number, job in enumerate(_list(document, "jobs"), 1):
        try:
            row = _read_recorded(job) if isinstance(job.get("time"), dict) else _read_queued(job)
        except ValueError as error:
            raise SourceError(f"{label}, job {number}: {error}") from None
        if row["job_id"]:
            rows.append(row)
            queried_ms.append(_find_known(job, row))
    return make_jobs(rows, max((known_ms for known_ms in queried_ms if known_ms is not None), default=None))


def _find_known(job: Document, row: dict[str, Any]) -> int | None:
    """When accounting was queried (ms), as what it calls elapsed of a job that still runs says; None of others."""
    ran_s = read_number(dig(job, "time", "elapsed"))
    if row["state"] not in OPEN_STATES or row["started"] is None or ran_s is None:
        return None
    return int(row["started"] + (ran_s + (read_number(dig(job, "time", "suspended")) or 0)) * MS_PER_S)


def decode_rest_nodes(document: Document) -> Iterator[NodeRecord]:
    """The nodes of a document: of slurmrestd and scontrol one by one, of sinfo those alike together."""
    at_ms = read_seconds(document.get("last_update"))
    for node in _list(document, "nodes"):
        state = "+".join([*list_words(node.get("state")), *list_words(node.get("state_flags"))])
        if name := read_text(node.get("name")):
            yield NodeRecord(
                name,
                read_text(node.get("gres")),
                read_node_state(state),
                read_text(node.get("reason")),
                read_seconds(node.get("reason_changed_at")),
                tuple(list_words(node.get("partitions"))),
                at_ms,
            )
    for group in _list(document, "sinfo"):
        partition = read_text(dig(group, "partition", "name"))
        for name in list_words(dig(group, "nodes", "nodes")):
            yield NodeRecord(
                name,
                read_text(dig(group, "gres", "total")),
                read_node_state("+".join(list_words(dig(group, "node", "state")))),
                read_text(dig(group, "reason", "description")),
                read_seconds(dig(group, "reason", "time")),
                (partition,) if partition else (),
                at_ms,
            )


def count_others(document: Document) -> dict[str, int]:
    """Things that a document lists and that are not booked, by name."""
    counts = {name: len(document[name]) for name in _LISTS[3:] if isinstance(document.get(name), list)}
    return {name: count for name, count in counts.items() if count}


def _list(document: Document, name: str) -> list[Document]:
    items = document.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _read_queued(job: Document) -> dict[str, Any]:
    texts = {name: read_text(value) for name, value in job.items()}
    number = read_id(job.get("job_id")) or ""
    task = read_number(job.get("array_task_id"))
    array = read_id(job.get("array_job_id"))
    name = name_job(
        number,
        array,
        texts.get("array_task_string") if task is None else str(int(task)),
        read_id(job.get("het_job_id")),
        _whole(job.get("het_job_offset")),
    )
    nodes = expand_hostlist(texts.get("nodes") or "")
    gres = _place(nodes, job.get("gres_detail"))
    placed = count_placed(gres)
    per_node, count = texts.get("tres_per_node"), len(nodes) or int(read_number(job.get("node_count")) or 1)
    return {
        **_name_parts(name, number),
        **{ours: texts.get(theirs) for ours, theirs in _QUEUED.items()},
        "state": read_state(first_word(job.get("job_state"))),
        "held": find_grant(texts.get("tres_alloc_str"), placed, per_node, count) if nodes else None,
        "requested": find_grant(texts.get("tres_req_str"), {}, per_node, count),
        "placed": write_placed(placed),
        "indices": write_indices(gres),
        "gres": ",".join(gres.values()) or per_node,
        "restarts": _count(job.get("restart_cnt")),
        **{ours: read_seconds(job.get(f"{theirs}_time")) for ours, theirs in _QUEUED_TIMES.items()},
    }


def _read_recorded(job: Document) -> dict[str, Any]:
    number = read_id(job.get("job_id")) or ""
    task = read_number(dig(job, "array", "task_id"))
    name = name_job(
        number,
        read_id(dig(job, "array", "job_id")),
        read_text(dig(job, "array", "task")) if task is None else str(int(task)),
        read_id(dig(job, "het", "job_id")),
        _whole(dig(job, "het", "job_offset")),
    )
    held, requested = (_write_tres(dig(job, "tres", which)) for which in ("allocated", "requested"))
    count_gpus(held), count_gpus(requested)
    return {
        **_name_parts(name, number),
        "cluster": read_text(job.get("cluster")) or read_text(dig(job, "association", "cluster")),
        "user": read_text(job.get("user")) or read_text(dig(job, "association", "user")),
        "account": read_text(job.get("account")) or read_text(dig(job, "association", "account")),
        "wckey": read_text(dig(job, "wckey", "wckey")),
        "qos": read_text(job.get("qos")),
        "partition": read_text(job.get("partition")),
        "job_name": read_text(job.get("name")),
        "comment": read_text(dig(job, "comment", "job")),
        "admin_comment": read_text(dig(job, "comment", "administrator")),
        "reservation": read_text(dig(job, "reservation", "name") or None),  # 22.05 writes 0
        "reason": read_text(dig(job, "state", "reason")),
        "state": read_state(first_word(dig(job, "state", "current"))),
        "held": held,
        "requested": requested,
        "nodes": read_text(job.get("nodes")),
        "restarts": _count(job.get("restart_cnt")),
        "submitted": read_seconds(dig(job, "time", "submission")),
        "eligible": read_seconds(dig(job, "time", "eligible")),
        "started": read_seconds(dig(job, "time", "start")),
        "ended": read_seconds(dig(job, "time", "end")),
    }


def _name_parts(name: str, number: str) -> dict[str, str | None]:
    return {"job_id": name, "job_number": number if number != name else None}


def _place(nodes: tuple[str, ...], detail: Any) -> dict[str, str]:
    texts = list_words(detail)
    return dict(zip(nodes, texts, strict=True)) if len(texts) == len(nodes) else {}


def _write_tres(items: Any) -> str | None:
    """TRES in a list as their text; None where there are none."""
    if not isinstance(items, list):
        return read_text(items)
    parts = []
    for item in items:
        kind, count = read_text(dig(item, "type")), read_number(dig(item, "count"))
        if kind and count is not None and count >= 0:
            name = read_text(dig(item, "name"))
            parts.append(f"{kind}/{name}={int(count)}" if name else f"{kind}={int(count)}")
    return ",".join(parts) or None


def _count(value: Any) -> int | None:
    number = read_number(value)
    return int(number) if number is not None and 0 <= number < LIMIT_BYTES else None


def _whole(value: Any) -> str | None:
    number = _count(value)
    return None if number is None else str(number)


def read_number(value: Any) -> float | None:
    """A number; None where it is not set or infinite.

    >>> read_number(4), read_number({"set": True, "infinite": False, "number": 4}), read_number({"set": False, "number": 0})
    (4.0, 4.0, None)
    """
    if isinstance(value, dict):
        if value.get("infinite") or value.get("set") is False:
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def read_id(value: Any) -> str | None:
    """A number that names something; 0 names nothing."""
    number = read_number(value)
    return str(int(number)) if number and number == number and abs(number) < LATEST_MS else None


def read_seconds(value: Any) -> int | None:
    """An instant in seconds since 1970 as ms; None where it is none that a job can have."""
    number = read_number(value)
    if number is None or not EARLIEST_MS <= number * MS_PER_S <= LATEST_MS:
        return None
    return int(number) * MS_PER_S


def dig(value: Any, *keys: str) -> Any:
    """The value under these keys, None where one of them is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def first_word(value: Any) -> str | None:
    """A state: a text, or the first of a list of them, whose others are flags."""
    if isinstance(value, list):
        value = value[0] if value else None
    return value if isinstance(value, str) else None


def list_words(value: Any) -> list[str]:
    """A text, or a list of them, as a list."""
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]
