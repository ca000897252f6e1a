"""What each row of a short stretch of the ledger adds to metrics: the input of sums that roll over steps of time."""

from typing import Any

import ibis

from loadfactor.ledger.steps import ledger_columns
from loadfactor.metrics.query.queries import list_parts, name_unknown
from loadfactor.metrics.query.question import Question

Expr = Any


def list_step_rows(question: Question) -> Expr:
    """The rows of `window_ledger`: `from_utc`, whose by the dimensions of the question, and amounts by part and column."""
    book = name_unknown(question, ibis.table(ledger_columns(), name="window_ledger"))
    return book.select("from_utc", *question.keys, **list_parts(question, book))
