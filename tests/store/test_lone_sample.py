"""A sample all alone covers what its source usually covers, not an hour."""

from pathlib import Path

import pyarrow as pa

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
