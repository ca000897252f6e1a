"""The spool: in order, whole after kills, bounded, and honest about what it dropped."""

import errno
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor_agent.notices import AgentError
from loadfactor_agent.spool import Spool

MIB = 1024**2


def body(number: int, size: int = 1000) -> bytes:
    """A body that says which one it is."""
    return str(number).encode().ljust(size, b".")


def drain(spool: Spool) -> list[int]:
    """Take everything; the numbers in order."""
    found = []
    while (waiting := spool.take(0)) is not None:
        found.append(int(waiting.body.rstrip(b".")))
        spool.confirm(waiting)
    return found


def test_bodies_come_out_in_order_over_restarts(tmp_path: Path) -> None:
    """Payloads that one process kept the next one sends, oldest first; confirmed ones are not sent again."""
    first = Spool(tmp_path, MIB)
    for number in range(10):
        first.add(body(number), 1)
    for _ in range(4):
        waiting = first.take(0)
        assert waiting
        first.confirm(waiting)
    second = Spool(tmp_path, MIB)  # the first one was killed
    second.add(body(10), 1)
    third = Spool(tmp_path, MIB)  # and the second
    third.add(body(11), 1)
    assert drain(third) == [4, 5, 6, 7, 8, 9, 10, 11]
    assert third.counts.dropped_bodies == third.counts.damaged_segments == 0
    assert drain(Spool(tmp_path, MIB)) == []


def test_segments_that_were_sent_are_removed(tmp_path: Path) -> None:
    """A day of bodies that are sent as they come leaves next to nothing on the disk."""
    spool = Spool(tmp_path, MIB)
    for number in range(2000):
        spool.add(body(number), 1)
        assert drain(spool) == [number]
    assert spool.size_bytes < MIB / 8
    assert len(list(tmp_path.iterdir())) <= 3


def test_oldest_is_dropped_and_counted_where_the_room_ends(tmp_path: Path) -> None:
    """The spool never passes its bound; what is left is the newest, without a hole, and the rest is counted in samples."""
    spool = Spool(tmp_path, MIB)
    for number in range(3000):
        assert spool.add(body(number), 7)
        assert spool.size_bytes <= MIB
    left = drain(spool)
    assert left == list(range(left[0], 3000))
    assert len(left) > 900
    assert spool.counts.dropped_bodies == left[0]
    assert spool.counts.dropped_samples == 7 * left[0]


def test_full_disk_drops_the_oldest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where others fill the disk, the newest samples get the room of the oldest; nothing half is left and everything is counted."""
    spool = Spool(tmp_path, MIB)
    room = 600_000
    write = os.pwrite

    def write_if_room(file: int, record: bytes, at: int) -> int:
        used = sum(path.stat().st_size for path in tmp_path.glob("*.spool"))
        if used >= room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, record[: room - used], at)  # the last write is a short one

    monkeypatch.setattr(os, "pwrite", write_if_room)
    kept = [spool.add(body(number), 1) for number in range(2000)]
    left = drain(spool)
    assert all(kept)
    assert left == list(range(left[0], 2000))
    assert spool.counts.dropped_bodies == left[0]


def test_full_disk_without_anything_to_drop_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk with no room at all loses the new samples, counted, and the agent goes on."""
    spool = Spool(tmp_path, MIB)

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", refuse)
    assert not spool.add(body(0), 5)
    assert spool.counts.dropped_samples == 5
    monkeypatch.setattr(os, "pwrite", write)
    assert spool.add(body(1), 5)
    assert drain(spool) == [1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 5000), st.booleans())
def test_torn_end_loses_only_what_was_torn(cut: int, flipped: bool) -> None:
    """After a power loss the bodies before the damage are sent, those of later segments too, and the damage is counted."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spool = Spool(folder, MIB)
        for number in range(5):
            spool.add(body(number), 1)
        path = next(folder.glob("*.spool"))
        content = bytearray(path.read_bytes())
        at = min(cut, len(content) - 1)
        if flipped:
            content[at] ^= 0xFF
        else:
            del content[at:]
        path.write_bytes(content)
        later = Spool(folder, MIB)
        later.add(body(5), 1)
        whole = at // (1000 + 12)
        found = drain(later)
        assert found[:whole] == list(range(whole))
        assert found[-1] == 5
        is_torn = flipped or at % (1000 + 12) > 0
        assert later.counts.damaged_segments == int(is_torn)


LIVES = int(os.environ.get("TORTURE_ROUNDS", "20"))


def test_any_life_of_a_spool_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Bodies of any size, through kills and with little room: each arrives once, in order, or is counted as dropped."""
    for seed in range(LIVES):
        chance, folder, arrived, added = random.Random(seed), tmp_path / str(seed), [], 0
        dropped = samples = 0
        most = chance.choice((20_000, 60_000, MIB))
        for _ in range(chance.randrange(1, 9)):
            spool = Spool(folder, most)  # the one before was killed, or ended well
            for _ in range(chance.randrange(60)):
                if chance.random() < 0.6:
                    spool.add(body(added, chance.randrange(10, 3000)), 3)
                    added += 1
                elif (
                    waiting := spool.take(0)
                ) is not None and chance.random() < 0.9:  # else the server did not take it
                    arrived.append(int(waiting.body.rstrip(b".")))
                    spool.confirm(waiting)
            dropped, samples = dropped + spool.counts.dropped_bodies, samples + spool.counts.dropped_samples
            assert spool.size_bytes <= most + 3012
            if chance.random() < 0.3:
                spool.close()
        last = Spool(folder, most)
        arrived += drain(last)
        assert arrived == sorted(set(arrived)), seed
        assert len(arrived) + dropped == added, seed
        assert samples == 3 * dropped
        assert last.counts.damaged_segments == 0


FILL = """
import sys
from pathlib import Path
from loadfactor_agent.spool import Spool
spool = Spool(Path(sys.argv[1]), 2**24)
for number in range(int(sys.argv[2]), 10**9):
    spool.add(str(number).encode().ljust(1000, b"."), 1)
    print(number, flush=True)
"""


def test_killed_twice_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    """Everything that was added before a kill -9, and before another one, is sent."""
    begin, acknowledged = 0, []
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", FILL, str(tmp_path), str(begin)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        said = [int(process.stdout.readline()) for _ in range(300)]
        process.kill()
        said += [int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        process.wait()
        acknowledged += said
        begin = said[-1] + 2  # one more may have been kept that nobody heard of
    sent = drain(Spool(tmp_path, 2**24))
    assert set(acknowledged) <= set(sent)
    assert sent == sorted(sent)


def test_folder_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    """A spool that is no folder says what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(AgentError, match="choose another with --spool"):
        Spool(tmp_path / "file", MIB)
