"""What is older than it is kept is dropped by a command, and by a server once a day, and both say what that was."""

import re
from pathlib import Path
from typing import Any

from tests.books.conftest import Write, write
from tests.books.test_retention import DAY, START, make_books
from tests.commands import Run
from tests.interfaces.web.test_web_pages import serve

from loadfactor.interfaces.server.retention_service import RetentionService

__all__ = ["write"]


def test_a_server_drops_once_a_day_and_says_what(tmp_path: Path, write: Write) -> None:
    """A line a table, and not again on the same day."""
    write('[retention]\nsamples = "7d"\n')
    said: list[dict[str, Any]] = []
    books = make_books(tmp_path, days=3)
    service = RetentionService(books, lambda **facts: said.append(facts))
    assert service.drop()
    assert service.drop()
    (dropped,) = said
    assert (dropped["table"], dropped["days"]) == ("samples", 3)
    assert books.store.manifest.of("samples") == ()


def test_the_command_says_what_goes_and_pages_say_what_is_gone(run: Run, tmp_path: Path, write: Write) -> None:
    """Before and after it goes; numbers stay, and pages say which days are without samples."""
    write('[retention]\nsamples = "30d"\n')
    make_books(tmp_path, days=3)
    there = ("--store", tmp_path / "store")
    asked = ("show", "cost", "utilization", "--by", "device", *there, "--json")
    before = run(*asked)[1]
    assert run("retain", "--dry-run", *there)[1].startswith("Would drop 288 rows of samples (3 days")
    assert run(*asked)[1] == before
    assert run("retain", *there)[1].startswith("Dropped 288 rows of samples (3 days")
    assert run("retain", *there)[1].startswith("Nothing is older than it is kept.")
    assert run(*asked)[1] == before
    doctor = run("doctor", *there, "--json")[1]
    assert "samples of 2026-01-01 to 2026-01-03 were dropped ([retention] samples); their ledger stays" in doctor
    assert "a diagnosis has nothing of them" in " ".join(run("diagnose", *there)[1].split())
    assert "their ledger stays as it was booked" in " ".join(run("rebuild", *there)[1].split())
    assert run(*asked)[1] == before
    code, _, error = run("alerts", "test", *there)
    assert code == 2
    assert "Samples of 2026-01-01 to 2026-01-03 were dropped" in error


def test_a_server_says_from_when_samples_are_kept(tmp_path: Path, write: Write) -> None:
    """On the page of sources and as a gauge; nothing of it where none were dropped."""
    write('[retention]\nsamples = "7d"\n')
    books = make_books(tmp_path, days=3)
    gauge = "loadfactor_samples_begin_timestamp_seconds"
    for begins in (None, (START + 3 * DAY) // 1000):
        with serve(books) as browser:
            found = re.findall(rf"^{gauge} (.+)$", browser.get("/metrics").text, re.MULTILINE)
            assert [float(value) for value in found] == ([] if begins is None else [begins])
            assert ("Samples are kept from 2026-01-04 on" in browser.get("/sources").text) == (begins is not None)
        RetentionService(books, lambda **_: None).drop()
