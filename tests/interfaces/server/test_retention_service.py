"""A server drops what is older than it is kept, once a day, and says so in its log."""

from pathlib import Path
from typing import Any

from tests.books.conftest import Write, write
from tests.books.test_retention import make_books

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
