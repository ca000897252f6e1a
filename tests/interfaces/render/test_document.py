"""A document is shown whole: on the terminal, as one page, as a picture, as data for programs."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import typer

from loadfactor.base.errors import InputError
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.render.html import render_html
from loadfactor.interfaces.render.markdown import render_markdown
from loadfactor.interfaces.render.present import present
from loadfactor.interfaces.render.terminal import render_text

ANSWER = Document(
    "Own 60 GPUs and rent the rest by the hour.",
    (
        Section(
            "The day",
            charts=(Chart("Demand", "step", (0, 8, 24), (Series("GPUs", (80, 40, 20)),), "hours", "GPUs"),),
            tables=(
                DataTable(
                    (TableColumn("plan"), TableColumn("cost", "money"), TableColumn("fullness", "percent")),
                    (("own 60 <b>", 2208.0, 0.8125), ("rent all", 3720.0, None)),
                    title="Cost of a day",
                    note="24 hours",
                ),
            ),
        ),
    ),
    assumptions=(Assumption("rental price", "$3.00 per GPU-hour", "the catalog", "2026-05, estimate"),),
    notes=("Below $1.20 per rented hour, rent everything.",),
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
    text = render_text(ANSWER, width)
    for words in (*WORDS, "Demand"):
        assert words in text
    assert max(map(len, text.split("\n"))) <= width


def test_page_is_self_contained_and_escaped() -> None:
    """The page holds everything, fetches nothing, and shows angle brackets in a name as text."""
    text = render_html(ANSWER)
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


@pytest.mark.parametrize("suffix", [".html", ".md", ".png", ".svg", ".json", ".csv", ".txt"])
def test_output_is_written_by_its_suffix(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--output writes the kind of file its suffix names and says so."""
    path = tmp_path / f"answer{suffix}"
    present(ANSWER, output=path)
    assert path.stat().st_size > 50
    assert str(path) in capsys.readouterr().out


def test_a_no_leaves_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    """An answer that is no ends the command with exit code 1 after it was shown."""
    with pytest.raises(typer.Exit) as left:
        present(Document("No.", is_no=True))
    assert left.value.exit_code == 1
    assert "No." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"output_format": "xml"}, "choose from terminal, json, html, md, csv"),
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
        DataTable((TableColumn("a"),), (("x", "y"),), title="t")


def test_tables_have_heads_and_captions() -> None:
    """A table of the page can be read by ear: its caption, the heads of its columns and of its rows."""
    text = render_html(ANSWER)
    assert "<caption>Cost of a day</caption>" in text
    assert '<th scope="col">plan</th>' in text
    assert '<th scope="row">own 60 &lt;b&gt;</th>' in text


def test_brief_is_the_sentence_and_the_main_table() -> None:
    """`--brief` leaves out pictures, assumptions and notes, and keeps the data."""
    text = render_text(ANSWER.brief, 80)
    assert "Own 60 GPUs" in text
    assert "$2,208" in text
    assert "Demand" not in text
    assert "Below $1.20" not in text
    assert ANSWER.brief.data is ANSWER.data


def test_markdown_shows_names_as_they_are() -> None:
    """Signs that mean something in Markdown are escaped."""
    assert "own 60 &lt;b>" in render_markdown(ANSWER)
