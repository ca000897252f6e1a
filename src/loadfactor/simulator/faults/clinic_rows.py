"""The jobs of a clinic as rows of the tables: what their exporters, nodes, scheduler and trackers would have written."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from loadfactor.simulator.faults.clinic import BOARD, MINUTES, START_MS, Patient, measure
from loadfactor.simulator.table_rows import TableBatch
from loadfactor.tables import table
from loadfactor.units import MS_PER_MIN

PRICE: Final = 2.5
PADDED_TOKENS: Final = 4e8
Row = dict[str, Any]


def make_rows(
    patients: Sequence[Patient], signals: frozenset[str] | None = None, with_nodes: bool = True
) -> Iterator[TableBatch]:
    """All rows of some jobs. `signals`: the columns that samples have; without nodes nobody measures these, or asks jobs."""
    end = START_MS + MINUTES * MS_PER_MIN
    price = {
        "accelerator": BOARD,
        "basis": "contracted",
        "price_per_gpu_hour": PRICE,
        "currency": "USD",
        "source": "simulated",
    }
    yield _as_batch("prices", [price])
    small: dict[str, list[Row]] = {
        "devices": [],
        "allocations": [],
        "device_events": [],
        "job_sections": [],
        "progress": [],
    }
    for p in patients:
        devices = [f"{p.name}/gpu{n}" for n in range(p.gpus)]
        for device in devices:
            small["devices"].append(
                {
                    "device_id": device,
                    "node": f"node-{p.name}",
                    "accelerator": BOARD,
                    "pool": "h100",
                    "from_utc": START_MS,
                    "to_utc": end,
                }
            )
            for number, (first, after, state) in enumerate(p.attempts):
                small["allocations"].append(
                    {
                        "job_id": p.name,
                        "attempt": number,
                        "device_id": device,
                        "user": f"user-{p.name}",
                        "team": "clinic",
                        "purpose": p.purpose,
                        "from_utc": _at(first),
                        "to_utc": _at(after),
                        "end_state": state,
                    }
                )
        small["device_events"] += [
            {"device_id": devices[0], "at_utc": _at(m), "kind": "out_of_memory", "detail": "CUDA out of memory"}
            for m in p.out_of_memory
        ]
        if with_nodes:
            small["job_sections"] += [
                {"job_id": p.name, "from_utc": _at(a), "to_utc": _at(b), "kind": kind} for a, b, kind in p.sections
            ]
            if p.padding is not None:
                span = {"job_id": p.name, "from_utc": START_MS, "to_utc": end}
                small["progress"] += [
                    {**span, "unit": "padded_token", "amount": PADDED_TOKENS},
                    {**span, "unit": "train_token", "amount": PADDED_TOKENS * (1 - p.padding)},
                ]
    for name, rows in small.items():
        if rows:
            yield _as_batch(name, rows)
    for p in patients:
        if with_nodes:
            yield _as_batch("node_samples", list(_sample_node(p)))
        yield _sample(p, signals)


def _sample(p: Patient, signals: frozenset[str] | None) -> TableBatch:
    columns = {k: v for k, v in measure(p).items() if signals is None or k in signals}
    to_ms = START_MS + (np.arange(MINUTES) + 1) * MS_PER_MIN
    devices = [f"{p.name}/gpu{n}" for n in range(p.gpus) for _ in range(MINUTES)]
    made = pa.table(
        {
            "device_id": devices,
            "from_utc": np.tile(to_ms - MS_PER_MIN, p.gpus),
            "to_utc": np.tile(to_ms, p.gpus),
            **{name: values.reshape(-1) for name, values in columns.items()},
            "source": ["dcgm"] * len(devices),
        }
    )
    schema = table("samples").schema
    return TableBatch("samples", made.cast(pa.schema([schema.field(name) for name in made.column_names])))


def _sample_node(p: Patient) -> Iterator[dict[str, Any]]:
    for minute in range(MINUTES):
        yield {
            "node": f"node-{p.name}",
            "from_utc": _at(minute),
            "to_utc": _at(minute + 1),
            "source": "node",
            "cpu_busy_share": float(p.cpu[minute]),
            "io_wait_share": float(p.io_wait[minute]),
            "disk_write_bytes_per_s": float(p.writes[minute]),
            "net_tx_bytes_per_s": float(p.net[minute]),
        }


def _at(minute: int) -> int:
    return START_MS + minute * MS_PER_MIN


def _as_batch(name: str, rows: list[Row]) -> TableBatch:
    return TableBatch(name, pa.Table.from_pylist(rows, schema=table(name).schema))
