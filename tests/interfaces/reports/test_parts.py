"""Jobs that share GPUs: which part each held, and how that is known, beside what it cost."""

from pathlib import Path

from tests.ledger.fleets import HOUR, add, batch

from loadfactor.books.books import Books
from loadfactor.books.job_summary import OF_EQUALS, OF_SHARDS, OF_SHARES
from loadfactor.interfaces.pages.readings import build_page
from loadfactor.interfaces.reports.page import build_page as build_report
from loadfactor.interfaces.requests import ReportRequest, ShowRequest

START = 1_767_225_600_000


def test_parts_of_gpus_and_their_basis_are_shown(tmp_path: Path) -> None:
    """Half a GPU by MPS percentages, a quarter by time slices, a whole one, and three GPUs that were split over two nodes.

    Of two holders that labels alone name each has half a GPU; of one that a list gave a quarter, the quarter counts, not the half.
    """
    at = {"from_utc": START, "to_utc": START + 10 * HOUR}
    held = [
        {"job_id": "mps", "node": "n1", "gpus": 0.5},
        {"job_id": "slice", "node": "n1", "gpus": 1.0, "share": 0.25},
        {"job_id": "slice", "node": "n2", "gpus": 1.0, "share": 0.5},
        {"job_id": "slice", "node": "n2", "device_id": "G", "share": 0.125, "known_from": "labels"},
        {"job_id": "shared", "device_id": "H", "share": 0.5, "known_from": "labels"},
        {"job_id": "whole", "node": "n2", "gpus": 1.0},
        {"job_id": "split", "node": "n3", "gpus": 0.5, "known_from": "even_split"},
    ]
    books = Books(tmp_path / "store")
    installed = [{"device_id": "H", "node": "n4", "from_utc": START, "to_utc": START + 10 * HOUR}]
    add(books, [batch("devices", installed), batch("allocations", [row | at for row in held])], "tables", tmp_path)
    with books.snapshot() as snapshot:
        found = snapshot.list_parts(None, None)
    assert {job: (part.smallest, part.largest, part.word, part.basis) for job, part in found.items()} == {
        "mps": (0.5, 0.5, "requested", OF_SHARDS),
        "slice": (0.25, 0.5, "requested", OF_SHARES),
        "shared": (0.5, 0.5, "equal", OF_EQUALS),
    }
    page = build_page(ShowRequest(metrics=("allocated_gpu_hours",), by=("job",), store=tmp_path / "store"))
    shown = {str(row[0]): (row[1], row[3]) for row in page.sections[-1].tables[0].rows}
    assert shown == {"mps": (0.5, "requested"), "slice": (0.25, "requested"), "shared": (0.5, "equal")}
    for job, said in (
        ("mps", "50.0 % of one (requested), by its shards"),
        ("shared", "50.0 % of one (equal), by how many"),
    ):
        page = build_report(ReportRequest(job=job, store=tmp_path / "store"))
        assert said in page.sections[0].lead
    page = build_page(
        ShowRequest(metrics=("allocated_gpu_hours",), by=("job",), where=("job=whole",), store=tmp_path / "store")
    )
    assert page.sections[-1].title != "Parts of GPUs"
