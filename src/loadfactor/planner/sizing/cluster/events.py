"""Steps every simulation loop takes: the next event, booking the time until it, starting and ending jobs; compiled."""

from loadfactor.base.compiled import inner
from loadfactor.planner.sizing.cluster.heap import pop, push
from loadfactor.planner.sizing.cluster.jobs import MILLI
from loadfactor.planner.sizing.cluster.placement import place_job, release_job
from loadfactor.planner.sizing.cluster.state import NEVER, JobArrays, State

GANG, FRAGMENTED, ORDER = 0, 1, 2  # why jobs wait beside idle GPUs


@inner
def next_event_s(jobs: JobArrays, state: State) -> float:
    """The next end or submission."""
    counters = state.counters[0]
    soon = NEVER if counters.running == 0 else state.end_s[0]
    if counters.arrived < len(jobs.submit_s) and jobs.submit_s[counters.arrived] < soon:
        soon = jobs.submit_s[counters.arrived]
    return float(soon)


@inner
def book_busy(until_s: float, state: State) -> float:
    """Book held GPUs until an event; returns the seconds of it that lie before the last submission."""
    counters, statistics = state.counters[0], state.statistics[0]
    busy = (counters.total_milli - counters.idle_milli) / MILLI
    statistics.all_busy_gpu_s += busy * (until_s - counters.now_s)
    counted_s = min(until_s, counters.horizon_s) - counters.now_s
    if counted_s > 0:
        statistics.busy_gpu_s += busy * counted_s
    return float(counted_s)


@inner
def book_waiting(counted_s: float, reason: int, state: State) -> None:
    """Book seconds with jobs waiting, and where GPUs were idle, the reason."""
    counters, statistics = state.counters[0], state.statistics[0]
    statistics.pending_s += counted_s
    if counters.idle_milli == 0:
        return
    statistics.blocked_s += counted_s
    if reason == ORDER:
        statistics.order_s += counted_s
    elif reason == GANG:
        statistics.gang_s += counted_s
    else:
        statistics.fragmented_s += counted_s
        statistics.fragmented_gpu_s += counted_s * counters.idle_milli / MILLI


@inner
def asked_milli(job: int, jobs: JobArrays) -> int:
    """GPUs a job asks for, in thousandths."""
    return int(jobs.milli[job] if jobs.milli[job] > 0 else jobs.need[job] * MILLI)


@inner
def end_jobs(jobs: JobArrays, state: State) -> None:
    """Take back the GPUs of every job that has ended by now."""
    counters = state.counters[0]
    while counters.running > 0 and state.end_s[0] <= counters.now_s:
        job = pop(state.end_s, state.end_job, 0, counters.running)
        counters.running -= 1
        release_job(job, jobs, state)
        counters.idle_milli += asked_milli(job, jobs)


@inner
def begin_job(job: int, jobs: JobArrays, state: State) -> None:
    """Book a job that has just been placed as running until its end."""
    counters = state.counters[0]
    counters.idle_milli -= asked_milli(job, jobs)
    counters.waiting -= 1
    state.start_s[job] = counters.now_s
    push(state.end_s, state.end_job, 0, counters.running, counters.now_s + jobs.duration_s[job], job)
    counters.running += 1


@inner
def start_job(job: int, jobs: JobArrays, state: State, spread: bool) -> None:
    """Place a waiting job that fits and let it run."""
    place_job(job, jobs, state, spread)
    begin_job(job, jobs, state)
