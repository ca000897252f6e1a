"""`loadfactor alerts`: what fires and why, what is silenced, and what would have fired in the past."""

from dataclasses import dataclass

import typer

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.request import option
from loadfactor.interfaces.cli.books_request import SpanRequest, StoreRequest, find_store, read_filters
from loadfactor.interfaces.cli.commands import add_commands
from loadfactor.interfaces.document import Document

ABOUT = (
    "Show what fires and why, silence it, and say what would have fired in the past.\n\n"
    "Without a command: what fires now, as `loadfactor up` judged these books. It tells the receivers in loadfactor.toml."
)
ABOUT_SILENCES = "List what is silenced, until when, why and by whom."
ABOUT_SILENCE = (
    "Have alerts told to nobody for a time. They fire all the same, and what was told before has its end told.\n\n"
    "Names may be patterns with * and ?. What is silenced and fires still is told when the silence ends."
)
ABOUT_UNSILENCE = "End a silence now."
ABOUT_TEST = (
    "Replay a stretch of history and say what would have fired, when, for how long and in whose name.\n\n"
    "Rules are those of loadfactor.toml: the shipped ones, changed or switched off there, and those that [[alert]] adds."
)


@dataclass(frozen=True, kw_only=True)
class ReplayRequest(SpanRequest):
    """Which rules, and over which stretch of history."""

    rule: tuple[str, ...] = option("Only these rules, by name.", ())


@dataclass(frozen=True, kw_only=True)
class SilencedRequest(StoreRequest):
    """What to silence, for how long and why."""

    rule: str = option("Alerts of this rule.", "", is_argument=True)
    by: tuple[str, ...] = option("Only of these groups, or in these names: job=4711,team=vision.", ())
    length: str | None = option("For how long: 30min, 2h, 7d.", None, name="--for")
    until: str | None = option("Until when, UTC: 2026-10-05T18:00.", None)
    reason: str = option("Why, for those who wonder later.")


@dataclass(frozen=True, kw_only=True)
class LiftedRequest(StoreRequest):
    """Which silence to end."""

    id: str = option("Id of the silence.", is_argument=True)


@dataclass(frozen=True, kw_only=True)
class AlertsRequest(StoreRequest):
    """Which alerts to list."""

    rule: tuple[str, ...] = option("Only of these rules, by name.", ())
    team: str | None = option("Only of this team.", None)
    ended: bool = option("Those of the last 30 days that ended, too.", False)


def add_to(app: typer.Typer) -> None:
    """Add `alerts` and what can be done with them."""
    add_commands(
        app,
        "alerts",
        ABOUT,
        ("test", ReplayRequest, build_page, ABOUT_TEST),
        ("silences", StoreRequest, build_silences, ABOUT_SILENCES),
        ("silence", SilencedRequest, build_silence, ABOUT_SILENCE),
        ("unsilence", LiftedRequest, build_lifting, ABOUT_UNSILENCE),
        alone=(AlertsRequest, build_list),
    )


def build_list(request: AlertsRequest) -> Document:
    """What fires now."""
    from loadfactor.interfaces.pages.alerts_list import build_board

    return build_board(request.books.store.folder, request.rule, request.team, request.ended)


def build_silences(request: StoreRequest) -> Document:
    """What is silenced."""
    from loadfactor.interfaces.pages.silences import build_list as build

    return build(request.books.store.folder)


def build_silence(request: SilencedRequest) -> Document:
    """Silence it, and say so."""
    from loadfactor.interfaces.pages.silences import build_made, make_silence

    by, how_long = read_filters(request.by, "--by"), (request.length, request.until)
    return build_made(make_silence(find_store(request.store), request.rule, by, how_long, request.reason))


def build_lifting(request: LiftedRequest) -> Document:
    """End a silence, and say so."""
    from loadfactor.interfaces.pages.silences import build_lifted, lift

    return build_lifted(lift(find_store(request.store), request.id))


def build_page(request: ReplayRequest) -> Document:
    """What would have fired."""
    from loadfactor.insight.alerts.configured import configure
    from loadfactor.insight.alerts.replay import replay
    from loadfactor.insight.alerts.rules import RULES
    from loadfactor.interfaces.pages.alerts import build_replay
    from loadfactor.interfaces.progress import ProgressBar
    from loadfactor.metrics.query.calendar import milliseconds
    from loadfactor.settings.config import settings

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
