"""Which rows would the fleet's own tools have written? A simulation as batches of the seven tables."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from loadfactor.simulator.activity import behaviour, blocks
from loadfactor.simulator.demand import Job
from loadfactor.simulator.output import outputs
from loadfactor.simulator.schedule import Run
from loadfactor.simulator.signals import Signals
from loadfactor.simulator.simulation import Simulation
from loadfactor.simulator.workloads import WORKLOADS
from loadfactor.sources.base import Rows
from loadfactor.tables import table

ROWS_PER_BATCH = 50_000
Row = dict[str, Any]


def rows(sim: Simulation) -> Iterator[Rows]:
    """All rows: the small tables first, then the samples, day by day and sorted by device and time within a day."""
    for name, made in (
        ("devices", _devices(sim)),
        ("prices", _prices(sim)),
        ("outages", _outages(sim)),
        ("allocations", _allocations(sim)),
        ("queue_events", _queue_events(sim)),
        ("progress", _progress(sim)),
    ):
        yield from _batches(name, made)
    yield from samples(sim)


def samples(sim: Simulation) -> Iterator[Rows]:
    """The samples alone, in batches of at most about 100,000."""
    how = behaviour(sim)
    signals = Signals(sim, how)
    schema = table("samples").schema
    for block in blocks(sim, how):
        made = signals.rows(block)
        if len(made):
            yield Rows("samples", made.cast(pa.schema([schema.field(n) for n in made.column_names])), "simulated")


def _batches(name: str, made: Iterable[Row]) -> Iterator[Rows]:
    schema, it = table(name).schema, iter(made)
    while batch := list(islice(it, ROWS_PER_BATCH)):
        yield Rows(name, pa.Table.from_pylist(batch, schema=schema), "simulated")


def _devices(sim: Simulation) -> Iterator[Row]:
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
            "to_utc": node.to_ms if node.to_ms < sim.plan.end_ms else None,
        }


def _prices(sim: Simulation) -> Iterator[Row]:
    for price in sim.prices:
        yield {
            "accelerator": price.accelerator,
            "from_utc": price.from_ms,
            "to_utc": price.to_ms,
            "basis": price.basis,
            "price_per_gpu_hour": price.price_per_gpu_hour,
            "source": "simulated",
            "retrieved_on": sim.plan.start.isoformat(),
        }


def _outages(sim: Simulation) -> Iterator[Row]:
    for outage in sim.outages:
        span = {"from_utc": outage.from_ms, "to_utc": outage.to_ms, "reason": outage.reason}
        if outage.whole_node is not None:
            yield {"node": outage.whole_node, **span}
        else:
            for device in outage.devices:
                yield {"device_id": sim.fleet.device_id[device], **span}


def _holder(job: Job) -> Row:
    return {
        "user": job.user,
        "team": job.team,
        "project": job.project,
        "experiment_id": job.experiment_id,
        "purpose": WORKLOADS[job.workload].purpose,
    }


def _allocations(sim: Simulation) -> Iterator[Row]:
    queued = {wait.job.job_id for wait in sim.waits}
    for run in sim.runs:
        row = _allocation(run, run.job.job_id in queued)
        for device in run.devices:
            yield {"device_id": sim.fleet.device_id[device], **row}


def _allocation(run: Run, queued: bool) -> Row:
    """What the scheduler knows of a run; standing deployments and pods were never in a queue, so nobody knows when they asked."""
    job, running = run.job, run.end_state == "running"
    return {
        "job_id": job.job_id,
        "attempt": run.attempt,
        "share": None if run.share == 1 else run.share,
        **_holder(job),
        "submitted_utc": job.submitted_ms if queued else None,
        "eligible_utc": job.eligible_ms if queued else None,
        "from_utc": run.from_ms,
        "to_utc": None if running else run.to_ms,
        "end_state": run.end_state,
    }


def _queue_events(sim: Simulation) -> Iterator[Row]:
    def event(job: Job, at_ms: int, what: str, reason: str | None = None) -> Row:
        return {
            "job_id": job.job_id,
            "at_utc": at_ms,
            "event": what,
            "gpus": job.gpus,
            "reason": reason,
            "pool": job.pool,
            **_holder(job),
        }

    for job in sim.jobs:
        if job.submitted_ms < sim.plan.end_ms:
            yield event(
                job, job.submitted_ms, "submitted", "Dependency" if job.eligible_ms > job.submitted_ms else None
            )
        if job.submitted_ms < job.eligible_ms < sim.plan.end_ms:
            yield event(job, job.eligible_ms, "eligible")
    for wait in sim.waits:
        if wait.attempt:
            yield event(wait.job, wait.since_ms, "requeued", "NodeFail")
        if wait.until_ms is not None:
            yield event(wait.job, wait.until_ms, "started" if wait.started else "cancelled")


def _progress(sim: Simulation) -> Iterator[Row]:
    for made in outputs(sim):
        yield {
            "job_id": sim.runs[made.run].job.job_id,
            "from_utc": made.from_ms,
            "to_utc": made.to_ms,
            "unit": made.unit,
            "amount": float(made.amount),
            "model_flops": made.model_flops,
            "kept": made.kept,
        }
