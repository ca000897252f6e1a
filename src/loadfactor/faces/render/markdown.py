"""A document as Markdown, for wikis, pull requests and chats: tables as tables, pictures in characters."""

from collections.abc import Iterator

from loadfactor.faces.charts import terminal as chart_terminal
from loadfactor.faces.document import DataTable, Document, Section
from loadfactor.faces.formats import draw_bins

WIDTH, CHART_HEIGHT = 90, 13


def render_markdown(document: Document) -> str:
    """The whole page as Markdown text."""
    return "\n".join(_lines(document)).rstrip() + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield from (f"# {escape(document.headline)}", "")
    if document.subtitle:
        yield from (escape(document.subtitle), "")
    if document.tiles:
        yield from ("| | | |", "|---|--:|---|")
        yield from (f"| {escape(t.title)} | **{escape(t.value)}** | {escape(t.note)} |" for t in document.tiles)
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
        yield from ("```text", chart_terminal.draw(chart, WIDTH, CHART_HEIGHT), "```", "")
    for table in section.tables:
        yield from _table_lines(table)
    if section.histograms:
        space = max(len(h.name) for h in section.histograms)
        drawn = (f"{h.name:<{space}} {draw_bins(h.bins)} {h.note}" for h in section.histograms)
        yield from ("```text", *drawn, "```", "")
    if section.suggestions:
        yield from (*(f"- `{item.command}`: {escape(item.why)}" for item in section.suggestions), "")


def _table_lines(table: DataTable) -> Iterator[str]:
    if table.title:
        yield from (f"**{escape(table.title)}**", "")
    yield f"| {' | '.join(escape(c.title) for c in table.columns)} |"
    yield f"|{'|'.join('---' if c.style == 'text' else '--:' for c in table.columns)}|"
    yield from (f"| {' | '.join(map(escape, row))} |" for row in table.text_rows())
    yield ""
    if table.note:
        yield from (escape(table.note), "")


def escape(text: str) -> str:
    """Text that Markdown shows as it is, in one line of a table: no emphasis, no link, no picture.

    >>> escape("a|b <i> *c* ![x](y)")
    'a\\\\|b &lt;i> \\\\*c\\\\* \\\\!\\\\[x\\\\](y)'
    """
    for sign in ("\\", "|", "*", "_", "`", "[", "]", "!"):
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.replace("<", "&lt;").split())
