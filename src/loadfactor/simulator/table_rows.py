"""A simulation as batches of rows of the tables, as the fleet's own tools would have written them."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from loadfactor.simulator.activity import compute_activity
from loadfactor.simulator.behaviour import draw_behaviour
from loadfactor.simulator.collector import Collector
from loadfactor.simulator.demand import SubmittedJob
from loadfactor.simulator.outcome import ScheduledRun
from loadfactor.simulator.progress import list_progress
from loadfactor.simulator.simulation import Simulation
from loadfactor.simulator.workloads import WORKLOADS
from loadfactor.tables.schema import table

ROWS_PER_BATCH = 50_000
Row = dict[str, Any]


class TableBatch(NamedTuple):
    """Some rows of one table, with columns as `loadfactor.tables.schema` names them."""

    table: str
    data: pa.Table


def make_tables(sim: Simulation) -> Iterator[TableBatch]:
    """All rows: the small tables first, then the samples, day by day and sorted by device and time within a day."""
    for name, made in (
        ("devices", _list_devices(sim)),
        ("prices", _list_prices(sim)),
        ("outages", _list_outages(sim)),
        ("allocations", _list_allocations(sim)),
        ("queue_events", _list_queue_events(sim)),
        ("progress", _list_progress(sim)),
        ("device_events", _list_device_events(sim)),
    ):
        yield from _split(name, made)
    yield from make_samples(sim)


def make_samples(sim: Simulation) -> Iterator[TableBatch]:
    """The samples alone, in batches of at most about 100,000."""
    how = draw_behaviour(sim)
    collector = Collector(sim, how)
    schema = table("samples").schema
    for block in compute_activity(sim, how):
        made = collector.sample(block)
        if len(made):
            yield TableBatch("samples", made.cast(pa.schema([schema.field(n) for n in made.column_names])))


def _split(name: str, made: Iterable[Row]) -> Iterator[TableBatch]:
    schema, it = table(name).schema, iter(made)
    while batch := list(islice(it, ROWS_PER_BATCH)):
        yield TableBatch(name, pa.Table.from_pylist(batch, schema=schema))


def _list_devices(sim: Simulation) -> Iterator[Row]:
    fleet = sim.fleet
    for i, device_id in enumerate(fleet.device_id):
        node = fleet.nodes[fleet.node[i]]
        yield {
            "device_id": device_id,
            "node": node.name,
            "accelerator": node.group.accelerator,
            "pool": node.group.pool,
            "share": None if fleet.share[i] == 1 else float(fleet.share[i]),
            "from_utc": node.from_ms,
            "to_utc": node.to_ms if node.to_ms < sim.scenario.end_ms else None,
        }


def _list_prices(sim: Simulation) -> Iterator[Row]:
    for price in sim.prices:
        yield {
            "accelerator": price.accelerator,
            "from_utc": price.from_ms,
            "to_utc": price.to_ms,
            "basis": price.basis,
            "price_per_gpu_hour": price.price_per_gpu_hour,
            "source": "simulated",
            "retrieved_on": sim.scenario.start.isoformat(),
        }


def _list_outages(sim: Simulation) -> Iterator[Row]:
    for outage in sim.outages:
        span = {"from_utc": outage.from_ms, "to_utc": outage.to_ms, "reason": outage.reason}
        if outage.whole_node is not None:
            yield {"node": outage.whole_node, **span}
        else:
            for device in outage.devices:
                yield {"device_id": sim.fleet.device_id[device], **span}


def _list_device_events(sim: Simulation) -> Iterator[Row]:
    """What the driver says of a GPU that fails."""
    for outage in sim.outages:
        if outage.reason == "gpu failed":
            for device in outage.devices:
                yield {
                    "device_id": sim.fleet.device_id[device],
                    "at_utc": outage.from_ms,
                    "kind": "xid",
                    "detail": "79: GPU has fallen off the bus",
                }


def _make_holder(job: SubmittedJob) -> Row:
    return {
        "user": job.user,
        "team": job.team,
        "project": job.project,
        "experiment_id": job.experiment_id,
        "purpose": WORKLOADS[job.workload].purpose,
    }


def _list_allocations(sim: Simulation) -> Iterator[Row]:
    queued = {wait.job.job_id for wait in sim.waits}
    for run in sim.runs:
        row = _make_allocation(run, run.job.job_id in queued)
        for device in run.devices:
            yield {"device_id": sim.fleet.device_id[device], **row}


def _make_allocation(run: ScheduledRun, queued: bool) -> Row:
    """What the scheduler knows of a run; standing deployments and pods were never in a queue, so nobody knows when they asked."""
    job, running = run.job, run.end_state == "running"
    return {
        "job_id": job.job_id,
        "attempt": run.attempt,
        "share": None if run.share == 1 else run.share,
        **_make_holder(job),
        "submitted_utc": job.submitted_ms if queued else None,
        "eligible_utc": job.eligible_ms if queued else None,
        "from_utc": run.from_ms,
        "to_utc": None if running else run.to_ms,
        "end_state": run.end_state,
    }


def _list_queue_events(sim: Simulation) -> Iterator[Row]:
    def event(job: SubmittedJob, at_ms: int, what: str, reason: str | None = None) -> Row:
        return {
            "job_id": job.job_id,
            "at_utc": at_ms,
            "event": what,
            "gpus": job.gpus,
            "reason": reason,
            "pool": job.pool,
            **_make_holder(job),
        }

    why = {(w.job.job_id, w.attempt): w.reason for w in sim.waits if w.until_ms != w.since_ms}
    for job in sim.jobs:
        reason, depends = why.get((job.job_id, 0)), job.eligible_ms > job.submitted_ms
        if job.submitted_ms < sim.scenario.end_ms:
            yield event(job, job.submitted_ms, "submitted", "Dependency" if depends else reason)
        if depends and job.eligible_ms < sim.scenario.end_ms:
            yield event(job, job.eligible_ms, "eligible", reason)
    for wait in sim.waits:
        if wait.attempt:
            yield event(wait.job, wait.since_ms, "requeued", why.get((wait.job.job_id, wait.attempt)))
        if wait.until_ms is not None:
            yield event(wait.job, wait.until_ms, "started" if wait.started else "cancelled")


def _list_progress(sim: Simulation) -> Iterator[Row]:
    for made in list_progress(sim):
        yield {
            "job_id": sim.runs[made.run].job.job_id,
            "from_utc": made.from_ms,
            "to_utc": made.to_ms,
            "unit": made.unit,
            "amount": float(made.amount),
            "model_flops": made.model_flops,
            "kept": made.kept,
        }
