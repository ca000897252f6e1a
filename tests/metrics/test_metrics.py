"""Metrics beside worked examples: readings of real books, the waterfall, links and heat, a part of the fleet, survival."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from fractions import Fraction
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledger.fleets import HOUR, MINUTE, STARTS, Row, add, batch

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.books.energy_inputs import read_grid
from loadfactor.metrics.fullness import DROPS, LEVELS, Spent, WorkShares, join, measure_shares, pour, take_shares
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.survival import Interval, estimate_rest, estimate_survival
from loadfactor.settings import config

START = 1_767_225_600_000


def job(name: str, gpus: int, minutes: int, busy: float) -> tuple[list[Row], list[Row], list[Row]]:
    """A job with GPUs of its own: devices, allocations, and a sample every quarter of an hour."""
    devices: list[Row] = [
        {"device_id": f"{name}-{k}", "from_utc": START, "to_utc": START + minutes * MINUTE} for k in range(gpus)
    ]
    held = [{"job_id": name, **d} for d in devices]
    quarters = [(START + (q - 15) * MINUTE, START + q * MINUTE) for q in range(15, minutes + 1, 15)]
    samples = [
        {"device_id": d["device_id"], "from_utc": first, "to_utc": last, "busy_share": busy}
        for d in devices
        for first, last in quarters
    ]
    return devices, held, samples


def make_books(folder: Path, tables: dict[str, list[Row]]) -> Books:
    """Books of these tables; one without rows is left out."""
    folder.mkdir(exist_ok=True)
    books = Books(folder / "store")
    add(books, [batch(name, rows) for name, rows in tables.items() if rows], "all", folder)
    return books


def books_of(
    folder: Path, cost: float, *jobs: tuple[list[Row], list[Row], list[Row]], progress: list[Row] | None = None
) -> Books:
    tables = {t: [r for j in jobs for r in j[n]] for n, t in enumerate(("devices", "allocations", "samples"))}
    tables["prices"] = [{"basis": "contracted", "price_per_gpu_hour": cost}]
    return make_books(folder, tables | {"progress": progress or []})


def said(books: Books, *names: str) -> list[object]:
    return [r.value for r in books.show(names)]


def test_eight_gpus_for_an_hour_and_a_quarter(tmp_path: Path) -> None:
    """8 GPUs × 1.25 h at $8 and 60 % with 200,000 samples: 10 GPU-hours, 6 effective, $80, $13.33, $0.0004."""
    made = [
        {"job_id": "run", "unit": "train_sample", "amount": 200_000.0, "from_utc": START, "to_utc": START + 75 * MINUTE}
    ]
    books = books_of(tmp_path, 8.0, job("run", 8, 75, 0.6), progress=made)
    names = ("allocated_gpu_hours", "effective_gpu_hours", "cost", "cost_per_effective_gpu_hour", "cost_per_sample")
    assert said(books, *names) == pytest.approx([10.0, 6.0, 80.0, 80 / 6, 0.0004], rel=1e-12)


@pytest.mark.long
def test_two_jobs_are_weighted_by_their_hours(tmp_path: Path, shared: Path) -> None:
    """The published vectors of effective GPU-hours: sums are divided last, never averages averaged."""
    vectors = [
        v for v in json.loads((shared / "truth" / "test_vectors.json").read_text()) if v["id"].startswith("eff.")
    ]
    expected = {v["id"]: v["expected"] for v in vectors}
    one = books_of(tmp_path / "one", 8.0, job("a", 1, 600, 0.6))
    hours, cost, each = said(one, "effective_gpu_hours", "cost", "cost_per_effective_gpu_hour")
    assert [hours, cost, each] == pytest.approx(
        [expected[f"eff.{n}"] for n in ("hours", "jobcost", "cost_per_eff_hour")], rel=1e-12
    )
    two = books_of(tmp_path / "two", 8.0, job("a", 1, 600, 0.6), job("b", 1, 1800, 0.3))
    wanted = [15.0, expected["eff.agg_ratio_of_sums"]]
    assert said(two, "effective_gpu_hours", "cost_per_effective_gpu_hour") == pytest.approx(wanted, rel=1e-12)


def test_an_answer_has_its_columns_whatever_is_known(tmp_path: Path) -> None:
    """An empty answer has the columns of a full one."""
    full = books_of(tmp_path, 8.0, job("a", 1, 60, 0.6)).show(["utilization_histogram", "cost"], ["team"])
    none = full.arrange(limit=0)
    assert len(full) > len(none) == 0
    assert full.to_arrow().schema == none.to_arrow().schema
    assert "values" in full.to_arrow().column_names


def test_what_makes_no_sense_in_python_is_refused_in_one_line(tmp_path: Path) -> None:
    """A time without a zone is never guessed at, and a table that is none has a list of those there are."""
    books = books_of(tmp_path, 8.0, job("a", 1, 60, 0.6))
    with pytest.raises(InputError, match="no time zone"):
        books.show(["cost"], start=datetime(2026, 1, 1))  # noqa: DTZ001 (the mistake itself)
    with pytest.raises(InputError, match="allocations"):
        books.table("allocation")
    first, last = books.span
    for start, end in (
        (last + timedelta(days=1), None),
        (None, first - timedelta(days=1)),
        (last, last + timedelta(days=1)),
    ):
        with pytest.raises(InputError, match="they cover"):  # not that somebody confused beginning and end
            books.show(["cost"], start=start, end=end)


def test_readings_are_tables_too(simulated_books: Books) -> None:
    """Answers go to Arrow and pandas: one row a reading, one column a dimension, unknown is null."""
    readings = simulated_books.show(["utilization", "cost"], by=["team"])
    frame = readings.to_pandas()
    assert list(frame.columns) == [
        *("metric", "unit", "team", "currency", "from", "to"),
        *("value", "coverage", "activity_basis", "cost_basis"),
    ]
    assert [str(t) for t in frame["from"].unique()] == [str(t) for t in dict.fromkeys(r.start for r in readings)]
    assert len(frame) == len(readings) == readings.to_arrow().num_rows
    assert frame[frame.metric == "cost"].value.sum() == sum(r.value for r in readings if r.metric == "cost")
    nobody = frame[(frame.metric == "utilization") & frame.team.isna()]
    assert nobody.value.isna().all()


@pytest.mark.long
def test_a_job_whose_work_was_all_lost_costs_too(tmp_path: Path) -> None:
    """Two jobs of 10 GPU-hours at $1.50, one keeps 900 tokens, the other loses 100: $30 ÷ 900; lost work alone has no unit cost."""
    made = [
        {"job_id": name, "unit": "train_token", "amount": amount, "kept": kept, "from_utc": START, "to_utc": START + 60 * MINUTE}
        for name, amount, kept in (("good", 900.0, True), ("lost", 100.0, False))
    ]  # fmt: skip
    books = books_of(tmp_path, 1.5, job("good", 10, 60, 0.5), job("lost", 10, 60, 0.5), progress=made)
    assert said(books, "cost_per_token") == [pytest.approx(30 / 900)]
    by_job = {r.by["job"]: r.value for r in books.show(["cost_per_token"], ["job"])}
    assert by_job == {"good": pytest.approx(15 / 900), "lost": None}


def test_kept_and_lost_work_of_one_job_share_its_cost(tmp_path: Path) -> None:
    """A job that keeps 900 and loses 100 of the same hours: all of its $15 belong to the 900."""
    made = [
        {"job_id": "run", "unit": "train_token", "amount": amount, "kept": kept, "from_utc": START, "to_utc": START + 60 * MINUTE}
        for amount, kept in ((900.0, True), (100.0, False))
    ]  # fmt: skip
    books = books_of(tmp_path, 1.5, job("run", 10, 60, 0.5), progress=made)
    assert said(books, "cost_per_token") == [pytest.approx(15 / 900)]


AMOUNT = st.floats(0, 1e9)
SHARE = st.floats(0, 1)


def test_the_published_waterfall() -> None:
    """$10,000 at 90 % allocated, 80 % not idle, 70 % active, 55 % math and 92 % kept: $2,550.24 were useful."""
    losses, useful = take_shares(10_000.0, (0.9, 0.8, 0.7, 0.55, 0.92))
    assert losses == pytest.approx([1000.00, 1800.00, 2160.00, 2268.00, 221.76], abs=1e-9)
    assert useful == pytest.approx(2550.24, abs=1e-9)
    found = pour(Spent(unallocated=1000, idle=1800, busy=7200, active=5040), WorkShares(0.55, 0.92, 1.0))
    levels = [10_000, 9000, 9000, 7200, 5040, 2772, 2550.24, 2550.24]
    assert [found.after(level) for level in LEVELS] == pytest.approx(levels, abs=1e-9)


@given(st.lists(st.tuples(st.tuples(*[AMOUNT] * 5), SHARE, SHARE, SHARE, SHARE, st.booleans()), min_size=1, max_size=6))
def test_nothing_is_lost_on_the_way(cells: list[tuple[tuple[float, ...], float, float, float, float, bool]]) -> None:
    """Whatever was spent: all amounts are at least zero and add up to what was paid, and unknown FLOPs are no loss."""
    falls, paid = [], []
    for (down, free, unseen, idle, busy), activity, math, kept, useful, is_known in cells:
        spent = Spent(down, free, unseen, idle, busy, busy * activity)
        falls.append(pour(spent, WorkShares(math, kept, useful) if is_known else None))
        paid += [down, free, unseen, idle, busy]
        if not is_known:
            assert falls[-1].not_math == falls[-1].lost_work == falls[-1].useful == 0
    whole = join(falls)
    amounts = [*(getattr(whole, drop.name) for drop in DROPS), whole.useful]
    assert min(amounts) >= 0
    assert fsum(amounts) == pytest.approx(fsum(paid), rel=1e-9)
    assert whole.after("paid") == whole.paid


def test_flops_of_unobserved_time_count_for_nothing() -> None:
    """Of a job that was observed half of its time, half of its FLOPs are held against its activity."""
    hours = Spent(unobserved=10, busy=10, active=8)
    assert measure_shares(hours, 8.0, 6.0, has_failed=False) == WorkShares(0.5, 0.75, 1.0)
    assert measure_shares(hours, 80.0, 80.0, has_failed=True) == WorkShares(1.0, 1.0, 0.0)
    assert measure_shares(Spent(unobserved=10), 8.0, 6.0, has_failed=False).math == 0


LINK_START = STARTS[-1]


def link_books_of(folder: Path, accelerators: dict[str, str | None], samples: list[dict[str, Any]]) -> Books:
    """GPUs of these models, each held for two hours."""
    two = {"from_utc": LINK_START, "to_utc": LINK_START + 2 * HOUR}
    devices = [{"device_id": d, "accelerator": a, **two} for d, a in accelerators.items()]
    held = [{"job_id": f"job-{d}", "device_id": d, **two} for d in accelerators]
    return make_books(folder, {"devices": devices, "allocations": held, "samples": samples})


def sample(device: str, hour: int, **values: float) -> dict[str, Any]:
    first = LINK_START + hour * HOUR
    return {"device_id": device, "from_utc": first, "to_utc": first + HOUR, **values}


def known(books: Books, *metrics: str, **where: str) -> list[tuple[Any, float | None]]:
    return [(r.value, r.coverage) for r in books.show(metrics, where=where)]


@pytest.mark.long
def test_links_are_measured_against_their_peaks(tmp_path: Path) -> None:
    """An H100: PCIe 5.0 x16 carries 63.015 GB/s in a direction, the busier one counts; NVLink 900 GB/s in both."""
    rows = [
        sample("g0", 0, pcie_rx_bytes_per_s=63.015e9, pcie_tx_bytes_per_s=1e9, nvlink_bytes_per_s=90e9),
        sample("g0", 1, pcie_tx_bytes_per_s=31.5075e9, nvlink_bytes_per_s=270e9),
    ]
    books = link_books_of(tmp_path, {"g0": "H100-SXM"}, rows)
    pcie, nvlink = known(books, "pcie_saturation", "nvlink_saturation")
    assert pcie == (pytest.approx(0.75), 1.0)
    assert nvlink == (pytest.approx(0.2), 1.0)


@pytest.mark.long
def test_a_link_without_a_known_peak_is_not_measured(tmp_path: Path) -> None:
    """Of two GPUs alike in traffic the catalog knows one: it alone counts, and coverage is one half; an L4 has no NVLink."""
    rows = [sample(d, h, pcie_rx_bytes_per_s=12.603e9, nvlink_bytes_per_s=1e9) for d in ("g0", "g1") for h in (0, 1)]
    books = link_books_of(tmp_path, {"g0": "H100-SXM", "g1": "abacus"}, rows)
    assert known(books, "pcie_saturation") == [(pytest.approx(0.2), 0.5)]
    assert known(books, "pcie_saturation", job="job-g1") == [(None, 0.0)]
    books = link_books_of(tmp_path / "l4", {"g0": "L4"}, rows[:2])
    assert known(books, "pcie_saturation", "nvlink_saturation") == [(pytest.approx(12.603 / 31.508), 1.0), (None, 0.0)]


@pytest.mark.long
def test_power_heat_fp32_and_occupancy_are_means_over_time(tmp_path: Path) -> None:
    """One of two hours measured: the means speak of that hour, coverage is one half, the highest temperature is a peak."""
    values = {"power_w": 400.0, "temperature_c": 60.0, "fp32_active_share": 0.25, "sm_occupancy_share": 0.5}
    half = LINK_START + HOUR // 2
    rows = [
        sample("g0", 0, **values) | {"to_utc": half},
        sample("g0", 0, **values) | {"from_utc": half, "power_w": 200.0, "temperature_c": 81.0},
    ]
    books = link_books_of(tmp_path, {"g0": "H100-SXM"}, rows)
    names = ("power_w", "temperature_c", "fp32_activity", "sm_occupancy", "energy_kwh")
    assert known(books, *names) == [(300.0, 0.5), (70.5, 0.5), (0.25, 0.5), (0.5, 0.5), (0.3, 0.5)]
    assert known(books, "temperature_c_max") == [(81.0, None)]


PART_HOUR = 60 * MINUTE


def part_books_of(folder: Path, allocations: list[Row], **tables: list[Row]) -> Books:
    """Two nodes in pools of their own, a GPU each, for four hours at $1."""
    places = (("g0", "n0", "a"), ("g1", "n1", "b"))
    time = {"from_utc": START, "to_utc": START + 4 * PART_HOUR}
    devices = [{"device_id": d, "node": n, "pool": p, **time} for d, n, p in places]
    tables = {"devices": devices, "allocations": [time | a for a in allocations], **tables}
    return make_books(folder, tables | {"prices": [{"basis": "contracted", "price_per_gpu_hour": 1.0}]})


def steps(job: str, amount: float) -> Row:
    return {"job_id": job, "unit": "step", "amount": amount, "from_utc": START, "to_utc": START + 4 * PART_HOUR}


@pytest.mark.long
@pytest.mark.parametrize("where", [{"pool": "a"}, {"node": "n0"}, {"device": "g0"}])
def test_a_job_half_inside_a_part_does_not_make_its_work_half_as_dear(where: dict[str, str], tmp_path: Path) -> None:
    """Of jobs that also held GPUs elsewhere nobody knows what was made where: their dollars and steps are left out."""
    half = {"share": 0.5}
    held = [{"job_id": "wide", "device_id": d, **half} for d in ("g0", "g1")]
    held.append({"job_id": "narrow", "device_id": "g0", **half})
    books = part_books_of(tmp_path, held, progress=[steps("wide", 1000.0), steps("narrow", 10.0)])
    (whole,) = books.show(["cost_per_step"])
    (part,) = books.show(["cost_per_step"], where=where)
    assert whole.value == pytest.approx(6 / 1010)
    assert part.value == pytest.approx(2 / 10)


@pytest.mark.long
def test_waits_that_cannot_be_told_apart_are_unknown_not_none(tmp_path: Path) -> None:
    """Who waits waits for no particular node, so nobody can say that none waits for it."""
    asked = {"job_id": "patient", "at_utc": START, "event": "submitted", "pool": "a"}
    books = part_books_of(tmp_path, [{"job_id": "j", "device_id": "g0"}], queue_events=[asked])
    found = [books.show(["queue_waiting"], where=w)[0].value for w in ({}, {"pool": "a"}, {"node": "n0"})]
    assert found == [1, 1, None]


@pytest.mark.long
def test_who_waits_is_counted_at_the_end_of_each_interval(tmp_path: Path) -> None:
    """A job that waits four hours is in each, as in a window of that hour; one that starts within an hour is in none."""
    holds = [{"job_id": "j", "device_id": "g0"}, {"job_id": "k", "device_id": "g1", "from_utc": START + PART_HOUR // 2}]
    asked = [{"job_id": of, "at_utc": START + PART_HOUR // 4, "event": "submitted"} for of in ("patient", "k")]
    books = part_books_of(tmp_path, holds, queue_events=asked)
    split = books.show(["queue_waiting", "queue_wait_s_mean"], "hour")
    assert [of.value for of in split if of.metric == "queue_waiting"] == [1, 1, 1, 1]
    hours = [(START + n * PART_HOUR, START + (n + 1) * PART_HOUR) for n in range(4)]
    each = [books.show(["queue_waiting", "queue_wait_s_mean"], (), *map(instant, hour)) for hour in hours]
    assert [(of.value, of.coverage) for of in split] == [(of.value, of.coverage) for found in each for of in found]


def test_who_holds_gpus_waits_no_longer(tmp_path: Path) -> None:
    """A queue that only recorded submissions, and allocations that only say when they began: together they are waits."""
    asked = [{"job_id": j, "at_utc": START - PART_HOUR, "event": "submitted"} for j in ("j", "patient")]
    books = part_books_of(tmp_path, [{"job_id": "j", "device_id": "g0"}], queue_events=asked)
    waiting, wait_s = books.show(["queue_waiting", "queue_wait_s_mean"])
    assert (waiting.value, wait_s.value, wait_s.coverage) == (1, 3600.0, 0.5)


@pytest.mark.long
def test_without_any_queue_on_record_nobody_knows_who_waits(tmp_path: Path) -> None:
    """Books without submissions do not claim that nobody waits."""
    books = part_books_of(tmp_path, [{"job_id": "j", "device_id": "g0"}])
    assert books.show(["queue_waiting"])[0].value is None


def test_dollars_of_what_nobody_observed_are_unknown_not_zero(tmp_path: Path) -> None:
    """Nobody knows how much of an unobserved hour was idle, in dollars no more than in hours."""
    seen = {"device_id": "g0", "from_utc": START, "to_utc": START + PART_HOUR, "busy_share": 0.0}
    held = [{"job_id": "j", "device_id": "g0"}, {"job_id": "k", "device_id": "g1"}]
    books = part_books_of(tmp_path, held, samples=[seen])
    asked = ("idle_cost", "busy_cost", "underused_cost", "effective_cost")
    said = {(r.by["job"], r.metric): (r.value, r.coverage) for r in books.show(asked, ["job"])}
    assert said["j", "idle_cost"] == (1.0, 0.25)
    assert [said["k", metric] for metric in asked] == [(None, 0.0)] * 4


# Freireich and others 1963: weeks in remission of 21 patients with 6-mercaptopurine (+: censored), and of 21 without
TREATED = "6 6 6 6+ 7 9+ 10 10+ 11+ 13 16 17+ 19+ 20+ 22 23 25+ 32+ 32+ 34+ 35+"
UNTREATED = "1 1 2 2 3 4 4 5 5 8 8 8 8 11 11 12 12 15 17 22 23"
# week, share that lasts longer (Kleinbaum and Klein, Survival Analysis, chapter 2), its log-log interval as SciPy's ecdf gives it
PUBLISHED = (
    (6, 0.8571, 0.6197, 0.9516),
    (7, 0.8067, 0.5631, 0.9228),
    (10, 0.7529, 0.5032, 0.8894),
    (13, 0.6902, 0.4316, 0.8491),
    (16, 0.6275, 0.3675, 0.8049),
    (22, 0.5378, 0.2678, 0.7468),
    (23, 0.4482, 0.1881, 0.6801),
)
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, database=None)
WAITS = st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.integers(1, 4)), min_size=1, max_size=25)
Wait = tuple[int, bool, int]


def read(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Durations, and which of them ended."""
    words = text.split()
    return np.array([float(w.rstrip("+")) for w in words]), np.array([not w.endswith("+") for w in words])


def columns(waits: list[Wait]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Durations, which ended, and weights."""
    return (
        np.array([float(w) for w, *_ in waits]),
        np.array([e for _, e, _ in waits]),
        np.array([float(g) for *_, g in waits]),
    )


def multiply(waits: list[Wait]) -> dict[int, Fraction]:
    """The product-limit estimate by hand: at each time at which something ends, the share that lasts longer."""
    share, out = Fraction(1), {}
    for at in sorted({w for w, ended, _ in waits if ended}):
        at_risk = sum(g for w, _, g in waits if w >= at)
        ends = sum(g for w, ended, g in waits if ended and w == at)
        share *= Fraction(at_risk - ends, at_risk)
        out[at] = share
    return out


def test_a_published_example_comes_out_as_published() -> None:
    """The shares, their intervals and the medians of the leukaemia trial; the upper end of one is not reached."""
    curve = estimate_survival(*read(TREATED))
    assert (curve.n, curve.ended) == (21, 9)
    found = zip(curve.times, curve.share, curve.low, curve.high, strict=True)
    for said, true in zip(found, PUBLISHED, strict=True):
        assert said == pytest.approx(true, abs=5e-5)
    assert curve.quantile(0.5) == Interval(23, 13, None)
    assert curve.quantile(0.75) == Interval(None, 23, None)
    assert estimate_survival(*read(UNTREATED)).quantile(0.5) == Interval(8, 4, 11)


@SETTINGS
@given(WAITS)
def test_shares_are_those_of_a_slow_loop(waits: list[Wait]) -> None:
    """With weights and without, by fractions; a quantile is the first time at which no more than the rest lasts longer."""
    durations, ended, weights = columns(waits)
    for given_weights, counted in ((None, [(w, e, 1) for w, e, _ in waits]), (weights, waits)):
        true = multiply(counted)
        curve = estimate_survival(durations, ended, given_weights)
        assert curve.times.tolist() == list(true)
        assert curve.share == pytest.approx([float(s) for s in true.values()], abs=1e-12)
        for q in (Fraction(1, 4), Fraction(1, 2), Fraction(9, 10)):
            reached = [at for at, share in true.items() if share <= 1 - q]
            assert curve.quantile(float(q)).value == (reached[0] if reached else None)


@SETTINGS
@given(WAITS, st.floats(0.1, 50))
def test_weights_that_are_all_alike_are_none(waits: list[Wait], weight: float) -> None:
    """They count relative to each other: shares and intervals are those without weights."""
    durations, ended, _ = columns(waits)
    plain, weighted = (
        estimate_survival(durations, ended),
        estimate_survival(durations, ended, np.full(len(waits), weight)),
    )
    for name in ("times", "share", "low", "high"):
        assert getattr(weighted, name) == pytest.approx(getattr(plain, name), abs=1e-9)


@SETTINGS
@given(WAITS)
def test_estimates_lie_in_their_intervals(waits: list[Wait]) -> None:
    """Of shares and of quantiles, and shares fall."""
    durations, ended, weights = columns(waits)
    curve = estimate_survival(durations, ended, weights)
    left = curve.share > 0
    assert np.all(curve.low[left] <= curve.share[left] + 1e-12)
    assert np.all(curve.share[left] <= curve.high[left] + 1e-12)
    assert np.all(np.diff(curve.share) < 1e-12)
    for q in (0.25, 0.5, 0.9):
        of = curve.quantile(q)
        assert of.low is None or of.value is None or of.low <= of.value
        assert of.high is None or (of.value is not None and of.value <= of.high)


@SETTINGS
@given(WAITS, st.integers(0, 12))
def test_the_rest_is_what_is_left_of_the_whole(waits: list[Wait], passed: int) -> None:
    """Given a time that has passed, shares are those of the whole over the share that lasts longer than it."""
    durations, ended, _ = columns(waits)
    whole, rest = estimate_survival(durations, ended), estimate_rest(durations, ended, passed)
    after = whole.times > passed
    so_far = whole.share[~after][-1] if (~after).any() else 1.0
    if so_far > 0:
        assert rest.times.tolist() == whole.times[after].tolist()
        assert rest.share * so_far == pytest.approx(whole.share[after])


def test_a_wait_of_one_gpu_in_many_widens_the_interval() -> None:
    """One job of 64 GPUs among twenty of one is not 64 jobs: weighted intervals count the effective number."""
    durations, ended = np.arange(1.0, 22.0), np.full(21, True)
    weights = np.array([1.0] * 10 + [64.0] + [1.0] * 10)
    plain, weighted = (estimate_survival(durations, ended, w).quantile(0.5) for w in (None, weights))
    assert plain == Interval(11, 6, 15)
    assert (weighted.value, weighted.low) == (11, 1)


def test_nothing_known_is_nothing_said() -> None:
    """Of no durations, and of durations none of which ended, no quantile is reached."""
    nothing = Interval(None, None, None)
    assert estimate_survival(np.zeros(0), np.zeros(0, bool)).quantile(0.5) == nothing
    assert estimate_survival(np.ones(3), np.zeros(3, bool)).quantile(0.5) == nothing
    assert Interval(5.0, 2.0, None).less(2.0) == Interval(3.0, 0.0, None)


@pytest.fixture
def energy_settings(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Takes settings from this text from now on."""
    before = config.CHOSEN.path

    def take(text: str) -> None:
        (tmp_path / "energy.toml").write_text(text)
        config.choose_file(tmp_path / "energy.toml")

    yield take
    config.choose_file(before)


GRID = """region,hour,kgco2e_per_kwh,pue
de,,0.5,
de,2026-01-01T01:00Z,0.25,2
se,,0.02,1.25
"""


@pytest.mark.long
def test_carbon_is_energy_at_the_meter_times_the_grid_of_its_hour(
    tmp_path: Path, energy_settings: Callable[[str], None]
) -> None:
    """Worked by hand. g0 in de: 400 W and 200 W measured, an hour each; g1 in se: 100 W, then unmeasured.

    An H100 SXM takes 700 W: at 60 % that is 420 W. kWh measured 0.4 + 0.2 + 0.1, estimated 0.42. At the meter
    0.4 × 1.5 + 0.2 × 2 + (0.1 + 0.42) × 1.25 = 0.6 + 0.4 + 0.65; kgCO2e 0.6 × 0.5 + 0.4 × 0.25 + 0.65 × 0.02.
    """
    two = {"from_utc": START, "to_utc": START + 2 * HOUR}
    devices = [
        {"device_id": d, "accelerator": "H100-SXM", "pool": p, **two} for d, p in (("g0", "main"), ("g1", "north"))
    ]
    held = [{"job_id": f"job-{d}", "team": d, "device_id": d, **two} for d in ("g0", "g1")]
    hours = [("g0", 0, 400.0), ("g0", 1, 200.0), ("g1", 0, 100.0)]
    samples = [
        {"device_id": d, "from_utc": START + h * HOUR, "to_utc": START + (h + 1) * HOUR, "power_w": w}
        for d, h, w in hours
    ]
    books = make_books(tmp_path, {"devices": devices, "allocations": held, "samples": samples})
    names = ("energy_kwh", "energy_estimated_kwh", "site_energy_kwh", "carbon_kg")
    assert known(books, *names) == [(pytest.approx(0.7), 0.75), *[(None, 0.0)] * 3]
    (tmp_path / "grid.csv").write_text(GRID)
    table = f'[energy]\npue = 1.5\ngrid = "{tmp_path}/grid.csv"\nregion = "de"\nregions = {{ north = "se" }}\n'
    energy_settings(table)
    half = [(pytest.approx(0.7), 0.75), (0.0, 0.75), (pytest.approx(1.125), 0.75), (pytest.approx(0.4025), 0.75)]
    assert known(books, *names) == half
    energy_settings(f"{table}held_percent = 60")
    whole = [(pytest.approx(0.42), 1.0), (pytest.approx(1.65), 1.0), (pytest.approx(0.413), 1.0)]
    assert known(books, *names[1:]) == whole
    assert known(books, *names[1:], team="g1") == [(pytest.approx(v), 1.0) for v in (0.42, 0.65, 0.013)]
    by = books.show(("carbon_kg",), ("team", "hour"))
    assert fsum(r.value for r in by if isinstance(r.value, float)) == pytest.approx(0.413)
    energy_settings(f"{table}held_percent = 60\ngpu_w = {{ h100-sxm = 1000 }}")
    assert known(books, "energy_estimated_kwh") == [(pytest.approx(0.6), 1.0)]


def test_a_grid_that_cannot_be_read_is_named_with_its_line() -> None:
    """A header, an hour, a number and a row that stands twice."""
    for text, error in (
        ("zone,hour,kgco2e_per_kwh", "write region,hour,kgco2e_per_kwh,pue"),
        (f"{GRID}de,2026-01-01T01:30Z,1,", "line 5: hour '2026-01-01T01:30Z' is no whole hour"),
        (f"{GRID}dk,,-1,", "line 5: kgco2e_per_kwh is '-1'; write a number of at least 0"),
        (f"{GRID}dk,,1,0.9", "line 5: pue is '0.9'; write a number of at least 1"),
        (f"{GRID}se,,1,", "line 5: se in every hour stands twice"),
    ):
        with pytest.raises(InputError, match=re.escape(error)):
            read_grid(text, "grid.csv")
