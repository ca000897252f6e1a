"""Where settings come from: loadfactor.toml or the file chosen in its place, and taken anew where that changes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadfactor.base.errors import InputError
from loadfactor.books.entry_rules import EntryRules
from loadfactor.settings.config import CHOSEN, choose_file, settings, take_changes


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file chosen in place of that of the working folder, in which there is another."""
    monkeypatch.chdir(tmp_path)
    before = CHOSEN.path
    (tmp_path / "loadfactor.toml").write_text("idle_below = 0.01\n")
    path = tmp_path / "etc" / "server.toml"
    path.parent.mkdir()
    path.write_text('idle_below = 0.2\n[[tag]]\nmatch = { user = "ann" }\nteam = "vision"\n')
    choose_file(path)
    yield path
    CHOSEN.path = before
    settings.cache_clear()


def write_later(path: Path, text: str) -> None:
    """Another content, written at another time than the one before."""
    path.write_text(text)
    at = path.stat().st_mtime_ns + 1_000_000
    os.utime(path, ns=(at, at))


@pytest.mark.usefixtures("chosen")
def test_the_chosen_file_counts_everywhere() -> None:
    """For policies and for the rules of rows that enter; not the one of the working folder."""
    assert settings().idle_below == 0.2
    assert EntryRules()().tag is not None


def test_changes_are_taken_and_mistakes_are_not(chosen: Path) -> None:
    """A file that cannot be read, is wrong or gone for a moment leaves what was; the next good one counts."""
    take_changes()
    same = settings()
    take_changes()
    assert settings() is same
    write_later(chosen, "idle_below = ")
    take_changes()
    assert settings() is same
    write_later(chosen, '[[owned]]\naccelerator = "h100-sxm"\nserver_price = 300_000\n')
    take_changes()
    assert [pool.label for pool in settings().owned] == ["h100-sxm"]


def test_a_wrong_file_is_refused_when_it_is_chosen(chosen: Path) -> None:
    """In one line with its name."""
    chosen.write_text("idle_belwo = 1\n")
    with pytest.raises(InputError, match=r"server\.toml"):
        choose_file(chosen)
