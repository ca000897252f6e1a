"""What a question is answered from the oracle's books: every metric of every group, with its coverage, and the waits of jobs."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from tests.ledger.oracle import LABELLED, Oracle
from tests.ledger.oracle_cells import BEST, HOLDER, HOUR, STATES, Cell, Row
from tests.ledger.oracle_cells import WHO as HOLDER_WHO

EVENTS = ("submitted", "eligible", "held", "requeued", "started", "cancelled")
WHO = (*HOLDER_WHO, "queue")


def list_waits(tables: dict[str, list[Row]]) -> list[Row]:
    """Every wait: queued, ended, whether it ended in a start, and of whom."""
    events: dict[tuple[str, int, str], Row] = {}
    starts: dict[tuple[Any, ...], Row] = {}
    queued = {row["job_id"] for row in tables["queue_events"]}
    for row in tables["allocations"]:
        if row["known_from"] in LABELLED:
            continue
        if row["submitted_utc"] is not None or row["eligible_utc"] is not None or row["job_id"] in queued:
            key = (row["job_id"], row["submitted_utc"], row["eligible_utc"], row["from_utc"])
            start = starts.setdefault(key, {"gpus": 0.0, **dict.fromkeys(("pool", *WHO))})
            start["gpus"] += (1.0 if row["gpus"] is None else row["gpus"]) * (
                1.0 if row["share"] is None else row["share"]
            )
            widen(start, row, ("pool", *WHO))

    def record(job: str, at: int | None, event: str, row: Row) -> None:
        if at is not None:
            known = events.setdefault((job, at, event), {"gpus": None, "reason": None, **dict.fromkeys(("pool", *WHO))})
            widen(known, row, ("gpus", "pool", *WHO, *(["reason"] if "reason" in row else [])))

    for (job, submitted, eligible, since), row in starts.items():
        record(job, submitted, "submitted", row)
        record(job, eligible, "eligible", row)
        record(job, since, "started", row)
    for row in tables["queue_events"]:
        record(row["job_id"], row["at_utc"], row["event"], row)
    out = []
    order = {"requeued": 0, "started": 2, "cancelled": 2}
    for job in sorted({j for j, _, _ in events}):
        mine = sorted(
            ((at, order.get(e, 1), e, row) for (j, at, e), row in events.items() if j == job), key=lambda x: x[:3]
        )
        who: Row = dict.fromkeys(("pool", *WHO))
        for *_, row in mine:
            widen(who, row, who)
        episode: list[Any] = []
        for event in mine:
            episode.append(event)
            if event[2] in ("started", "cancelled"):
                out.append({"job_id": job, **who, **_episode(episode)})
                episode = []
        if episode:
            out.append({"job_id": job, **who, **_episode(episode)})
    return [w for w in out if w["queued"] is not None]


def widen(known: Row, row: Row, columns: Iterable[str]) -> None:
    """Keep the greatest value that is known."""
    for c in columns:
        if row[c] is not None and (known[c] is None or row[c] > known[c]):
            known[c] = row[c]


def _episode(events: list[Any]) -> Row:
    eligible = [at for at, _, e, _ in events if e == "eligible"]
    asked = [at for at, _, e, _ in events if e in ("submitted", "requeued")]
    ends = [(at, e) for at, _, e, _ in events if e in ("started", "cancelled")]
    gpus = [row["gpus"] for *_, row in events if row["gpus"] is not None]
    queued = max(eligible) if eligible else min(asked) if asked else None
    said = [
        (at, EVENTS.index(e), row["reason"].split(":")[0])
        for at, _, e, row in events
        if row["reason"] is not None and e not in ("started", "cancelled") and queued is not None and at >= queued
    ]
    return {
        "reason": max(said)[2] if said else None,
        "queued": queued,
        "ended": ends[0][0] if ends else None,
        "started": bool(ends) and ends[0][1] == "started",
        "gpus": max(gpus) if gpus else None,
    }


DIMENSIONS = {
    "device": "device_id",
    "node": "node",
    "accelerator": "accelerator",
    "pool": "pool",
    "job": "job_id",
    "experiment": "experiment_id",
    "user": "user",
    "team": "team",
    "project": "project",
    "purpose": "purpose",
}
OF_A_JOB = ("job", "experiment", "user", "team", "project", "purpose", "hour", "day")
UNITS = {"sample": "train_sample", "token": "train_token", "output_token": "output_token", "request": "request"}
Answers = dict[tuple[Any, ...], dict[str, tuple[Any, float | None]]]
"""Value and coverage of each metric, by group."""


def local_day(at: int, zone: tzinfo) -> str:
    """The date on the wall at an instant."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)).astimezone(zone).date().isoformat()


def midnights(start: int, end: int, zone: tzinfo) -> list[int]:
    """Every instant between two at which the date on the wall changes, found by looking at each quarter of an hour."""
    quarter = HOUR // 4
    grid = range(start // quarter * quarter, end + quarter, quarter)
    return [b for a, b in itertools.pairwise(grid) if local_day(a, zone) != local_day(b, zone)]


@dataclass
class Asked:
    """A question: dimensions, window, zone, basis."""

    by: tuple[str, ...]
    start: int
    end: int
    zone: tzinfo = UTC
    basis: str = "contracted"
    without_idle: bool = False


def answers(oracle: Oracle, asked: Asked) -> Answers:
    """Every metric of every group."""
    cuts = [asked.start, asked.end, *midnights(asked.start, asked.end, asked.zone)]
    cells = [c for c in oracle.book(cuts) if c.from_utc >= asked.start and c.to_utc <= asked.end]

    def key(keys: Row, at: int, state: str | None = None) -> tuple[Any, ...]:
        values = {"hour": at // HOUR * HOUR, "day": local_day(at, asked.zone), "state": state}
        of_unknown = "unknown holder" if keys.get("holder") == "unknown" else None
        return tuple(
            values[d] if d in values else (of_unknown if d in OF_A_JOB and of_unknown else keys[DIMENSIONS[d]])
            for d in asked.by
        )

    groups: dict[tuple[Any, ...], list[Cell]] = defaultdict(list)
    for c in cells:
        groups[key(c.keys, c.from_utc, c.state)].append(c)
    out: Answers = {k: _ledger_metrics(g, asked) for k, g in groups.items()}
    if not asked.by and not out:
        out[()] = {}
    if all(d in OF_A_JOB for d in asked.by):
        for name, unit in UNITS.items():
            costs, speeds = _per_unit(oracle, asked, cells, unit, key)
            for k, reading in costs.items():
                out[k][f"cost_per_{name}"] = reading
            for k, (speed, worked_s) in speeds.items():
                if name == "token":
                    states = _held(asked)
                    held_s = sum(c.sums["gpu_s"] for c in groups[k] if c.state in states)
                    out[k]["tokens_per_gpu_s"] = (speed, min(1.0, worked_s / held_s) if held_s else None)
    if all(d in (*OF_A_JOB, "pool") for d in asked.by):
        for k, readings in _wait_metrics(oracle, asked, key).items():
            out.setdefault(k, {}).update(readings)
    return out


def _ledger_metrics(cells: list[Cell], asked: Asked) -> dict[str, tuple[Any, float | None]]:
    """Fullness, signals and money of one group."""

    def total(column: str, states: Iterable[str] = STATES, priced: bool = False, holder: str | None = None) -> float:
        return sum(
            c.sums.get(column, 0.0)
            for c in cells
            if c.state in states
            and (not priced or c.cost[asked.basis] is not None)
            and (holder is None or c.keys["holder"] == holder)
        )

    def share(known: float, needed: float) -> float | None:
        return known / needed if needed else None

    def least(*shares: float | None) -> float | None:
        return min((x for x in shares if x is not None), default=None)

    def known(value: Any, coverage: float | None) -> tuple[Any, float | None]:
        return (None if coverage == 0 else value), coverage

    def ratio(over: float, under: float, coverage: float | None) -> tuple[Any, float | None]:
        return (None if coverage == 0 or under == 0 else over / under), coverage

    held = ("idle", "busy", "unobserved")
    s = {state: total("gpu_s", [state]) for state in STATES}
    paid, in_use, observed = sum(s.values()), sum(s[x] for x in held), s["idle"] + s["busy"]
    allocated, unattributed = (total("gpu_s", held, holder=h) for h in ("known", "unknown"))
    effective = sum(total(f"effective_{b}_s") for _, b in BEST)
    seen = share(observed, in_use)
    out: dict[str, tuple[Any, float | None]] = {
        "paid_gpu_hours": (paid / 3600, 1.0),
        "allocated_gpu_hours": (allocated / 3600, 1.0),
        "unattributed_gpu_hours": (unattributed / 3600, 1.0),
        "unallocated_gpu_hours": known(s["unallocated"] / 3600, share(total("listed_s"), paid)),
        "unobserved_gpu_hours": (s["unobserved"] / 3600, 1.0),
        "down_gpu_hours": (s["down"] / 3600, 1.0),
        "observed_gpu_hours": known(observed / 3600, seen),
        "idle_gpu_hours": known(s["idle"] / 3600, seen),
        "busy_gpu_hours": known(s["busy"] / 3600, seen),
        "effective_gpu_hours": known(effective / 3600, seen),
        "allocation": ratio(allocated, paid, share(total("has_source_s"), paid)),
        "utilization": ratio(effective, observed, seen),
        "load_factor": ratio(effective, paid, seen),
        "idle_share": ratio(s["idle"], observed, seen),
        "unallocated_share": ratio(s["unallocated"], paid, share(total("listed_s"), paid)),
        "unobserved_share": ratio(s["unobserved"], in_use, 1.0),
        "measured_share": ratio(total("activity_measured_s"), paid, 1.0),
        "down_share": ratio(s["down"], paid, 1.0),
        "unheld_work_share": ratio(
            total("has_source_s", ["busy"], holder="unknown"), total("has_source_s"), share(total("has_source_s"), paid)
        ),
        "utilization_histogram": known([total(f"hist_{k:02d}_s") / 3600 for k in range(20)], seen),
    }
    for name, column in (
        ("gpu_util", "busy"),
        ("engine_activity", "engine_active"),
        ("sm_activity", "sm_active"),
        ("tensor_activity", "tensor_active"),
        ("dram_activity", "dram_active"),
        ("fp32_activity", "fp32_active"),
        ("sm_occupancy", "sm_occupancy"),
        ("throttled_share", "throttled"),
    ):
        measured = total("throttle_measured_s" if column == "throttled" else f"{column}_measured_s", held)
        out[name] = ratio(total(f"{column}_s", held), measured, share(measured, in_use))
    memory = share(total("mem_measured_s", held), in_use)
    out["mem_utilization"] = ratio(total("mem_used_byte_s", held), total("mem_total_byte_s", held), memory)
    peaks = [c.peak for c in cells if c.peak is not None]
    out["mem_utilization_peak"] = (max(peaks) if peaks else None, None)
    hottest = [c.sample["temperature_c"] for c in cells if c.sample and c.sample["temperature_c"] is not None]
    out["temperature_c_max"] = (max(hottest) if hottest else None, None)
    for name, over, under, seconds in (
        ("power_w", "energy_j", "energy_measured_s", "energy_measured_s"),
        ("temperature_c", "temperature_c_s", "temperature_c_measured_s", "temperature_c_measured_s"),
        ("pcie_saturation", "pcie_of_peak_bytes", "pcie_peak_bytes", "pcie_peak_measured_s"),
        ("nvlink_saturation", "nvlink_of_peak_bytes", "nvlink_peak_bytes", "nvlink_peak_measured_s"),
    ):
        out[name] = ratio(total(over, held), total(under, held), share(total(seconds, held), in_use))
    seconds, slowed = total("throttled_energy_measured_s", held), total("throttled_s", held)
    out["throttled_power_w"] = ratio(total("throttled_energy_j", held), seconds, share(seconds, slowed))
    out["energy_kwh"] = known(total("energy_j") / 3.6e6, share(total("energy_measured_s"), paid))
    cost = f"cost_{asked.basis}"
    for name, states in (
        ("cost", STATES),
        ("idle_cost", ("idle",)),
        ("busy_cost", ("busy",)),
        ("unallocated_cost", ("unallocated",)),
        ("unobserved_cost", ("unobserved",)),
        ("down_cost", ("down",)),
    ):
        priced = share(total("gpu_s", states, priced=True), total("gpu_s", states))
        besides = {("idle",): seen, ("busy",): seen, ("unallocated",): share(total("listed_s"), paid)}
        out[name] = known(total(cost, states), least(priced, besides[states]) if states in besides else priced)
    lone = share(total("gpu_s", held, True, "unknown"), unattributed)
    out["unattributed_cost"] = known(total(cost, held, holder="unknown"), lone)
    both = ("idle", "busy")
    worked = sum(
        c.sums[f"effective_{b}_s"] * c.cost[asked.basis] / 3600
        for c in cells
        for _, b in BEST
        if c.cost[asked.basis] and c.state in both
    )
    priced_seen = least(share(total("gpu_s", both, priced=True), observed), seen)
    out["effective_cost"] = known(worked, priced_seen)
    out["underused_cost"] = known(total(cost, ("busy",)) - worked, priced_seen)
    out["underused_gpu_hours"] = known((s["busy"] - effective) / 3600, seen)
    priced = share(total("gpu_s", priced=True), paid)
    of_priced = sum(total(f"effective_{b}_s", priced=True) for _, b in BEST)
    value = None if priced == 0 or seen == 0 or of_priced == 0 else total(cost) / (of_priced / 3600)
    out["cost_per_effective_gpu_hour"] = (value, least(priced, seen))
    return out


def _per_unit(
    oracle: Oracle, asked: Asked, cells: list[Cell], unit: str, key: Any
) -> tuple[dict[Any, tuple[Any, float | None]], dict[Any, tuple[float, float]]]:
    """Cost of the jobs that worked on it, in their held states, over what they made and kept in the window while they held GPUs.

    And what they made, kept or not, over the GPU-seconds they held, with these.
    """
    who: dict[str, Row] = {}
    held: dict[str, tuple[int, int]] = {}
    for c in cells:
        if (job := c.keys["job_id"]) is not None:
            widen(who.setdefault(job, dict.fromkeys(HOLDER)), c.keys, HOLDER)
            first, last = held.get(job, (c.from_utc, c.to_utc))
            held[job] = min(first, c.from_utc), max(last, c.to_utc)
    amounts: dict[Any, float] = defaultdict(float)
    made: dict[Any, float] = defaultdict(float)
    jobs = set()
    limits = sorted({asked.start, asked.end, *midnights(asked.start, asked.end, asked.zone)} | set(range(0)))
    for p in oracle.t["progress"]:
        if p["unit"] != unit:
            continue
        a, b = p["from_utc"], p["to_utc"]
        if a == b:
            pieces = [(a, b, p["amount"])] if asked.start <= a < asked.end else []
        else:
            edges = {a, b, *limits, *range(a // HOUR * HOUR, b + HOUR, HOUR)}
            inside = sorted(e for e in edges if max(a, asked.start) <= e <= min(b, asked.end))
            pieces = [(x, y, p["amount"] * (y - x) / (b - a)) for x, y in itertools.pairwise(inside)]
        if pieces:
            jobs.add(p["job_id"])
        first, last = held.get(p["job_id"], (0, 0))
        for x, y, amount in pieces:
            if x == y and not first <= x <= last:
                continue
            if x < y and (part := min(y, last) - max(x, first)) <= 0:
                continue
            if x < y:
                amount *= part / (y - x)
            if p["job_id"] in who:
                k = key({**who[p["job_id"]], "job_id": p["job_id"]}, x)
                made[k] += amount
                amounts[k] += amount * (p["kept"] is not False)
    states = _held(asked)
    cost, priced, needed = defaultdict(float), defaultdict(float), defaultdict(float)
    for c in cells:
        if c.keys["job_id"] in jobs:
            k = key(c.keys, c.from_utc)
            needed[k] += c.sums["gpu_s"] * (c.state in states)
            if c.state in states and c.cost[asked.basis] is not None:
                cost[k] += c.sums[f"cost_{asked.basis}"]
                priced[k] += c.sums["gpu_s"]
    out = {}
    for k in needed:
        if amounts[k]:
            coverage = priced[k] / needed[k] if needed[k] else None
            out[k] = (None if coverage == 0 else cost[k] / amounts[k], coverage)
    return out, {k: (made[k] / needed[k], needed[k]) for k in needed if k in made and needed[k]}


def _held(asked: Asked) -> tuple[str, ...]:
    """The states whose time a job pays for its work with."""
    return ("busy",) if asked.without_idle else ("idle", "busy", "unobserved")


def _wait_metrics(oracle: Oracle, asked: Asked, key: Any) -> dict[Any, dict[str, tuple[Any, float | None]]]:
    """Waits that ended in a start inside the window, by when they ended; and how many waited still at the end of each
    interval, or gave up in it."""
    started: dict[Any, list[tuple[float, str, float]]] = defaultdict(list)
    waiting: dict[Any, int] = defaultdict(int)
    for w in list_waits(oracle.t):
        if w["started"] and asked.start <= w["ended"] < asked.end:
            gpus = 1.0 if w["gpus"] is None else w["gpus"]
            started[key(w, w["ended"])].append(((w["ended"] - w["queued"]) / 1000, w["job_id"], gpus))
        for k, (first, after) in _list_spans(asked, lambda at, w=w: key(w, at)).items():
            if w["queued"] < after and (
                w["ended"] is None or w["ended"] >= after or (not w["started"] and w["ended"] >= first)
            ):
                waiting[k] += 1
    keys = {*started, *waiting} or (set() if asked.by else {()})
    out: dict[Any, dict[str, tuple[Any, float | None]]] = {}
    for k in keys:
        rows = sorted(started[k])
        n, left = len(rows), waiting[k]
        coverage = n / (n + left) if n + left else None
        weight = sum(g for *_, g in rows)
        of = out[k] = {"queue_waiting": (left, None)}
        for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            of[f"queue_wait_s_{name}"] = (_quantile([w for w, *_ in rows], q), coverage)
            of[f"queue_wait_s_{name}_gpu_weighted"] = (_reached(rows, q * weight), coverage)
        of["queue_wait_s_mean"] = (sum(w for w, *_ in rows) / n if n else None, coverage)
        of["queue_wait_s_mean_gpu_weighted"] = (sum(w * g for w, _, g in rows) / weight if weight else None, coverage)
    return out


def _list_spans(asked: Asked, key: Any) -> dict[Any, tuple[int, int]]:
    """The first and last instants of each group by time; midnights of all zones are at whole quarters of an hour."""
    quarter, spans = HOUR // 4, dict[Any, tuple[int, int]]()
    for at in {asked.start, *range(asked.start - asked.start % quarter + quarter, asked.end, quarter)}:
        first, after = spans.get(key(at), (at, 0))
        spans[key(at)] = min(first, at), max(after, min(at - at % quarter + quarter, asked.end))
    return spans


def _quantile(values: list[float], q: float) -> float | None:
    """Linear between ranks."""
    if not values:
        return None
    at = q * (len(values) - 1)
    low = math.floor(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def _reached(rows: list[tuple[float, str, float]], needed: float) -> float | None:
    """The first wait at which the GPUs so far reach what is needed."""
    so_far = 0.0
    for wait, _, gpus in rows:
        so_far += gpus
        if so_far >= needed * (1 - 1e-12):
            return wait
    return None
