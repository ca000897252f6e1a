"""What would have fired in a stretch of history: the rules judged step by step over the books, as they would have been live."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from loadfactor.books.books import Books
from loadfactor.books.watched import Watched
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.judge import MOST_STEPS, STEP_MS, Judge
from loadfactor.insight.alerts.rule import Rule
from loadfactor.tables import Span

Progress = Callable[[str, float], None]


def replay(
    books: Books, rules: Sequence[Rule], start_ms: int | None = None, end_ms: int | None = None,
    progress: Progress = lambda _what, _share: None,
) -> list[Alert]:  # fmt: skip
    """The alerts that fired within [start, end), in order; without limits, all that the books know."""
    with books.watch() as watched:
        return replay_watched(watched, rules, (start_ms, end_ms), progress)


def replay_watched(
    watched: Watched, rules: Sequence[Rule], asked: tuple[int | None, int | None], progress: Progress
) -> list[Alert]:
    """The same of a session that is open."""
    start, end = _find_span(watched, asked)
    judge, fired = Judge(rules, start), dict[str, Alert]()
    while judge.judged_ms < end:
        until = min(end, judge.judged_ms + MOST_STEPS * STEP_MS)
        for told in judge.step(watched, until):
            fired[told.alert.fingerprint] = told.alert
        progress("judging", (judge.judged_ms - start) / (end - start))
    for alert in judge.alive:
        if alert.fingerprint in fired:
            fired[alert.fingerprint] = replace(alert, state="firing")
    return sorted(fired.values(), key=lambda a: (a.start_ms, a.rule, a.group))


def _find_span(watched: Watched, asked: tuple[int | None, int | None]) -> Span:
    """The span of whole steps."""
    first, last = watched.span
    start, end = asked[0] if asked[0] is not None else first, asked[1] if asked[1] is not None else last
    return start - start % STEP_MS, end - end % STEP_MS
