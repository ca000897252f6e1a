"""Books whose only source is a cluster that gives GPUs by claims: what there is, what is held, what is not."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from tests.sources.kubernetes.objects import DAY, listed, ms, node
from tests.sources.kubernetes.test_claims import GPUS, asking, claim, gpu, mig, resource_slice

from loadfactor import Books
from loadfactor.sources.base import ReadOptions

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


def test_slices_are_the_inventory(tmp_path: Path) -> None:
    """Three GPUs for ten hours; what nobody claims of them is unallocated; the claimed one is named."""
    books = open_books(tmp_path, resource_slice(gpu(0), gpu(1), gpu(2)), claim("own", "gpu-1"), POD)
    assert hours(books) == {("paid_gpu_hours",): 30, ("allocated_gpu_hours",): 2, ("unallocated_gpu_hours",): 28}
    found = hours(books, ["device", "accelerator"])
    assert found["allocated_gpu_hours", GPUS[1], "h100-sxm"] == 2
    assert found["paid_gpu_hours", GPUS[0], "h100-sxm"] == 10


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
