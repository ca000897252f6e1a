"""`up` over books in a bucket: what it acknowledged waits on a local disk, outlasts a kill, and comes to the bucket once."""

import time
from pathlib import Path

import pytest
from tests.live.scrapes import Fleet
from tests.live.test_alerts import send
from tests.live.up_process import UpProcess
from tests.object_stores.servers import BUCKET, serve_s3

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.settings.config import choose_file
from loadfactor.store.live_copy import NAME as LIVE

SCRAPES = 12
CONFIG = """
store = "s3://{bucket}/up"
local_folder = "{folder}/beside"

[server]
flush_every = "{flush}"
"""


@pytest.mark.long
def test_what_was_acknowledged_comes_to_the_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent over HTTP, killed before a flush and started again: readers see it at once, and the bucket has each sample once."""
    config = tmp_path / "loadfactor.toml"
    fleet = Fleet(int(time.time() * 1000) // MS_PER_HOUR * MS_PER_HOUR - MS_PER_HOUR, gpus=2)
    with serve_s3() as names:
        for name, value in (names | {"XDG_STATE_HOME": str(tmp_path / "state")}).items():
            monkeypatch.setenv(name, value)
        config.write_text(CONFIG.format(bucket=BUCKET, folder=tmp_path, flush="1h"))
        with UpProcess(tmp_path / "server", config=config, names_store=False) as up:
            for k in range(SCRAPES):
                send(up, fleet, k)
                if k == SCRAPES // 2:
                    up.kill()  # what it acknowledged is on the disk alone
                    assert (tmp_path / "beside" / LIVE).exists()
                    up.start()
            up.wait_until_booked()
            expected = up.readings("sm_activity", "device")
            assert list(expected) == [f"GPU-{gpu:08x}-0000-4000-8000-000000000000" for gpu in range(2)]
            assert up.stop() == 0
        choose_file(config)
        books = Books(f"s3://{BUCKET}/up")
        assert books.store.manifest.files
        rows = books.table("samples").execute()
        at = {(row.device_id, row.sampled_utc) for row in rows.itertuples()}
        assert len(at) == 2 * SCRAPES
        assert {r.by["device"]: r.value for r in books.show("sm_activity", by=("device",))} == pytest.approx(expected)
