"""The live log: batches come back as acknowledged, room is bounded, and kills, full disks and damage are said."""

import json
import os
import resource
import signal
import subprocess
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.small_disk import mounted_disk
from tests.store.live_batches import START, acknowledge_until_killed, batch, in_child, numbers, on_disk
from tests.waiting import LONGEST_S

from loadfactor.base.errors import DamageError, InputError, SourceError, StoreError
from loadfactor.store import live
from loadfactor.store.disk import take_lock
from loadfactor.store.live import LOCK, LiveBatch, LiveLog, read_live
from loadfactor.store.live_database import encode


def test_batches_come_back_as_they_were(tmp_path: Path) -> None:
    """A batch is read with its source, table, label and rows, in the order of numbers; dictionary columns and nulls too."""
    rows = pa.table(
        {
            "device_id": pa.array(["a", "b", "a"]).dictionary_encode(),
            "to_utc": pa.array([START, START, START + 1], pa.int64()),
            "power_w": pa.array([1.5, None, 0.0]),
        }
    )
    first, second = LiveBatch("prometheus", "samples", rows, "push of n\udc80"), batch()
    with LiveLog.open(tmp_path / "new" / "store") as log:
        assert log.acknowledge([first, second]) == 2
        assert log.acknowledge([second]) == 3
        assert log.acknowledge([]) == 3
    (one, back), *others = read_live(tmp_path / "new" / "store", 0)
    assert (one, back.source, back.table, back.where) == (1, "prometheus", "samples", "push of n?")
    assert back.rows.equals(rows)
    assert [(n, b.rows.equals(second.rows)) for n, b in others] == [(2, True), (3, True)]
    assert numbers(tmp_path / "new" / "store", 2) == [3]


def test_what_no_import_would_take_is_not_acknowledged(tmp_path: Path) -> None:
    """A wrong table, a wrong or double column and a wrong value are refused with the label, and with them all of the request."""
    good = batch()
    wrong = pa.table({"device_id": ["g"], "to_utc": [START], "busy_share": [1.7]})
    twice = pa.table([["g"], [START], [START]], names=["device_id", "to_utc", "to_utc"])
    with LiveLog.open(tmp_path) as log:
        for refused, why in (
            (LiveBatch("s", "sample", good.rows, "w"), "did you mean 'samples'"),
            (LiveBatch("s", "samples", good.rows.append_column("x", good.rows["to_utc"]), "w"), "w: .*no column 'x'"),
            (LiveBatch("s", "samples", wrong, "w"), "w: row 1: samples.busy_share 1.7"),
            (LiveBatch("s", "samples", twice, "w"), "w: a column of samples is there twice"),
        ):
            with pytest.raises(InputError, match=why):
                log.acknowledge([good, refused])
        with pytest.raises(SourceError):
            log.acknowledge([LiveBatch("s", "samples", wrong, "w")])
    assert numbers(tmp_path) == []


def test_many_threads_share_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread gets numbers of its own batches, all are stored once, and a commit takes what has gathered."""
    commits, commit = [], LiveLog._commit

    def counted(self: LiveLog, gathered: list[object]) -> list[int]:
        commits.append(len(gathered))
        return commit(self, gathered)  # type: ignore[arg-type]

    monkeypatch.setattr(LiveLog, "_commit", counted)
    given: dict[int, int] = {}

    def acknowledge(log: LiveLog, thread: int) -> None:
        for k in range(10):
            first = 1000 * thread + 10 * k
            given[log.acknowledge([batch(5, first), batch(5, first + 5)])] = first + 5

    with LiveLog.open(tmp_path) as log:
        threads = [threading.Thread(target=acknowledge, args=(log, k)) for k in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = dict(read_live(tmp_path, 0))
    assert list(found) == list(range(1, 321))
    assert {n: (found[n].rows["to_utc"][0].as_py() - START) // 1000 for n in given} == given
    assert sum(commits) == 160
    assert max(commits) > 1


def test_numbers_are_never_given_twice(tmp_path: Path) -> None:
    """Neither after all batches were discarded and the log opened again, nor when its database is new and the books go further."""
    with LiveLog.open(tmp_path) as log:
        assert log.acknowledge([batch()] * 3) == 3
        log.discard_through(2)
        assert numbers(tmp_path) == [3]
        log.discard_through(3)
        log.discard_through(1)
    assert numbers(tmp_path) == []
    with LiveLog.open(tmp_path) as log:
        assert log.acknowledge([batch()]) == 4
    with LiveLog.open(tmp_path, after=9) as log:  # those through 9 are files
        assert numbers(tmp_path) == []
        assert log.acknowledge([batch()]) == 10
    assert numbers(tmp_path) == [10]


def test_room_of_discarded_batches_is_given_back(tmp_path: Path) -> None:
    """The database does not keep the size it once had."""
    with LiveLog.open(tmp_path) as log:
        last = log.acknowledge([batch(5000)] * 100)
        log.discard_through(last - 1)
        log.acknowledge([batch()])
    assert (tmp_path / "live.sqlite").stat().st_size < 300_000


def test_one_process_writes(tmp_path: Path) -> None:
    """Another one, and another log of the same process, gets one line; after `close` it may write."""
    with LiveLog.open(tmp_path) as log:
        with pytest.raises(StoreError, match="another process takes live batches"):
            LiveLog.open(tmp_path)
        code, (said,) = in_child(lambda _: LiveLog.open(tmp_path) and None)
        assert code == 1
        assert said.startswith("StoreError another process takes live batches")
        assert f"(process {os.getpid()})" in said
    LiveLog.open(tmp_path).close()
    with pytest.raises(StoreError, match="is closed"):
        log.acknowledge([batch()])


@pytest.mark.long
def test_a_reader_beside_the_writer_sees_whole_batches_and_leaves_no_trace(tmp_path: Path) -> None:
    """Read again and again while batches come and go, also through a log begun anew: what is seen is whole and only grows."""
    stop, wrong = threading.Event(), []
    with LiveLog.open(tmp_path) as log:
        log._connection.execute("PRAGMA wal_autocheckpoint = 8")  # begins its log anew all the time
        names = {p.name for p in tmp_path.iterdir()}

        def read() -> None:
            newest = 0
            while not stop.is_set():
                found = numbers(tmp_path)
                if found != list(range(found[0], found[-1] + 1)) if found else newest:
                    wrong.append(found)
                newest = found[-1] if found else newest
                if {p.name for p in tmp_path.iterdir()} != names:
                    wrong.append(sorted(p.name for p in tmp_path.iterdir()))

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for k in range(40):
            last = log.acknowledge([batch(2000)] * 2)
            assert numbers(tmp_path)[-1] == last  # at once
            if k % 10 == 9:
                log.discard_through(last - 5)
        stop.set()
        for reader in readers:
            reader.join()
    assert not wrong


def test_a_folder_without_live_batches_stays_as_it_is(tmp_path: Path) -> None:
    """Reading where nothing was ever taken makes nothing."""
    assert read_live(tmp_path, 0) == []
    assert read_live(tmp_path / "none", 0) == []
    assert list(tmp_path.iterdir()) == []


def test_too_much_at_once_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for its commit is bounded: more waits for room, and is refused when there is none for long."""
    monkeypatch.setattr(live, "MOST_WAITING_BYTES", 6 * len(encode(batch(50)).rows))
    monkeypatch.setattr(live, "LONGEST_WAIT_S", 0.05)
    come, go, commit = threading.Event(), threading.Event(), LiveLog._commit

    def slow(self: LiveLog, gathered: list[object]) -> list[int]:
        come.set()
        go.wait(LONGEST_S)
        return commit(self, gathered)  # type: ignore[arg-type]

    monkeypatch.setattr(LiveLog, "_commit", slow)
    with LiveLog.open(tmp_path) as log:
        with pytest.raises(InputError, match="send less"):
            log.acknowledge([batch(20_000)])
        first = threading.Thread(target=log.acknowledge, args=([batch(50)] * 4,))
        first.start()
        assert come.wait(LONGEST_S)
        with pytest.raises(StoreError, match="faster than"):
            log.acknowledge([batch(50)] * 4)
        go.set()
        first.join()
        assert log.acknowledge([batch(50)] * 4) == 8
    assert numbers(tmp_path) == list(range(1, 9))


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
    """Where the system refuses to write, the batch is refused, all before it stay, and the log goes on when it does not."""

    def work(into: int) -> None:
        live.FIRST_PAUSE_S = 0.05
        log = LiveLog.open(tmp_path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
        for _ in range(3):
            try:
                while True:
                    os.write(into, f"{log.acknowledge([batch(2000)])}\n".encode())
            except StoreError as error:
                os.write(into, f"{error}\n".encode())
        assert log.fault
        assert log.fault_s > 0
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for _ in range(200):
            try:
                log.acknowledge([batch(2000)])
                break
            except StoreError:
                time.sleep(0.02)
        assert (log.fault, log.fault_s) == ("", 0)

    code, said = in_child(work)
    assert code == 0
    given = [int(line) for line in said if line.isdecimal()]
    refused = [line for line in said if not line.isdecimal()]
    assert given == list(range(1, given[-1] + 1))
    assert len(refused) == 3
    assert "cannot be stored" in refused[0]
    assert all("cannot be" in line for line in refused)
    assert numbers(tmp_path) == [*given, given[-1] + 1]
    with LiveLog.open(tmp_path) as log:
        assert log.acknowledge([batch()]) == given[-1] + 2


def test_a_deleted_lock_is_held_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who deletes the lock of a log admits nobody: with the next batch, or a second later, it is there again."""
    monkeypatch.setattr(live, "LOOK_EVERY_S", 0.02)
    with LiveLog.open(tmp_path) as log:
        for write in (True, False):
            (tmp_path / LOCK).unlink()
            if write:
                assert log.acknowledge([batch()]) == 1
            while not (tmp_path / LOCK).exists():
                time.sleep(0.01)
            with pytest.raises(StoreError, match=rf"another process takes .*\(process {os.getpid()}\)"):
                LiveLog.open(tmp_path)
        monkeypatch.setattr(live, "LOOK_EVERY_S", 3600)
        assert log.acknowledge([batch()]) == 2  # the look that was begun is over
        (tmp_path / LOCK).unlink()
        other = take_lock(tmp_path / LOCK, "{holder}")  # quicker than the next look
        with pytest.raises(StoreError, match="was deleted and another process holds a new one"):
            log.acknowledge([batch()])
        other.close()
    assert numbers(tmp_path) == [1, 2]


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


@pytest.mark.long
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
