"""The live log after kills, on full disks and with damaged files: what was acknowledged is there, and damage is said."""

import json
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest
from tests.small_disk import mounted_disk
from tests.store.live_batches import acknowledge_until_killed, batch, in_child, numbers, on_disk

from loadfactor.base.errors import DamageError, StoreError
from loadfactor.store.live import LOCK, LiveBatch, LiveLog, read_live


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A store whose collector was killed: its write-ahead log is left."""
    code, _ = in_child(lambda into: acknowledge_until_killed(tmp_path / "store", into, 30))
    assert code == -signal.SIGKILL
    return tmp_path / "store"


@pytest.mark.parametrize("most", [1, 7, 60])
def test_what_was_acknowledged_outlasts_a_kill(tmp_path: Path, most: int) -> None:
    """Every number that a thread was given is there after kill -9; the next process goes on behind them."""
    code, said = in_child(lambda into: acknowledge_until_killed(tmp_path, into, most))
    assert code == -signal.SIGKILL
    before = on_disk(tmp_path)
    found = numbers(tmp_path)
    assert set(map(int, said)) <= set(found)
    assert found == list(range(1, len(found) + 1))
    assert on_disk(tmp_path) == before  # the log of the dead process was read and left where it is
    with LiveLog.open(tmp_path) as log:
        assert log.acknowledge([batch()]) == len(found) + 1
    assert numbers(tmp_path) == list(range(1, len(found) + 2))


def test_a_killed_creation_is_taken_up_again(tmp_path: Path) -> None:
    """What a process left that was killed while it made the database is no database; the next one makes it."""
    (tmp_path / "live.sqlite.new").write_bytes(b"half")
    (tmp_path / "live.sqlite.new-journal").write_bytes(b"half")
    assert read_live(tmp_path, 0) == []
    with LiveLog.open(tmp_path) as log:
        assert log.acknowledge([batch()]) == 1
    assert {p.name for p in tmp_path.iterdir()} == {"live.sqlite", "live.lock"}


def test_a_folder_that_cannot_be_written_is_read(killed: Path) -> None:
    """Read-only files and folder, as a mount would give them, change nothing for readers; who wants to write gets one line."""
    said = numbers(killed)
    for path in killed.iterdir():
        path.chmod(0o444)
    killed.chmod(0o555)
    before = on_disk(killed)
    try:
        assert numbers(killed) == said
        assert on_disk(killed) == before
        if os.geteuid() != 0:
            with pytest.raises(StoreError, match="cannot be written"):
                LiveLog.open(killed)
    finally:
        killed.chmod(0o755)


def test_a_file_that_cannot_grow_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    """Where the system refuses to write, the batch is refused, all before it stay, and the log has to be opened again."""

    def work(into: int) -> None:
        log = LiveLog.open(tmp_path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
        for _ in range(3):
            try:
                while True:
                    os.write(into, f"{log.acknowledge([batch(2000)])}\n".encode())
            except StoreError as error:
                os.write(into, f"{error}\n".encode())

    code, said = in_child(work)
    assert code == 0
    given = [int(line) for line in said if line.isdecimal()]
    refused = [line for line in said if not line.isdecimal()]
    assert given == list(range(1, given[-1] + 1))
    assert len(refused) == 3
    assert "cannot be stored" in refused[0]
    assert "open it again" in refused[1]
    assert numbers(tmp_path)[: len(given)] == given
    with LiveLog.open(tmp_path) as log:
        assert log.acknowledge([batch()]) > given[-1]


def test_a_full_disk_refuses_until_there_is_room(tmp_path: Path) -> None:
    """On a full disk the batch is refused in one line; what was acknowledged is read, and with room again the next is taken."""
    with mounted_disk(tmp_path / "disk", 2) as disk:
        with LiveLog.open(disk) as log:
            given = 0
            refused = ""
            while not refused:
                try:
                    given = log.acknowledge([batch(2000)])
                except StoreError as error:
                    refused = str(error)
            assert "cannot be stored in" in refused
            assert len(refused.splitlines()) == 1
            assert numbers(disk) == list(range(1, given + 1))
            with pytest.raises(StoreError, match="full"):
                log.acknowledge([batch(2000)])
            subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
            assert log.acknowledge([batch(2000)]) == given + 1
        assert numbers(disk) == list(range(1, given + 2))


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder, but for the lock, which says who held it last."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != LOCK}


def whole_or_said(folder: Path, expected: list[tuple[int, LiveBatch]]) -> str:
    """Read damaged batches: what was acknowledged, or one line; anything else fails the test."""
    before = contents(folder)
    refused = ""
    try:
        found = read_live(folder, 0)
    except DamageError as error:
        refused = str(error)
    if refused:
        assert len(refused.splitlines()) == 1
        with pytest.raises(DamageError):
            LiveLog.open(folder)
        assert contents(folder) == before  # moved aside by repair alone
        return "said"
    assert [(n, b.source, b.table, b.where) for n, b in found] == [(n, b.source, b.table, b.where) for n, b in expected]
    assert all(a.rows.equals(b.rows) for (_, a), (_, b) in zip(found, expected, strict=True))
    return "whole"


@pytest.mark.parametrize("place", [k / 24 for k in range(24)])
@pytest.mark.parametrize("kind", ["flip", "zero", "truncate"])
def test_damage_to_the_database_is_said(tmp_path: Path, kind: str, place: float) -> None:
    """Bytes flipped or zeroed anywhere and files cut short: every batch is read as acknowledged, or the damage is one line."""
    with LiveLog.open(tmp_path) as log:
        log.acknowledge([batch(500, k) for k in range(9)])
    expected = read_live(tmp_path, 0)
    path = tmp_path / "live.sqlite"
    content = bytearray(path.read_bytes())
    at = int(place * len(content))
    if kind == "truncate":
        content = content[:at]
    else:
        content[at : at + 64] = bytes(64) if kind == "zero" else bytes(b ^ 0xFF for b in content[at : at + 64])
    path.write_bytes(content)
    said = whole_or_said(tmp_path, expected)
    assert said == "said" or kind != "truncate"


@pytest.mark.parametrize("place", [0, 20, 40, *(k / 12 for k in range(1, 11))])
def test_damage_to_the_log_of_a_killed_process_is_said(killed: Path, place: float) -> None:
    """SQLite would take a damaged frame for the end of its log and lose what follows: it is said instead."""
    expected = read_live(killed, 0)
    path = killed / "live.sqlite-wal"
    content = bytearray(path.read_bytes())
    at = int(place if place >= 1 or not place else place * len(content))
    content[at : at + 8] = bytes(b ^ 0xFF for b in content[at : at + 8])
    path.write_bytes(content)
    assert whole_or_said(killed, expected) == "said"


@pytest.mark.parametrize("content", [b"", b"x" * 5000, json.dumps({"format": 3}).encode()])
def test_another_file_of_that_name_is_said(tmp_path: Path, content: bytes) -> None:
    """A file that is no database of live batches is damage, and stays as it is."""
    (tmp_path / "live.sqlite").write_bytes(content)
    with pytest.raises(DamageError, match=r"live.sqlite is damaged .*`loadfactor repair --store"):
        read_live(tmp_path, 0)
    assert (tmp_path / "live.sqlite").read_bytes() == content
