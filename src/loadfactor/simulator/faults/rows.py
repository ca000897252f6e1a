"""A scene as rows of the tables: what the fleet's own tools would have written."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from loadfactor.base.units import MS_PER_MIN, MS_PER_S, S_PER_MIN
from loadfactor.simulator.faults.healthy import HISTORY_MINUTES, TEAMS, held_before
from loadfactor.simulator.faults.measure import PROFILED, measure
from loadfactor.simulator.faults.scene import Array, Flags, Job, Scene, Wait
from loadfactor.simulator.table_rows import TableBatch
from loadfactor.tables.schema import table

Row = dict[str, Any]


def make_rows(scene: Scene, signals: Sequence[str] | None = None, late: Flags | None = None) -> Iterator[TableBatch]:
    """All rows, the small tables first. `signals`: the columns that samples have, all by default; `late`: samples left out."""
    for name, rows in (
        ("devices", _list_devices(scene)),
        ("prices", _list_prices(scene)),
        ("outages", _list_outages(scene)),
        ("allocations", _list_allocations(scene)),
        ("queue_events", _list_queue_events(scene)),
        ("device_events", _list_events(scene)),
    ):
        if listed := list(rows):
            yield TableBatch(name, pa.Table.from_pylist(listed, schema=table(name).schema))
    yield make_samples(scene, signals, ~scene.lost if late is None else ~scene.lost & ~late)


def make_samples(scene: Scene, signals: Sequence[str] | None, taken: Flags) -> TableBatch:
    """The samples of these GPUs and minutes: one of each, or several that are alike where the step is shorter."""
    place, minute = (np.repeat(of, S_PER_MIN // scene.step_s) for of in np.nonzero(taken))
    measured: dict[str, Array] = {k: v for k, v in measure(scene).items() if signals is None or k in signals}
    for name in PROFILED & {*measured}:
        measured[name][sorted(scene.plain)] = np.nan
    step_ms = scene.step_s * MS_PER_S
    part = np.arange(len(place)) % (S_PER_MIN // scene.step_s)
    to_ms = scene.start_ms + minute * MS_PER_MIN + (part + 1) * step_ms
    names = pa.array([gpu.device for gpu in scene.fleet])
    columns = {
        "device_id": pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), names).cast(pa.string()),
        "from_utc": to_ms - step_ms,
        "to_utc": to_ms,
        **{name: pa.array(values[place, minute], from_pandas=True) for name, values in measured.items()},
        "source": pa.array(["dcgm"] * len(place)),
    }
    schema = table("samples").schema
    made = pa.table(columns)
    return TableBatch("samples", made.cast(pa.schema([schema.field(name) for name in made.column_names])))


def write_settings(scene: Scene) -> str:
    """What `loadfactor.toml` says of the fleet: its budgets."""
    return "".join(f'[[budget]]\nteam = "{team}"\namount = {amount:.2f}\n\n' for team, amount in scene.budgets.items())


def _list_devices(scene: Scene) -> Iterator[Row]:
    for gpu in scene.fleet:
        yield {
            "device_id": gpu.device,
            "node": gpu.node,
            "accelerator": gpu.accelerator,
            "pool": gpu.pool,
            "from_utc": scene.at_ms(-HISTORY_MINUTES),
            "to_utc": scene.at_ms(scene.minutes),
        }


def _list_prices(scene: Scene) -> Iterator[Row]:
    for price in scene.prices:
        yield {
            "accelerator": price.accelerator,
            "from_utc": None if price.from_min is None else scene.at_ms(price.from_min),
            "to_utc": None if price.to_min is None else scene.at_ms(price.to_min),
            "basis": "contracted",
            "price_per_gpu_hour": price.price_per_gpu_hour,
            "currency": "USD",
            "source": "simulated",
        }


def _list_outages(scene: Scene) -> Iterator[Row]:
    for outage in scene.outages:
        first, after = outage.minutes
        until = scene.at_ms(after) if after < scene.minutes else None
        yield {"node": outage.node, "from_utc": scene.at_ms(first), "to_utc": until, "reason": outage.reason}


def _name_holder(of: Job | Wait) -> Row:
    return {"user": of.user, "team": of.team, "project": f"{of.team}-project"}


def _list_allocations(scene: Scene) -> Iterator[Row]:
    for job in scene.jobs:
        for place in job.gpus:
            yield {
                "job_id": job.job_id,
                "device_id": scene.fleet[place].device,
                **_name_holder(job),
                "purpose": job.purpose,
                "submitted_utc": scene.at_ms(job.submitted_min),
                "from_utc": scene.at_ms(job.from_min),
                "to_utc": None if job.to_min is None else scene.at_ms(job.to_min),
                "end_state": job.end_state,
            }
    for team in TEAMS:
        for place in held_before(team):
            yield {
                "job_id": f"before-{team}",
                "device_id": scene.fleet[place].device,
                "user": f"{team}-0",
                "team": team,
                "purpose": "training",
                "from_utc": scene.at_ms(-HISTORY_MINUTES),
                "to_utc": scene.at_ms(-130),
                "end_state": "completed",
            }


def _list_queue_events(scene: Scene) -> Iterator[Row]:
    def event(of: Wait, minute: int, what: str) -> Row:
        said = {"job_id": of.job_id, "at_utc": scene.at_ms(minute), "event": what, "gpus": of.gpus, "pool": of.pool}
        return {**said, **_name_holder(of), "reason": "Resources" if what == "submitted" else None}

    for wait in scene.waits:
        yield event(wait, wait.from_min, "submitted")
        if wait.until_min is not None:
            yield event(wait, wait.until_min, "started" if wait.started else "cancelled")
    for job in scene.jobs:
        pool = scene.fleet[job.gpus[0]].pool
        wait = Wait(job.job_id, job.user, job.team, pool, len(job.gpus), job.submitted_min, job.from_min, True)
        yield event(wait, job.submitted_min, "submitted")
        yield event(wait, job.from_min, "started")


def _list_events(scene: Scene) -> Iterator[Row]:
    for event in scene.events:
        yield {
            "device_id": scene.fleet[event.gpu].device,
            "at_utc": scene.at_ms(event.minute),
            "kind": event.kind,
            "detail": event.detail,
            "count": event.count,
        }
