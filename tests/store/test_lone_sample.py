"""Where samples begin that have no start of their own: after the one before, or a step of their source back."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from loadfactor.books.books import Books
from loadfactor.sources.base import ReadOptions, Rows, Source
from loadfactor.store.importing import import_files
from loadfactor.store.store import Store

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
