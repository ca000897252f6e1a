"""What is older than it is kept is dropped by a command, and by a server once a day, and both say what that was."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.books.conftest import Write, write
from tests.books.test_retention import DAY, START, make_books
from tests.commands import Run
from tests.interfaces.web.test_web_pages import serve

from loadfactor.interfaces.server import clock_service
from loadfactor.interfaces.server.retention_service import RetentionService
from loadfactor.store import trusted_time

__all__ = ["write"]


def set_clock(monkeypatch: pytest.MonkeyPatch, at_ms: int) -> None:
    """Have the clock say this time to whatever measures age."""
    for module in (trusted_time, clock_service):
        monkeypatch.setattr(module, "read_machine_ms" if module is trusted_time else "now_ms", lambda: at_ms)


def test_a_server_drops_once_a_day_and_says_what(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line a table, and not again on the same day."""
    set_clock(monkeypatch, START + 12 * DAY)
    write('[retention]\nsamples = "7d"\n')
    said: list[dict[str, Any]] = []
    books = make_books(tmp_path)
    service = RetentionService(books, lambda **facts: said.append(facts))
    assert service.drop()
    assert service.drop()
    (dropped,) = said
    assert (dropped["table"], dropped["days"]) == ("samples", 5)
    assert len({f.day for f in books.store.manifest.of("samples")}) == 7


@pytest.mark.long
@pytest.mark.parametrize("years", [-2, 2])
def test_a_clock_that_is_wrong_drops_nothing(
    years: int, tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two years ahead or behind, 12 days of samples stay with 7 days kept; the log says so once, /health is degraded."""
    write('[retention]\nsamples = "7d"\n')
    books = make_books(tmp_path)
    said: list[dict[str, Any]] = []
    service = RetentionService(books, lambda **facts: said.append(facts))
    set_clock(monkeypatch, START + 12 * DAY + years * 365 * DAY)
    assert not service.drop()
    assert not service.drop()
    assert len({f.day for f in books.store.manifest.of("samples")}) == 12
    (line,) = said
    assert "--confirm" in line["error"]
    with serve(books) as browser:
        health = browser.get("/health").json()
    assert health["status"] == "degraded"
    assert health["clock"]["deletions"] == "stopped"
    assert health["clock"]["newest_trusted_utc"] == "2026-01-12T23:30:00Z"
    assert abs(health["clock"]["ahead_s"] - years * 365 * DAY / 1000) < DAY / 1000
    set_clock(monkeypatch, START + 12 * DAY)
    assert service.drop()
    assert len(said) == 2


def test_a_stopped_clock_without_retention_is_only_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is deleted anyway: books of last year are shown with status ok."""
    books = make_books(tmp_path, days=1)
    set_clock(monkeypatch, START + 400 * DAY)
    with serve(books) as browser:
        health = browser.get("/health").json()
    assert (health["status"], health["clock"]["deletions"]) == ("ok", "stopped")


@pytest.mark.long
def test_the_command_says_what_goes_and_pages_say_what_is_gone(run: Run, tmp_path: Path, write: Write) -> None:
    """Before and after it goes; numbers stay, and pages say which days are without samples."""
    write('[retention]\nsamples = "30d"\n')
    make_books(tmp_path, days=3)
    there = ("--store", tmp_path / "store")
    asked = ("show", "cost", "utilization", "--by", "device", *there, "--json")
    before = run(*asked)[1]
    assert run("retain", "--dry-run", *there)[1].startswith("Would drop 288 rows of samples (3 days")
    assert run(*asked)[1] == before
    code, _, error = run("retain", *there)
    assert (code, len(error.strip().splitlines())) == (1, 1)
    assert "`loadfactor retain --confirm` permits one run" in error
    assert run(*asked)[1] == before
    assert run("retain", "--confirm", *there)[1].startswith("Dropped 288 rows of samples (3 days")
    assert run("retain", "--confirm", *there)[1].startswith("Nothing is older than it is kept.")
    assert run(*asked)[1] == before
    doctor = run("doctor", *there, "--json")[1]
    assert "samples of 2026-01-01 to 2026-01-03 were dropped ([retention] samples); their ledger stays" in doctor
    assert "a diagnosis has nothing of them" in " ".join(run("diagnose", *there)[1].split())
    assert "their ledger stays as it was booked" in " ".join(run("rebuild", *there)[1].split())
    assert run(*asked)[1] == before
    code, _, error = run("alerts", "test", *there)
    assert code == 2
    assert "Samples of 2026-01-01 to 2026-01-03 were dropped" in error


@pytest.mark.long
def test_a_server_says_from_when_samples_are_kept(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the page of sources and as a gauge; nothing of it where none were dropped."""
    write('[retention]\nsamples = "7d"\n')
    books = make_books(tmp_path, days=8)
    set_clock(monkeypatch, START + 8 * DAY)
    gauge = "loadfactor_samples_begin_timestamp_seconds"
    for begins in (None, (START + DAY) // 1000):
        with serve(books) as browser:
            found = re.findall(rf"^{gauge} (.+)$", browser.get("/metrics").text, re.MULTILINE)
            assert [float(value) for value in found] == ([] if begins is None else [begins])
            assert ("Samples are kept from 2026-01-02 on" in browser.get("/sources").text) == (begins is not None)
        RetentionService(books, lambda **_: None).drop()
