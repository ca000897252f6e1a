"""Bodies and states of decoders in the live log: kept as they came, booked with the rows made of them, never half."""

import asyncio
import os
import random
import signal
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from tests.long import rest_long
from tests.small_disk import mounted_disk
from tests.store.live_batches import START, batch, in_child
from tests.waiting import LONGEST_S

from loadfactor.base.errors import BusyError, DamageError, StoreError
from loadfactor.store import live
from loadfactor.store.live import LiveBatch, LiveLog, OriginState, ReceivedBody, read_live


def body(content: bytes, origin: str = "remote_write") -> ReceivedBody:
    return ReceivedBody(origin, "remote_write", START, content)


def held(log: LiveLog) -> tuple[dict[int, ReceivedBody], dict[str, OriginState]]:
    return dict(log.received()), log.states()


def test_bodies_come_back_as_they_were(tmp_path: Path) -> None:
    """A body is there with its origin, format, time and bytes, in the order of numbers, also after the log is opened again."""
    bodies = [ReceivedBody("prometheus eu", "query", START + 7, b"{}"), body(os.urandom(50_000)), body(b"")]
    with LiveLog.open(tmp_path) as log:
        assert log.keep(bodies[:1]).result() == 1
        assert log.keep(bodies[1:]).result() == 3
        assert log.keep([]).result() == 3
        assert log.received_bytes == 50_002
    with LiveLog.open(tmp_path) as log:
        assert list(log.received()) == list(enumerate(bodies, 1))
        assert log.received_bytes == 50_002
        assert log.keep([body(b"x")]).result() == 4
    assert read_live(tmp_path, 0) == []  # readers see rows only


def test_booking_removes_the_bodies_of_its_origin(tmp_path: Path) -> None:
    """Batches come in, the state of the origin is the new one, and its bodies up to the number are gone; others stay."""
    with LiveLog.open(tmp_path) as log:
        log.keep([body(b"1"), body(b"2", "prometheus"), body(b"3"), body(b"4")]).result()
        assert log.book(OriginState("remote_write", 4, b"one"), 3, [batch(3), batch(3, 10)]) == 2
        assert [n for n, _ in log.received()] == [2, 4]
        assert log.book(OriginState("prometheus", 2, b"two"), 9, []) == 2
        assert log.book(OriginState("remote_write", 4, b"three"), 0, [batch(1, 20)]) == 3
        assert log.received_bytes == 1
    with LiveLog.open(tmp_path, after=2) as log:
        assert held(log) == (
            {4: body(b"4")},
            {
                "remote_write": OriginState("remote_write", 4, b"three"),
                "prometheus": OriginState("prometheus", 2, b"two"),
            },
        )
    assert [n for n, _ in read_live(tmp_path, 0)] == [3]


def test_a_server_awaits_what_it_keeps(tmp_path: Path) -> None:
    """Many requests of one event loop are kept together; one that nobody waits for any more is kept too."""

    async def serve(log: LiveLog) -> list[int]:
        given_up = asyncio.wrap_future(log.keep([body(b"given up")]))
        given_up.cancel()
        return await asyncio.gather(*(asyncio.wrap_future(log.keep([body(b"%d" % k)])) for k in range(50)))

    with LiveLog.open(tmp_path) as log:
        numbers = asyncio.run(serve(log))
        assert sorted(numbers) == list(range(2, 52))
        kept = dict(log.received())
    assert [kept[n].content for n in numbers] == [b"%d" % k for k in range(50)]
    assert kept[1].content == b"given up"


def test_a_body_too_many_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for its commit is bounded, and so is what waits to be booked: more is refused without waiting."""
    come, go, commit = threading.Event(), threading.Event(), LiveLog._commit

    def slow(self: LiveLog, gathered: list[object]) -> list[int]:
        come.set()
        go.wait(LONGEST_S)
        return commit(self, gathered)  # type: ignore[arg-type]

    monkeypatch.setattr(LiveLog, "_commit", slow)
    monkeypatch.setattr(live, "MOST_WAITING_BYTES", 1000)
    monkeypatch.setattr(live, "MOST_RECEIVED_BYTES", 2000)
    with LiveLog.open(tmp_path) as log:
        first = log.keep([body(bytes(900))])
        assert come.wait(LONGEST_S)
        assert log.waiting_bytes == 900
        with pytest.raises(BusyError, match="send them again later"):
            log.keep([body(bytes(200))])
        go.set()
        first.result()
        log.keep([body(bytes(900))]).result()
        assert log.waiting_bytes == 0
        with pytest.raises(BusyError):
            log.keep([body(bytes(201))])
        log.book(OriginState("remote_write", 1, b""), 1, [])
        assert log.keep([body(bytes(201))]).result() == 3
        assert log.received_bytes == 1101


def test_a_full_disk_leaves_bodies_and_states_as_before(tmp_path: Path) -> None:
    """A body and a booking that find no room leave nothing; with room again both are taken."""
    with mounted_disk(tmp_path / "disk", 2) as disk:
        with LiveLog.open(disk) as log:
            log.book(OriginState("remote_write", 0, b"before"), 0, [])
            refused: BaseException | None = None
            kept = 0
            while refused is None:
                done = log.keep([body(os.urandom(50_000))])
                refused = done.exception()
                kept += refused is None
            assert "cannot be stored" in str(refused)
            before, size = held(log), log.received_bytes
            assert list(before[0]) == list(range(1, kept + 1))
            assert size == 50_000 * kept
            with pytest.raises(StoreError, match="full"):
                log.book(OriginState("remote_write", kept, os.urandom(3_000_000)), 1, [batch(5)])
            assert held(log) == before
            assert log.received_bytes == size
            subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
            assert log.book(OriginState("remote_write", kept, b"after"), 1, [batch(5)]) == 1
            assert log.keep([body(b"x")]).result() == kept + 1
        assert [n for n, _ in read_live(disk, 0)] == [1]


@pytest.mark.long
@pytest.mark.parametrize("place", [k / 24 for k in range(24)])
@pytest.mark.parametrize("kind", ["flip", "zero", "truncate"])
def test_damaged_bodies_and_states_are_said(tmp_path: Path, kind: str, place: float) -> None:
    """Bytes flipped or zeroed anywhere and files cut short: all is there as it was kept, or the damage is one line."""
    with LiveLog.open(tmp_path) as log:
        log.keep([body(os.urandom(3_000), f"origin {k % 3}") for k in range(60)]).result()
        log.book(OriginState("origin 0", 60, os.urandom(20_000)), 30, [])
        expected = held(log)
    path = tmp_path / "live.sqlite"
    content = bytearray(path.read_bytes())
    at = int(place * len(content))
    if kind == "truncate":
        content = content[:at]
    else:
        content[at : at + 64] = bytes(64) if kind == "zero" else bytes(b ^ 0xFF for b in content[at : at + 64])
    path.write_bytes(content)
    refused = ""
    try:
        with LiveLog.open(tmp_path) as log:
            assert held(log) == expected
    except DamageError as error:
        refused = str(error)
    if refused:
        assert len(refused.splitlines()) == 1
        assert path.read_bytes() == content  # moved aside by repair alone
    assert refused or kind != "truncate"


class Modelled(NamedTuple):
    """What a log should hold."""

    batches: dict[int, int]
    bodies: dict[int, ReceivedBody]
    states: dict[str, OriginState]


@pytest.mark.parametrize("seed", rest_long(range(12)))
def test_any_sequence_of_steps_is_what_a_dictionary_would_hold(tmp_path: Path, seed: int) -> None:
    """Keep, book, acknowledge, discard and open again in any order: bodies, states and batches are those of a model in memory."""
    draw = random.Random(seed)
    model = Modelled({}, {}, {})
    last = last_body = discarded = 0
    log = LiveLog.open(tmp_path)
    for step in range(60):
        origin = draw.choice(["a", "b", "c"])
        new: list[LiveBatch] = []
        match draw.choice(["keep", "keep", "book", "acknowledge", "discard", "reopen"]):
            case "keep":
                bodies = [body(draw.randbytes(draw.choice([0, 10, 40_000])), origin) for _ in range(draw.randrange(4))]
                for one in bodies:
                    last_body += 1
                    model.bodies[last_body] = one
                assert log.keep(bodies).result() == last_body
            case "book":
                done = draw.randrange(last_body + 2)
                state = OriginState(origin, last_body, draw.randbytes(draw.choice([0, 100, 30_000])))
                new = [batch(2, step) for _ in range(draw.randrange(3))]
                assert log.book(state, done, new) == last + len(new)
                model.states[origin] = state
                for number in [n for n, b in model.bodies.items() if n <= done and b.origin == origin]:
                    del model.bodies[number]
            case "acknowledge":
                new = [batch(2, step)] * draw.randrange(3)
                assert log.acknowledge(new) == last + len(new)
            case "discard":
                discarded = max(discarded, draw.randrange(last + 1))
                log.discard_through(discarded)
            case "reopen":
                log.close()
                log = LiveLog.open(tmp_path, discarded)
        for _ in new:
            last += 1
            model.batches[last] = step
        assert held(log) == (model.bodies, model.states)
        assert log.received_bytes == sum(len(b.content) for b in model.bodies.values())
    log.close()
    found = {n: (b.rows["to_utc"][0].as_py() - START) // 1000 for n, b in read_live(tmp_path, 0)}
    assert found == {n: step for n, step in model.batches.items() if n > discarded}


def keep_and_book_until_killed(folder: Path, into: int, most: int) -> None:
    """Threads keep bodies and say their numbers; each booking makes one row of each body. After `most` bodies: kill -9."""
    log, said, counting = LiveLog.open(folder), 0, threading.Lock()

    def keep() -> None:
        nonlocal said
        while True:
            number = log.keep([body(os.urandom(5_000))]).result()
            os.write(into, f"{number}\n".encode())
            with counting:
                said += 1
                if said >= most:
                    os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(4):
        threading.Thread(target=keep, daemon=True).start()
    while True:
        numbers = [n for n, _ in log.received()]
        if numbers:
            data = {"device_id": ["g"] * len(numbers), "to_utc": [START + n for n in numbers]}
            rows = pa.table(data | {"busy_share": [0.5] * len(numbers)})
            state = OriginState("remote_write", numbers[-1], f"{numbers[-1]}".encode())
            log.book(state, numbers[-1], [LiveBatch("dcgm", "samples", rows, "remote_write")])


@pytest.mark.parametrize("most", [3, 40, 150])
def test_each_body_is_booked_once_or_still_kept_after_a_kill(tmp_path: Path, most: int) -> None:
    """Killed between any two bytes: what was acknowledged is a row or a body, never both, and the state says how far."""
    code, said = in_child(lambda into: keep_and_book_until_killed(tmp_path, into, most))
    assert code == -signal.SIGKILL
    rows = [at - START for _, b in read_live(tmp_path, 0) for at in b.rows["to_utc"].to_pylist()]
    with LiveLog.open(tmp_path) as log:
        kept, states = held(log)
    assert len(rows) == len(set(rows))
    assert not set(rows) & set(kept)
    assert set(map(int, said)) <= set(rows) | set(kept)
    assert max(rows, default=0) == (states["remote_write"].through if states else 0)
