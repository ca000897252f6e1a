"""`loadfactor alerts`: what would have fired in the past."""

from dataclasses import dataclass

import typer

from loadfactor.errors import InputError, no_such
from loadfactor.faces.cli.books_request import SpanRequest
from loadfactor.faces.cli.commands import add_commands
from loadfactor.faces.document import Document
from loadfactor.request import option

ABOUT = "Say what alerts would have fired in the past."
ABOUT_TEST = (
    "Replay a stretch of history and say what would have fired, when, for how long and in whose name.\n\n"
    "Rules are those of loadfactor.toml: the shipped ones, changed or switched off there, and those that [[alert]] adds."
)


@dataclass(frozen=True, kw_only=True)
class ReplayRequest(SpanRequest):
    """Which rules, and over which stretch of history."""

    rule: tuple[str, ...] = option("Only these rules, by name.", ())


def add_to(app: typer.Typer) -> None:
    """Add `alerts`."""
    add_commands(app, "alerts", ABOUT, ("test", ReplayRequest, build_page, ABOUT_TEST))


def build_page(request: ReplayRequest) -> Document:
    """What would have fired."""
    from loadfactor.config import settings
    from loadfactor.faces.pages.alerts import build_replay
    from loadfactor.faces.progress import ProgressBar
    from loadfactor.insight.alerts.configured import configure
    from loadfactor.insight.alerts.replay import replay
    from loadfactor.insight.alerts.rules import RULES
    from loadfactor.metrics.query.calendar import milliseconds

    books = request.books
    first, last = books.span
    given = request.window(books)
    start, end = given[0] or first, given[1] or last
    if start >= end or end <= first or start >= last:
        raise InputError(
            f"nothing of the books lies in that time: they cover {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC;"
            " change --from and --to"
        )
    rules = {rule.name: rule for rule in configure(RULES, settings().alert)}
    for name in request.rule:
        if name not in rules:
            raise no_such("rule", name, rules)
    chosen = [rules[name] for name in request.rule] or list(rules.values())
    with ProgressBar() as bar:
        found = replay(books, chosen, (milliseconds(start), milliseconds(end)), bar)
    return build_replay(found, chosen, (max(start, first), min(end, last)))
