"""Defects of ours in the log: the traceback once per cause, then a count, with the name of the source, whatever runs it."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadfactor.base import defects
from loadfactor.base.defects import DEFECTS, DefectLog
from loadfactor.base.errors import StoreError
from loadfactor.books.books import Books
from loadfactor.collect.backups import ScheduledBackups
from loadfactor.collect.http_fetch import RequestPools
from loadfactor.collect.live import LiveService
from loadfactor.collect.pull import Chunk, ScheduledPull
from loadfactor.collect.scrape_group import ScrapeGroup
from loadfactor.insight.alerts.delivery.dispatcher import Dispatcher
from loadfactor.interfaces.server.alert_service import AlertService
from loadfactor.interfaces.server.digest_service import DigestService
from loadfactor.interfaces.server.retention_service import RetentionService
from loadfactor.interfaces.server.run import _LogLines
from loadfactor.settings.alerts import WebhookReceiver
from loadfactor.settings.config import Settings
from loadfactor.settings.server import BackupSettings
from loadfactor.settings.sources import DcgmExporters
from loadfactor.store.live import LiveLog


def fail(*_args: object, **_named: object) -> Any:
    """A defect."""
    raise ZeroDivisionError("a defect")


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The log of a server, and no defects seen before."""
    monkeypatch.setattr(DEFECTS, "_seen", {})
    handler = _LogLines()
    logging.getLogger("loadfactor").addHandler(handler)
    yield
    logging.getLogger("loadfactor").removeHandler(handler)


def read_lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The lines of the log that are of defects."""
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("message") == "a defect of loadfactor"]


def make_defect() -> Exception:
    """The error of a call inside the package with what it does not take."""
    try:
        defects.find_cause(None)  # type: ignore[arg-type]
    except AttributeError as error:
        return error
    raise AssertionError


def test_a_cause_has_its_traceback_once_and_then_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    """A thousand failures of one cause are four lines: the first with the traceback, and those of 10, 100 and 1,000."""
    log = DefectLog()
    for number in range(1_000):
        assert log.explain(f"source {number}", make_defect()).startswith("AttributeError: ")
    lines = read_lines(capsys)
    assert [line["count"] for line in lines] == [1, 10, 100, 1_000]
    assert ["traceback" in line for line in lines] == [True, False, False, False]
    assert "in find_cause" in lines[0]["traceback"]
    assert [line["source"] for line in lines] == ["source 0", "source 9", "source 99", "source 999"]
    assert all(line["cause"].startswith("AttributeError at base/defects.py:") for line in lines)


def test_a_cause_that_lasts_is_logged_once_an_hour(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three failures, the last an hour after the first, are two lines."""
    log, now_s = DefectLog(), [0.0]
    monkeypatch.setattr(defects, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    for at_s in (0.0, 60.0, defects.AGAIN_S):
        now_s[0] = at_s
        log.explain("dcgm a", make_defect())
    assert [line["count"] for line in read_lines(capsys)] == [1, 3]


def test_two_causes_have_a_traceback_each(capsys: pytest.CaptureFixture[str]) -> None:
    """The type and the innermost line of ours tell them apart."""
    log = DefectLog()
    log.explain("dcgm a", make_defect())
    log.explain("dcgm a", ValueError("no frame at all"))
    assert ["traceback" in line for line in read_lines(capsys)] == [True, True]


def test_an_expected_failure_is_no_defect(capsys: pytest.CaptureFixture[str]) -> None:
    """An error of the package's own says all in its line, and stands in no log here."""
    assert DefectLog().explain("dcgm a", StoreError("the disk is full")) == "the disk is full"
    assert read_lines(capsys) == []


class BrokenPull(ScheduledPull):
    """A pull whose source has a defect."""

    async def fetch_next(self, to_ms: int) -> Chunk:
        """Raise."""
        return fail(to_ms)  # type: ignore[no-any-return]


async def run_for_one_failure(work: Any, seen: Callable[[], bool]) -> None:
    """Run until a failure was seen."""
    task = asyncio.create_task(work)
    async with asyncio.timeout(30):
        while not seen() and not task.done():
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def break_pull(_folder: Path) -> None:
    pull = BrokenPull("prometheus a", 1.0, 0, fail)
    asyncio.run(run_for_one_failure(pull.run(), lambda: bool(pull.errors)))


def break_group(_folder: Path) -> None:
    settings = DcgmExporters(name="a", targets=("127.0.0.1:1",))
    finder: Any = SimpleNamespace(find=fail, every_s=0.02)
    group = ScrapeGroup(settings, RequestPools(), fail, finder=finder)
    asyncio.run(run_for_one_failure(group.run(), lambda: bool(group.error)))


def break_backup(_folder: Path) -> None:
    source = ScheduledBackups(BackupSettings(to="/mnt/a"), fail, {})
    source._stopped = threading.Event()
    threading.Timer(0.1, source._stopped.set).start()
    source._repeat()


def break_receiver(_folder: Path) -> None:
    receiver = WebhookReceiver(name="a", kind="webhook", url="http://10.0.0.1/")
    outbox: Any = SimpleNamespace()
    dispatcher = Dispatcher(receiver, outbox, SimpleNamespace(takes_all=False, send=fail))  # type: ignore[arg-type]
    asyncio.run(run_for_one_failure(dispatcher.run(), lambda: bool(dispatcher.trouble.cause)))


def break_alerts(folder: Path) -> None:
    service = AlertService(Books(folder), Settings(), "http://here")
    asyncio.run(service._try(fail))
    assert [reason.component for reason in service.reasons()] == ["alerts"]
    service.stop()


def break_digests(folder: Path) -> None:
    service = DigestService(Books(folder), Settings(), "http://here")
    service._is_wanted, service._look = True, fail  # type: ignore[method-assign]
    asyncio.run(run_for_one_failure(service.run(), lambda: bool(service.reasons())))
    service.stop()


def break_retention(_folder: Path) -> None:
    books: Any = SimpleNamespace(retain=fail)
    service = RetentionService(books, lambda **_: None)
    assert not service.drop()
    assert [reason.component for reason in service.reasons()] == ["retention"]


def break_live(folder: Path, part: str) -> None:
    folder.mkdir()
    with LiveLog.open(folder) as log:
        service = LiveService(folder, fail if part == "flush" else lambda: 0, log, Settings(), lambda **_: None)
        if part == "ingest":
            service.collector.sent.ingest = fail  # type: ignore[method-assign]
            asyncio.run(service._ingest())
        else:
            service._flush_rows()
        assert [reason.component for reason in service.reasons()] == ["store"]
        assert "ZeroDivisionError" in str(service.health()["error"])
        service.collector.close()


@pytest.mark.parametrize(
    ("source", "break_it"),
    [
        ("prometheus a", break_pull),
        ("dcgm a", break_group),
        ("backup /mnt/a", break_backup),
        ("receiver a", break_receiver),
        ("alerts", break_alerts),
        ("digests", break_digests),
        ("retention", break_retention),
        ("remote_write", lambda folder: break_live(folder, "ingest")),
        ("flush", lambda folder: break_live(folder, "flush")),
    ],
)
def test_a_defect_of_a_part_is_in_the_log_with_its_name(
    source: str, break_it: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One JSON line has the traceback and the name of what failed, and the part goes on."""
    break_it(tmp_path / "books")
    first = read_lines(capsys)[0]
    assert (first["source"], first["count"], first["level"]) == (source, 1, "error")
    assert "Traceback" in first["traceback"]
