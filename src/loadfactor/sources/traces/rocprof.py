"""Captures of AMD's profilers: rocprofv3's rocpd database and JSON, and the older rpd database.

rocpd: tables end in a GUID, one of each process; work and the calls that launched it share `stack_id` of their events. rpd: its
table `rocpd_api_ops` joins them. Times are nanoseconds. Sources: rocprofiler-sdk share/rocprofiler-sdk-rocpd/*.sql and
lib/output/generateJSON.cpp (ROCm/rocm-systems), rocpd_python/rocpd/schema_data (ROCm/rocmProfileData).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.traces.kineto import rank_in_name
from loadfactor.sources.traces.nsight import STEP, UNNAMED, read_columns
from loadfactor.sources.traces.pieces import TracePieces, find_launches, refine_kinds
from loadfactor.sources.traces.tables import NULL, SqliteTables
from loadfactor.tables.trace_events import (
    GpuEvents,
    GpuKind,
    HostEvents,
    HostKind,
    TraceCapture,
    TraceDevice,
    TraceStep,
)

Int64s = NDArray[np.int64]
SDK: Final = "rocprofiler-sdk-tool"
RECORD: Final = (
    "rocprofv3 --hip-trace --kernel-trace --memory-copy-trace --marker-trace --output-format rocpd -- COMMAND"
)
"""What makes a file that can be read."""
_DISPATCH, _OPS = "rocpd_kernel_dispatch", "rocpd_op"
_PROCESS_BITS: Final = 40
_LIMIT_BYTES: Final = 256 * BYTES_PER_MIB
_CALLS: Final = ("hip", "hsa", "roctx", "rccl", "ncclAll", "rocdecode", "rocjpeg")
_COPIES: Final = ("copy", "memcpy")


def is_rocprof(tables: Sequence[str]) -> bool:
    """Whether a database with these tables is one of AMD's profilers."""
    return any(name.startswith(_DISPATCH) for name in tables) or {_OPS, "rocpd_api"} <= {*tables}


@dataclass
class _Columns:
    """Work and calls while they are gathered, each row with the key of its launch."""

    names: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    work: list[Int64s] = field(default_factory=list)  # start, end, kind, name, device, stream, size, key
    calls: list[Int64s] = field(default_factory=list)  # start, end, name, thread, key
    devices: dict[object, tuple[int, TraceDevice]] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """The number of a name."""
        if name not in self.numbers:
            self.numbers[name] = len(self.names)
            self.names.append(name)
        return self.numbers[name]

    def device(self, key: object, device: TraceDevice) -> int:
        """The place of a device."""
        return self.devices.setdefault(key, (len(self.devices), device))[0]

    def make(self, path: Path, form: str) -> TraceCapture:
        """The capture."""
        work = np.concatenate(self.work) if self.work else np.empty((0, 8), np.int64)
        work = work[(work[:, 0] != NULL) & (work[:, 1] >= work[:, 0])]
        calls = np.concatenate(self.calls) if self.calls else np.empty((0, 5), np.int64)
        calls = calls[(calls[:, 0] != NULL) & (calls[:, 1] >= calls[:, 0])]
        is_call = np.array([name.startswith(_CALLS) for name in self.names] or [False])[calls[:, 2]]
        host = HostEvents(
            calls[:, 0],
            calls[:, 1],
            np.where(is_call, HostKind.RUNTIME, HostKind.ANNOTATION).astype(np.int8),
            calls[:, 2].astype(np.int32),
            (calls[:, 3] & 0x7FFFFFFF).astype(np.int32),
        )
        given = np.nonzero(is_call & (calls[:, 4] > 0))[0]
        launch, _ = find_launches(work[:, 7], calls[given, 4], calls[given, 0], np.zeros(len(given), np.int32))
        if len(given):
            launch = np.where(launch >= 0, given[launch], -1).astype(np.int32)
        count, number = len(work), work[:, 3].astype(np.int32)
        unknown = np.full(count, np.nan, np.float32)
        gpu = GpuEvents(
            start_ns=work[:, 0],
            end_ns=work[:, 1],
            kind=refine_kinds(work[:, 2].astype(np.int8), number, self.names),
            name=number,
            device=work[:, 4].astype(np.int32),
            stream=work[:, 5],
            launch=launch,
            size=work[:, 6],
            blocks=np.full(count, -1, np.int64),
            group=np.full(count, -1, np.int32),
            flops=unknown,
            moved=unknown,
        )
        steps = [
            TraceStep(self.names[name], int(start), int(end))
            for start, end, name in calls[~is_call][:, :3].tolist()
            if STEP.match(self.names[name])
        ]
        return TraceCapture(
            trace=path.name,
            path=str(path),
            format=form,
            names=self.names,
            devices=tuple(device for _, device in self.devices.values()),
            gpu=gpu.take(np.argsort(gpu.start_ns, kind="stable")),
            host=host,
            rank=rank_in_name(path.name),
            steps=tuple(sorted(steps, key=lambda step: step.start_ns)),
        )


def read_rocpd(tables: SqliteTables) -> TraceCapture:
    """The capture in a database. Raises SourceError where it is damaged."""
    columns = _Columns()
    names = tables.names()
    ends = [name.removeprefix(_DISPATCH) for name in names if name.startswith(_DISPATCH)]
    for place, end in enumerate(ends):
        _read_process(tables, end, place << _PROCESS_BITS, columns)
    if not ends:
        _read_rpd(tables, columns)
    return columns.make(tables.path, "rocprof (rocpd)" if ends else "rocprof (rpd)")


def _map_texts(tables: SqliteTables, table: str, *columns: str) -> dict[int, str]:
    """Texts of a table by its ids, of the first of these columns that it has."""
    if table not in tables.names():
        return {}
    known = tables.columns(table)
    column = next((name for name in columns if name in known), None)
    if column is None or "id" not in known:
        return {}
    ids = tables.numbers(table, ("id",))[:, 0].tolist()
    return {key: str(text or "") for key, text in zip(ids, tables.texts(table, column), strict=True)}


def _look_up(keys: Int64s, values: Mapping[int, int], missing: int) -> Int64s:
    known, place = np.unique(keys, return_inverse=True)
    found = np.array([values.get(key, missing) for key in known.tolist()], np.int64)
    return found[place] if len(keys) else np.empty(0, np.int64)


def _read_process(tables: SqliteTables, end: str, first_key: int, columns: _Columns) -> None:
    def rows(table: str, *names: str) -> Int64s:
        name = f"rocpd_{table}{end}"
        return read_columns(tables, name, names) if name in tables.names() else np.empty((0, len(names)), np.int64)

    unnamed = columns.number(UNNAMED)
    texts = _map_texts(tables, f"rocpd_string{end}", "string")
    strings = {key: columns.number(text) for key, text in texts.items()}
    symbols = _map_texts(tables, f"rocpd_info_kernel_symbol{end}", "display_name", "kernel_name")
    kernels = {key: columns.number(text) for key, text in symbols.items()}
    events = rows("event", "id", "stack_id")
    stacks = {key: stack + first_key for key, stack in events.tolist() if stack > 0}
    products = _map_texts(tables, f"rocpd_info_agent{end}", "product_name", "name")
    index = {key: number for key, number in rows("info_agent", "id", "type_index").tolist() if number != NULL}

    def place(agents: Int64s) -> Int64s:
        known = {
            key: columns.device(
                ("agent", index.get(key, key)), TraceDevice(index.get(key, key), products.get(key, ""), None)
            )
            for key in np.unique(agents).tolist()
        }
        return _look_up(agents, known, 0)

    found = rows("kernel_dispatch", "start", "end", "kernel_id", "agent_id", "stream_id", "event_id")
    columns.work.append(
        np.column_stack(
            (
                found[:, :2],
                np.full(len(found), GpuKind.COMPUTE),
                _look_up(found[:, 2], kernels, unnamed),
                place(found[:, 3]),
                found[:, 4],
                np.full(len(found), -1),
                _look_up(found[:, 5], stacks, 0),
            )
        )
    )
    copies = rows(
        "memory_copy", "start", "end", "name_id", "dst_agent_id", "src_agent_id", "stream_id", "size", "event_id"
    )
    kinds = [str(kind) for kind in tables.texts(f"rocpd_info_agent{end}", "type")] if products else []
    is_gpu = dict(zip(rows("info_agent", "id")[:, 0].tolist(), (kind == "GPU" for kind in kinds), strict=False))
    to_gpu = np.array([is_gpu.get(key, True) for key in copies[:, 3].tolist()], bool)
    columns.work.append(
        np.column_stack(
            (
                copies[:, :2],
                np.full(len(copies), GpuKind.MEMCPY),
                _look_up(copies[:, 2], strings, unnamed),
                place(np.where(to_gpu, copies[:, 3], copies[:, 4])),
                copies[:, 5],
                np.where(copies[:, 6] == NULL, -1, copies[:, 6]),
                _look_up(copies[:, 7], stacks, 0),
            )
        )
    )
    regions = rows("region", "start", "end", "name_id", "tid", "event_id")
    columns.calls.append(
        np.column_stack(
            (
                regions[:, :2],
                _look_up(regions[:, 2], strings, unnamed),
                regions[:, 3],
                _look_up(regions[:, 4], stacks, 0),
            )
        )
    )


def _read_rpd(tables: SqliteTables, columns: _Columns) -> None:
    unnamed = columns.number(UNNAMED)
    texts = _map_texts(tables, "rocpd_string", "string")
    strings = {key: columns.number(text) for key, text in texts.items()}
    copies = [key for key, text in texts.items() if any(word in text.lower() for word in _COPIES)]
    found = read_columns(tables, _OPS, ("id", "start", "end", "description_id", "opType_id", "gpuId", "queueId"))
    described = np.where(
        np.isin(found[:, 3], [key for key, text in texts.items() if not text]), found[:, 4], found[:, 3]
    )
    devices = {gpu: columns.device(gpu, TraceDevice(gpu, "", None)) for gpu in np.unique(found[:, 5]).tolist()}
    columns.work.append(
        np.column_stack(
            (
                found[:, 1:3],
                np.where(np.isin(found[:, 4], copies), GpuKind.MEMCPY, GpuKind.COMPUTE),
                _look_up(described, strings, unnamed),
                _look_up(found[:, 5], devices, 0),
                found[:, 6],
                np.full(len(found), -1),
                found[:, 0],
            )
        )
    )
    joined = np.empty((0, 2), np.int64)
    if "rocpd_api_ops" in tables.names():
        joined = read_columns(tables, "rocpd_api_ops", ("api_id", "op_id"))
    launched: dict[int, int] = dict(joined[::-1].tolist())  # of several the first
    calls = read_columns(tables, "rocpd_api", ("id", "start", "end", "apiName_id", "tid"))
    columns.calls.append(
        np.column_stack(
            (calls[:, 1:3], _look_up(calls[:, 3], strings, unnamed), calls[:, 4], _look_up(calls[:, 0], launched, 0))
        )
    )


def read_rocprof_json(pieces: TracePieces) -> TraceCapture:
    """The capture in rocprofv3's JSON. Raises SourceError where it is damaged, or so large that only its database can be read."""
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) > _LIMIT_BYTES:
            raise SourceError(
                f"{pieces.path} is JSON of rocprofv3 of more than {_LIMIT_BYTES // BYTES_PER_MIB} MiB; record a database:"
                f" `{RECORD}`"
            )
    try:
        tools = json.loads(data)[SDK]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SourceError(f"{pieces.path} is no whole JSON of rocprofv3; write it again") from None
    columns = _Columns()
    for place, tool in enumerate(tools if isinstance(tools, list) else []):
        if isinstance(tool, dict):
            _read_tool(tool, place << _PROCESS_BITS, columns)
    return columns.make(pieces.path, "rocprof (JSON)")


def _read_tool(tool: dict[str, Any], first_key: int, columns: _Columns) -> None:
    kernels = {
        _whole(symbol.get("kernel_id")): str(
            symbol.get("formatted_kernel_name") or symbol.get("truncated_kernel_name") or ""
        )
        for symbol in _records(tool, "kernel_symbols")
    }
    strings = tool.get("strings")
    operations = {
        (_whole(kind.get("kind"), place), number): str(name)
        for place, kind in enumerate(_records(strings, "buffer_records"))
        for number, name in enumerate(kind.get("operations") or ())
    }
    agents = {
        _whole(_at(agent, "id", "handle")): TraceDevice(
            _whole(agent.get("logical_node_type_id"), _whole(agent.get("node_id"))),
            str(agent.get("product_name") or agent.get("name") or ""),
            None,
        )
        for agent in _records(tool, "agents")
    }
    buffers = tool.get("buffer_records")
    work, calls = [], []
    for record in _records(buffers, "kernel_dispatch"):
        info = record.get("dispatch_info")
        name = kernels.get(_whole(_at(info, "kernel_id")), UNNAMED)
        work.append((record, GpuKind.COMPUTE, name, _whole(_at(info, "agent_id", "handle")), -1))
    for record in _records(buffers, "memory_copy"):
        name = operations.get((_whole(record.get("kind")), _whole(record.get("operation"))), "MEMORY_COPY")
        ends = [_whole(_at(record, f"{end}_agent_id", "handle")) for end in ("dst", "src")]
        on_gpu = next((end for end in ends if end in agents and "gfx" in str(_name_of(tool, end))), ends[0])
        work.append((record, GpuKind.MEMCPY, name, on_gpu, _whole(record.get("bytes"), -1)))
    for kind in ("hip_api", "hsa_api", "marker_api", "rccl_api"):
        for record in _records(buffers, kind):
            calls.append((record, operations.get((_whole(record.get("kind")), _whole(record.get("operation"))), kind)))
    columns.work.append(
        np.array(
            [
                (
                    *_span(record),
                    kind,
                    columns.number(name),
                    columns.device(agent, agents.get(agent, TraceDevice(agent, "", None))),
                    _whole(_at(record, "stream_id", "handle"), -1),
                    size,
                    _key(record, first_key),
                )
                for record, kind, name, agent, size in work
            ],
            np.int64,
        ).reshape(-1, 8)
    )
    columns.calls.append(
        np.array(
            [
                (*_span(record), columns.number(name), _whole(record.get("thread_id")), _key(record, first_key))
                for record, name in calls
            ],
            np.int64,
        ).reshape(-1, 5)
    )


def _name_of(tool: dict[str, Any], handle: int) -> str:
    found = (agent for agent in _records(tool, "agents") if _whole(_at(agent, "id", "handle")) == handle)
    return str(next(found, {}).get("name", ""))


def _records(holder: object, name: str) -> Iterator[dict[str, Any]]:
    listed = holder.get(name) if isinstance(holder, dict) else None
    return (record for record in (listed if isinstance(listed, list) else ()) if isinstance(record, dict))


def _at(holder: object, *names: str) -> object:
    for name in names:
        holder = holder.get(name) if isinstance(holder, dict) else None
    return holder


def _whole(value: object, missing: int = 0) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62
    return int(value) if is_number else missing  # type: ignore[call-overload]


def _span(record: dict[str, Any]) -> tuple[int, int]:
    return _whole(record.get("start_timestamp"), NULL), _whole(record.get("end_timestamp"), NULL)


def _key(record: dict[str, Any], first_key: int) -> int:
    number = _whole(_at(record, "correlation_id", "internal"))
    return number + first_key if 0 < number < 1 << _PROCESS_BITS else 0
