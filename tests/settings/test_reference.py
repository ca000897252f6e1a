"""The reference of settings: docs/configuration.md is what the declarations say. `UPDATE_PAGES=1` writes it anew."""

import json
import os
from pathlib import Path

from typer.testing import CliRunner

from loadfactor.interfaces.cli import app
from loadfactor.settings.reference import list_settings, write_reference

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
