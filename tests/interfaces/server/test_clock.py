"""The server follows its clock, wherever it is set, and says that it was."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.insight.alerts.small_fleet import HOUR, MINUTE, START, make_books, make_tables
from tests.waiting import LONGEST_S

import loadfactor.base.clock as base_clock
from loadfactor.books.books import Books
from loadfactor.collect import live
from loadfactor.collect.live import CLOCK_S, LiveService
from loadfactor.insight.alerts.delivery.board import read_board
from loadfactor.insight.alerts.delivery.outbox import Judged, Outbox, read_outbox
from loadfactor.insight.alerts.judge import Judge
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.server import alert_service
from loadfactor.interfaces.server.alert_service import AlertService
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.reading import iso
from loadfactor.settings.config import Settings
from loadfactor.store.live import LiveLog
from loadfactor.store.source_status import read_statuses

DAY = 24 * HOUR
JUDGE_AFTER = 90_000


class SetClock:
    """A clock that stands where it is set."""

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms

    def __call__(self) -> int:
        """What it shows."""
        return self.at_ms


async def wait_until(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    """Until something holds."""
    try:
        async with asyncio.timeout(LONGEST_S):
            while not holds():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(str(what()))


def list_firing(folder: Path) -> set[str]:
    """The rules of alerts that fire."""
    return {listed.alert.rule for listed in read_board(folder, 0, ("firing",)).alerts}


def run_through(books: Books, clock: SetClock, *times: int) -> tuple[list[set[str]], list[str]]:
    """Run a judge with its clock set to each of these; what fires after each, and what it noted."""
    notes: list[str] = []
    fires: list[set[str]] = []

    async def run() -> None:
        service = AlertService(books, Settings(), "http://here", notes.append, clock)
        running = asyncio.create_task(service.run())
        for at_ms in times:
            clock.at_ms = at_ms
            expected = iso(instant((at_ms - JUDGE_AFTER) // MINUTE * MINUTE))
            await wait_until(partial(lambda judged: service.health()["judged"] == judged, expected), service.health)
            fires.append(list_firing(books.store.folder))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.to_thread(service.stop)

    asyncio.run(run())
    return fires, notes


def count_keys(folder: Path) -> Counter[str]:
    """How often each alert fired and was resolved, as receivers hear it."""
    with read_outbox(folder) as connection:
        assert connection is not None
        rows = connection.execute("SELECT fingerprint, state FROM transitions ORDER BY number").fetchall()
    lasts: dict[str, str] = {}
    for fingerprint, state in rows:
        assert lasts.get(fingerprint, "resolved") != state, "told twice in a row"
        lasts[fingerprint] = state
    return Counter(lasts.values())


@pytest.mark.parametrize(
    ("by_s", "said"),
    [(10_800, "forward by 3 h"), (-86_400, "back by 24 h"), (3.2e7, "forward by 370.4 days"), (0.4, "")],
)
def test_a_clock_that_is_set_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_s: float, said: str) -> None:
    """In the log once, in /health and, out of the file beside the books, in `doctor`, for an hour of the monotonic clock."""
    passed, stepped, logged = [0.0], [0.0], list[object]()
    now = SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() + passed[0])
    monkeypatch.setattr(
        base_clock, "time", SimpleNamespace(time=lambda: now.time() + stepped[0], monotonic=time.monotonic)
    )
    monkeypatch.setattr(live, "time", SimpleNamespace(time=time.time, monotonic=now.monotonic))

    async def run() -> None:
        with LiveLog.open(tmp_path) as log:
            service = LiveService(
                tmp_path, lambda: 0, log, Settings(), lambda **fields: logged.append(fields.get("what"))
            )
            await service._ingest()
            stepped[0] = by_s
            await service._ingest()
            await service._ingest()
            await service._keep_statuses()
            named = [source for source in service.health()["sources"] if source["name"] == "clock"]
            assert service.health()["status"] == ("degraded" if said else "ok")
            kept = [status.error for status in read_statuses(tmp_path) if status.name == "clock"]
            assert (
                [source["error"] for source in named]
                == kept
                == logged
                == ([f"our clock was set {said}"] if said else [])
            )
            passed[0] = CLOCK_S
            assert service.health()["status"] == "ok"
            service.collector.close()

    asyncio.run(run())


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Books:
    """A job that works for two hours and is idle since, of which samples came for six hours."""
    monkeypatch.setattr(alert_service, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(alert_service, "MOST_BUSY", 1e9)
    books = make_books(tmp_path, make_tables(lambda minute: (0.8 if minute < 120 else 0.0) if minute < 360 else None))
    began = Judge(RULES, START + 3 * HOUR)
    with closing(Outbox(books.store.folder)) as outbox:
        outbox.keep(Judged(began.judged_ms, began.dump(), []), [], (), began.judged_ms)
    return books


@pytest.mark.long
def test_a_clock_that_is_set_is_followed(books: Books) -> None:
    """Three hours ahead and back, a day behind, a year ahead and back: what fires at a time is what fires there anyhow."""
    at = START + 6 * HOUR
    times = (at - 2 * HOUR, at, at + 3 * HOUR, at + 2 * MINUTE, at - DAY, at + 365 * DAY, at + 4 * MINUTE)
    fires, notes = run_through(books, SetClock(times[0]), *times)
    idle = fires[1]
    assert "job_became_idle" in idle
    assert "telemetry_lost" in fires[2]  # for three hours nothing comes
    assert fires[3] == idle
    assert fires[4] == set()
    assert fires[6] == idle
    ahead = (at + 3 * HOUR, at + 2 * MINUTE, at + 365 * DAY)
    said = (iso(instant((then - JUDGE_AFTER) // MINUTE * MINUTE)) for then in ahead)
    assert notes == [f"alerts were judged until {then}: our clock was ahead" for then in said]
    count_keys(books.store.folder)


@pytest.mark.parametrize("ahead", [3 * HOUR, pytest.param(365 * DAY, marks=pytest.mark.long)])
def test_a_judge_that_was_ahead_before_it_was_started_again_goes_on_now(books: Books, ahead: int) -> None:
    """The clock was three hours, or a year, ahead when the server was started, and was right at the next start."""
    at = START + 6 * HOUR
    run_through(books, SetClock(at), at + ahead)
    fires, notes = run_through(books, SetClock(at), at)
    assert "telemetry_lost" not in fires[0]
    (note,) = notes
    assert note.startswith("alerts were judged until ")
    assert note.endswith("our clock was ahead")
