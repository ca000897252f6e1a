"""What would have fired in a stretch of history: the rules judged step by step over the books, as they would have been live."""

from collections.abc import Callable, Sequence

from loadfactor.books.books import Books
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.judge import MOST_STEPS, STEP_MS, Judge
from loadfactor.insight.alerts.rule import Rule
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.tables.schema import Span

Progress = Callable[[str, float], None]


def _quiet(_what: str, _share: float) -> None:
    """Says nothing of progress."""


def replay(books: Books, rules: Sequence[Rule], span: Span | None = None, progress: Progress = _quiet) -> list[Alert]:
    """The alerts that fired in a span, by default in all that the books know of, in order; those that fire at its end have no end.

    Raises InputError where the books know nothing.
    """
    first, last = (milliseconds(at) for at in books.span)
    start, end = (first, last) if span is None else (max(first, span[0]), min(last, span[1]))
    start, end = start - start % STEP_MS, end - end % STEP_MS
    judge, fired = Judge(rules, start), dict[str, Alert]()
    with books.watch() as watched:
        while judge.judged_ms < end:
            for told in judge.step(watched, min(end, judge.judged_ms + MOST_STEPS * STEP_MS)):
                fired[told.alert.fingerprint] = told.alert
            progress("judging", (judge.judged_ms - start) / (end - start))
    return sorted(fired.values(), key=lambda alert: (alert.start_ms, alert.rule, alert.group))
