"""Jobs that share GPUs: which part each held, and how that is known, beside what it cost."""

from pathlib import Path

from tests.ledger.fleets import HOUR, add, batch

from loadfactor.books.books import Books
from loadfactor.books.job_summary import OF_SHARDS, OF_SHARES
from loadfactor.interfaces.pages.readings import build_page
from loadfactor.interfaces.requests import ShowRequest

START = 1_767_225_600_000


def test_parts_of_gpus_and_their_basis_are_shown(tmp_path: Path) -> None:
    """Half a GPU by MPS percentages, a quarter by time slices, a whole one, and three GPUs that were split over two nodes."""
    at = {"from_utc": START, "to_utc": START + 10 * HOUR}
    held = [
        {"job_id": "mps", "node": "n1", "gpus": 0.5},
        {"job_id": "slice", "node": "n1", "gpus": 1.0, "share": 0.25},
        {"job_id": "slice", "node": "n2", "gpus": 1.0, "share": 0.5},
        {"job_id": "whole", "node": "n2", "gpus": 1.0},
        {"job_id": "split", "node": "n3", "gpus": 0.5, "known_from": "even_split"},
    ]
    books = Books(tmp_path / "store")
    add(books, [batch("allocations", [row | at for row in held])], "tables", tmp_path)
    with books.snapshot() as snapshot:
        found = snapshot.list_parts(None, None)
    assert {job: (part.smallest, part.largest, part.basis) for job, part in found.items()} == {
        "mps": (0.5, 0.5, OF_SHARDS),
        "slice": (0.25, 0.5, OF_SHARES),
    }
    page = build_page(ShowRequest(metrics=("allocated_gpu_hours",), by=("job",), store=tmp_path / "store"))
    assert [row[:2] for row in page.sections[-1].tables[0].rows] == [("mps", 0.5), ("slice", 0.25)]
    page = build_page(
        ShowRequest(metrics=("allocated_gpu_hours",), by=("job",), where=("job=whole",), store=tmp_path / "store")
    )
    assert page.sections[-1].title != "Parts of GPUs"
