"""Decoder of what kubectl saved: lists, single objects and watch events, one after the other in a file, as JSON."""

import codecs
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.kubernetes.decoder import KINDS, KubernetesDecoder
from loadfactor.sources.kubernetes.fields import Object, instant, part, text
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.text_blocks import join_pieces

LARGEST_BYTES: Final = 512 * BYTES_PER_MIB
STILL_HELD: Final = "pods and claims that still held GPUs when this was saved: held until"
LISTED: Final = "LISTED"
DELETED: Final = "DELETED"
_SAVE: Final = "kubectl get pods,nodes -A -o json"
_OTHERS: Final = {
    "apiVersion:": "YAML",
    "NAME": "a table of kubectl",
    "NAMESPACE": "a table of kubectl",
    "Name:": "kubectl describe",
}
"""What text is that is no JSON, by how it begins."""
_OTHER_JSON: Final = {
    ("status", "data"): "an answer of Prometheus; import it with `loadfactor import prometheus`",
    ("jobs",): "JSON of Slurm; import it with `loadfactor import slurm`",
    ("sinfo",): "JSON of Slurm; import it with `loadfactor import slurm`",
    ("nodes", "meta"): "JSON of Slurm; import it with `loadfactor import slurm`",
}
"""What JSON is that is no object of Kubernetes, by names that it has."""
_EVENTS: Final = ("ADDED", "MODIFIED", DELETED)
_NO_OBJECTS: Final = ("BOOKMARK", "ERROR")
_DEEPEST: Final = 8
_BETWEEN: Final = " \t\r\n,\x1e"
_AHEAD: Final = ("deletionTimestamp", "requeueAt")
"""Instants that may lie ahead of the moment in which an object was saved."""
Event = tuple[str, Object]
"""LISTED, ADDED, MODIFIED or DELETED, and the object."""


def decode_objects(inputs: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The rows of all files together: nodes in one explain pods in another.

    What still runs is held until the files were saved: `at_ms` of the options, else the newest instant in them. Raises SourceError
    for what is no JSON, or none of Kubernetes.
    """
    decoder = KubernetesDecoder()
    events = [event for source in inputs for event in read_events(source)]
    if not events:
        raise SourceError(f"{inputs[0].label}: no object of Kubernetes in it; save `{_SAVE}`")
    saved_ms = options.at_ms or max((at for _, found in events for at in _list_instants(found, 0)), default=None)
    places = {kind: place for place, kind in enumerate(KINDS)}
    listed = [found for what, found in events if what == LISTED]
    for found in sorted(listed, key=lambda found: places.get(text(found, "kind"), -1)):
        decoder.feed(text(found, "kind"), found, saved_ms)
    for what, found in events:
        if what == DELETED:
            decoder.remove(text(found, "kind"), found, None)
        elif what != LISTED:
            decoder.feed(text(found, "kind"), found, None)
    why = "--at" if options.at_ms is not None else "the newest time in it; --at says when it was saved"
    yield from drain_saved(decoder, inputs[0].label, saved_ms, why)


PARTS_REQUESTED = "pods with a part of a GPU: the part that they requested of it, not what they used"
"""The basis of shares: time slices, MPS, HAMi, MIG and partitions are what the scheduler promises."""


def drain_saved(decoder: KubernetesDecoder, where: str, saved_ms: int | None, why: str) -> Iterator[Rows | Gap]:
    """The rows of all that was fed: what still runs is held until `saved_ms`; `why` it is that time."""
    unsure = decoder.count_unsure()
    if unsure:
        yield Gap(where, "pods whose node is not in it: their GPUs count as undivided ones", unsure)
    divided = decoder.count_divided()
    if divided:
        yield Gap(where, PARTS_REQUESTED, divided)
    unnamed = decoder.cluster.granted.count_unnamed()
    if unnamed:
        yield Gap(
            where,
            "pods with claims of devices that no resourceslice in it lists: which GPUs, nobody says",
            unnamed,
        )
    still = 0
    first_ms = min((pod.from_ms for pod in decoder.cluster.pods.values() if pod.from_ms is not None), default=None)
    for item in decoder.drain():
        if isinstance(item, Rows) and item.table == "devices" and first_ms is not None:
            item = _begin_with(item, decoder.inventory.list_counted(), first_ms)
        if isinstance(item, Rows) and item.table == "allocations" and "to_utc" in item.data.column_names:
            still += item.data["to_utc"].null_count
        yield _end_at(item, saved_ms) if isinstance(item, Rows) and saved_ms is not None else item
    if still:
        until = (
            "an unknown time"
            if saved_ms is None
            else f"{datetime.fromtimestamp(saved_ms / MS_PER_S, UTC):%Y-%m-%d %H:%M:%S} UTC"
        )
        yield Gap(where, f"{STILL_HELD} {until} ({why})", still)


def read_events(source: Input) -> Iterator[Event]:
    """The objects of one file, those of lists one by one. Raises SourceError where it is no JSON."""
    content = _read_text(source)
    decoder, place = json.JSONDecoder(), 0
    while True:
        while place < len(content) and content[place] in _BETWEEN:
            place += 1
        if place == len(content):
            return
        try:
            found, place = decoder.raw_decode(content, place)
        except (ValueError, RecursionError) as error:
            line = content.count("\n", 0, getattr(error, "pos", place)) + 1
            why = getattr(error, "msg", "nested too deeply")
            begins = next((what for start, what in _OTHERS.items() if content.lstrip().startswith(start)), "no JSON")
            raise SourceError(f"{source.label}, line {line}: {begins} ({why}); save `{_SAVE}`") from None
        yield from _list_events(source.label, found, "", 0)


def _read_text(source: Input) -> str:
    data = join_pieces(source.label, source.chunks, LARGEST_BYTES, "save fewer kinds, or one namespace at a time")
    try:
        return data.decode("utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(f"{source.label}: not text; is this the right file?") from None


def _list_events(label: str, found: Any, kind: str, depth: int) -> Iterator[Event]:
    if depth > _DEEPEST:
        return
    if isinstance(found, list):
        for one in found:
            yield from _list_events(label, one, kind, depth + 1)
        return
    if not isinstance(found, dict):
        raise SourceError(f"{label}: {quote(found)} is no object of Kubernetes; save it with `-o json`")
    what, inside = text(found, "type"), found.get("object")
    if isinstance(inside, dict) and what in (*_EVENTS, *_NO_OBJECTS):
        if what in _EVENTS:
            yield what, inside
        return
    other = next((what for names, what in _OTHER_JSON.items() if set(names) <= found.keys()), None)
    if other is not None and "kind" not in found:
        raise SourceError(f"{label} is {other}")
    if isinstance(found.get("items"), list):
        of = text(found, "kind").removesuffix("List")  # items of a PodList do not say what they are
        yield from _list_events(label, found["items"], of, depth + 1)
    elif text(part(found, "metadata"), "name"):
        yield LISTED, found if text(found, "kind") else {**found, "kind": kind}


def _list_instants(found: Any, depth: int) -> Iterator[int]:
    if depth > _DEEPEST:
        return
    if isinstance(found, list):
        for one in found:
            yield from _list_instants(one, depth + 1)
    elif isinstance(found, dict):
        for name, value in found.items():
            if isinstance(value, dict | list):
                yield from _list_instants(value, depth + 1)
            elif isinstance(name, str) and name.lower().endswith(("time", "timestamp", "at")) and name not in _AHEAD:
                at_ms = instant(found, name)
                if at_ms is not None:
                    yield at_ms


def _begin_with(rows: Rows, counted: set[str], first_ms: int) -> Rows:
    """GPUs of nodes that are older than all pods: since the books begin, as nobody knows who held them before."""
    given = rows.data.select(["device_id", "from_utc"]).to_pylist()
    begins = [None if row["device_id"] in counted and row["from_utc"] < first_ms else row["from_utc"] for row in given]
    place = rows.data.column_names.index("from_utc")
    return Rows(
        rows.table, rows.data.set_column(place, "from_utc", pa.array(begins, pa.int64())), rows.where, rows.inferred
    )


def _end_at(rows: Rows, saved_ms: int) -> Rows:
    if "from_utc" not in rows.data.column_names or rows.table == "quotas":  # which hold until further notice
        return rows
    given = rows.data.to_pylist()
    ends = [
        row.get("to_utc") if row.get("to_utc") is not None else max(saved_ms, row["from_utc"] or 0) for row in given
    ]
    data = rows.data.drop_columns(["to_utc"]) if "to_utc" in rows.data.column_names else rows.data
    return Rows(rows.table, data.append_column("to_utc", pa.array(ends, pa.int64())), rows.where, rows.inferred)
