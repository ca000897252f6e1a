"""An answer is given whole: on the terminal, as one page, as a picture, as data for programs."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import typer

from loadfactor.errors import InputError
from loadfactor.faces.answer import Answer, Assumption, Column, Table, present
from loadfactor.faces.answer.page import page
from loadfactor.faces.answer.terminal import as_text
from loadfactor.faces.charts import Chart, Series

ANSWER = Answer(
    sentence="Own 60 GPUs and rent the rest by the hour.",
    tables=(
        Table(
            "Cost of a day",
            (Column("plan"), Column("cost", "money"), Column("fullness", "percent")),
            (("own 60 <b>", 2208.0, 0.8125), ("rent all", 3720.0, None)),
            note="24 hours",
        ),
    ),
    charts=(Chart("Demand", "step", (0, 8, 24), (Series("GPUs", (80, 40, 20)),), "hours", "GPUs"),),
    assumptions=(Assumption("rental price", "$3.00 per GPU-hour", "the catalog", "2026-05, estimate"),),
    would_change=("Below $1.20 per rented hour, rent everything.",),
    data={"own_gpus": np.int64(60), "as_of": date(2026, 5, 1), "never": float("inf"), "sizes": np.array([1.5, 2.5])},
)
WORDS = (
    "Own 60 GPUs and rent the rest by the hour.",
    "Cost of a day",
    "$2,208",
    "81.2 %",
    "–",
    "24 hours",
    "$3.00 per GPU-hour",
    "2026-05, estimate",
    "Below $1.20 per rented hour",
)


@pytest.mark.parametrize("width", [80, 100])
def test_terminal_holds_everything_within_the_width(width: int) -> None:
    """Sentence, picture, table, assumptions and what would change it are all there, no line wider than the terminal."""
    text = as_text(ANSWER, width)
    for words in (*WORDS, "Demand"):
        assert words in text
    assert max(map(len, text.split("\n"))) <= width


def test_page_is_self_contained_and_escaped() -> None:
    """The page holds everything, fetches nothing, and shows angle brackets in a name as text."""
    text = page(ANSWER)
    for words in WORDS:
        assert words in text
    assert "own 60 &lt;b&gt;" in text
    assert "<svg" in text
    for fetched in ("<script", "src=", 'href="http', "@import"):
        assert fetched not in text


def test_json_is_data_only(capsys: pytest.CaptureFixture[str]) -> None:
    """`--format json` prints plain JSON and nothing else; infinities are null, dates ISO text, arrays lists."""
    present(ANSWER, "json")
    found = json.loads(capsys.readouterr().out)
    assert found == {"own_gpus": 60, "as_of": "2026-05-01", "never": None, "sizes": [1.5, 2.5]}


@pytest.mark.parametrize("suffix", [".html", ".png", ".svg", ".json", ".txt"])
def test_output_is_written_by_its_suffix(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--output writes the kind of file its suffix names and says so."""
    path = tmp_path / f"answer{suffix}"
    present(ANSWER, output=path)
    assert path.stat().st_size > 50
    assert str(path) in capsys.readouterr().out


def test_a_no_leaves_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    """An answer that is no ends the command with exit code 1 after it was shown."""
    with pytest.raises(typer.Exit) as left:
        present(Answer("No.", is_no=True))
    assert left.value.exit_code == 1
    assert "No." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"output_format": "xml"}, "take terminal, json, html"),
        ({"output": Path("answer.docx")}, r"take \.html"),
        ({"output": Path("nowhere/at/all.html")}, "no folder"),
    ],
)
def test_what_cannot_be_written_is_said(arguments: dict[str, object], says: str) -> None:
    """An unknown format, suffix or folder is a one-line mistake of the user's."""
    with pytest.raises(InputError, match=says):
        present(ANSWER, **arguments)  # type: ignore[arg-type]


def test_rows_must_fit_columns() -> None:
    """A table whose rows do not fit its columns is refused by name."""
    with pytest.raises(ValueError, match="'t' has 1 columns"):
        Table("t", (Column("a"),), (("x", "y"),))
