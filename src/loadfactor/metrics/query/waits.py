"""Waits by group: every quantile that a question takes, and how many wait still."""

from loadfactor.metrics.metric import Quantile
from loadfactor.metrics.query.question import Fetch, Key, Question, Row


def measure_waits(question: Question, fetch: Fetch) -> dict[Key, Row]:
    """Every wait quantile asked for, and who still waits, by group; nothing where no wait was ever recorded."""
    if not question.waits or not fetch("any_wait").num_rows:
        return {}
    out: dict[Key, Row] = {}
    for row in fetch("waited").to_pylist():
        out[tuple(row.pop(k) for k in question.keys)] = {"waiting": 0, **row}
    for metric in question.metrics:
        kind = metric.kind
        if isinstance(kind, Quantile) and kind.of == "wait_s" and kind.weight is not None and not kind.mean:
            for row in fetch(metric.name).to_pylist():
                out[tuple(row[k] for k in question.keys)][metric.name] = row["v"]
    for row in fetch("waiting").to_pylist():
        out.setdefault(tuple(row[k] for k in question.keys), {"n": 0})["waiting"] = row["n"]
    return out
