"""The jobs of a clinic as rows of the tables: what their exporters, nodes, scheduler and trackers would have written."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from loadfactor.base.units import MS_PER_S
from loadfactor.simulator.faults.clinic import Patient
from loadfactor.simulator.faults.clinic_shapes import BOARDS
from loadfactor.simulator.faults.clinic_signals import measure
from loadfactor.simulator.table_rows import TableBatch
from loadfactor.tables.schema import table

PRICE: Final = 2.5
PADDED_TOKENS: Final = 4e8
Row = dict[str, Any]


def make_rows(
    patients: Sequence[Patient], signals: frozenset[str] | None = None, with_nodes: bool = True
) -> Iterator[TableBatch]:
    """All rows of some jobs. `signals`: the columns that samples have; without nodes nobody measures these, or asks jobs."""
    told = {"basis": "contracted", "price_per_gpu_hour": PRICE, "currency": "USD", "source": "simulated"}
    yield _as_batch("prices", [{"accelerator": board, **told} for board in BOARDS])
    small: dict[str, list[Row]] = {
        "devices": [], "allocations": [], "device_events": [], "job_sections": [], "progress": [],
    }  # fmt: skip
    for p in patients:
        _list_holdings(p, small)
        if with_nodes:
            _list_told(p, small)
    for name, rows in small.items():
        if rows:
            yield _as_batch(name, rows)
    for p in patients:
        if with_nodes:
            yield from (_sample_node(p, node) for node in range(p.shape.nodes))
        yield _sample(p, signals)


def _list_holdings(p: Patient, small: dict[str, list[Row]]) -> None:
    """Its GPUs, its attempts on each of them, and what happened to them."""
    devices = _name_devices(p)
    for number, device in enumerate(devices):
        small["devices"].append({
            "device_id": device, "node": _name_node(p, number // p.shape.gpus_of_node), "accelerator": p.shape.board,
            "pool": p.shape.board, "from_utc": p.shape.start_ms, "to_utc": _at(p, p.shape.steps),
        })  # fmt: skip
        small["allocations"] += [
            {
                "job_id": p.name, "attempt": attempt, "device_id": device, "user": f"user-{p.name}", "team": "clinic",
                "purpose": p.purpose, "from_utc": _at(p, first), "to_utc": _at(p, after), "end_state": state,
            }
            for attempt, (first, after, state) in enumerate(p.attempts)
        ]  # fmt: skip
    small["device_events"] += [
        {"device_id": devices[0], "at_utc": _at(p, step), "kind": "out_of_memory", "detail": "CUDA out of memory"}
        for step in p.out_of_memory
    ]


def _list_told(p: Patient, small: dict[str, list[Row]]) -> None:
    """What the job says of itself."""
    small["job_sections"] += [
        {"job_id": p.name, "from_utc": _at(p, first), "to_utc": _at(p, after), "kind": kind}
        for first, after, kind in p.sections
    ]
    if p.padding is not None:
        span = {"job_id": p.name, "from_utc": p.shape.start_ms, "to_utc": _at(p, p.shape.steps)}
        small["progress"] += [
            {**span, "unit": "padded_token", "amount": PADDED_TOKENS},
            {**span, "unit": "train_token", "amount": PADDED_TOKENS * (1 - p.padding)},
        ]


def _sample(p: Patient, signals: frozenset[str] | None) -> TableBatch:
    columns = {k: v for k, v in measure(p).items() if signals is None or k in signals}
    instants = np.array([_at(p, step) for step in range(p.shape.steps + 1)])
    made = pa.table(
        {
            "device_id": np.repeat(_name_devices(p), p.shape.steps),
            "from_utc": np.tile(instants[:-1], p.gpus),
            "to_utc": np.tile(instants[1:], p.gpus),
            **{name: values.reshape(-1) for name, values in columns.items()},
            "source": pa.array(["dcgm" if p.shape.has_profiling else "amd"] * (p.gpus * p.shape.steps)),
        }
    )
    schema = table("samples").schema
    return TableBatch("samples", made.cast(pa.schema([schema.field(name) for name in made.column_names])))


def _sample_node(p: Patient, node: int) -> TableBatch:
    steps = p.shape.steps
    instants = np.array([_at(p, step) for step in range(steps + 1)])
    made = pa.table(
        {
            "node": pa.array([_name_node(p, node)] * steps),
            "from_utc": instants[:-1],
            "to_utc": instants[1:],
            "source": pa.array(["node"] * steps),
            "cpu_busy_share": p.cpu,
            "io_wait_share": p.io_wait,
            "disk_write_bytes_per_s": p.writes,
            "net_tx_bytes_per_s": p.net,
        }
    )
    schema = table("node_samples").schema
    return TableBatch("node_samples", made.cast(pa.schema([schema.field(name) for name in made.column_names])))


def _name_devices(p: Patient) -> list[str]:
    return [f"{p.name}/gpu{n}" for n in range(p.gpus)]


def _name_node(p: Patient, node: int) -> str:
    return f"node-{p.name}-{node}"


def _at(p: Patient, step: int) -> int:
    return p.shape.start_ms + step * p.shape.step_s * MS_PER_S


def _as_batch(name: str, rows: list[Row]) -> TableBatch:
    return TableBatch(name, pa.Table.from_pylist(rows, schema=table(name).schema))
