"""Causes in how GPUs are held: by jobs that do not use them, wait for requests or end without a result."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from loadfactor.base.units import S_PER_HOUR, S_PER_MIN
from loadfactor.insight.alerts.rule import Limit
from loadfactor.insight.alerts.rules.memory import (
    FULL_IN,
    HIGHEST_MIN,
    STEEP,
    WINDOW_MIN,
    is_filling,
    project_growth,
)
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob, Flags, Floats, Ints, JobAttempt
from loadfactor.insight.diagnosis.rule import Claim, DiagnosisRule, Limits, list_runs, share

_LEAST_POINTS: Final = 5
PEAK = 0.95
"""The busiest hours are those above this share of all."""


def find_over_allocation(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """Some GPUs are idle in all of their time while others of the job work, or all are."""
    observed = facts.held_s - facts.unobserved_s
    is_unused = (facts.active_s.sum(1) < limits["used"] * observed.sum(1)) & (observed.sum(1) > limits["least_s"])
    if not is_unused.any():
        return None
    if is_unused.all() and (
        facts.is_interactive or any(a.end_state in ("failed", "out_of_memory") for a in facts.attempts)
    ):
        return None
    names = ", ".join(np.array(facts.devices)[is_unused][:4])
    return Claim(
        np.where(is_unused[:, np.newaxis], facts.idle_s, 0.0),
        (f"{int(is_unused.sum())} of {len(facts.devices)} GPUs did nothing in all of their time: {names}",),
    )


def find_idle_notebook(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """Intervals without any activity, long enough to be forgotten."""
    if not facts.is_interactive:
        return None
    quiet = facts.held & ~facts.working & np.logical_or.reduce(facts.is_idle, axis=0)
    steps = np.zeros(len(facts.held), dtype=np.bool_)
    for first, after in list_runs(quiet):
        if (after - first) * facts.step_s >= limits["idle_s"]:
            steps[first:after] = True
    if not steps.any():
        return None
    hours = steps.sum() * facts.step_s / S_PER_HOUR
    return Claim(
        facts.idle_s * steps,
        (
            f"a {facts.purpose} that did nothing for {hours:.1f} h, in stretches of"
            f" {limits['idle_s'] / S_PER_MIN:.0f} min and more",
        ),
    )


def find_not_released(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """The last steps of an attempt have no activity, after some."""
    steps = _find_quiet(facts, limits["tail_s"], lambda attempt, active: (active[-1] + 1, attempt.after))
    if steps is None:
        return None
    hours = steps.sum() * facts.step_s / S_PER_HOUR
    return Claim(facts.idle_s * steps, (f"the GPUs were last active {hours:.1f} h before they were given back",))


def _steps_per_hour(step_s: int) -> int:
    return max(1, S_PER_HOUR // step_s)


def _add_up_hours(values: Floats, step_s: int) -> Floats:
    """Sums over all GPUs, hour by hour; a longer step stays."""
    by_step = values.sum(0)
    return np.add.reduceat(by_step, np.arange(0, len(by_step), _steps_per_hour(step_s)))


def _correlate(facts: DiagnosedJob, busy: Floats, is_known: np.typing.NDArray[np.bool_]) -> float | None:
    """How closely activity follows what was answered, hour by hour; None where nobody tells that, or either does not change."""
    if facts.answered is None:
        return None
    answered = _add_up_hours(facts.answered[np.newaxis, :], facts.step_s)[is_known]
    if np.ptp(answered) == 0 or np.ptp(busy[is_known]) == 0:
        return None
    return float(np.corrcoef(answered, busy[is_known])[0, 1])


def find_few_requests(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """A job that answers requests is far busier in some hours than in most, or does nothing in many."""
    if not facts.is_serving:
        return None
    observed, active = (_add_up_hours(of, facts.step_s) for of in (facts.held_s - facts.unobserved_s, facts.active_s))
    idle = _add_up_hours(facts.idle_s, facts.step_s)
    is_known = observed > 0
    if is_known.sum() < limits["least_h"]:
        return None
    busy = np.divide(active, observed, out=np.zeros_like(active), where=is_known)
    peak, mean = float(np.quantile(busy[is_known], PEAK)), float(active.sum() / observed.sum())
    idle_share = float(idle.sum() / observed.sum())
    if peak < limits["used"] or (mean > limits["swing"] * peak and idle_share < limits["idle"]):
        return None
    follows = _correlate(facts, busy, is_known)
    if follows is not None and follows < limits["follows"]:
        return None
    spare = np.repeat(np.clip(1 - busy / peak, 0, 1), _steps_per_hour(facts.step_s))[: facts.held_s.shape[1]]
    seconds = np.minimum(facts.idle_s + facts.underused_s, (facts.held_s - facts.unobserved_s) * spare)
    return Claim(
        seconds,
        (
            f"{share(mean)} active on average, {share(peak)} in its busiest hours; nothing ran in {share(idle_share)} of the time",
            *(
                [f"its activity rises and falls with what it answers (correlation {follows:.2f})"]
                if follows is not None
                else []
            ),
        ),
        low=0.8 * idle_share / max(idle_share, 1 - mean / peak),
        confidence=None if follows is None else 0.85,
    )


def find_set_up(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """An attempt begins with steps without activity."""
    steps = _find_quiet(facts, limits["set_up_s"], lambda attempt, active: (attempt.first, active[0]))
    if steps is None:
        return None
    minutes = steps.sum() * facts.step_s / S_PER_MIN
    fact = f"{minutes:.0f} min pass before the first activity, in {len(facts.attempts)} attempts"
    return Claim(facts.idle_s * steps, (fact,))


def _find_quiet(
    facts: DiagnosedJob, least_s: float, choose: Callable[[JobAttempt, Ints], tuple[int, int]]
) -> Flags | None:
    """The chosen steps of attempts that work at all, where they last so long; None where they are not known to be idle."""
    if facts.is_interactive or facts.is_serving:
        return None
    steps = np.zeros(facts.held_s.shape[1], dtype=np.bool_)
    for attempt in facts.attempts:
        active = attempt.first + np.flatnonzero(facts.working[attempt.first : attempt.after])
        if len(active):
            first, after = choose(attempt, active)
            steps[first:after] |= (after - first) * facts.step_s >= least_s
    is_idle = facts.idle_s[:, steps].sum() >= 0.5 * facts.held_s[:, steps].sum()
    return steps if steps.any() and is_idle else None


def find_crash_loop(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """Several attempts failed, of the job or of jobs of its user in the same day."""
    failed = [attempt for attempt in facts.attempts if attempt.end_state in ("failed", "node_fail")]
    if facts.failed_alike < limits["attempts"] or not failed or facts.out_of_memory:
        return None
    return _claim_attempts(
        facts, failed, f"{facts.failed_alike} attempts failed within a day, {len(failed)} of this job"
    )


def find_out_of_memory(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """The scheduler, the driver or the job says that memory ran out, or it grew towards its limit when the job failed."""
    named = [
        attempt
        for attempt in facts.attempts
        if attempt.end_state == "out_of_memory"
        or (attempt.end_state == "failed" and any(attempt.first <= s <= attempt.after for s in facts.out_of_memory))
    ]
    grown = {attempt: fact for attempt in facts.attempts if (fact := _describe_growth(facts, attempt, limits))}
    ended = [
        attempt
        for attempt in facts.attempts
        if attempt in named or (attempt.end_state == "failed" and attempt in grown)
    ]
    if not ended:
        return None
    claim = _claim_attempts(facts, ended, f"{len(ended)} of {len(facts.attempts)} attempts ended out of memory")
    growth = [grown[attempt] for attempt in ended if attempt in grown]
    return replace(claim, evidence=(*claim.evidence, growth[-1])) if growth else claim


def _describe_growth(facts: DiagnosedJob, attempt: JobAttempt, limits: Limits) -> str:
    """How memory grew in the last ten minutes of an attempt, where it would have been full soon; else nothing.

    Growth is what the alert `memory_pressure` says it is. Steps of more than two minutes do not show it.
    """
    points, step_min = round(WINDOW_MIN * S_PER_MIN / facts.step_s), facts.step_s / S_PER_MIN
    used = facts.signals.get("mem_utilization")
    if used is None or points < _LEAST_POINTS or attempt.after - attempt.first < points:
        return ""
    course = used[:, attempt.first : attempt.after]
    known = np.flatnonzero((~np.isnan(course)).any(axis=0))
    if not len(known) or known[-1] + 1 < points:
        return ""
    course = course[:, : known[-1] + 1]  # its last step may hold no sample
    window, before = course[:, -points:].T, course[:, :-points].T[-HIGHEST_MIN * points // WINDOW_MIN :]
    highest = np.fmax.reduce([np.full(len(course), np.nan), *before])
    growth = project_growth(window, step_min)
    filling = np.flatnonzero(is_filling(growth, window[-1], highest, limits))
    if not len(filling):
        return ""
    gpu = int(filling[np.argmin(growth.full_min[filling])])
    grown, last = share(growth.grown[gpu]), share(window[-1, gpu])
    return f"memory of {facts.devices[gpu]} grew by {grown} in its last {WINDOW_MIN} minutes, to {last}"


def _claim_attempts(facts: DiagnosedJob, attempts: Sequence[JobAttempt], fact: str) -> Claim:
    """All observed time of these attempts."""
    steps = np.zeros(facts.held_s.shape[1], dtype=np.bool_)
    for attempt in attempts:
        steps[attempt.first : attempt.after] = True
    return Claim((facts.held_s - facts.unobserved_s) * steps, (fact,))


OVER_ALLOCATION: Final = DiagnosisRule(
    "over_allocation", "GPUs never used", "user error", (), find_over_allocation,
    low=1.0, confidence=0.95,
    against=("GPUs kept for a later phase; jobs that have only begun",),
    measure_next=("the processes on each GPU (`nvidia-smi pmon`), and the world size in the log of the job",),
    action="Ask for as many GPUs as the program uses: --nproc_per_node, CUDA_VISIBLE_DEVICES, device_map; or start a process"
    " on each.",
    limits={
        "used": Limit(0.01, "share", "activity under which a GPU is not used", 0, 1),
        "least_s": Limit(1800, "s", "least time that it is held", 0),
    },
    source="economics §5: a GPU under 1 % all run while another works",
)  # fmt: skip

IDLE_NOTEBOOK: Final = DiagnosisRule(
    "idle_notebook", "idle notebook", "scheduling", (), find_idle_notebook,
    low=0.8, confidence=0.95,
    against=("state in memory that takes long to make again",),
    measure_next=("when its kernel last ran a cell (JupyterHub: last_activity)",),
    action="Cull idle kernels (JupyterHub: --cull-idle-timeout=3600); a shared pool or MIG slices for notebooks.",
    limits={"idle_s": Limit(3600, "s", "least time without activity", 60)},
    source="economics §5: engine < 1 % for ≥ 60 min",
)  # fmt: skip

NOT_RELEASED: Final = DiagnosisRule(
    "not_released", "held after the work ended", "scheduling", (), find_not_released,
    low=0.9, confidence=0.95,
    against=("uploads of results, or a hang: both hold GPUs for nothing",),
    measure_next=("the log of the job after its last step",),
    action="End the script when training ends (no sleep, no waiting shell), upload from a job without GPUs, set"
    " a time limit and NCCL timeouts.",
    limits={"tail_s": Limit(1200, "s", "least time without activity at the end", 60)},
    source="economics §5: last activity long before the end",
)  # fmt: skip

FEW_REQUESTS: Final = DiagnosisRule(
    "few_requests", "few requests", "scheduling", (), find_few_requests,
    low=0.0, confidence=0.65,
    against=("a replica cannot be less than one, and answers to peaks of seconds need some that are warm",),
    measure_next=(
            "requests that wait and time to the first token at the peak; `loadfactor plan serve --store` says how many replicas"
            " that load takes",
        ),
    action="Scale replicas with the requests that wait (KEDA, or an HPA on vllm:num_requests_waiting; none at night where a"
    " cold start may be waited for); put models with few requests on one GPU (MIG, time-slicing, adapters of one engine);"
    " let batch work fill the gaps.",
    limits={
        "least_h": Limit(6, "hours", "least observed hours", 1),
        "used": Limit(0.01, "share", "activity of the busiest hours at least", 0, 1),
        "swing": Limit(0.6, "share", "mean activity ÷ that of the busiest hours, at most", 0.01, 1),
        "idle": Limit(0.2, "share", "time without any request from which on it is one, whatever the mean", 0.01, 1),
        "follows": Limit(0.5, "correlation", "of activity and answers by hour, at least, where answers are known", 0, 1),
    },
    source="economics §1.7: a duty cycle of 40 % costs 2.5 times as much; limits are ours",
)  # fmt: skip

SET_UP: Final = DiagnosisRule(
    "set_up", "set-up", "I/O", (), find_set_up,
    low=0.5, confidence=0.9,
    against=("loading a large checkpoint takes its time, too",),
    measure_next=("sections of kind start_up and compile (`loadfactor.track`)",),
    action="An image with all dependencies, data staged before GPUs are asked for, compile caches kept (TORCHINDUCTOR_CACHE_DIR).",
    limits={"set_up_s": Limit(600, "s", "least time before the first activity", 60)},
    source="ICSE'24: ≥ 10 min before the first kernel",
)  # fmt: skip

CRASH_LOOP: Final = DiagnosisRule(
    "crash_loop", "crash loop", "user error", (), find_crash_loop,
    low=0.6, confidence=0.95,
    against=("work before the last checkpoint was kept, where there was one",),
    measure_next=("exit codes and the last lines of the logs",),
    action="Try on one GPU for a few steps first; cap retries at 2; stop on errors that no retry mends (imports, paths, shapes).",
    limits={"attempts": Limit(3, "attempts", "least failures within a day", 2)},
    source="economics §5: ≥ 3 failed attempts in 24 h",
)  # fmt: skip

OUT_OF_MEMORY: Final = DiagnosisRule(
    "out_of_memory", "out of memory", "model and batch", (), find_out_of_memory,
    low=0.5, confidence=0.95,
    against=("work before the last checkpoint was kept, where there was one",),
    measure_next=("peak memory by step: does it grow (a leak), or is one batch too large?",),
    action="Halve the batch and accumulate gradients; activation checkpointing;"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; bucket long samples.",
    limits={"full_in": FULL_IN, "steep": STEEP},
)  # fmt: skip
