"""Where settings come from, and their reference in docs/configuration.md. `UPDATE_PAGES=1` writes it anew."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadfactor.base.errors import InputError
from loadfactor.base.units import S_PER_DAY
from loadfactor.books.entry_rules import EntryRules
from loadfactor.interfaces.cli import app
from loadfactor.settings.config import CHOSEN, choose_file, read_settings, settings, take_changes
from loadfactor.settings.reference import list_settings, write_reference


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


PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_generated() -> None:
    """Run with UPDATE_PAGES=1 where a setting was added or changed, and read the difference."""
    if os.environ.get("UPDATE_PAGES"):
        PAGE.write_text(write_reference(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == write_reference()


def test_every_setting_is_described() -> None:
    """Each has a name of its own and a sentence; the command lists the same as JSON."""
    entries = list_settings()
    assert len({entry.name for entry in entries}) == len(entries) > 150
    assert {"prometheus[].backfill", "alerts.receiver[].url", "gcp-monitoring[].project"} <= {e.name for e in entries}
    for entry in entries:
        assert entry.description.endswith("."), entry
        assert len(entry.description.split()) >= 4, entry
    listed = json.loads(CliRunner().invoke(app, ["settings", "--json"]).stdout)
    assert listed == [vars(entry) for entry in entries]
    assert all(entry.keys() == {"name", "type", "default", "description"} for entry in listed)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ('samples = "2d"', "is too short"),
        ('samples = "4y"\nledger = "3y"', "ledger = 3y is less than samples = 4y"),
        ('ledger = "3y"\nrequests = "90d"', "requests = 90d is less than ledger = 3y: they say who used"),
        ('statements = "1y"', "statements = 1y is less than ledger = forever"),
        (
            'samples = "30d"\n[[prometheus]]\nurl = "http://p:9090"\nbackfill = "60d"',
            "less than backfill = 60d of p:9090",
        ),
    ],
)
def test_ages_that_contradict_are_refused(written: str, why: str, tmp_path: Path) -> None:
    """In one line that says which, and why; ages in months and years that agree are taken."""
    path = tmp_path / "loadfactor.toml"
    path.write_text(f"[retention]\n{written}\n")
    with pytest.raises(InputError, match=re.escape(why)) as refused:
        read_settings(path)
    assert len(str(refused.value).splitlines()) == 1
    path.write_text('[retention]\nsamples = "18mo"\nledger = "3y"\nstatements = "forever"\n')
    kept = read_settings(path).retention
    assert (kept.samples.s, kept.ledger.s, kept.until_ms("steps", 0)) == (547.5 * S_PER_DAY, 1095 * S_PER_DAY, 0)
