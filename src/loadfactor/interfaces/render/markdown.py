"""A document as Markdown, for wikis, pull requests and chats: tables as tables, pictures in characters."""

import re
from collections.abc import Iterator

from loadfactor.interfaces.charts import terminal as chart_terminal
from loadfactor.interfaces.document import DataTable, Document, Section
from loadfactor.interfaces.formats import draw_bins, make_visible

WIDTH, CHART_HEIGHT = 90, 13
SIGNS = re.compile(r"[\\|*_`\[\]!~@#]|:(?=//)|(?<=www)\.", re.IGNORECASE)
"""Signs that Markdown, or a program that shows it, would not take as characters."""
LINE_START = re.compile(r"^(\d{0,9})([-+.)](?=[- ]|$)|[=>])")
"""A list, a quotation or the line under a heading."""


def render_markdown(document: Document) -> str:
    """The whole page as Markdown text."""
    return "\n".join(_lines(make_visible(document))).rstrip() + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield from (f"# {escape(document.headline)}", "")
    if document.subtitle:
        yield from (escape(document.subtitle), "")
    if document.tiles:
        yield from ("| | | |", "|---|--:|---|")
        yield from (f"| {escape(t.title)} | **{escape(t.value)}** | {escape(t.text)} |" for t in document.tiles)
        yield ""
    for section in document.sections:
        yield from _section_lines(section)
    if document.assumptions:
        yield from ("## Assumed", "", "| what | value | source |", "|---|---|---|")
        for a in document.assumptions:
            source = f"{a.source} ({a.as_of})" if a.as_of else a.source
            yield f"| {escape(a.name)} | {escape(a.value)} | {escape(source)} |"
        yield ""
    if document.notes:
        yield from ("## What would change this answer", "", *(f"- {escape(note)}" for note in document.notes))


def _section_lines(section: Section) -> Iterator[str]:
    if section.title:
        yield from (f"## {escape(section.title)}", "")
    if section.lead:
        yield from (escape(section.lead), "")
    for chart in section.charts:
        yield from _fence(chart_terminal.draw(chart, WIDTH, CHART_HEIGHT))
    for table in section.tables:
        yield from _table_lines(table)
    if section.histograms:
        space = max(len(h.name) for h in section.histograms)
        drawn = (f"{h.name:<{space}} {draw_bins(h.bins)} {h.note}" for h in section.histograms)
        yield from _fence("\n".join(drawn))
    if section.suggestions:
        yield from (*(f"- {_quote_code(item.command)}: {escape(item.why)}" for item in section.suggestions), "")


def _table_lines(table: DataTable) -> Iterator[str]:
    table = table.without_empty_columns()
    if table.title:
        yield from (f"**{escape(table.title)}**", "")
    yield f"| {' | '.join(escape(c.title) for c in table.columns)} |"
    yield f"|{'|'.join('---' if c.style == 'text' else '--:' for c in table.columns)}|"
    yield from (f"| {' | '.join(map(escape, row))} |" for row in table.text_rows())
    yield ""
    if table.note:
        yield from (escape(table.note), "")


def _fence(drawn: str) -> Iterator[str]:
    """A drawing as a block of code, inside more backticks than it has itself."""
    ticks = "`" * max(3, _longest_ticks(drawn) + 1)
    yield from (f"{ticks}text", drawn, ticks, "")


def _quote_code(text: str) -> str:
    ticks = "`" * (_longest_ticks(text) + 1)
    space = " " if "`" in text else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _longest_ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def escape(text: str) -> str:
    """Text that Markdown shows as it is, in one line of a table: no emphasis, link, picture, heading, list, mention or HTML.

    >>> escape("a|b <i> *c* ![x](y)")
    'a\\\\|b &lt;i> \\\\*c\\\\* \\\\!\\\\[x\\\\](y)'
    >>> escape("- www.a.b"), escape("http://a.b"), escape("1. x"), escape("&lt;")
    ('\\\\- www\\\\.a.b', 'http\\\\://a.b', '1\\\\. x', '&amp;lt;')
    """
    text = " ".join(text.split())
    text = SIGNS.sub(r"\\\g<0>", text).replace("&", "&amp;").replace("<", "&lt;")
    return LINE_START.sub(r"\1\\\2", text, count=1)
