"""A gap is a gap: who held GPUs of which labels alone speak, while nothing was scraped."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from loadfactor import Books
from loadfactor.books.watched import write_begun

START_S = 1_790_812_800
HOURS = (
    "paid_gpu_hours",
    "observed_gpu_hours",
    "unobserved_gpu_hours",
    "unattributed_gpu_hours",
    "unallocated_gpu_hours",
)


def scrape(gpu: int, pod: str | None, minutes: Iterable[int]) -> str:
    """Lines of dcgm-exporter, each minute one; pod None: nobody holds the GPU, which is idle."""
    who = f',namespace="vision",pod="{pod}",container="c"' if pod else ""
    labels = f'gpu="{gpu}",UUID="GPU-{gpu}",Hostname="n0",modelName="NVIDIA H100 80GB HBM3"{who}'
    return "".join(
        f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {90 if pod else 0} {(START_S + 60 * m) * 1000}\n" for m in minutes
    )


def read(folder: Path, *texts: str) -> Books:
    """Books of saved pages, each an import of its own."""
    books = Books(folder / "books")
    for number, text in enumerate(texts):
        page = folder / f"{number}.prom"
        page.write_text(text)
        books.add("dcgm", [page])
    return books


def held(books: Books) -> dict[str | None, float]:
    """GPU-hours by job."""
    return {
        r.by["job"]: round(r.value, 6)
        for r in books.show("allocated_gpu_hours", by="job")
        if isinstance(r.value, float) and r.value
    }


BEFORE, AFTER = range(1, 61), range(181, 241)


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after", "jobs", "unattributed", "unallocated"),
    [
        ("a", "a", {"vision/a": 4}, 0, 0),
        ("a", "b", {"vision/a": 1, "vision/b": 1}, 2, 0),
        ("a", None, {"vision/a": 1}, 2, 1),
        (None, "a", {"vision/a": 1}, 2, 1),
        (None, None, {}, 2, 2),
    ],
)
def test_who_was_named_before_and_after_a_gap_held_through_it(
    tmp_path: Path,
    before: str | None,
    after: str | None,
    jobs: dict[str, float],
    unattributed: float,
    unallocated: float,
) -> None:
    """Two hours without a scrape are unobserved: of the pod that labels name on both sides, of nobody known otherwise.

    Free is what a scrape showed without a pod. Another GPU of the node is held all the time.
    """
    books = read(tmp_path, scrape(0, before, BEFORE) + scrape(0, after, AFTER) + scrape(1, "x", range(1, 241)))
    assert held(books) == {"vision/x": 4, **jobs}
    observed = 4 + (before is not None) + (after is not None)
    assert [r.value for r in books.show(HOURS)] == pytest.approx([8, observed, 2, unattributed, unallocated])
    (found,) = [f for f in books.check().findings if f.what.startswith("gaps in the scrapes")]
    assert found.gpu_hours == pytest.approx(2)
    assert found.cost == books.show("unobserved_cost")[0].value
    with books.store.read() as session:
        session.view_table("allocations", "allocations")
        runs = session.raw.execute(write_begun((0, 2**60), 60_000)).fetchall()
    assert sorted({job for _, job in runs}) == sorted(job for _, job in runs) == sorted(held(books))  # none begins anew
    assert "n0 2026-10-01 01:00 to 2026-10-01 03:00 UTC, 1 GPUs" in found.what


@pytest.mark.long
def test_where_somebody_lists_holders_a_gap_is_what_the_list_says(tmp_path: Path) -> None:
    """A pod that a list knows to have ended and begun anew did not hold its GPU between; nor did anybody else."""
    books = read(tmp_path, scrape(0, "a", BEFORE) + scrape(0, "a", AFTER))
    assert held(books) == {"vision/a": 4}
    tables = tmp_path / "tables"
    tables.mkdir()
    rows = [
        f"vision/a,n0,1,2026-10-01T{since}:00:00Z,2026-10-01T{until}:00:00Z"
        for since, until in (("00", "01"), ("03", "04"))
    ]
    (tables / "allocations.csv").write_text("\n".join(["job_id,node,gpus,from_utc,to_utc", *rows]))
    books.add("tables", [tables])
    assert held(books) == {"vision/a": 2}
    assert [r.value for r in books.show(HOURS)] == pytest.approx([4, 2, 0, 0, 2])


@pytest.mark.long
def test_scrapes_that_come_later_fill_a_gap(tmp_path: Path) -> None:
    """What was bridged gives way to what labels say of that time: another pod for half an hour, observed."""
    books = read(tmp_path, scrape(0, "a", BEFORE) + scrape(0, "a", AFTER), scrape(0, "b", range(91, 121)))
    assert held(books) == {"vision/a": 3.5, "vision/b": 0.5}
    assert [r.value for r in books.show(HOURS)] == pytest.approx([4, 2.5, 1.5, 0, 0])


def test_lost_scrapes_do_not_cut_an_allocation(tmp_path: Path) -> None:
    """Four minutes without a scrape, and single lost ones, leave a pod one allocation."""
    minutes = [m for m in range(1, 121) if m not in (30, 31, 32, 33, 50, 70)]
    books = read(tmp_path, scrape(0, "a", minutes))
    with books.store.read() as session:
        session.view_table("allocations", "allocations")
        assert session.fetch_one("SELECT count(*), sum(to_utc - from_utc) FROM allocations") == (1, 2 * 3_600_000)
    assert [r.value for r in books.show(HOURS)] == pytest.approx([2, 1.9, 0.1, 0, 0])


def test_a_gap_of_mig_instances(tmp_path: Path) -> None:
    """Each instance is held as labels of it say; what MIG left of the GPU is no instance: nobody can hold it."""
    profile = ',GPU_I_PROFILE="3g.40gb",GPU_I_ID="{}",namespace="vision",pod="{}"'
    lines = [
        'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-0",Hostname="n0",modelName="NVIDIA H100 80GB HBM3"'
        + profile.format(instance, pod)
        + f"}} 0.5 {(START_S + 60 * minute) * 1000}\n"
        for minutes, pods in ((BEFORE, "ab"), (AFTER, "ac"))
        for minute in minutes
        for instance, pod in enumerate(pods, 1)
    ]
    books = read(tmp_path, "".join(lines))
    sevenths = {job: round(hours * 7, 3) for job, hours in held(books).items()}
    assert sevenths == {"vision/a": 12, "vision/b": 3, "vision/c": 3}
    values = [r.value * 7 for r in books.show(HOURS) if isinstance(r.value, float)]
    assert values == pytest.approx([28, 12, 12, 6, 4])
