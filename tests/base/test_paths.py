"""Paths mean one thing wherever they are written: ~, links, the environment and loadfactor.toml."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.base.paths import read_path, read_store
from loadfactor.interfaces.requests import StoreRequest, find_store
from loadfactor.settings.config import settings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    settings.cache_clear()
    yield home
    settings.cache_clear()


def test_a_tilde_is_the_home_folder_everywhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option, the environment, the settings file and Python take ~ alike."""
    assert read_path("~/a") == find_store(Path("~/a")) == home / "a"
    assert StoreRequest(store="~/a").store == home / "a"  # type: ignore[arg-type]
    Path("loadfactor.toml").write_text('store = "~/b"')
    assert find_store(None) == home / "b"
    settings.cache_clear()
    monkeypatch.setenv("LOADFACTOR_STORE", "~/c")
    assert find_store(None) == home / "c"
    assert loadfactor.open("~/d", create=True).store.folder == home / "d"


@pytest.mark.parametrize("text", ["~nobody-of-that-name/x", "a\0b"])
def test_a_path_that_cannot_be_is_refused(text: str) -> None:
    """A home folder of nobody and a NUL are one line."""
    with pytest.raises(InputError, match=r"no such home folder|no path"):
        read_path(text)


def test_a_linked_store_is_the_store(home: Path) -> None:
    """A link, also one on the way or to a folder that is not there yet, means what it points to; others stay as written."""
    (home / "real").mkdir()
    Path("link").symlink_to(home / "real")
    Path("later").symlink_to(home / "not-yet")
    assert read_store("link") == home / "real"
    assert read_store("link/books") == home / "real" / "books"
    assert read_store("later") == home / "not-yet"
    assert read_store("plain") == Path("plain")
    assert read_store(Path("a") / ".." / "plain") == Path("a/../plain")


def test_memory_is_an_amount(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory setting is read as the engine writes it; anything else names the setting."""
    assert os.path.samefile(home, Path.home())
    monkeypatch.setenv("LOADFACTOR_MEMORY", "4GB")
    assert settings().memory == "4GB"
    settings.cache_clear()
    monkeypatch.setenv("LOADFACTOR_MEMORY", "much")
    with pytest.raises(InputError, match="LOADFACTOR_MEMORY: 'much' is no amount of memory"):
        settings()
