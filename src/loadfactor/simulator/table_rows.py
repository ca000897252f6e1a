"""A simulation as batches of rows of the tables, as the fleet's own tools would have written them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from loadfactor.base.errors import InputError
from loadfactor.base.units import BYTES_PER_MIB, HZ_PER_MHZ, MS_PER_DAY, MS_PER_HOUR, MS_PER_S, PERCENT
from loadfactor.catalog.accelerators import accelerator
from loadfactor.simulator.activity import (
    ACTIVITY_PER_ONE,
    SERVING,
    ActivityBlock,
    Behaviour,
    Singles,
    compute_activity,
    draw_behaviour,
)
from loadfactor.simulator.demand import SubmittedJob, compute_request_rate
from loadfactor.simulator.fleet import Floats
from loadfactor.simulator.scenario import WORKLOADS, Scenario, Workload
from loadfactor.simulator.schedule import ScheduledRun
from loadfactor.simulator.simulation import Simulation, simulate
from loadfactor.tables.schema import RUN, table

ROWS_PER_BATCH = 50_000
Row = dict[str, Any]
POWER_STEP_W = 0.762  # of the board's sensor
IDLE_POWER_SHARE = 0.14  # of the board's limit
CLOCK_STEP_MHZ = 15
IDLE_CLOCK_MHZ, TOP_CLOCK_MHZ = 345, 1980
DRIVER_MIB = 4  # held by the driver when nobody computes
RATE_STEP_BYTES_PER_S = 20e6
THROTTLED_IDLE, THROTTLED_POWER, THROTTLED_THERMAL = 0x1, 0x4, 0x20  # NVML clock event reasons
FLOPS_PER_PARAM_TRAINED = 6  # forward and backward, per token
FLOPS_PER_PARAM_SERVED = 2  # forward
PROMPT_TOKENS_PER_REQUEST, OUTPUT_TOKENS_PER_REQUEST = 1040, 260
DATATYPE = "bf16"  # of everything that is trained and served
UNDONE = ("node_fail", "failed", "preempted", "timeout")
Format = Literal["parquet", "csv"]


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
    if sim.scenario.names_networks:
        yield from _list_networks(sim)


def _list_networks(sim: Simulation) -> Iterator[Row]:
    """What runs say of the networks whose FLOPs they report, as `loadfactor.track` keeps it: held by nobody, on no GPU."""
    for run in sim.runs:
        of = run.job.deployment
        params = sim.scenario.deployments[of].params if of >= 0 else WORKLOADS[run.job.workload].params
        if params:
            yield {
                "job_id": run.job.job_id,
                "attempt": run.attempt,
                "gpus": 0.0,
                **_make_holder(run.job),
                "tags": json.dumps({"network": json.dumps({"parameters": params, "datatype": DATATYPE})}),
                "from_utc": run.from_ms,
                "to_utc": None if run.end_state == "running" else run.to_ms,
                "known_from": RUN,
            }


def _make_allocation(run: ScheduledRun, queued: bool) -> Row:
    """The row of a run as its scheduler knows it; deployments and pods were never queued and have no submit time."""
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


class Collector:
    """Makes the rows of a block. Holds what does not change: boards, and what each run takes of them."""

    def __init__(self, sim: Simulation, how: Behaviour) -> None:
        self.sim, self.how = sim, how
        boards = [accelerator(n.group.accelerator) for n in sim.fleet.nodes]
        node = sim.fleet.node
        self.limit_w = np.array([b.value("tdp_w") for b in boards], dtype=np.float32)[node]
        self.total_mib = np.array([b.memory_bytes // BYTES_PER_MIB for b in boards])[node] * sim.fleet.share // 1
        work = np.array([r.job.workload for r in sim.runs], dtype=np.int64)[sim.holdings.run]
        gang = np.array([len(r.devices) for r in sim.runs])[sim.holdings.run]
        rng = np.random.default_rng((sim.scenario.seed, 8))
        wobble = rng.uniform(0.9, 1.08, len(work))
        self.tensor = (np.array([w.tensor_ratio for w in WORKLOADS])[work] * wobble).astype(np.float32)
        self.dram = (np.array([w.dram_ratio for w in WORKLOADS])[work] * wobble).astype(np.float32)
        mem = np.minimum(np.array([w.mem_share for w in WORKLOADS])[work] * wobble, 0.97)
        self.mem_mib = np.floor(mem * self.total_mib[sim.holdings.device])
        self.linked = gang > 1
        self.warm_node = (np.arange(len(sim.fleet.nodes)) % 11 == 3)[node]  # one rack in the sun

    def sample(self, block: ActivityBlock) -> pa.Table:
        """The samples of a block that arrived, sorted by device and time."""
        how, sim = self.how, self.sim
        at = np.flatnonzero(block.valid)
        row, slot = np.divmod(at, block.valid.shape[1])
        device = row + block.first
        owner = block.owner.ravel()[at]
        held = owner >= 0
        rng = np.random.Generator(
            np.random.SFC64(np.random.SeedSequence((sim.scenario.seed, 9, block.day, block.first)))
        )
        sm_q, busy_q = block.sm.ravel()[at], block.busy.ravel()[at]
        sm = sm_q.astype(np.float32) / ACTIVITY_PER_ONE
        jitter = rng.integers(-8, 9, len(row), dtype=np.int8).astype(np.float32)
        tensor_q = np.minimum(sm_q, np.rint(sm_q * self.tensor[owner] * (1 + jitter * np.float32(0.004))))
        dram_q = np.rint(np.minimum(sm_q * self.dram[owner] * (1 - jitter * np.float32(0.003)), 9700))
        serving = held & (how.shape[owner] == SERVING)
        load = 0.25 * (busy_q / np.float32(PERCENT)) + (0.5 * sm_q + 0.25 * dram_q + 0.2 * tensor_q) / ACTIVITY_PER_ONE
        limit_w = self.limit_w[device]
        power_w = limit_w * np.minimum(IDLE_POWER_SHARE + (1 - IDLE_POWER_SHARE) * load, 0.995)
        power_w = power_w + np.where(sm_q > 0, jitter * 0.4, jitter * 0.05)
        power_w = np.minimum(power_w, limit_w)
        temperature = np.floor(27 + 44 * power_w / limit_w + 9 * self.warm_node[device])
        capped = power_w > 0.95 * limit_w
        hot = temperature >= 76
        awake = (busy_q > 0) | serving
        clock_mhz = np.where(awake, TOP_CLOCK_MHZ - CLOCK_STEP_MHZ * np.where(capped, 8 + jitter, 0), IDLE_CLOCK_MHZ)
        throttle = np.where(awake, capped * THROTTLED_POWER + hot * THROTTLED_THERMAL, THROTTLED_IDLE).astype(np.int64)
        loading = held & (block.lo_ms[row] + slot * sim.scenario.step_ms < how.work_from_ms[owner])
        mem_mib = np.where(held, np.where(loading, self.mem_mib[owner] // 4, self.mem_mib[owner]), DRIVER_MIB)
        link = np.where(held & self.linked[owner], sm * np.float32(4.5e10), 0)
        to_ms = block.lo_ms[row] + (slot + 1) * sim.scenario.step_ms
        blind = ~sim.fleet.profiled[device]
        unseen = blind if blind.any() else None
        pipes = {}
        if sim.scenario.profiles_pipes:
            shares = {"fp32_active_share": 0.35 * (sm_q - tensor_q), "sm_occupancy_share": 0.55 * sm_q}
            pipes = {name: _encode_share(np.rint(share), unseen) for name, share in shares.items()}
        return pa.table(
            {
                "device_id": self._name_devices(block, row),
                "from_utc": to_ms - sim.scenario.step_ms,
                "to_utc": to_ms,
                "busy_share": busy_q / PERCENT,
                "engine_active_share": _encode_share(block.engine.ravel()[at], unseen),
                "sm_active_share": _encode_share(sm_q, unseen),
                "tensor_active_share": _encode_share(tensor_q, unseen),
                "dram_active_share": _encode_share(dram_q, unseen),
                "mem_used_bytes": mem_mib * float(BYTES_PER_MIB),
                "mem_total_bytes": self.total_mib[device] * float(BYTES_PER_MIB),
                "power_w": np.round(np.rint(power_w.astype(np.float64) / POWER_STEP_W) * POWER_STEP_W, 3),
                "pcie_rx_bytes_per_s": _encode_rate(sm * np.float32(9e8), unseen),
                "pcie_tx_bytes_per_s": _encode_rate(sm * np.float32(3e8), unseen),
                "nvlink_bytes_per_s": _encode_rate(link, unseen),
                "sm_clock_hz": clock_mhz.astype(np.float64) * HZ_PER_MHZ,
                "temperature_c": temperature.astype(np.float64),
                "throttle_mask": throttle,
                **pipes,
                "source": pa.DictionaryArray.from_arrays(
                    pa.array(blind.astype(np.int8)), pa.array(["dcgm", "nvidia-smi"])
                ),
            }
        )

    def _name_devices(self, block: ActivityBlock, row: npt.NDArray[np.intp]) -> pa.DictionaryArray:
        names = pa.array(self.sim.fleet.device_id[block.first : block.first + len(block.valid)])
        return pa.DictionaryArray.from_arrays(pa.array(row.astype(np.int32)), names)


def _encode_share(ten_thousandths: npt.NDArray[np.generic], unseen: npt.NDArray[np.bool_] | None) -> pa.Array:
    # Dividing two whole numbers last gives the double that "0.8731" means.
    return pa.array(ten_thousandths.astype(np.float64) / ACTIVITY_PER_ONE, mask=unseen)


def _encode_rate(bytes_per_s: Singles | Floats, unseen: npt.NDArray[np.bool_] | None) -> pa.Array:
    return pa.array(
        np.rint(bytes_per_s.astype(np.float64) / RATE_STEP_BYTES_PER_S) * RATE_STEP_BYTES_PER_S, mask=unseen
    )


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """One row of progress, and the run it belongs to (an index into the runs)."""

    run: int
    from_ms: int
    to_ms: int
    unit: str
    amount: float
    model_flops: float | None
    kept: bool


def list_progress(sim: Simulation) -> Iterator[ProgressRow]:
    """The progress of every run, run after run."""
    peaks = {g.accelerator: accelerator(g.accelerator).peak_flops(DATATYPE) for g in sim.scenario.groups}
    rng = np.random.default_rng((sim.scenario.seed, 10))
    pace = rng.normal(1, 0.06, len(sim.runs)).clip(0.75, 1.2)
    for i, run in enumerate(sim.runs):
        w = WORKLOADS[run.job.workload]
        if run.job.deployment >= 0:
            yield from _list_served(sim, i, run, rng)
        elif w.mfu_share or w.samples_per_gpu_s:
            node = sim.fleet.nodes[sim.fleet.node[run.devices[0]]]
            part = float(sim.fleet.share[run.devices[0]]) * run.share
            yield from _list_trained(i, run, w, peaks[node.group.accelerator], float(pace[i]) * part)


def _list_trained(i: int, run: ScheduledRun, w: Workload, peak_flops: float, pace: float) -> Iterator[ProgressRow]:
    gpus = len(run.devices)
    if w.mfu_share:
        tokens_per_s = gpus * pace * w.mfu_share * peak_flops / (FLOPS_PER_PARAM_TRAINED * w.params)
        steps_per_s = tokens_per_s / w.tokens_per_step
    else:
        steps_per_s = gpus * pace * w.samples_per_gpu_s / w.samples_per_step
    every = w.checkpoint_s * MS_PER_S or MS_PER_HOUR
    undone = run.end_state in UNDONE
    at, before = run.work_from_ms, 0
    while at < run.work_to_ms:
        until = min(at + every, run.work_to_ms)
        after = int((until - run.work_from_ms) * steps_per_s / MS_PER_S)
        steps, before = after - before, after
        # A run that keeps nothing loses all it did; one with checkpoints loses what came after the last.
        kept = not undone or (w.checkpoint_s > 0 and until - at == every)
        if steps:
            yield ProgressRow(i, at, until, "step", steps, None, kept)
            if w.tokens_per_step:
                tokens = steps * w.tokens_per_step
                yield ProgressRow(
                    i, at, until, "train_token", tokens, FLOPS_PER_PARAM_TRAINED * w.params * tokens, kept
                )
            else:
                samples = steps * w.samples_per_step
                yield ProgressRow(i, at, until, "train_sample", samples, None, kept)
                yield ProgressRow(i, at, until, "epoch", samples / w.samples_per_epoch, None, kept)
        at = until


def _list_served(sim: Simulation, i: int, run: ScheduledRun, rng: np.random.Generator) -> Iterator[ProgressRow]:
    d = sim.scenario.deployments[run.job.deployment]
    if run.work_from_ms >= run.to_ms:
        return
    hours = np.arange(run.work_from_ms // MS_PER_HOUR + 1, -(-run.to_ms // MS_PER_HOUR), dtype=np.int64) * MS_PER_HOUR
    edges = np.concatenate(([run.work_from_ms], hours, [run.to_ms]))
    middle, seconds = (edges[1:] + edges[:-1]) // 2, np.diff(edges) / MS_PER_S
    requests_made = rng.poisson(d.peak_requests_per_s * compute_request_rate(sim.calendar, middle) * seconds)
    for a, b, requests in zip(edges[:-1].tolist(), edges[1:].tolist(), requests_made.tolist(), strict=True):
        yield ProgressRow(i, a, b, "request", requests, None, True)
        if d.params:
            for unit, each in (
                ("prompt_token", PROMPT_TOKENS_PER_REQUEST),
                ("output_token", OUTPUT_TOKENS_PER_REQUEST),
            ):
                tokens = requests * each
                yield ProgressRow(i, a, b, unit, tokens, FLOPS_PER_PARAM_SERVED * d.params * tokens, True)


class _TableWriter(Protocol):
    def write_table(self, data: pa.Table) -> None: ...
    def close(self) -> None: ...


def write_tables(scenario: Scenario | Simulation, folder: Path, format: Format = "parquet") -> dict[str, int]:
    """Write the tables of a fleet into an empty or new folder; the number of rows of each.

    A batch at a time, so memory does not grow with the fleet. InputError when the folder already holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder; name a new one")
    folder.mkdir(parents=True, exist_ok=True)
    sim = scenario if isinstance(scenario, Simulation) else simulate(scenario)
    written: dict[str, int] = {}
    for name, batches in groupby(_name_files(sim), key=lambda named: named[0]):
        path = folder / f"{name}.{format}"
        path.parent.mkdir(exist_ok=True)
        writer: _TableWriter | None = None
        for _, batch in batches:
            writer = writer or _open_writer(path, batch, format)
            writer.write_table(_write_times(batch) if format == "csv" else batch.data)
            written[batch.table] = written.get(batch.table, 0) + len(batch.data)
        if writer is not None:
            writer.close()
    return written


def _name_files(sim: Simulation) -> Iterator[tuple[str, TableBatch]]:
    for batch in make_tables(sim):
        if batch.table == "samples":
            # An interval that ends at midnight belongs to the day before it.
            day_ms = (batch.data["to_utc"][0].as_py() - 1) // MS_PER_DAY * MS_PER_DAY
            yield f"samples/{datetime.fromtimestamp(day_ms / MS_PER_S, UTC):%Y-%m-%d}", batch
        else:
            yield batch.table, batch


def _open_writer(path: Path, first: TableBatch, format: Format) -> _TableWriter:
    if format == "csv":
        return pa_csv.CSVWriter(path, _write_times(first).schema)  # type: ignore[no-any-return]
    instants = [c.name for c in table(first.table).columns if c.kind == "instant" and c.name in first.data.column_names]
    other = [n for n in first.data.column_names if n not in instants]
    return pq.ParquetWriter(  # type: ignore[no-any-return]
        path,
        first.data.schema,
        compression="zstd",
        use_dictionary=other,
        column_encoding=dict.fromkeys(instants, "DELTA_BINARY_PACKED"),
    )


def _write_times(batch: TableBatch) -> pa.Table:
    data = batch.data
    for column in table(batch.table).columns:
        if column.kind == "instant" and column.name in data.column_names:
            at = data[column.name].cast(pa.timestamp("ms", "UTC"))
            text = pc.strftime(at, "%Y-%m-%dT%H:%M:%SZ")
            data = data.set_column(data.column_names.index(column.name), column.name, text)
    return data
