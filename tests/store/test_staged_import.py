"""Staging: samples come back by day and device range as they were taken, whatever the memory setting; small tables as files."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import SourceError
from loadfactor.books.books import Books
from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.store import staged_import as staged_samples
from loadfactor.store.importing import import_files
from loadfactor.store.normalize import AS_TAKEN
from loadfactor.store.staged_import import StagedImport
from loadfactor.store.store import Store
from loadfactor.tables.schema import measured_bit, table

DAY = 86_400_000
START = 20_500 * DAY


def samples(rows: list[dict[str, Any]], where: str = "samples.csv") -> Rows:
    schema = table("samples").schema
    return Rows("samples", pa.Table.from_pylist(rows, schema=schema), where)


@contextmanager
def staged(folder: Path, *items: Rows | Gap, rows_at_once: int = 100) -> Iterator[StagedImport]:
    """An import of these items, under way."""
    with StagedImport(folder / "staging-1", "smi", 30.0, None, 7, rows_at_once) as staging:
        for item in items:
            staging.take(item)
        yield staging


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["c", "a", "b", "é"]), st.integers(1, 3 * DAY), st.sampled_from([None, 0.5])),
            max_size=12,
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 40),
)
def test_cells_hold_every_sample_once(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, int, float | None]]], rows_at_once: int
) -> None:
    """Days and device ranges come in order, no device is divided, no cell has more than its share, and each row is there once."""
    items = [
        samples([{"device_id": d, "to_utc": START + at, "busy_share": busy} for d, at, busy in batch])
        for batch in batches
    ]
    with staged(tmp_path_factory.mktemp("store"), *items, rows_at_once=rows_at_once) as staging:
        cells = list(staging.cells())
        assert not list(staging.folder.glob("samples*"))
    assert all(cell.schema.equals(AS_TAKEN) for _, cell in cells)
    ranges = [(day, min(cell["device_id"].to_pylist()), max(cell["device_id"].to_pylist())) for day, cell in cells]
    assert ranges == sorted(ranges)
    assert all(a[0] < b[0] or a[2] < b[1] for a, b in pairwise(ranges))
    for day, cell in cells:
        assert {(at - 1) // DAY for at in cell["sampled_utc"].to_pylist()} == {day}
        of_one = max(cell["device_id"].to_pylist().count(d) for d in cell["device_id"].to_pylist())
        assert cell.num_rows <= rows_at_once + of_one
    found = sorted((row for _, cell in cells for row in cell.to_pylist()), key=lambda row: row["seq"])
    taken = [row for batch in batches for row in batch]
    empty = dict.fromkeys(AS_TAKEN.names) | {"source": "smi", "step_ms": 30_000, "import_no": 7}
    assert found == [
        empty
        | {"device_id": d, "sampled_utc": START + at, "busy_share": busy, "seq": seq}
        | {"measured_mask": 0 if busy is None else measured_bit("busy_share")}
        for seq, (d, at, busy) in enumerate(taken)
    ]


def test_memory_follows_the_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small setting few rows wait in memory and few are normalized at once, however many a day has."""
    waiting = 0
    keep = staged_samples.StagedSamples.keep

    def watch(self: staged_samples.StagedSamples, rows: pa.Table) -> None:
        nonlocal waiting
        keep(self, rows)
        waiting = max(waiting, sum(part.num_rows for parts in self._buffers.values() for part in parts))

    monkeypatch.setattr(staged_samples.StagedSamples, "keep", watch)
    batches = [
        samples([{"device_id": f"gpu{d:03d}", "to_utc": START + at + 1} for d in range(100)])
        for at in range(0, 50_000, 1000)
    ]
    with staged(tmp_path, *batches, rows_at_once=200) as staging:
        sizes = [cell.num_rows for _, cell in staging.cells()]
    assert waiting <= 200
    assert sum(sizes) == 5000
    assert max(sizes) <= 250


def test_small_tables_come_as_files(tmp_path: Path) -> None:
    """A table's columns, the number of the import and of the row; gaps and inferred tables are noted."""
    job = {"job_id": ["j", "k"], "from_utc": [START, START]}
    with staged(
        tmp_path, Rows("allocations", pa.table(job), "a.csv", inferred=True), Gap("a.csv", "odd", 3)
    ) as staging:
        (path,) = staging.finish().values()
        found = pq.read_table(path)
        assert found.schema.names == [*table("allocations").schema.names, "import_no", "seq"]
        assert (found["import_no"].to_pylist(), found["seq"].to_pylist()) == ([7, 7], [0, 1])
        assert (staging.rows, staging.gaps, staging.inferred) == (
            {"allocations": 2},
            {("a.csv", "odd"): 3},
            {"allocations"},
        )
    assert not staging.folder.exists()


def test_rows_are_named_by_file(tmp_path: Path) -> None:
    """The number of a row within its import leads back to its file and its number there, also where files take turns."""
    row = {"device_id": "g", "to_utc": START + 1}
    files = [samples([row] * 3, "a.csv"), samples([row] * 2, "b.csv"), samples([row] * 2, "a.csv")]
    with staged(tmp_path, *files) as staging:
        names = [staging.name_row("samples", seq) for seq in range(7)]
        with pytest.raises(SourceError, match=r"^b\.csv: row 3: "):
            staging.take(samples([row | {"power_w": -1.0}], "b.csv"))
    places = [
        "a.csv: row 1",
        "a.csv: row 2",
        "a.csv: row 3",
        "b.csv: row 1",
        "b.csv: row 2",
        "a.csv: row 4",
        "a.csv: row 5",
    ]
    assert names == places
    assert not staging.folder.exists()


def test_samples_are_taken_as_measured(tmp_path: Path) -> None:
    """Energy becomes power, a device without memory was not asked, failed profiling counters are dropped: each is counted."""
    hour = {"device_id": "g", "from_utc": START, "to_utc": START + 3_600_000}
    rows = [
        hour | {"energy_j": 3_600_000.0, "mem_total_bytes": 0.0},
        {"device_id": "g", "to_utc": START + 1, "energy_j": 5.0, "source": "dcgm"},
        hour | {"busy_share": 1.0, "sm_active_share": 0.0, "tensor_active_share": 0.0},
    ]
    with staged(tmp_path, samples(rows)) as staging:
        ((_, cell),) = staging.cells()
        assert cell["power_w"].to_pylist() == [1000.0, None, None]
        assert cell["mem_total_bytes"].null_count == 3
        assert cell["sm_active_share"].null_count == 3
        assert cell["source"].to_pylist() == ["smi", "dcgm", "smi"]
        assert cell["measured_mask"].to_pylist() == [measured_bit("power_w"), 0, measured_bit("busy_share")]
        assert sorted(staging.gaps.values()) == [1, 1]


AT_MS = 1_700_000_000_000


def test_a_sample_all_alone_covers_the_step_of_its_source(tmp_path):
    """Without a second sample and without a told step the source's own step counts."""
    row = {"device_id": ["g"], "to_utc": pa.array([AT_MS], pa.int64()), "busy_share": [0.5]}

    def read(_paths: tuple[Path, ...], _options: ReadOptions):
        yield Rows("devices", pa.table({"device_id": ["g"]}))
        yield Rows("samples", pa.table(row))

    log = tmp_path / "log"
    log.write_text("x")
    store = Store(tmp_path / "store")
    source = Source("one", lambda paths: paths, read, default_step_s=30.0)
    with store.write() as writer:
        import_files(writer, source, (log,), ReadOptions(), lambda *_: None)
    with store.read() as session:
        session.view_table("samples", "samples")
        assert session.fetch_one("SELECT from_utc, to_utc FROM samples") == (AT_MS - 30_000, AT_MS)


def test_a_sample_that_follows_another_begins_there(tmp_path: Path) -> None:
    """The books begin where the first sample does, not a step before one that reaches back to it."""
    first = 1_777_964_897_526
    rows = [
        {"device_id": "a", "from_utc": first - 5_000, "to_utc": first},
        {"device_id": "a", "from_utc": None, "to_utc": first + 60_000},
        *({"device_id": "b", "from_utc": None, "to_utc": first + hours * 3_600_000} for hours in (6, 12, 18)),
    ]
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(
        pa.Table.from_pylist([{**row, "busy_share": 0.5, "source": "s"} for row in rows]), folder / "samples.parquet"
    )
    books = Books(tmp_path / "store")
    books.add("tables", [folder])
    assert books.store.span() == (first - 5_000, first + 18 * 3_600_000)
