"""A server makes its backups, says when it cannot, and books come back of them with everything acknowledged before."""

import shutil
import threading
import time
from pathlib import Path

import httpx
import pytest
from tests.live.scrapes import Fleet, read_samples
from tests.live.test_alerts import send
from tests.live.test_reload import reload
from tests.live.up_process import UpProcess
from tests.waiting import LONGEST_S

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.store.scheduled_backups import restore

BEFORE, MORE = 12, 24
SETTINGS = '[server]\nflush_every = "1s"\n[backup]\nto = "{}"\nschedule = "hourly"\n'


@pytest.mark.long
def test_a_server_backs_up(tmp_path: Path) -> None:
    """While samples come in; one that cannot be made degrades it. Its books lost, nothing acknowledged before is missing."""
    fleet, config, copies = (
        Fleet(int(time.time() * 1000) // MS_PER_HOUR * MS_PER_HOUR - MS_PER_HOUR),
        tmp_path / "loadfactor.toml",
        tmp_path / "copies",
    )
    config.write_text(SETTINGS.format(tmp_path / "no" / "folder"))
    (tmp_path / "no").touch()
    with UpProcess(tmp_path / "books", config=config) as up:
        named = lambda: {one["name"]: one for one in up.ask("/health")["sources"]}  # noqa: E731
        bad = f"backup {tmp_path / 'no' / 'folder'}"
        up.wait_until(lambda: named().get(bad, {}).get("status") == "failing")
        assert up.ask("/health")["status"] == "degraded"
        assert f'loadfactor_server_source_up{{source="{bad}"}} 0.0' in httpx.get(f"{up.url}/metrics").text
        for k in range(BEFORE):
            send(up, fleet, k)

        def go_on() -> None:
            for k in range(BEFORE, MORE):
                send(up, fleet, k)

        sending = threading.Thread(target=go_on)
        sending.start()
        config.write_text(SETTINGS.format(copies))
        assert reload(up)["taken"] == ["backup"]
        up.wait_until(lambda: named().get(f"backup {copies}", {}).get("status") == "ok")
        sending.join()
        assert bad not in named()
        assert named()[f"backup {copies}"]["last_sample"]
        up.wait_until(lambda: f"backup {copies}" in httpx.get(f"{up.url}/sources", timeout=LONGEST_S).text)
        up.kill()
    shutil.rmtree(tmp_path / "books")
    restore(copies, tmp_path / "again")
    with UpProcess(tmp_path / "again") as up:  # what was acknowledged and not decoded yet is, as after a kill
        up.wait_until_booked()
        assert up.stop() == 0
    rows = read_samples(tmp_path / "again")
    times = {fleet.at_ms(k) for k in range(BEFORE)}
    assert sum(rows["to_utc"].isin(times)) == BEFORE * fleet.gpus
    assert len(rows) <= MORE * fleet.gpus
    assert not rows.duplicated(["device_id", "to_utc"]).any()
    assert Books(tmp_path / "again").check().balance.holds
    with UpProcess(tmp_path / "again", config=config) as up:  # senders send again what they were not told of
        for k in range(MORE):
            send(up, fleet, k)
        up.wait_until_booked()
        assert up.stop() == 0
    assert len(read_samples(tmp_path / "again")) == MORE * fleet.gpus
