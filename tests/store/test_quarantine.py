"""Quarantine keeps everything: a file that is set aside never takes the place of another."""

from pathlib import Path

from loadfactor.store import disk
from loadfactor.store.live_database import ReceivedBody, list_quarantined, quarantine_body


def test_file_of_the_same_name_is_kept_beside_the_first(tmp_path: Path) -> None:
    """Three damaged manifests that were set aside one after the other are three files."""
    quarantine = tmp_path / "quarantine"
    quarantine.mkdir()
    for text in ("first", "second", "third"):
        (tmp_path / "manifest.json").write_text(text)
        disk.move_aside(tmp_path / "manifest.json", quarantine)
    texts = {path.name: path.read_text() for path in quarantine.iterdir()}
    assert texts == {"manifest.json": "first", "manifest.json.2": "second", "manifest.json.3": "third"}


def test_body_of_the_same_number_is_kept_beside_the_first(tmp_path: Path) -> None:
    """A new log begins at 1 again: its first body is no copy of the first body of the log before; the same body is kept once."""
    for content in (b"before", b"after", b"after"):
        quarantine_body(tmp_path, 1, ReceivedBody("a", "query", 0, content))
    assert sorted(path.read_bytes() for path in list_quarantined(tmp_path)) == [b"after", b"before"]
