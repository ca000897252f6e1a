"""Findings of `doctor`: what cannot be joined, in GPU-hours and dollars, and clocks that differ."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.ledger.fleets import Row, Tables, add, batches, full

from loadfactor import Books
from loadfactor.books.check import Finding
from loadfactor.interfaces.pages.books import say_finding
from loadfactor.store.source_status import Skipped, SourceStatus, write_statuses


def hour(text: str | float) -> int:
    """An hour of the first of October 2026, ms."""
    return round((datetime(2026, 10, 1, tzinfo=UTC).timestamp() + float(text) * 3600) * 1000)


def make_books(folder: Path, devices: list[str], jobs: tuple[str, ...] = (), sampled: tuple[str, ...] = ()) -> Books:
    """GPUs (`name,node`) for ten hours at $2, jobs (`id,device,node,from,to`), and samples of some GPUs all the time."""
    tables: Tables = {"prices": [{"basis": "contracted", "price_per_gpu_hour": 2.0}]}
    for line in devices:
        name, node = line.split(",")
        tables.setdefault("devices", []).append(
            {"device_id": name, "node": node, "from_utc": hour(0), "to_utc": hour(10)}
        )
    for line in jobs:
        job, device, node, start, end = line.split(",")
        place = {"device_id": device or None, "node": node or None}
        tables.setdefault("allocations", []).append(
            {"job_id": job, **place, "from_utc": hour(start), "to_utc": hour(end)}
        )
    tables["samples"] = [
        {"device_id": name, "source": "s", "to_utc": hour(sixth / 6), "busy_share": 0.5}
        for name in sampled
        for sixth in range(1, 61)
    ]
    books = Books(folder / "books")
    add(books, batches(full(tables)), "all", folder, step_s=600.0)
    return books


def find(books: Books, words: str) -> Finding | None:
    """The finding that begins so."""
    found = [f for f in books.check().findings if f.what.startswith(words)]
    assert len(found) < 2
    assert all(f.do for f in found)
    return found[0] if found else None


def amounts(finding: Finding | None) -> tuple[float | None, float | None]:
    assert finding is not None
    return finding.gpu_hours, finding.cost


@pytest.mark.long
def test_jobs_without_samples_are_counted(tmp_path: Path) -> None:
    """Of two jobs one has none: four GPU-hours, $8; the other one has some, so its gaps are no finding of this kind."""
    books = make_books(tmp_path, ["g0,n1", "g1,n1"], ("dark,g1,,2,6", "lit,g0,,0,10"), ("g0",))
    found = find(books, "jobs without a sample: 1 (dark)")
    assert amounts(found) == pytest.approx((4, 8))
    assert found is not None
    assert say_finding(found, "USD") == "jobs without a sample: 1 (dark): 4 GPU-hours, $8.00"
    assert "unobserved_gpu_hours --by node" in found.do


def test_summaries_of_jobs_without_samples_are_said(tmp_path: Path) -> None:
    """Of eight GPU-hours without a sample two are summed up, at 40 % and half of the memory; what has samples is left out."""
    summary = {"summary_gpus": 1.0, "summary_busy_share": 0.4, "summary_mem_peak_share": 0.5}
    rows = [("dark", 2, summary), ("blind", 6, {}), ("lit", 5, summary | {"summary_busy_share": 1.0})]
    tables: Tables = {
        "devices": [{"device_id": job, "node": job, "from_utc": hour(0), "to_utc": hour(10)} for job, _, _ in rows],
        "allocations": [
            {"job_id": job, "device_id": job, "from_utc": hour(0), "to_utc": hour(until), **said}
            for job, until, said in rows
        ],
        "samples": [{"device_id": "lit", "source": "s", "to_utc": hour(1), "busy_share": 0.5}],
    }
    books = Books(tmp_path / "books")
    add(books, batches(full(tables)), "all", tmp_path, step_s=3600.0)
    found = find(
        books, "of these, jobs that jobstats summed up at their end: 1, GPUs busy 40 % of the time, up to 50 % of their"
    )
    assert found is not None
    assert (found.coverage, found.gpu_hours) == (pytest.approx(0.25), pytest.approx(6))


@pytest.mark.long
def test_samples_of_gpus_without_a_job_are_counted(tmp_path: Path) -> None:
    """A GPU works ten hours and nobody is known to hold it: $20; one that a job holds for a while is no such GPU."""
    books = make_books(tmp_path, ["g0,n1", "g1,n2"], ("job,g0,,0,5",), ("g0", "g1"))
    found = find(books, "GPUs with samples and without a job: 1 on n2")
    assert amounts(found) == pytest.approx((10, 20))


@pytest.mark.long
def test_names_that_differ_by_their_domain_are_found(tmp_path: Path) -> None:
    """What is booked on n1 meets nothing where n1.a and n1.b are measured: a GPU known from a job alone, ten hours unmeasured."""
    books = make_books(tmp_path, ["g0,n1.a", "g1,n2", "g2,n1.b"], ("job,,n1,0,5", "other,g1,,0,5"), ("g0", "g1", "g2"))
    found = find(books, "nodes under two names, with a domain and without: 2 (n1 and n1.a, n1 and n1.b)")
    assert amounts(found) == pytest.approx((10, 20))
    assert find(books, "nodes that no scheduler names") is None


@pytest.mark.long
def test_a_short_name_that_means_one_node_is_no_finding(tmp_path: Path) -> None:
    """What is booked on n1 and measured on n1.cluster.local is one node."""
    books = make_books(tmp_path, ["g0,n1.cluster.local"], ("job,,n1,0,5",), ("g0",))
    assert find(books, "nodes under two names") is None
    assert find(books, "nodes that no scheduler names") is None


@pytest.mark.long
def test_nodes_that_no_scheduler_names_are_found(tmp_path: Path) -> None:
    """Two GPUs of n2 were paid for ten hours, and no job nor scheduler ever named their node."""
    books = make_books(tmp_path, ["g0,n1", "g1,n2", "g2,n2"], ("job,g0,,0,5",))
    found = find(books, "nodes that no scheduler names: 1 (n2), with 2 GPUs")
    assert amounts(found) == pytest.approx((20, 40))
    assert found is not None
    assert found.grade == "note"


@pytest.mark.long
def test_gpus_that_a_scheduler_counts_beyond_those_listed_are_found(tmp_path: Path) -> None:
    """It counts three, an exporter lists two: one is paid for that nothing measures; on a node of its own nothing is twice."""
    devices = ["a,n1", "b,n1", *(f"n1:gpu{k},n1" for k in range(3)), "n2:gpu0,n2"]
    books = make_books(tmp_path, devices, ("job,a,,0,5",), ("a", "b"))
    found = find(books, "nodes of which a scheduler counts another number of GPUs than others list: 1 (n1: 3 and 2)")
    assert amounts(found) == pytest.approx((10, 20))


@pytest.mark.long
def test_devices_in_no_list_and_of_use_to_nobody_are_named(tmp_path: Path) -> None:
    """A sampled GPU that no list has."""
    books = make_books(tmp_path, ["g0,n1"], ("job,g0,,0,10",), ("g0", "stranger"))
    assert find(books, "devices with samples that are in no device list: 1 (stranger)") is not None


@pytest.mark.long
def test_clocks_that_differ_say_how_to_set_them(tmp_path: Path) -> None:
    """What live collection kept of a server whose clock is behind stands among the findings, with what to do."""
    books = make_books(tmp_path, ["g0,n1"], ("job,g0,,0,10",), ("g0",))
    said = "its clock is 90 seconds behind ours; set both by NTP"
    write_statuses(books.store.folder, [SourceStatus("prometheus prod", "failing", error=said)])
    found = find(books, "prometheus prod is failing: its clock is 90 seconds behind")
    assert found is not None
    assert "chronyc tracking" in found.do


@pytest.mark.long
def test_samples_that_are_not_kept_are_findings(tmp_path: Path) -> None:
    """Each reason of a stream with how many, since when and an example."""
    books = make_books(tmp_path, ["g0,n1"], ("job,g0,,0,10",), ("g0",))
    skipped = Skipped("label_twice", 12, hour(3), "DCGM_FI_DEV_GPU_UTIL{gpu 0 gpu 1}")
    write_statuses(books.store.folder, [SourceStatus("remote_write", "degraded", error="x", skipped=(skipped,))])
    found = find(
        books, "remote_write: 12 samples with a label twice are not kept, like DCGM_FI_DEV_GPU_UTIL{gpu 0 gpu 1}"
    )
    assert found is not None
    assert "(since 2026-10-01 03:00 UTC)" in found.what


@pytest.mark.long
def test_what_joins_is_no_finding(tmp_path: Path) -> None:
    """Where every job is measured and every GPU held, nothing is found."""
    books = make_books(tmp_path, ["g0,n1", "g1,n1"], ("a,g0,,0,10", "b,g1,,0,10"), ("g0", "g1"))
    assert books.check().findings == ()


@pytest.mark.long
def test_hours_and_cost_of_findings_are_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As numbers of their own, null where a finding has none."""
    from loadfactor.interfaces.pages.books import build_document
    from loadfactor.interfaces.render.present import present

    books = make_books(tmp_path, ["g0,n1", "g1,n1"], ("dark,g1,,2,6", "lit,g0,,0,10"), ("g0",))
    present(build_document(books), "json", None, False)
    (found,) = [f for f in json.loads(capsys.readouterr().out)["findings"] if f["what"].startswith("jobs without")]
    assert (found["gpu_hours"], found["cost"], found["coverage"]) == (4, 8, None)


STEP_S = 30


def make_shifted_books(
    folder: Path, shift_s: float, known_from: str | None = None, busy_between: bool = False
) -> Books:
    """A GPU that a job holds for 18 minutes of each of eight hours; samples show its work by so much later."""
    jobs = [
        {
            "job_id": f"j{n}",
            "device_id": "g",
            "from_utc": hour(n + 0.5),
            "to_utc": hour(n + 0.8),
            "known_from": known_from,
        }
        for n in range(8)
    ]
    samples: list[Row] = []
    for at in range(hour(0) + STEP_S * 1000, hour(9), STEP_S * 1000):
        true = at - shift_s * 1000 - STEP_S * 500
        works = busy_between or any(job["from_utc"] + 5000 < true < job["to_utc"] for job in jobs)  # type: ignore[operator]
        samples.append({"device_id": "g", "source": "s", "to_utc": at, "busy_share": 0.9 * works})
    device = {"device_id": "g", "node": "n1", "from_utc": hour(0), "to_utc": hour(9)}
    books = Books(folder / "books")
    tables = full({"devices": [device], "allocations": jobs, "samples": samples})
    add(books, batches(tables), "all", folder, step_s=float(STEP_S))
    return books


@pytest.mark.long
@pytest.mark.parametrize(
    ("shift_s", "said"),
    [(240, "after their jobs have ended"), (-240, "before their jobs begin"), (720, "after their jobs have ended")],
)
def test_clocks_that_differ_are_measured(tmp_path: Path, shift_s: float, said: str) -> None:
    """Work of every job lies four minutes, or twelve, to one side: found, with the lower bound, on the right side."""
    found = find(make_shifted_books(tmp_path, shift_s), "nodes whose clocks differ from the scheduler's: on 1 (n1)")
    assert found is not None
    assert said in found.what
    words = found.what.split(" s or more")[0].split()
    assert 0.75 * abs(shift_s) <= float(words[-1]) <= abs(shift_s)
    assert found.gpu_hours is not None
    assert "chronyc" in found.do


@pytest.mark.long
@pytest.mark.parametrize(
    ("shift_s", "known_from", "busy_between"),
    [(0, None, False), (20, None, False), (-20, None, False), (240, "labels", False), (0, None, True)],
)
def test_clocks_that_agree_are_no_finding(
    tmp_path: Path, shift_s: float, known_from: str | None, busy_between: bool
) -> None:
    """Nor samples that come a little late, holders that samples themselves name, or a GPU that works all the time."""
    assert find(make_shifted_books(tmp_path, shift_s, known_from, busy_between), "nodes whose clocks") is None
