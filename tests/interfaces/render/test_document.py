"""A document is shown whole on the terminal, as a page, picture or data; names with escapes and HTML stay text."""

import csv
import html
import io
import json
import random
import re
import subprocess
import sys
import warnings
from base64 import b64encode
from dataclasses import replace
from datetime import date
from decimal import Decimal
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import typer
from markdown_it import MarkdownIt
from openpyxl import load_workbook
from pypdf import PdfReader

from loadfactor.base.errors import InputError
from loadfactor.base.spelling import HIDDEN, spell_out
from loadfactor.interfaces.charts import Chart, Mark, Reference, Series, image, terminal
from loadfactor.interfaces.charts.svg import draw_figure
from loadfactor.interfaces.document import (
    Assumption,
    DataTable,
    Document,
    Histogram,
    Section,
    Suggestion,
    TableColumn,
    Tile,
)
from loadfactor.interfaces.render.html import render_body, render_html, render_svg
from loadfactor.interfaces.render.json import render_csv, render_json
from loadfactor.interfaces.render.markdown import escape, render_markdown
from loadfactor.interfaces.render.present import present, write_document
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


@pytest.mark.parametrize("width", [40, 80, 100])
def test_no_command_is_broken(width: int) -> None:
    """Wherever a command stands (a sentence, a cell, a note, a list), it is in one line, whatever the terminal's width."""
    commands = [f"loadfactor show cost --by team,{'x' * size} --store books" for size in (1, 24, 44, 90)]
    for command in commands:
        page = Document(
            f"See `{command}`.",
            (
                Section(
                    lead=f"These and others are there: `{command}`, and more.",
                    tables=(
                        DataTable(
                            (TableColumn("found"), TableColumn("do")), (("a long text " * 4, f"try `{command}`"),)
                        ),
                    ),
                    suggestions=(Suggestion(command, "why"),),
                ),
            ),
            notes=(f"It may be otherwise: `{command}` says it.",),
        )
        lines = render_text(page, width).split("\n")
        assert sum(command in line for line in lines) == 5
        assert all(len(line) <= width for line in lines if "loadfactor" not in line)


def test_columns_without_a_value_are_left_out() -> None:
    """What no row has is not shown to people; data files keep every column."""
    columns = (TableColumn("plan"), TableColumn("cost", "money"), TableColumn("wait", "duration"))
    page = Document("a", (Section(tables=(DataTable(columns, (("own", 1.0, None), ("rent", None, None))),)),))
    for shown in (render_text(page), render_html(page), render_markdown(page)):
        assert "cost" in shown
        assert "wait" not in shown
    assert render_csv(page).startswith("plan,cost,wait")


def test_a_heading_says_what_it_means_where_a_mouse_rests() -> None:
    """A hint is an attribute of the heading in HTML, and nowhere else."""
    columns = (TableColumn("plan"), TableColumn("cost", "money", hint='what "all" costs <b>'))
    page = Document("a", (Section(tables=(DataTable(columns, (("own", 1.0),)),)),))
    assert 'title="what &#34;all&#34; costs &lt;b&gt;">cost</th>' in render_html(page)
    assert "what" not in render_text(page)


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


@pytest.mark.parametrize("suffix", [".html", ".pdf", ".xlsx", ".md", ".png", ".svg", ".json", ".csv", ".txt"])
def test_output_is_written_by_its_suffix(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--output writes the kind of file its suffix names and says so."""
    path = tmp_path / f"answer{suffix}"
    present(ANSWER, output=path)
    assert path.stat().st_size > 50
    assert str(path) in capsys.readouterr().out


LONG = tuple((f"job {n} of a team", n * 1.5, Decimal(n) / 100, f"=HYPERLINK({n})", None) for n in range(180))
WIDE = tuple(TableColumn(f"quantity number {n}", "money") for n in range(30))
BOOK = replace(
    ANSWER,
    headline="=1+1 is a <sentence> & text",
    sections=(
        *ANSWER.sections,
        Section(
            "Jobs: all [of] them",
            "A lead.",
            tables=(
                DataTable([TableColumn("job"), *map(TableColumn, "ab", ("number", "money")), *map(TableColumn, "cd")], LONG),
                DataTable([TableColumn("team"), *WIDE], [("vision", *(1000.25 + n for n in range(30)))], title="Wide"),
            ),
        ),
    ),
)  # fmt: skip


def test_a_pdf_holds_every_cell_and_repeats_heads(tmp_path: Path) -> None:
    """Each cell is read back, each page of a long table has its headings, each page its number; the bytes are the same again."""
    write_document(BOOK, tmp_path / "a.pdf")
    pages = [page.extract_text() for page in PdfReader(tmp_path / "a.pdf").pages]
    text = "\n".join(pages)
    wide = [f"${1000.25 + n:,.0f}" for n in range(30)]
    for words in (
        BOOK.headline,
        "A lead.",
        "own 60 <b>",
        "81.2 %",
        "Demand",
        "rental price",
        *wide,
        *(row[0] for row in LONG),
    ):
        assert words in text, words
    assert all(f"quantity number {n}".split()[-1] in text for n in range(30))
    of_jobs = [page for page in pages if "of a team" in page]
    assert len(of_jobs) > 2
    assert all("job\na\nb\nc" in page.replace(" ", "\n") for page in of_jobs)
    assert [f"page {n} of {len(pages)}" in page for n, page in enumerate(pages, 1)] == [True] * len(pages)
    write_document(BOOK, tmp_path / "b.pdf")
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()


def test_a_spreadsheet_has_a_sheet_a_table_with_numbers_as_numbers(tmp_path: Path) -> None:
    """Headings are frozen, amounts are numbers with their digits, what is unknown is empty, and no text is a formula."""
    write_document(BOOK, tmp_path / "a.xlsx")
    book = load_workbook(tmp_path / "a.xlsx")
    assert book.sheetnames == ["Summary", "Cost of a day", "Jobs  all  of  them", "Wide", "Pictures"]
    jobs, day = book["Jobs  all  of  them"], book["Cost of a day"]
    assert jobs.freeze_panes == "A2"
    assert jobs.print_title_rows == "$1:$1"
    assert [[cell.value for cell in row] for row in jobs.iter_rows(max_row=4)][2:] == [
        ["job 1 of a team", 1.5, 0.01, "=HYPERLINK(1)"], ["job 2 of a team", 3, 0.02, "=HYPERLINK(2)"]
    ]  # fmt: skip
    assert [cell.data_type for cell in jobs[3]] == ["s", "n", "n", "s"]
    assert jobs["C3"].number_format == "#,##0.00"
    assert jobs["D3"].quotePrefix
    assert day["B2"].number_format.startswith('"$"#,##0.00')
    assert (day["C2"].value, day["C2"].number_format, day["C3"].value) == (0.8125, "0.0%", None)
    assert (book["Summary"]["A1"].value, book["Summary"]["A1"].data_type) == (BOOK.headline, "s")
    assert len(book["Pictures"]._images) == 1


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


PIECES = (
    *map(chr, (*range(0x20), *range(0x7F, 0xA0))),
    *map(chr, (0xAD, 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x206A), 0xFEFF, 0xE0041)),
    *map(chr, (0x3164, 0xFFF9, 0xD800, 0xDFFF)),
    *("\x1b[31m", "\x1b]0;title\x07", "\x1b]8;;http://a.b\x1b\\", "\x9b2J", "\r\n", "\x1b[2J\x1b[H"),
    *("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "＝1", "-12.5", "'=1"),
    *(
        "|",
        "`",
        "```",
        "*a*",
        "_a_",
        "__a__",
        "[a](http://a.b)",
        "![a](http://a.b)",
        "~~a~~",
        "# a",
        "- a",
        "1. a",
        "> a",
    ),
    *("www.a.b", "http://a.b", "---", "===", "\\", "\\`", "&lt;", "&#x202e;", "<!--", "-->", "@team"),
    *("<script>alert(1)</script>", "<b>", "</main>", "<img src=x onerror=alert(1)>", '"', "'", '" onload="x', "]]>"),
    *("{{ 7 * 7 }}", "{% raw %}", "[red]", "[/red]", ":smile:", "$x$", "%s", "a", "team", " ", "é", "中", "0"),
    *(' id="line2d_1"', "#222222"),
)
SHOWN_CONTROLS = re.compile(HIDDEN.pattern.replace("\\n", "").replace("\x00-\x1f", "\x00-\x09\x0b-\x1f"))
"""The same without the end of a line, which pages have of their own."""
TAGS = (
    "html head meta title style body main header h1 p div span b section h2 figure svg desc defs path g use rect text"
)
TAGS += " table caption thead tr th tbody td dl dt dd code ul li footer clippath"


def make_name(dice: random.Random) -> str:
    """A name made of a few of the pieces."""
    return "".join(dice.choice(PIECES) for _ in range(dice.randint(1, 6)))


def make_page(dice: random.Random) -> tuple[Document, list[str]]:
    """A page in which every text is such a name, and the names of its rows."""
    name = lambda: make_name(dice)  # noqa: E731 (said forty times below)
    rows = [name() for _ in range(4)]
    named = Chart(
        name(), "stacked bar", [name(), name()], [Series(name(), (1, 2)), Series(name(), (3, None))], name(), name()
    )
    falling = Chart(name(), "waterfall", [name(), name()], [Series(name(), (5, -2))], total=name(), note=name())
    lines = Chart(
        name(),
        "line",
        (1, 2, 3),
        [Series(name(), (1, 2, 3)), Series(name(), (3, 2, 1))],
        name(),
        name(),
        marks=(Mark(2, 2, name()),),
        references=(Reference(1.5, name(), "x"), Reference(2.5, name())),
        note=name(),
    )
    columns = (TableColumn(name()), TableColumn(name(), "money"), TableColumn(name()))
    table = DataTable(columns, [(row, 1.5, name()) for row in rows], name(), name())
    section = Section(
        name(),
        name(),
        (named, falling, lines),
        (table,),
        (Histogram(name(), (0.0, 1.0), name()),),
        (Suggestion(name(), name()),),
    )
    assumption = Assumption(name(), name(), name(), name())
    data = [{"team": row, "cost": -1.5, "by": {"job": row}, "many": [row]} for row in rows]
    tiles = (Tile(name(), name(), name()),)
    return Document(name(), (section,), name(), tiles, (assumption,), (name(),), data), rows


PAGES = [make_page(random.Random(seed)) for seed in range(40)]
FEW = PAGES[:6]
"""Pages for renderers that draw pictures, which take a while."""


def cells_of(page: Document) -> list[str]:
    """What the rows of the page are called, as a person may see it."""
    return [spell_out(str(row[0])) for row in page.sections[0].tables[0].rows]


@pytest.mark.long
@pytest.mark.parametrize("width", [80, 100])
def test_no_hidden_character_reaches_a_terminal(width: int) -> None:
    """Tables, tiles, charts and notes hold no control character, and no line is wider than the terminal."""
    for page, _ in PAGES:
        text = render_text(page, width)
        assert not SHOWN_CONTROLS.search(text)
        assert all(len(line.replace("中", "--").replace("＝", "--")) <= width for line in text.split("\n"))


def test_charts_alone_hold_no_hidden_character() -> None:
    """A chart that is drawn by itself is as safe as one on a page; only its own colours are escapes."""
    for page, _ in PAGES:
        for chart in page.charts:
            assert not SHOWN_CONTROLS.search(terminal.draw(chart, 80))
            assert not SHOWN_CONTROLS.search(re.sub(r"\x1b\[[0-9;]*m", "", terminal.draw(chart, 80, color=True)))


def test_json_keeps_the_value_and_hides_nothing() -> None:
    """JSON read back is the data exactly, and its text holds no character that a terminal would obey."""
    for page, _ in PAGES:
        text = render_json(page)
        assert json.loads(text) == page.data
        assert not SHOWN_CONTROLS.search(text)


def test_no_cell_of_csv_is_a_formula() -> None:
    """A spreadsheet sees text where there was text and numbers where there were numbers."""
    for page, names in PAGES:
        text = render_csv(page)
        assert not SHOWN_CONTROLS.search(text)
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [row["cost"] for row in rows] == ["-1.5"] * len(names)
        for row, name in zip(rows, names, strict=True):
            shown = row["team"]
            assert shown.removeprefix("'") == spell_out(name).removeprefix("'")
            assert shown.lstrip(" ")[:1] not in ("=", "+", "-", "@", "＝") or re.fullmatch(r"[-+][\d.]+", shown)


def test_names_in_markdown_are_text() -> None:
    """A name in Markdown starts no block, closes no fence and adds no cell to its row."""
    for page, _ in PAGES:
        text = render_markdown(page)
        assert not SHOWN_CONTROLS.search(text)
        words = re.sub(r"^(`{3,})text$.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
        rows = [line for line in words.split("\n") if line.startswith("|")]
        assert rows
        assert all(len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 4 for row in rows)
        fences = re.findall(r"^`{3,}(?:text)?$", text, re.MULTILINE)
        assert [fence.strip("`") for fence in fences[::2]] == ["text"] * (len(fences) // 2)
        assert fences[1::2] == [fence.removesuffix("text") for fence in fences[::2]]


def test_a_reader_of_markdown_finds_no_link_or_html() -> None:
    """Parsed as a wiki would, the page holds no link, picture or HTML, and its cells read as the names they are."""
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for page, _ in PAGES:
        blocks = reader.parse(render_markdown(page))
        parts = [part for block in blocks for part in (block, *(block.children or ()))]
        assert {part.type for part in parts} & {
            "link_open",
            "image",
            "html_inline",
            "html_block",
            "s_open",
            "em_open",
        } == set()
        words = {" ".join("".join(p.content for p in block.children or ()).split()) for block in blocks}
        assert {" ".join(name.split()) for name in cells_of(page)} <= words


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("[a](http://b.c)", r"\[a\](http\://b.c)"),
        ("&#x202e;x", r"&amp;\#x202e;x"),
        ("- a", r"\- a"),
        ("2026-03-01", "2026-03-01"),
        ("1.5 h", "1.5 h"),
    ],
)
def test_markdown_escapes_what_would_act(name: str, shown: str) -> None:
    """Links, entities and lists are text; dates and numbers are left as they are."""
    assert escape(name) == shown


class _Tags(HTMLParser):
    """Collects the tags and attributes of a page, and its words."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_names_in_html_are_text() -> None:
    """No name opens a tag, an attribute or a comment, and every name is there to be read."""
    for page, _ in FEW:
        for text in (render_html(page), render_body(page)):
            read = _Tags()
            read.feed(text)
            assert read.tags <= set(TAGS.split())
            assert not [name for name in read.attributes if name.startswith("on") or name in ("src", "href")]
            assert not SHOWN_CONTROLS.search(text)
            words = "".join(read.words)
            assert all(name in words for name in cells_of(page))


@pytest.mark.long
def test_names_in_pictures_are_text(tmp_path: Path) -> None:
    """An SVG is well formed with every name in it as it is, and a PNG is drawn without a word on standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for page, _ in FEW:
            for chart in page.charts:
                drawn = ElementTree.fromstring(draw_figure(chart))
                assert drawn.get("aria-label", "").startswith(spell_out(chart.title))
            ElementTree.fromstring(render_svg(page))
            image.save_png(page.charts, tmp_path / "x.png", page.headline)


def test_a_page_is_written_without_what_paints_files() -> None:
    """Pictures of HTML need no matplotlib."""
    program = (
        "import sys; from loadfactor.interfaces.charts import Chart, Series\n"
        "from loadfactor.interfaces.document import Document, Section\n"
        "from loadfactor.interfaces.render.html import render_html, render_svg\n"
        "page = Document('a', (Section(charts=(Chart('c', 'line', (1, 2), (Series('s', (1, 2)),)),)),))\n"
        "assert 'M' in render_html(page) + render_svg(page) and 'matplotlib' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_policy_lets_the_page_have_its_own_style_and_nothing_else() -> None:
    """No element has a style, a script or a handler; the one stylesheet of the file is the one that its policy names by hash."""
    page, _ = FEW[0]
    text = render_html(page)
    read = _Tags()
    read.feed(text)
    assert "style" not in read.attributes
    assert "script" not in read.tags
    (sheet,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = b64encode(sha256(sheet.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert html.unescape(policy).split("; ")[:2] == ["default-src 'none'", f"style-src 'sha256-{digest}'"]


def test_commands_in_sentences_are_code() -> None:
    """What stands between backticks; a name with one of them alone stays as it is, and nothing of either acts."""
    page = render_html(Document("Run `loadfactor up <x>`.", [Section("S", "A ` b <i>"), Section("T", "`a` & `b`")]))
    assert "<h1>Run <code>loadfactor up &lt;x&gt;</code>.</h1>" in page
    assert "<p>A ` b &lt;i&gt;</p>" in page
    assert "<p><code>a</code> &amp; <code>b</code></p>" in page
