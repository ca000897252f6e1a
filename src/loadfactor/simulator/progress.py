"""The progress of the runs: steps, tokens, samples and requests per interval, and whether a failure undid them.

A training run reports at every checkpoint; what came after the last one of an attempt that failed is lost. A served network
reports by the hour. Amounts are whole numbers of requests and steps, tokens follow from them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from loadfactor.base.units import MS_PER_HOUR, MS_PER_S
from loadfactor.catalog.accelerators import accelerator
from loadfactor.simulator.calendar import compute_request_rate
from loadfactor.simulator.outcome import ScheduledRun
from loadfactor.simulator.simulation import Simulation
from loadfactor.simulator.workloads import WORKLOADS, Workload

FLOPS_PER_PARAM_TRAINED = 6  # forward and backward, per token
FLOPS_PER_PARAM_SERVED = 2  # forward
PROMPT_TOKENS_PER_REQUEST, OUTPUT_TOKENS_PER_REQUEST = 1040, 260
UNDONE = ("node_fail", "failed", "preempted", "timeout")


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
    peaks = {g.accelerator: accelerator(g.accelerator).peak_flops("bf16") for g in sim.scenario.groups}
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
    marks = np.arange(run.work_from_ms // MS_PER_HOUR + 1, -(-run.to_ms // MS_PER_HOUR), dtype=np.int64) * MS_PER_HOUR
    edges = np.concatenate(([run.work_from_ms], marks, [run.to_ms]))
    middle, seconds = (edges[1:] + edges[:-1]) // 2, np.diff(edges) / MS_PER_S
    asked = rng.poisson(d.peak_requests_per_s * compute_request_rate(sim.calendar, middle) * seconds)
    for a, b, requests in zip(edges[:-1].tolist(), edges[1:].tolist(), asked.tolist(), strict=True):
        yield ProgressRow(i, a, b, "request", requests, None, True)
        if d.params:
            for unit, each in (
                ("prompt_token", PROMPT_TOKENS_PER_REQUEST),
                ("output_token", OUTPUT_TOKENS_PER_REQUEST),
            ):
                tokens = requests * each
                yield ProgressRow(i, a, b, unit, tokens, FLOPS_PER_PARAM_SERVED * d.params * tokens, True)
