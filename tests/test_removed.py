"""What was removed: none of it exists any more, and refusals say what to use instead. `UPDATE_PAGES=1` writes docs/removed.md."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from starlette.testclient import TestClient
from tests.commands import Run, make_run

from loadfactor.base import removed
from loadfactor.base.errors import InputError
from loadfactor.base.removed import find_removal, find_removed_address, list_removals, refuse_removed, write_page
from loadfactor.base.request import Option, options_of
from loadfactor.books.books import Books
from loadfactor.interfaces.cli import COMMANDS
from loadfactor.interfaces.cli.commands import CommandEntry
from loadfactor.interfaces.known import find
from loadfactor.interfaces.server.app import NEEDS_OF_ALL, make_app
from loadfactor.interfaces.server.guard import Guard
from loadfactor.interfaces.server.run import AtRest
from loadfactor.settings.config import read_settings
from loadfactor.settings.reference import list_settings
from loadfactor.store.tokens import TokenFile

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "removed.md"
CHART = ROOT / "packaging" / "chart" / "values.yaml"
EXAMPLES = """\
[[removal]]
commands = ["gauge", "bill discounts"]
options = ["show --weekly"]
values = ["rebuild --engine abacus", "show --order sideways"]
settings = ["[[gadget]]", "server.colour"]
addresses = ["/gauge"]
usages = ["two windows"]
version = "0.1.0"
use = "`show`"
"""


def collect_commands(entries: Sequence[CommandEntry] = COMMANDS, group: str = "") -> dict[str, CommandEntry]:
    """Every command by the words behind `loadfactor`."""
    by_words: dict[str, CommandEntry] = {}
    for entry in entries:
        words = f"{group} {entry.name}".strip()
        by_words[words] = entry
        by_words |= collect_commands(entry.commands, words)
    return by_words


def collect_options() -> dict[str, Option]:
    """Every option by command and flag."""
    return {
        f"{words} {option.flag}": option
        for words, entry in collect_commands().items()
        for option in options_of(find(entry.request))
    }


def list_chart_values(table: dict[str, object], above: str = "") -> list[str]:
    """Every value of the chart, with the tables that it is in."""
    values = []
    for name, value in table.items():
        values.append(above + name)
        if isinstance(value, dict):
            values += list_chart_values(value, f"{above}{name}.")
    return values


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line in this process."""
    return make_run(capsys, monkeypatch)


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A removed.toml with one name of each kind that this program never had."""
    listed = tmp_path / "removed.toml"
    listed.write_text(EXAMPLES, encoding="utf-8")
    monkeypatch.setattr(removed, "LIST", listed)
    list_removals.cache_clear()
    yield
    list_removals.cache_clear()


def test_page_of_removals_is_generated() -> None:
    """docs/removed.md has a row per removal of removed.toml."""
    if os.environ.get("UPDATE_PAGES"):
        PAGE.write_text(write_page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == write_page()


def test_removed_commands_are_gone() -> None:
    """`top` is in no list of commands."""
    assert not [r.name for r in list_removals() if r.kind == "commands" and r.name in collect_commands()]


def test_removed_options_are_gone() -> None:
    """`backup` has no --schedule, and no --engine names spark-sql."""
    options = collect_options()
    assert not [r.name for r in list_removals() if r.kind == "options" and r.name in options]
    values = [r.name.rpartition(" ") for r in list_removals() if r.kind == "values"]
    assert not [
        (o, v)
        for o, _, v in values
        if o not in options or re.search(rf"(?<![\w-]){v}(?![\w-])", f"{options[o].choices} {options[o].help}")
    ]


def test_removed_settings_are_gone() -> None:
    """Neither a table [pair] nor a setting in it is described."""
    names = {entry.name.replace("[]", "") for entry in list_settings()}
    tables = {name.rpartition(".")[0] for name in names}
    removed_names = [r.name.strip("[]") for r in list_removals() if r.kind == "settings"]
    assert not (names | tables).intersection(removed_names)


def test_removed_chart_values_are_gone() -> None:
    """`pair` is no key of the chart's values."""
    values = list_chart_values(yaml.safe_load(CHART.read_text(encoding="utf-8")))
    assert not [r.name for r in list_removals() if r.kind == "chart_values" and r.name in values]


def test_removed_addresses_are_gone() -> None:
    """No endpoint is at or below `/t`."""
    assert not [path for _, path in NEEDS_OF_ALL if find_removed_address(path)]


def test_removed_usages_are_refused_somewhere() -> None:
    """The code that meets one names it as removed.toml does."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    usages = [r.name for r in list_removals() if r.kind == "usages"]
    assert not [name for name in usages if f'refuse_removed("usages", "{name}")' not in source]


def test_every_removed_command_says_what_to_use_instead(run: Run) -> None:
    """`loadfactor top --help` leaves with 2 and "`top` was removed in 0.1.0; use nvitop, or …"."""
    for removal in list_removals():
        if removal.kind in ("commands", "options"):
            assert run(*removal.name.split(), "--help") == (2, "", f"loadfactor: {removal.sentence}\n")


def test_every_removed_setting_says_what_to_use_instead(tmp_path: Path) -> None:
    """A file with [pair] is refused with its name and the sentence."""
    path = tmp_path / "loadfactor.toml"
    for removal in list_removals():
        if removal.kind == "settings":
            path.write_text(f"{removal.name}\n" if "[" in removal.name else f"{removal.name} = 1\n")
            with pytest.raises(InputError) as refused:
                read_settings(path)
            assert str(refused.value) == f"{path}: {removal.sentence}"


def test_every_removed_address_says_what_to_use_instead(tmp_path: Path) -> None:
    """GET /t/red, and what is below it, answers 410 with the sentence, also to who has no token."""
    store = tmp_path / "books"
    app = make_app(Books(store), AtRest(), Guard(TokenFile(store)))
    with TestClient(app, "http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        for removal in list_removals():
            if removal.kind == "addresses":
                for path in (removal.name, f"{removal.name}/below?a=1"):
                    answer = client.get(path)
                    assert (answer.status_code, answer.json()) == (410, {"error": removal.sentence})
        assert client.get("/nowhere").status_code == 404


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("gauge", "gauge"),
        ("gauge --once --help", "gauge"),
        ("bill discounts --month 2026-10", "bill discounts"),
        ("show cost --weekly", "show --weekly"),
        ("show cost --weekly=3 --help", "show --weekly"),
        ("rebuild --engine abacus", "rebuild --engine abacus"),
    ],
)
def test_removed_words_of_the_command_line_are_refused_in_one_line(
    words: str, name: str, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`loadfactor gauge` leaves with 2 and "`gauge` was removed in 0.1.0; use `show`"."""
    monkeypatch.chdir(tmp_path)
    assert run(*words.split()) == (2, "", f"loadfactor: `{name}` was removed in 0.1.0; use `show`\n")


@pytest.mark.usefixtures("examples")
def test_removed_settings_are_refused_with_their_table(tmp_path: Path) -> None:
    """[[gadget]] and `colour` in [server] are; an unknown name still gets the nearest one."""
    path = tmp_path / "loadfactor.toml"
    for written, line in (
        ("[[gadget]]\n", "`[[gadget]]` was removed in 0.1.0; use `show`"),
        ("gadget = 3\n", "`[[gadget]]` was removed in 0.1.0; use `show`"),
        ("[server]\ncolour = 1\n", "`server.colour` was removed in 0.1.0; use `show`"),
        ("[server]\nexit_aftr = 1\n", "server: no setting called 'exit_aftr'; did you mean 'exit_after'?"),
    ):
        path.write_text(written)
        with pytest.raises(InputError) as refused:
            read_settings(path)
        assert str(refused.value) == f"{path}: {line}"


@pytest.mark.usefixtures("examples")
def test_removed_address_covers_what_is_below_it() -> None:
    """/gauge and /gauge/a are removed, /gauges is not."""
    assert [bool(find_removed_address(path)) for path in ("/gauge", "/gauge/a", "/gauges", "/")] == [
        True,
        True,
        False,
        False,
    ]
    assert find_removal("addresses", "/gauge/a") is None


@pytest.mark.usefixtures("examples")
def test_removed_usage_is_refused_by_its_words() -> None:
    """ "two windows" is listed; a usage that is not listed is a mistake of this program."""
    assert str(refuse_removed("usages", "two windows")) == "two windows was removed in 0.1.0; use `show`"
    with pytest.raises(LookupError, match="lists no 'three windows'"):
        refuse_removed("usages", "three windows")
