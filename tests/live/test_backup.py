"""A backup taken while `loadfactor up` runs: the restored books answer, and go on collecting."""

import shutil
import threading
import time
from pathlib import Path

import pytest
from tests.live.scrapes import Fleet
from tests.live.up_process import UpProcess

from loadfactor.base.errors import InputError, StoreError
from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.store.backup import back_up
from loadfactor.store.tokens import create_token

SCRAPES, MORE = 12, 24
NO_CONTENT, AGAIN = 204, (429, 503)
LONGEST_WRITE_S = 120.0


def send(up: UpProcess, fleet: Fleet, k: int) -> None:
    """A scrape in one request, again until it is acknowledged: a server that begins asks for patience."""
    for body in fleet.bodies(k, parts=1):
        while (status := up.write(body, LONGEST_WRITE_S)) in AGAIN:
            time.sleep(0.2)
        assert status == NO_CONTENT


def count(books: Books) -> int:
    """Samples in the books, each once."""
    with books.snapshot() as snapshot:
        return snapshot.fetch(snapshot.view("samples").select("device_id", "to_utc")).num_rows


@pytest.mark.long
def test_a_backup_while_samples_come_in(tmp_path: Path) -> None:
    """Samples acknowledged before are in the copy; a server on the copy goes on from there, and each sample counts once."""
    fleet = Fleet(int(time.time() * 1000) // MS_PER_HOUR * MS_PER_HOUR - MS_PER_HOUR)
    configuration = tmp_path / "often.toml"
    configuration.write_text('[server]\nflush_every = "3s"\n')  # flushes while the copy is taken
    with UpProcess(tmp_path / "books", config=configuration) as up:
        for k in range(SCRAPES):
            send(up, fleet, k)
        up.wait_until_booked()

        def go_on() -> None:
            for k in range(SCRAPES, MORE):
                send(up, fleet, k)

        sending = threading.Thread(target=go_on)
        sending.start()
        back_up(tmp_path / "books", tmp_path / "copy")
        sending.join()
        up.wait_until_booked()
        up.stop()
    copied, whole = count(Books(tmp_path / "copy")), count(Books(tmp_path / "books"))
    assert SCRAPES * fleet.gpus <= copied <= whole == MORE * fleet.gpus
    assert Books(tmp_path / "copy").check().balance.holds
    with UpProcess(tmp_path / "copy") as restored:  # senders send again what they were not told of
        for k in range(MORE):
            send(restored, fleet, k)
        restored.wait_until_booked()
        restored.stop()
    assert count(Books(tmp_path / "copy")) == whole
    for metric in ("sm_activity", "energy_kwh", "paid_gpu_hours"):
        copy, original = (Books(tmp_path / name).show(metric)[0].value for name in ("copy", "books"))
        assert copy == pytest.approx(original), metric


def test_a_backup_is_never_half(simulated_books: Books, tmp_path: Path) -> None:
    """A folder that is taken and a damaged file are refused; the copy of whole books answers as they do."""
    folder = simulated_books.store.folder
    with_more = tmp_path / "books"
    shutil.copytree(folder, with_more)
    (with_more / "quarantine").mkdir()
    (with_more / "quarantine" / "body-7.query").write_bytes(b"{}")
    create_token(with_more, "read", None, "", 0)
    back_up(with_more, tmp_path / "copy")
    assert (tmp_path / "copy" / "quarantine" / "body-7.query").read_bytes() == b"{}"
    assert (tmp_path / "copy" / "tokens.json").stat().st_mode & 0o777 == 0o600
    assert list(Books(tmp_path / "copy").show("cost", by="team")) == list(simulated_books.show("cost", by="team"))
    with pytest.raises(InputError, match="is there already"):
        back_up(folder, tmp_path / "copy")
    with pytest.raises(InputError, match="there are no books"):
        back_up(tmp_path / "nothing", tmp_path / "other")
    damaged = next((tmp_path / "copy").glob("samples-*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"x" * 9)
    with pytest.raises(StoreError, match="is damaged"):
        back_up(tmp_path / "copy", tmp_path / "third")
    assert not (tmp_path / "third" / "manifest.json").exists()
