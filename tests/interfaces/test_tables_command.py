"""`loadfactor tables` on a terminal, as JSON, and writing templates that can be imported."""

import csv
import json
from pathlib import Path

import pytest
from tests.sources.reading import read
from typer.testing import CliRunner

from loadfactor.base.errors import InputError
from loadfactor.interfaces.cli import app
from loadfactor.sources.own_tables import SOURCE
from loadfactor.tables.schema import GIVEN

runner = CliRunner()


@pytest.mark.parametrize("width", [80, 100])
def test_the_schema_fits_the_terminal_and_names_every_column(width: int) -> None:
    """Every table and column is there, and no line is too long."""
    done = runner.invoke(app, ["tables"], env={"COLUMNS": str(width)})
    assert done.exit_code == 0
    assert max(map(len, done.output.splitlines())) <= width
    for table in GIVEN:
        assert f"{table.name}: one row says" in done.output
        assert all(c.name in done.output for c in table.columns)


def test_json_is_the_schema() -> None:
    """Plain JSON with every column, its kind, and whether it may be empty."""
    got = json.loads(runner.invoke(app, ["tables", "--format", "json"]).output)
    assert [t["name"] for t in got] == [t.name for t in GIVEN]
    basis = next(c for t in got if t["name"] == "prices" for c in t["columns"] if c["name"] == "basis")
    assert basis["required"]
    assert "contracted" in basis["one_of"]


def test_templates_have_the_header_and_import_as_nothing(tmp_path: Path) -> None:
    """A CSV for each table and a README; unfilled they add no rows."""
    folder = tmp_path / "new"
    assert runner.invoke(app, ["tables", "--write", str(folder)]).exit_code == 0
    for table in GIVEN:
        with (folder / f"{table.name}.csv").open() as file:
            assert next(csv.reader(file)) == [c.name for c in table.columns]
    assert all(f"## {t.name}" in (folder / "README.md").read_text() for t in GIVEN)
    assert read(SOURCE, folder).tables == {}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """One file that is there already stops all of them."""
    (tmp_path / "prices.csv").write_text("mine")
    done = runner.invoke(app, ["tables", "--write", str(tmp_path)])
    assert isinstance(done.exception, InputError)
    assert "holds prices.csv already" in str(done.exception)
    assert [p.name for p in tmp_path.iterdir()] == ["prices.csv"]
