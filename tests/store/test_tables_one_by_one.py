"""Tables imported one after the other say the same as together."""

from itertools import permutations
from pathlib import Path

import pytest

from loadfactor.books.books import Books

TABLES = {
    "devices": "device_id,node,pool,share,from_utc,to_utc\n"
    "a,n0,p,0.25,2026-05-01T00:00:00Z,2026-05-01T04:00:00Z\nb,n0,p,,2026-05-01T00:00:00Z,2026-05-01T04:00:00Z\n",
    "samples": "device_id,from_utc,to_utc,busy_share\n"
    "a,2026-05-01T00:00:00Z,2026-05-01T01:00:00Z,0.5\nb,2026-05-01T00:00:00Z,2026-05-01T01:00:00Z,0.5\n",
    "allocations": "job_id,device_id,from_utc,to_utc\nj,b,2026-05-01T00:00:00Z,2026-05-01T02:00:00Z\n",
}


@pytest.mark.parametrize("order", list(permutations(TABLES)))
def test_a_listed_gpu_stays_where_it_was_listed(tmp_path: Path, order: tuple[str, ...]) -> None:
    """Samples or allocations imported after the inventory do not replace node, pool, share or end of its GPUs."""
    books = Books(tmp_path / "books")
    for name in order:
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.csv").write_text(TABLES[name])
        books.add("tables", [tmp_path / name])
    (paid,) = books.show("paid_gpu_hours", by=["node", "pool"])
    assert (paid.by, paid.value) == ({"node": "n0", "pool": "p"}, 5.0)
    hours = books.show(["allocated_gpu_hours", "unattributed_gpu_hours", "unallocated_gpu_hours"])
    assert [r.value for r in hours] == pytest.approx([2.0, 0.25, 2.75])
