"""Two servers that receive the same and know nothing of each other: `merge` gives each what it missed."""

import time
from pathlib import Path

import pytest
from tests.commands import make_run
from tests.ledger.test_books_balance import assert_same_ledger, ledger_of
from tests.live.scrapes import STEP_MS, Fleet, read_samples
from tests.live.test_alerts import send
from tests.live.up_process import UpProcess

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books

SCRAPES = 12
MISSED = range(4, 9)
"""Scrapes while the second server is away."""


def assert_samples_of(fleet: Fleet, store: Path) -> None:
    """Every sample that was sent is in the store once, as it was sent."""
    rows = read_samples(store)
    sent = [(gpu, k) for gpu in range(fleet.gpus) for k in range(SCRAPES)]
    times_by_device = [(f"GPU-{gpu:08x}-0000-4000-8000-000000000000", fleet.at_ms(k)) for gpu, k in sent]
    assert list(zip(rows["device_id"], rows["to_utc"], strict=True)) == times_by_device
    assert rows["sm_active_share"].to_numpy() == pytest.approx([fleet.sm_active(gpu, k) for gpu, k in sent])


def test_killed_receiver_has_all_after_a_merge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 12 scrapes the second server misses 5: it shows 7/12 of the hours, and after `merge` the numbers of the first."""
    run = make_run(capsys, monkeypatch)
    fleet = Fleet(int(time.time() * 1000) // MS_PER_HOUR * MS_PER_HOUR - MS_PER_HOUR, gpus=2)
    with UpProcess(tmp_path / "a") as first, UpProcess(tmp_path / "b") as second:
        for k in range(SCRAPES):
            if k == MISSED.start:
                second.kill()
            if k == MISSED.stop:
                second.start()
            for server in (first, second):
                if server is first or k not in MISSED:
                    send(server, fleet, k)
        for server in (first, second):
            server.wait_until_booked()
        hours = {"node-0": fleet.gpus * SCRAPES * STEP_MS / MS_PER_HOUR}
        activity = first.readings("sm_activity", "device")
        assert first.readings("observed_gpu_hours", "node") == pytest.approx(hours)
        part = {"node-0": hours["node-0"] * (SCRAPES - len(MISSED)) / SCRAPES}
        assert second.readings("observed_gpu_hours", "node") == pytest.approx(part)

        assert first.stop() == 0  # makes files of what it received
        status, said, _ = run("merge", str(first.store), "--store", str(second.store))
        assert status == 0
        assert said.startswith("Brought over from")

        second.wait_until(lambda: second.readings("observed_gpu_hours", "node") == pytest.approx(hours))
        assert second.readings("sm_activity", "device") == pytest.approx(activity)
        assert second.stop() == 0
    for server in (first, second):
        assert_samples_of(fleet, server.store)
    assert run("merge", str(first.store), "--store", str(second.store))[1].startswith("Nothing to bring over")
    assert_same_ledger(ledger_of(Books(second.store)), ledger_of(Books(first.store)))
