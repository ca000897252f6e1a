"""Waits by group: every quantile that a question takes, and how many wait still."""

from loadfactor.metrics.metric import Quantile
from loadfactor.metrics.query.question import Fetch, Key, Question, Row, list_rows


def measure_waits(question: Question, fetch: Fetch) -> dict[Key, Row]:
    """Every wait quantile asked for, and who still waits, by group; nothing where no wait was ever recorded."""
    if not question.waits or not len(fetch("any_wait")["job_id"]):
        return {}
    out: dict[Key, Row] = {}
    for row in list_rows(fetch("waited")):
        out[tuple(row.pop(k) for k in question.keys)] = {"waiting": 0, **row}
    for metric in question.metrics:
        kind = metric.kind
        if isinstance(kind, Quantile) and kind.of == "wait_s" and kind.weight is not None and not kind.mean:
            for row in list_rows(fetch(metric.name)):
                out[tuple(row[k] for k in question.keys)][metric.name] = row["v"]
    for row in list_rows(fetch("waiting")):
        out.setdefault(tuple(row[k] for k in question.keys), {"n": 0})["waiting"] = row["n"]
    return out
