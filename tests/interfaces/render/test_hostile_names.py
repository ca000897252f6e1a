"""Names that hold escapes, formulas, links and HTML are shown as text by every renderer, and stay what they are in JSON."""

import csv
import io
import json
import random
import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from loadfactor.base.spelling import HIDDEN, spell_out
from loadfactor.interfaces.charts import Chart, Mark, Reference, Series, image, terminal
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
from loadfactor.interfaces.render.html import render_body, render_html
from loadfactor.interfaces.render.json import render_csv, render_json
from loadfactor.interfaces.render.markdown import escape, render_markdown
from loadfactor.interfaces.render.terminal import render_text

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


def test_names_in_pictures_are_text(tmp_path: Path) -> None:
    """An SVG is well formed with every name in it as it is, and a PNG is drawn without a word on standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for page, _ in FEW:
            for chart in page.charts:
                drawn = ElementTree.fromstring(image.svg(chart))
                assert drawn.findtext("{*}title") == spell_out(chart.title)
            image.save(page.charts, tmp_path / "x.png", page.headline)


def test_a_name_that_looks_like_a_part_of_a_picture_stays() -> None:
    """Ids and colours are changed in the tags of an SVG alone."""
    chart = Chart("t", "bar", ['a id="line2d_1"', "#222222"], [Series("s", (1, 2))])
    words = "".join(ElementTree.fromstring(image.svg(chart)).itertext())
    assert 'a id="line2d_1"' in words
    assert "#222222" in words
