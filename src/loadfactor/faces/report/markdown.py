"""How does the report look as Markdown? For wikis, pull requests and chats: tables as tables, pictures in characters."""

from loadfactor.faces.answer import Table
from loadfactor.faces.charts import terminal as chart_terminal
from loadfactor.faces.formats import draw_bins, instant
from loadfactor.faces.report import Report, Section

WIDTH, CHART_HEIGHT = 90, 13


def document(report: Report) -> str:
    """The report as a Markdown document."""
    start, end = report.window
    lines = [
        f"# {_escaped(report.headline)}",
        "",
        f"{instant(start)} to {instant(end)}. {_escaped(report.stands_on)}",
        "",
        "| | | |",
        "|---|--:|---|",
        *(f"| {_escaped(t.title)} | **{_escaped(t.value)}** | {_escaped(t.note)} |" for t in report.tiles),
    ]
    for section in report.sections:
        lines += ["", f"## {_escaped(section.title)}", "", *_section(section)]
    return "\n".join(lines) + "\n"


def _section(section: Section) -> list[str]:
    lines = [_escaped(section.lead), ""] if section.lead else []
    for chart in section.charts:
        lines += ["```text", chart_terminal.draw(chart, WIDTH, CHART_HEIGHT), "```", ""]
    for table in section.tables:
        lines += [*_table(table), ""]
        lines += [_escaped(table.note), ""] if table.note else []
    if section.histograms:
        space = max(len(h.name) for h in section.histograms)
        lines += [
            "```text",
            *(f"{h.name:<{space}} {draw_bins(h.bins)} {h.note}" for h in section.histograms),
            "```",
            "",
        ]
    lines += [f"- `{command}`: {_escaped(why)}" for command, why in section.commands]
    return lines


def _table(table: Table) -> list[str]:
    head = " | ".join(_escaped(c.title) for c in table.columns)
    rule = "|".join("---" if c.style == "text" else "--:" for c in table.columns)
    return [f"| {head} |", f"|{rule}|", *(f"| {' | '.join(map(_escaped, row))} |" for row in table.text_rows())]


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, in one line of a table.

    >>> _escaped("a|b <i> *c*")
    'a\\\\|b &lt;i> \\\\*c\\\\*'
    """
    for sign in ("\\", "|", "*", "_", "`"):
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.replace("<", "&lt;").split())
