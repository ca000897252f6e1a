"""Small tables: the short way and folding agree, also table by table, with node samples, events and logs that grew."""

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledger.fleets import HOUR, STARTS, add, batch
from tests.long import rest_long
from tests.sources.training_logs.logs import megatron_line

from loadfactor.books.books import Books
from loadfactor.sources.base import ReadOptions, Rows, Source
from loadfactor.store.small_imports import completed, contradicted, fold, in_order, listed_twice, repeated, together
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.columns import Table, arrow_type
from loadfactor.tables.schema import SAMPLES, TABLES

SMALL = [t for t in TABLES if t not in (SAMPLES, CHARGES)]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.sampled_from(["a", "b", "é"]),
    "instant": st.integers(1, 4),
    "flag": st.booleans(),
    "mask": st.integers(0, 3),
}


@pytest.fixture(scope="module")
def raw() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@st.composite
def logged(draw: st.DrawFn, kept: Table) -> pa.Table:
    """Rows of a few imports as logs hold them; cells that may be empty sometimes are."""
    cells = {
        c.name: VALUES.get(c.kind, st.sampled_from([0.0, 0.5, 1.0]))
        if c.required
        else st.none() | VALUES.get(c.kind, st.sampled_from([0.0, 0.5, 1.0]))
        for c in kept.columns
    }
    rows = draw(st.lists(st.fixed_dictionaries(cells), max_size=5))
    schema = pa.schema([pa.field(c.name, arrow_type(c.kind)) for c in kept.columns])
    told = {
        "import_no": pa.array([draw(st.sampled_from([None, 1, 2])) for _ in rows], pa.int32()),
        "seq": pa.array(range(len(rows)), pa.int64()),
        "watched": pa.array([draw(st.booleans()) for _ in rows], pa.bool_()),
    }
    table = pa.Table.from_pylist(rows, schema=schema)
    for name, column in told.items():
        table = table.append_column(name, column)
    return table


@pytest.mark.long
@pytest.mark.parametrize("kept", rest_long(SMALL, 2), ids=lambda t: t.name)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_rows_apart_are_listed_in_order(raw: duckdb.DuckDBPyConnection, kept: Table, data: st.DataObject) -> None:
    """Where no two rows have to do with each other, nothing is merged, nothing is refused, and the order is that of the fold."""
    raw.register("rows", data.draw(logged(kept)))
    if raw.execute(together(kept, "rows")).fetchall():
        return
    assert not raw.execute(repeated(kept, "rows")).fetchall()
    raw.execute(f"CREATE OR REPLACE TABLE folded AS {fold(kept, 'rows')}")
    wanted = "SELECT * FROM folded"
    if kept.name == "devices":
        assert not raw.execute(listed_twice("rows")).fetchall()
        wanted = completed("folded")
        assert not raw.execute(contradicted(f"({wanted})")).fetchall()
    order = ", ".join(kept.identity)
    assert (
        raw.execute(in_order(kept, "rows")).fetchall()
        == raw.execute(f"SELECT * FROM ({wanted}) ORDER BY {order}").fetchall()
    )


START = STARTS[-1]
DEVICES = [{"device_id": "g0", "node": "n0", "from_utc": START, "to_utc": START + HOUR}]


def _step(to_s: int, amount: float, **more: object) -> dict[str, object]:
    row = {"job_id": "j", "from_utc": START, "to_utc": START + 1000 * to_s, "unit": "step"}
    return {**row, "amount": amount, **more}


def _list_steps(books: Books) -> list[tuple[float, str | None]]:
    rows = books.table("progress").to_pyarrow().to_pylist()
    return sorted(((row["amount"], row["replica"]) for row in rows), key=str)


def test_a_row_of_a_replica_is_replaced_as_it_grows(tmp_path: Path) -> None:
    """A later import of a replica's row with a later end counts in its place."""
    books = Books(tmp_path / "store")
    add(books, [batch("devices", DEVICES), batch("progress", [_step(10, 5.0, replica="r")])], "a", tmp_path)
    add(books, [batch("progress", [_step(40, 20.0, replica="r"), _step(40, 1.0, replica="s")])], "b", tmp_path)
    assert _list_steps(books) == [(1.0, "s"), (20.0, "r")]


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


SHARED_GPU = {
    "devices": "device_id,node,pool,share,from_utc,to_utc\n"
    "a,n0,p,0.25,2026-05-01T00:00:00Z,2026-05-01T04:00:00Z\nb,n0,p,,2026-05-01T00:00:00Z,2026-05-01T04:00:00Z\n",
    "samples": "device_id,from_utc,to_utc,busy_share\n"
    "a,2026-05-01T00:00:00Z,2026-05-01T01:00:00Z,0.5\nb,2026-05-01T00:00:00Z,2026-05-01T01:00:00Z,0.5\n",
    "allocations": "job_id,device_id,from_utc,to_utc\nj,b,2026-05-01T00:00:00Z,2026-05-01T02:00:00Z\n",
}


@pytest.mark.long
@pytest.mark.parametrize("order", rest_long(map(list, permutations(SHARED_GPU)), 2))
def test_a_listed_gpu_stays_where_it_was_listed(tmp_path: Path, order: list[str]) -> None:
    """Samples or allocations imported after the inventory do not replace node, pool, share or end of its GPUs."""
    books = Books(tmp_path / "books")
    for name in order:
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.csv").write_text(SHARED_GPU[name])
        books.add("tables", [tmp_path / name])
    (paid,) = books.show("paid_gpu_hours", by=["node", "pool"])
    assert (paid.by, paid.value) == ({"node": "n0", "pool": "p"}, 5.0)
    hours = books.show(["allocated_gpu_hours", "unattributed_gpu_hours", "unallocated_gpu_hours"])
    assert [r.value for r in hours] == pytest.approx([2.0, 0.25, 2.75])


RUN = ReadOptions(held_by="run")
START_MS = 1_790_000_000_000


def write_lines(path: Path, *steps: int, day: str = "2026-10-05") -> Path:
    """A log of these steps, a minute each."""
    lines = [
        f"[{day} {8 + n // 60:02}:{n % 60:02}:00] iteration {step}/ 900 | consumed samples: {step * 4} |"
        f" elapsed time per iteration (ms): {50_000 + 100 * n}.0 | number of skipped iterations: 0 |"
        for n, step in enumerate(steps)
    ]
    path.write_text("\n".join([*lines, ""]))
    return path


def add_up(books: Books) -> dict[tuple[str, bool], float]:
    """Amounts by unit and whether they were kept."""
    found: dict[tuple[str, bool], float] = {}
    for row in books.table("progress").to_pyarrow().to_pylist():
        key = row["unit"], row["kept"]
        found[key] = found.get(key, 0) + row["amount"]
    return found


def test_a_log_that_grew_and_restarted(tmp_path: Path) -> None:
    """The same rows as in books that never saw the shorter file: what the restart lost is lost, not kept as well."""
    books, path = Books(tmp_path / "books"), tmp_path / "run.log"
    first = books.add("training-log", [write_lines(path, *range(1, 31))], RUN)
    second = books.add("training-log", [write_lines(path, *range(1, 31), *range(21, 51))], RUN)
    assert (first.replaced, second.replaced) == ((), (1,))
    once = Books(tmp_path / "once")
    once.add("training-log", [path], RUN)
    assert add_up(books) == add_up(once)
    assert add_up(books)["step", False] == 10
    assert books.add("training-log", [path], RUN).already


def test_an_untimed_log_does_not_shift(tmp_path: Path) -> None:
    """A log without any time, with the same start: as if the longer one were the only one."""
    path, options = tmp_path / "run.log", ReadOptions(held_by="run", begun_ms=START_MS)
    books = Books(tmp_path / "books")
    for last in (20, 50):
        path.write_text("".join(megatron_line(step) + "\n" for step in range(1, last + 1)))
        books.add("training-log", [path], options)
    assert add_up(books)["step", True] == 50
    assert [record.paths for record in books.imports] == [(str(path),)]


@pytest.mark.parametrize(("job", "day"), [("run", "2026-10-06"), ("other", "2026-10-05")])
def test_another_run_stays(tmp_path: Path, job: str, day: str) -> None:
    """A log that began anew under the same name, and one of another job, take nobody's place."""
    books, path = Books(tmp_path / "books"), tmp_path / "run.log"
    books.add("training-log", [write_lines(path, *range(1, 11))], RUN)
    receipt = books.add("training-log", [write_lines(path, *range(1, 21), day=day)], ReadOptions(held_by=job))
    assert receipt.replaced == ()
    assert add_up(books)["step", True] == 30
