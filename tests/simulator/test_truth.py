"""Is the ground truth of a simulated fleet true? It is recomputed from the rows alone, interval by interval, in plain Python."""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import astuple, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.simulator.truth import TrueTotals, Truth, truth

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.simulator import DEMO, SMALL, Simulation, make_tables, simulate, write_tables

Row = dict[str, Any]
STATES = ("paid", "allocated", "unallocated", "down", "observed", "unobserved", "idle", "busy", "effective")
IN_MONEY = ("paid", "allocated", "unallocated", "down", "idle", "unobserved")
NAMES = (*STATES, *(f"{state}_cost" for state in IN_MONEY))


@pytest.fixture(scope="module")
def small() -> Simulation:
    return simulate(SMALL)


@pytest.fixture(scope="module")
def said(small: Simulation) -> Truth:
    return truth(small)


@pytest.fixture(scope="module")
def tables(small: Simulation) -> dict[str, list[Row]]:
    out: dict[str, list[Row]] = defaultdict(list)
    for batch in make_tables(small):
        out[batch.table] += batch.data.to_pylist()
    return out


@pytest.fixture(scope="module")
def oracle(tables: dict[str, list[Row]]) -> list[tuple[Row, Row | None, int, Row]]:
    """For each GPU, holder and elementary span: the sums, with the device and the allocation they belong to."""
    start, end = SMALL.start_ms, SMALL.end_ms
    out = []
    by_device = defaultdict(list)
    for s in tables["samples"]:
        by_device[s["device_id"]].append(s)
    for device in tables["devices"]:
        name = device["device_id"]
        life = (max(start, device["from_utc"]), device["to_utc"] or end)
        held = [a for a in tables["allocations"] if a["device_id"] == name]
        down = [
            o
            for o in tables["outages"]
            if o.get("device_id") == name or (o.get("node") == device["node"] and o["node"])
        ]
        prices = [
            p for p in tables["prices"] if p["basis"] == "contracted" and p["accelerator"] == device["accelerator"]
        ]
        cuts = {*life, *range(start, end, MS_PER_HOUR)}
        for span in held + down + prices:
            cuts |= {span["from_utc"], span["to_utc"] or end}
        edges = sorted(c for c in cuts if life[0] <= c <= life[1])
        seen = sorted(by_device[name], key=lambda s: s["to_utc"])
        ends = [s["to_utc"] for s in seen]
        for a, b in pairwise(edges):
            (cost,) = [p["price_per_gpu_hour"] for p in prices if p["from_utc"] <= a < (p["to_utc"] or end + 1)]
            is_down = any(o["from_utc"] <= a < o["to_utc"] for o in down)
            share = device["share"] or 1.0
            holders = [h for h in held if h["from_utc"] <= a < (h["to_utc"] or end)]
            free = share * (1 - sum(h["share"] or 1.0 for h in holders))
            hour = a // MS_PER_HOUR * MS_PER_HOUR
            hours = (b - a) / MS_PER_HOUR
            if free > 1e-9:
                sums = dict.fromkeys(NAMES, 0.0)
                state = "down" if is_down else "unallocated"
                sums["paid"] = sums[state] = hours * free
                sums["paid_cost"] = sums[f"{state}_cost"] = hours * free * cost
                out.append((device, None, hour, sums))
            for holder in holders:
                assert not is_down, "nobody holds what is down"
                weight = share * (holder["share"] or 1.0)
                sums = dict.fromkeys(NAMES, 0.0)
                for s in seen[bisect_left(ends, a) :]:
                    if s["from_utc"] >= b:
                        break
                    part = max(0, min(b, s["to_utc"]) - max(a, s["from_utc"])) / MS_PER_HOUR * weight
                    activity = s["busy_share"] if s["sm_active_share"] is None else s["sm_active_share"]
                    sums["observed"] += part
                    sums["idle" if activity < 0.05 else "busy"] += part
                    sums["effective"] += part * activity
                sums["paid"] = sums["allocated"] = hours * weight
                sums["unobserved"] = hours * weight - sums["observed"]
                for state in ("paid", "allocated", "idle", "unobserved"):
                    sums[f"{state}_cost"] = sums[state] * cost
                out.append((device, holder, hour, sums))
    return out


def _sum(rows: list[Row]) -> list[float]:
    return [sum(r[n] for r in rows) for n in NAMES]


def test_truth_of_the_whole_fleet_is_what_a_loop_over_the_rows_finds(said: Truth, oracle: list[Any]) -> None:
    """Every GPU-hour and dollar of the small fleet agrees with the slow recomputation to a part in a billion."""
    assert astuple(said.total()) == pytest.approx(_sum([r[3] for r in oracle]), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    "dimension", ["team", "job", "user", "purpose", "device", "node", "accelerator", "hour", "day"]
)
def test_truth_of_every_part_is_what_a_loop_over_the_rows_finds(said: Truth, oracle: list[Any], dimension: str) -> None:
    """Split by any dimension, every part agrees with the slow recomputation, and there is no part too many."""
    of = {"job": "job_id", "device": "device_id"}.get(dimension, dimension)
    expected = defaultdict(list)
    for device, holder, hour, sums in oracle:
        if dimension in ("hour", "day"):
            key = hour if dimension == "hour" else hour // MS_PER_DAY * MS_PER_DAY
        elif dimension in ("device", "node", "accelerator"):
            key = device[of]
        else:
            key = holder[of] if holder else None
        expected[key].append(sums)
    found = said.by(dimension)
    assert set(found) == set(expected)
    for key, sums in expected.items():
        assert astuple(found[key]) == pytest.approx(_sum(sums), rel=1e-9, abs=1e-9), key


@pytest.mark.parametrize("dimension", ["team", "attempt", "experiment", "project", "pool", "day"])
def test_the_books_of_the_truth_balance_however_they_are_split(said: Truth, dimension: str) -> None:
    """Paid is allocated, unallocated and down; allocated is observed and unobserved; observed is idle and busy."""
    parts = list(said.by(dimension).values())
    for t in parts:
        assert t.paid_gpu_hours == pytest.approx(t.allocated_gpu_hours + t.unallocated_gpu_hours + t.down_gpu_hours)
        assert t.allocated_gpu_hours == pytest.approx(t.observed_gpu_hours + t.unobserved_gpu_hours)
        assert t.observed_gpu_hours == pytest.approx(t.idle_gpu_hours + t.busy_gpu_hours)
        assert t.effective_gpu_hours <= t.observed_gpu_hours
        assert t.paid_cost == pytest.approx(t.allocated_cost + t.unallocated_cost + t.down_cost)
    whole = TrueTotals(*np.sum([astuple(t) for t in parts], axis=0))
    assert astuple(whole) == pytest.approx(astuple(said.total()), rel=1e-12)


def test_waits_are_those_of_the_queue_events(said: Truth, tables: dict[str, list[Row]]) -> None:
    """From eligible, else submitted or requeued, to started; those still waiting at the end are counted, not dropped."""
    waits, since = [], {}
    cancelled = 0
    for e in sorted(tables["queue_events"], key=lambda e: e["at_utc"]):
        if e["event"] in ("submitted", "eligible", "requeued"):
            since[e["job_id"]] = e["at_utc"]
        elif e["event"] == "started":
            waits.append((e["at_utc"] - since.pop(e["job_id"])) / 1000)
        else:
            cancelled += 1
            del since[e["job_id"]]
    w = said.waits()
    # A job on hold when the books end has been submitted but could not have started.
    on_hold = sum(j.submitted_ms < SMALL.end_ms <= j.eligible_ms for j in said.sim.jobs)
    assert (w.started, w.cancelled, w.waiting + on_hold) == (len(waits), cancelled, len(since))
    assert w.p50_s == pytest.approx(np.median(waits))
    assert w.mean_s == pytest.approx(sum(waits) / len(waits))
    assert w.waiting > 0


def test_who_waits_is_told_why(tables: dict[str, list[Row]]) -> None:
    """The event from which a job waits says for what, others before it or GPUs; one that starts at once has no reason."""
    last: dict[str, Row] = {}
    reasons = set()
    for e in sorted(tables["queue_events"], key=lambda e: (e["at_utc"], e["event"] == "started")):
        if e["event"] == "started":
            asked = last[e["job_id"]]
            reasons.add(asked["reason"])
            assert (asked["reason"] is None) == (asked["at_utc"] == e["at_utc"])
        last[e["job_id"]] = e
    assert reasons == {None, "Priority", "Resources"}


def test_amounts_are_those_of_the_progress_rows(said: Truth, tables: dict[str, list[Row]]) -> None:
    """Kept and lost work add up to the rows, unit by unit."""
    for kept in (True, False):
        sums: dict[str, float] = defaultdict(float)
        for p in tables["progress"]:
            if p["kept"] is kept:
                sums[p["unit"]] += p["amount"]
        assert said.amounts(kept=kept) == pytest.approx(dict(sums))
    assert said.amounts(kept=False)["train_token"] > 0


@pytest.mark.long
def test_truth_of_the_demo_balances_too() -> None:
    """Two hundred GPUs over two weeks: nothing paid is missing from the split by team."""
    demo = truth(simulate(DEMO))
    total = demo.total()
    installed = simulate(DEMO).fleet
    paid = float(((installed.to_ms - installed.from_ms) * installed.share).sum() / MS_PER_HOUR)
    assert total.paid_gpu_hours == pytest.approx(paid, rel=1e-12)
    assert sum(t.paid_cost for t in demo.by("team").values()) == pytest.approx(total.paid_cost, rel=1e-12)


@pytest.mark.long
def test_a_fleet_that_names_its_networks_has_the_same_numbers_and_the_whole_way(
    simulated_books: Books, tmp_path: Path
) -> None:
    """What runs say of their networks, as in the demo, changes no number but MFU; the waterfall goes on to useful."""
    write_tables(simulate(replace(SMALL, names_networks=True)), tmp_path / "tables")
    books = Books(tmp_path / "books")
    books.add("tables", [tmp_path / "tables"])
    for by in ((), ("team",)):
        told, wanted = (
            {(r.metric, *r.by.values()): r.value for r in of.show((), by)} for of in (books, simulated_books)
        )
        assert told.keys() == wanted.keys()
        for key, value in wanted.items():
            if key[0] != "mfu":
                assert told[key] == (value if isinstance(value, str | None) else pytest.approx(value, rel=1e-9)), key
    assert simulated_books.waterfall().all.known_to == "active"
    found = books.waterfall().all
    assert (found.known_to, found.goes_on) == ("useful", None)
    assert 0 < found.gpu_hours.useful < found.gpu_hours.after("active")
