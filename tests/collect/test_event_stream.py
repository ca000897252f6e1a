"""Streams of events: decoded once and in order, whatever cannot be decoded or stored in between."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import LONGEST_S

from loadfactor.base.errors import StoreError
from loadfactor.collect import event_stream
from loadfactor.collect.event_stream import EventStream
from loadfactor.collect.payloads import EVENTS, pack_events
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.live import LiveSource
from loadfactor.store.live import LiveLog, ReceivedBody

STREAM_ID = "list a"


class ListOfEvents:
    """A decoder that keeps the events it was given, and has a defect: it fails where one is 666."""

    def __init__(self, _name: str, state: bytes) -> None:
        self.events = json.loads(state or b"[]")

    def feed(self, events: Sequence[Any]) -> None:
        self.events += events

    def drain(self) -> Iterator[Rows | Gap]:
        if 666 in self.events:
            raise ZeroDivisionError("a defect")
        yield Gap("a", "an event of no use", 1)

    def state(self) -> bytes:
        return json.dumps(self.events).encode()


@pytest.fixture(autouse=True)
def lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Origins whose decoder it is."""
    source = LiveSource("list", __name__, ListOfEvents.__name__)
    monkeypatch.setattr(event_stream, "find_live_source", lambda _stream_id: source)
    monkeypatch.setattr(LiveSource, "open", lambda _source, name, state: ListOfEvents(name, state))


def send(stream: EventStream, *events: Any) -> None:
    """Each in a payload of its own, which has arrived when this returns."""
    for event in events:
        payload = ReceivedBody(STREAM_ID, EVENTS, 0, pack_events([event], {"at": str(event)}))
        stream.receive(payload, time.monotonic())
        while stream.cursor.get("at") != str(event):
            time.sleep(0.001)


def booked(log: LiveLog) -> Any:
    """The events that were booked."""
    return json.loads(event_stream._split(log.states()[STREAM_ID].content)[1])


def test_a_list_that_cannot_be_decoded_is_quarantined(tmp_path: Path) -> None:
    """All others are booked once, and the cursor stands behind it, so that it is not listed again; also in the next process."""
    with LiveLog.open(tmp_path) as log:
        stream = EventStream(STREAM_ID, log, None, ())
        send(stream, 1)
        stream.ingest()
        send(stream, 2, 666, 3)
        stream.ingest()
        assert booked(log) == [1, 2, 3]
        assert (len(stream.quarantined), stream.waiting, log.received_bytes) == (1, 0, 0)
        send(stream, 4)
        payloads = list(log.received())
    with LiveLog.open(tmp_path) as log:
        stream = EventStream(STREAM_ID, log, log.states()[STREAM_ID], payloads)
        assert (stream.waiting, stream.cursor) == (1, {"at": "4"})
        stream.ingest()
        assert booked(log) == [1, 2, 3, 4]
        assert stream.waits_since() is None


def test_what_cannot_be_stored_now_is_stored_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits, counts once, and is gone from the log then, though no rows came of it."""
    with LiveLog.open(tmp_path) as log:
        stream = EventStream(STREAM_ID, log, None, ())
        send(stream, 1, 2)

        def refuse(*_: Any) -> int:
            raise StoreError("the disk is full")

        with monkeypatch.context() as full:
            full.setattr(log, "book", refuse)
            with pytest.raises(StoreError):
                stream.ingest()
        assert stream.waiting == 2
        stream.ingest()
        assert booked(log) == [1, 2]
        assert (stream.waiting, log.received_bytes) == (0, 0)


def test_a_payload_that_arrives_while_another_is_quarantined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was kept after the log was read again, and is booked as well."""
    with LiveLog.open(tmp_path) as log:
        stream = EventStream(STREAM_ID, log, None, ())
        send(stream, 1, 666)
        usual = stream._list_waiting

        def list_and_receive() -> list[tuple[int, ReceivedBody]]:
            found = usual()
            payload = ReceivedBody(STREAM_ID, EVENTS, 0, pack_events([2], {}))
            there = threading.Event()

            def arrive(number: int) -> None:
                stream._arrived.append((number, payload))
                there.set()

            stream._keep(payload, 0.0, arrive)
            assert there.wait(LONGEST_S)
            return found

        monkeypatch.setattr(stream, "_list_waiting", list_and_receive)
        stream.ingest()
        assert booked(log) == [1, 2]
        assert stream.waiting == 0
