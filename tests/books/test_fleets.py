"""Books of a simulated fleet whose truth is known, of a cluster that gives GPUs by claims, and their jobs as a history."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.simulator.truth import TrueTotals, Truth
from tests.sources.kubernetes.objects import DAY, listed, ms, node
from tests.sources.kubernetes.test_claims import GPUS, asking, claim, gpu, mig, resource_slice
from typer.testing import CliRunner

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.books.job_run import job_history
from loadfactor.interfaces.cli import app
from loadfactor.sources.base import ReadOptions

SAID = {
    **{
        f"{name}_gpu_hours": f"{name}_gpu_hours"
        for name in ("paid", "allocated", "unallocated", "down", "observed", "unobserved", "idle", "busy", "effective")
    },
    "cost": "paid_cost",
    **{f"{name}_cost": f"{name}_cost" for name in ("unallocated", "down", "idle", "unobserved")},
}
"""Metric → what the truth calls it."""


def _values(books: Books, *by: str) -> dict[tuple[str | None, ...], dict[str, float]]:
    out: dict[tuple[str | None, ...], dict[str, float]] = {}
    for reading in books.show([*SAID], by=by):
        assert not isinstance(reading.value, list)
        out.setdefault(tuple(reading.by.values()), {})[reading.metric] = reading.value or 0.0
    return out


def _matches(found: dict[str, float], totals: TrueTotals) -> None:
    for metric, name in SAID.items():
        assert found[metric] == pytest.approx(getattr(totals, name), rel=1e-9, abs=1e-9), metric


def test_the_whole_fleet_is_booked_as_it_was(simulated_books: Books, simulated_truth: Truth) -> None:
    """Every hour and dollar of the fleet, shared GPUs, slices, outages, gaps and a price change included."""
    _matches(_values(simulated_books)[()], simulated_truth.total())


@pytest.mark.long
@pytest.mark.parametrize("dimension", ["team", "job", "device", "node", "accelerator", "purpose", "experiment"])
def test_every_part_is_booked_as_it_was(simulated_books: Books, simulated_truth: Truth, dimension: str) -> None:
    """Split by any dimension, each part is what the construction of the fleet says."""
    found, expected = _values(simulated_books, dimension), simulated_truth.by(dimension)
    assert {key for (key,) in found} == set(expected)
    for key, totals in expected.items():
        _matches(found[(key if key is None else str(key),)], totals)


def test_waits_are_those_that_were(simulated_books: Books, simulated_truth: Truth) -> None:
    """Quantiles of the waits that ended, and those that did not counted."""
    waits = simulated_truth.waits()
    found = {
        r.metric: r.value
        for r in simulated_books.show(["queue_wait_s_p50", "queue_wait_s_p90", "queue_wait_s_mean", "queue_waiting"])
    }
    assert found["queue_wait_s_p50"] == pytest.approx(waits.p50_s)
    assert found["queue_wait_s_p90"] == pytest.approx(waits.p90_s)
    assert found["queue_wait_s_mean"] == pytest.approx(waits.mean_s)
    assert found["queue_waiting"] == waits.waiting + waits.cancelled


@pytest.mark.parametrize(
    ("paid", "unit"), [("paid_gpu_hours", "gpu_hours"), ("cost", "cost")], ids=["hours", "dollars"]
)
def test_what_is_paid_less_every_loss_is_effective(simulated_books: Books, paid: str, unit: str) -> None:
    """Paid less unallocated, down, unobserved, idle and underused leaves exactly what was effective, in hours and dollars."""
    losses = [f"{loss}_{unit}" for loss in ("unallocated", "down", "unobserved", "idle", "underused")]
    value = {r.metric: r.value for r in simulated_books.show([paid, *losses, f"effective_{unit}"])}
    assert value[paid] - sum(value[loss] for loss in losses) == pytest.approx(value[f"effective_{unit}"], rel=1e-12)
    assert all(value[loss] > 0 for loss in losses)


HOURS = ["paid_gpu_hours", "allocated_gpu_hours", "unallocated_gpu_hours"]
WINDOW = (DAY, DAY + timedelta(hours=10))
NODE = node("n1", resources={}, labels={"nvidia.com/gpu.count": ""})
POD = asking("a", "own", bound=2, ended=4)


def open_books(folder: Path, *objects: object) -> Books:
    """The books of a file that was saved at ten o'clock."""
    saved = folder / "cluster.json"
    saved.write_text(json.dumps(listed(NODE, *objects)))
    books = Books.open(folder / "books", create=True)
    books.add("kubernetes", [saved], ReadOptions(at_ms=ms(10)))
    return books


def hours(books: Books, by: list[str] | None = None) -> dict[tuple[str, ...], float | None]:
    """GPU-hours of the day by metric and dimension."""
    return {
        (reading.metric, *(reading.by.get(name) or "-" for name in by or ())): reading.value
        for reading in books.show(HOURS, by or (), *WINDOW)
    }


@pytest.mark.long
def test_slices_are_the_inventory(tmp_path: Path) -> None:
    """Three GPUs for ten hours; what nobody claims of them is unallocated; the claimed one is named."""
    books = open_books(tmp_path, resource_slice(gpu(0), gpu(1), gpu(2)), claim("own", "gpu-1"), POD)
    assert hours(books) == {("paid_gpu_hours",): 30, ("allocated_gpu_hours",): 2, ("unallocated_gpu_hours",): 28}
    found = hours(books, ["device", "accelerator"])
    assert found["allocated_gpu_hours", GPUS[1], "h100-sxm"] == 2
    assert found["paid_gpu_hours", GPUS[0], "h100-sxm"] == 10


@pytest.mark.long
def test_parts_of_a_gpu_sum_to_one(tmp_path: Path) -> None:
    """Two instances of MIG of one GPU are held, three sevenths and one seventh; the rest is unallocated."""
    instances = [{**mig(0, profile), "name": f"mig-{n}"} for n, profile in enumerate(("3g.40gb", "1g.10gb", "2g.20gb"))]
    pods = [asking("a", "big", bound=2, ended=4), asking("b", "small", bound=2, ended=9)]
    books = open_books(tmp_path, resource_slice(*instances), claim("big", "mig-0"), claim("small", "mig-1"), *pods)
    found = hours(books)
    assert found["paid_gpu_hours",] == pytest.approx(10)
    assert found["allocated_gpu_hours",] == pytest.approx(2 * 3 / 7 + 7 / 7)
    assert found["unallocated_gpu_hours",] == pytest.approx(10 - 2 * 3 / 7 - 7 / 7)


def test_without_slices_the_most_that_was_held_is_there(tmp_path: Path) -> None:
    """As for other sources without an inventory: between the first and the last pod; what is not held then is unknown."""
    books = open_books(
        tmp_path, claim("own", "gpu-1"), POD, asking("b", "more", bound=3, ended=6), claim("more", "gpu-2")
    )
    found = hours(books)
    assert (found["paid_gpu_hours",], found["allocated_gpu_hours",]) == (8, 5)
    assert not found["unallocated_gpu_hours",]


@pytest.mark.long
def test_an_exporter_of_the_same_gpus_adds_none(tmp_path: Path) -> None:
    """By UUID they are the same; instances of MIG that it lists are those of the GPU that is known by its number."""
    books = open_books(tmp_path, resource_slice(gpu(0), {**mig(1), "name": "m"}), claim("own", "gpu-0"), POD)
    parts = "".join(f"{GPUS[1]}/{n},n1,h100-sxm,0.142857142857,2026-11-01T00:00:00Z\n" for n in range(7))
    devices = tmp_path / "devices.csv"
    devices.write_text(
        f"device_id,node,accelerator,share,from_utc\n{GPUS[0]},n1,h100-sxm,,2026-11-01T00:00:00Z\n{parts}"
    )
    books.add("tables", [devices])
    found = hours(books)
    assert found["paid_gpu_hours",] == pytest.approx(20)
    assert found["allocated_gpu_hours",] == pytest.approx(2)


@pytest.mark.long
def test_a_gpu_that_is_said_to_be_elsewhere_stops_no_import(tmp_path: Path) -> None:
    """An inventory puts it into another node: that stays, is said, and the other GPUs are taken."""
    devices = tmp_path / "devices.csv"
    devices.write_text(f"device_id,node,from_utc\n{GPUS[0]},n9,2026-10-01T00:00:00Z\n")
    saved = tmp_path / "cluster.json"
    saved.write_text(json.dumps(listed(NODE, resource_slice(gpu(0), gpu(1)))))
    books = Books.open(tmp_path / "books", create=True)
    books.add("tables", [devices])
    receipt = books.add("kubernetes", [saved], ReadOptions(at_ms=ms(10)))
    assert ["two places" in gap.what for gap in receipt.gaps] == [True]
    assert {key[1:] for key in hours(books, ["node"]) if key[1] != "-"} == {("n1",), ("n9",)}


@pytest.mark.long
def test_the_books_know_which_gpu_a_pod_has(tmp_path: Path) -> None:
    """Hours of each pod on the GPU that its claim names, a shared one divided, and nothing twice."""
    claims = [claim("own", "gpu-0"), claim("both", "gpu-1"), claim("gone", "gpu-9")]
    pods = [asking("a", "own", bound=2, ended=4), asking("b", "both", bound=2, ended=4), asking("c", "both", bound=3, ended=5),
            asking("d", "gone", bound=6, ended=7)]  # fmt: skip
    saved = tmp_path / "pods.json"
    saved.write_text(json.dumps(listed(node("n1"), resource_slice(gpu(0), gpu(1), gpu(2)), *claims, *pods)))
    devices = tmp_path / "devices.csv"
    rows = [f"{gpu_id},n1,2026-11-02T00:00:00Z,2026-11-02T12:00:00Z\n" for gpu_id in GPUS]
    devices.write_text("device_id,node,from_utc,to_utc\n" + "".join(rows))
    books = Books.open(tmp_path / "books", create=True)
    books.add("tables", [devices])
    books.add("kubernetes", [saved])
    found = {
        (reading.by["job"], reading.by["device"]): reading.value
        for reading in books.show(["allocated_gpu_hours"], by=["job", "device"])
        if reading.value
    }
    assert found == {
        ("team-a/a", GPUS[0]): pytest.approx(2),
        ("team-a/b", GPUS[1]): pytest.approx(1.5),
        ("team-a/c", GPUS[1]): pytest.approx(1.5),
        ("team-a/d", None): pytest.approx(1),
    }


def kept(folder: Path, allocations: str) -> Path:
    """Books with two nodes of 8 and these allocations."""
    tables = folder / "mine"
    tables.mkdir()
    devices = "".join(f"gpu-{i},node-{i // 8},2026-05-01T00:00:00Z,\n" for i in range(16))
    (tables / "devices.csv").write_text("device_id,node,from_utc,to_utc\n" + devices)
    (tables / "allocations.csv").write_text(
        "job_id,node,device_id,gpus,share,team,submitted_utc,from_utc,to_utc\n" + allocations
    )
    store = folder / "books"
    loadfactor.open(str(store), create=True).add("tables", [tables])
    return store


@pytest.mark.long
def test_gangs_are_one_job_and_waits_are_not_durations(tmp_path: Path) -> None:
    """A gang named by GPU count or GPU by GPU is one job; a share counts as a share; a job still held is left out and counted."""
    store = kept(
        tmp_path,
        "a,node-0,,8,,nlp,2026-05-01T00:00:00Z,2026-05-01T01:00:00Z,2026-05-01T03:00:00Z\n"
        "b,node-1,gpu-8,,,vision,2026-05-01T00:30:00Z,2026-05-01T00:30:00Z,2026-05-01T01:00:00Z\n"
        "b,node-1,gpu-9,,,vision,2026-05-01T00:30:00Z,2026-05-01T00:30:00Z,2026-05-01T01:00:00Z\n"
        "c,node-1,gpu-10,,0.5,,,2026-05-01T02:00:00Z,2026-05-01T02:10:00Z\n"
        "d,node-1,gpu-11,,,,,2026-05-01T02:00:00Z,\n",
    )
    found = job_history(loadfactor.open(str(store)))
    assert (found.submit_s - found.submit_s[0]).tolist() == [0, 1800, 7200]
    assert found.gpus.tolist() == [8, 2, 0.5]
    assert found.duration_s.tolist() == [7200, 1800, 600]
    assert found.team.tolist() == ["nlp", "vision", ""]
    assert (found.still_held, found.not_waited, found.installed_gpus) == (1, 1, 16)


@pytest.mark.long
def test_books_are_sized(tmp_path: Path) -> None:
    """`plan size --store` simulates the jobs of the books and judges the GPUs installed in them."""
    rows = "".join(
        f"job-{i},node-{i % 2},,8,,nlp,2026-05-{1 + i:02d}T00:00:00Z,2026-05-{1 + i:02d}T00:00:00Z,2026-05-{1 + i:02d}T12:00:00Z\n"
        for i in range(20)
    )
    store = kept(tmp_path, rows)
    result = CliRunner().invoke(app, ["plan", "size", "--store", str(store), "--format", "json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["today"]["gpus"] == 16
    assert found["cheapest"]["gpus"] == 8
    assert found["smaller_is_cheaper"] is True
    assert found["work_gpu_hours"] == pytest.approx(20 * 8 * 12)


@pytest.mark.long
def test_books_without_jobs_say_so(tmp_path: Path) -> None:
    """Books in which no job ended cannot be sized, and a folder without books is named."""
    store = kept(tmp_path, "a,node-0,,8,,nlp,,2026-05-01T01:00:00Z,\n")
    with pytest.raises(InputError, match=r"too few jobs that ended \(0\)"):
        job_history(loadfactor.open(str(store)))
    refused = CliRunner().invoke(app, ["plan", "size", "--store", str(tmp_path / "none")])
    assert isinstance(refused.exception, InputError)
    assert "no books" in str(refused.exception)


START = datetime(2026, 10, 24, tzinfo=UTC)


def make_books(folder: Path) -> Books:
    """Two GPUs for ten minutes, a sample a minute: the first rises by 0.1 a minute, the second is busy in even minutes alone."""
    tables = folder / "tables"
    tables.mkdir()
    at = [(START + timedelta(minutes=m + 1)).isoformat() for m in range(10)]
    samples = [f"g0,{at[m]},{m / 10}" for m in range(10)] + [f"g1,{at[m]},{float(m % 2 == 0)}" for m in range(10)]
    devices = "".join(f"g{i},x,{START.isoformat()}\n" for i in (0, 1))
    (tables / "devices.csv").write_text("device_id,accelerator,from_utc\n" + devices)
    (tables / "samples.csv").write_text("device_id,to_utc,sm_active_share\n" + "\n".join(samples) + "\n")
    end = (START + timedelta(minutes=9)).isoformat()
    held = "".join(f"j,g{i},{START.isoformat()},{end}\n" for i in (0, 1))
    pool = f"p,,{START.isoformat()},{end}\n"
    (tables / "allocations.csv").write_text("job_id,device_id,from_utc,to_utc\n" + held + pool)
    books = Books(folder / "books")
    books.add("tables", [tables])
    return books


@pytest.mark.long
def test_a_job_is_seen_by_the_minute(tmp_path: Path) -> None:
    """Mean, lowest and highest GPU of each minute that the job held them, not of the minute after."""
    books = make_books(tmp_path)
    with books.snapshot() as snapshot:
        seen = snapshot.job_activity("j", *snapshot.span)
    assert seen is not None
    assert (seen.step_s, seen.gpus, seen.start_ms) == (60, 2, int(START.timestamp() * 1000))
    assert seen.mean == pytest.approx([(m / 10 + (m % 2 == 0)) / 2 for m in range(9)])
    assert seen.lowest == pytest.approx([m / 10 if m % 2 == 0 else 0.0 for m in range(9)])
    assert seen.highest == pytest.approx([1.0 if m % 2 == 0 else m / 10 for m in range(9)])
    utilization = books.show(["utilization"], where={"job": "j"})[0].value
    assert sum(m or 0.0 for m in seen.mean) / 9 == pytest.approx(utilization)


@pytest.mark.long
def test_a_window_and_a_gap_stay_what_they_are(tmp_path: Path) -> None:
    """Only the window is seen; a job whose allocation names no GPU has no picture."""
    books = make_books(tmp_path)
    with books.snapshot() as snapshot:
        seen = snapshot.job_activity("j", START + timedelta(minutes=2), START + timedelta(minutes=4, seconds=30))
        assert snapshot.job_activity("p", *snapshot.span) is None
    assert seen is not None
    assert seen.mean == pytest.approx([0.6, 0.15, 0.7])
