"""Node samples, events of GPUs, and rows that only their kept-or-lost tells apart."""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.ledger.fleets import HOUR, STARTS, add, batch

from loadfactor.books.books import Books
from loadfactor.sources.base import Rows, Source

START = STARTS[-1]
DEVICES = [{"device_id": "g0", "node": "n0", "from_utc": START, "to_utc": START + HOUR}]


def test_rows_for_diagnosis_are_kept_and_change_no_number(tmp_path: Path) -> None:
    """Node samples and events come back as imported, and events a day outside do not make the books longer."""
    books = Books(tmp_path / "store")
    nodes = [{"node": "n0", "to_utc": START + 1000 * k, "cpu_busy_share": 0.5, "source": "agent"} for k in (1, 2)]
    events = [
        {"device_id": "g0", "at_utc": START + at, "kind": "xid", "detail": detail}
        for at, detail in ((-24 * HOUR, "79"), (0, "79"), (0, "31"))
    ]
    given = {"devices": DEVICES, "node_samples": nodes, "device_events": events}
    add(books, [batch(name, rows) for name, rows in given.items()], "a", tmp_path)
    add(books, [batch("device_events", [events[1] | {"count": 2.0}])], "b", tmp_path)
    assert books.table("node_samples").count().execute() == 2
    kept = books.table("device_events").to_pyarrow().to_pylist()
    assert sorted((e["at_utc"] - START, e["detail"], e["count"]) for e in kept) == [
        (-24 * HOUR, "79", None),
        (0, "31", None),
        (0, "79", 2.0),
    ]
    assert books.show(["paid_gpu_hours"])[0].value == pytest.approx(1.0)


def test_kept_and_lost_work_of_one_interval_are_two_rows(tmp_path: Path) -> None:
    """A row without `kept` counts as kept: it replaces the kept one, not the lost one."""
    books = Books(tmp_path / "store")
    rows = [
        {"job_id": "j", "from_utc": START, "to_utc": START + HOUR, "unit": "step", "amount": amount, "kept": kept}
        for amount, kept in ((900.0, True), (100.0, False), (950.0, None))
    ]
    add(books, [batch("devices", DEVICES), batch("progress", rows[:2])], "a", tmp_path)
    add(books, [batch("progress", rows[2:])], "b", tmp_path)
    kept = books.table("progress").to_pyarrow().to_pylist()
    assert sorted((r["amount"], r["kept"]) for r in kept) == [(100.0, False), (950.0, None)]


def test_a_second_row_of_a_node_completes_the_first(tmp_path: Path) -> None:
    """Measurements of one node and instant that come apart are one row; of two values of one column the later counts."""
    source = Source("node", lambda paths: paths, lambda _paths, _options: iter(()), watches=True)
    books = Books(tmp_path / "store")
    at = {"node": "n", "to_utc": 1_700_000_000_000, "source": "s"}
    for n, told in enumerate(({"mem_used_bytes": 5.0, "cpu_busy_share": 0.1}, {"cpu_busy_share": 0.5})):
        row = {k: [v] for k, v in (at | told).items()}
        books.add_rows(source, [Rows("node_samples", pa.table(row))], f"part {n}")
    with books.store.read() as session:
        session.view_table("node_samples", "node_samples")
        found = session.raw.execute("SELECT mem_used_bytes, cpu_busy_share FROM node_samples").fetchall()
    assert found == [(5.0, 0.5)]
