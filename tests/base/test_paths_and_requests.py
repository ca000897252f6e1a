"""Paths mean one thing wherever they are written; what a command takes is read as people write it, or refused in one line."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import typer
from typer.testing import CliRunner

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.base.paths import read_path, read_store
from loadfactor.base.request import Request, make_request, option
from loadfactor.interfaces.cli.commands import CommandEntry, LazyGroup
from loadfactor.interfaces.document import DataTable, Document, Section, TableColumn
from loadfactor.interfaces.functions import make_function
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


@dataclass(frozen=True, kw_only=True)
class FlightRequest(Request):
    """A small request with one field of each kind."""

    model: str = option("What flies.", short="-m")
    gpus: tuple[int, ...] = option("How many.", (8,), at_least=1)
    tokens: float = option("How much.", 1e12, above=0)
    scaling: Literal["strong", "weak"] = option("How it grows.", "strong")
    price: float | None = option("What it costs.", None, above=0)
    overlap: bool = option("Whether it overlaps.", True)
    data: Path | None = option("Where it is.", None)


def build(request: FlightRequest) -> Document:
    table = DataTable((TableColumn("model"), TableColumn("GPUs", "number")), ((request.model, request.gpus[0]),))
    return Document(f"{request.model} flies.", (Section("Table", tables=(table,)),), data=request)


class Flights(LazyGroup):
    """One command made of a request."""

    entries = (CommandEntry("fly", "Fly.", f"{__name__}.build", f"{__name__}.FlightRequest"),)


app = typer.Typer(cls=Flights)
app.callback()(lambda: None)


def test_the_command_and_the_function_give_the_same_data() -> None:
    """A command and its Python function read the same values and print the same JSON."""
    function = make_function("fly", FlightRequest, build, "Fly.")
    words = ["fly", "-m", "a", "--gpus", "8,16", "--gpus", "32", "--tokens", "15T", "--json"]
    page = function(model="a", gpus=(8, 16, 32), tokens=15e12)
    assert CliRunner().invoke(app, words).stdout.strip() == page.to_json()
    assert '"tokens": 15000000000000.0' in page.to_json()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tokens": "nan"}, "--tokens must be above 0, got nan"),
        ({"tokens": "-3"}, "--tokens must be above 0, got -3"),
        (
            {"tokens": "many"},
            "--tokens must be above 0, got many, which is no number; write 512, 20k, 1.5M, 15T or 15e12",
        ),
        ({"gpus": "8,0"}, "--gpus must be at least 1, got 0"),
        ({"overlap": "no"}, "--overlap is true or false, got 'no'"),
        ({"data": 5}, "--data must be a path, got 5"),
        (
            {"data": "~nobody-of-this-name/x"},
            "--data ~nobody-of-this-name/x: there is no such home folder; write the path in full",
        ),
        ({"gpus": 8.5}, "--gpus must be a whole number, got 8.5"),
        ({"scaling": "stong"}, "no scaling called 'stong'; did you mean 'strong'?"),
        ({"gpu": 8}, "no argument called 'gpu'; did you mean 'gpus'?"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, object], message: str) -> None:
    """A value that makes no sense is refused in one line that names the option."""
    with pytest.raises(InputError) as refused:
        make_request(FlightRequest, {"model": "a", **given})
    assert str(refused.value) == message


def test_a_missing_value_is_named() -> None:
    """What must be given and is not is named with what it means."""
    with pytest.raises(InputError, match="--model is missing: What flies"):
        make_request(FlightRequest, {})


def test_brief_keeps_the_sentence_and_the_main_table() -> None:
    """`--brief` shows the headline and the first table."""
    shown = CliRunner().invoke(app, ["fly", "-m", "a", "--brief"]).stdout
    assert shown.splitlines()[0] == "a flies."
    assert "Table" not in shown
    assert "GPUs" in shown
