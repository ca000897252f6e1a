"""Ibis expressions over the tables of a session, written as SQL for DuckDB, which works them out itself."""

from typing import Any

import ibis

from loadfactor.ledger.labels import drop_repeats
from loadfactor.ledger.states import measures
from loadfactor.ledger.steps import ledger_columns
from loadfactor.ledger.sums import KEPT, add_up
from loadfactor.ledger.waits import list_jobs
from loadfactor.metrics.query.queries import (
    list_activity,
    list_all_reasons,
    list_all_waits,
    list_columns,
    list_held,
    list_queries,
    list_rates,
    list_step_rows,
    list_worked_out,
)
from loadfactor.metrics.query.question import TOLD_BY, Question
from loadfactor.tables.schema import columns_of

Expr = Any


def input_table(name: str) -> Expr:
    """A table of the store under its own name."""
    return ibis.table(ibis.schema(columns_of(name)), name=name)


def write_sql(rows: Expr) -> str:
    """SQL of an expression over names of a session."""
    return str(ibis.to_sql(rows, dialect="duckdb"))


def write_queries(question: Question) -> dict[str, str]:
    """SQL of everything that the answer to a question reads, by name; under `TOLD_BY`, the kept sums that tell it."""
    queries = {name: write_sql(rows) for name, rows in list_queries(question).items()}
    read = list_columns(question)
    return queries | {TOLD_BY: " ".join(kept.table for kept in KEPT if read <= kept.columns)}


def write_sums() -> dict[str, str]:
    """SQL of the kept sums of the table `ledger_rows`, by their tables."""
    return {kept.table: write_sql(add_up(kept)) for kept in KEPT}


def write_measured_ledger() -> dict[str, str]:
    """SQL of the table `ledger` with every measure that follows from a row."""
    rows = ibis.table(ledger_columns(), name="ledger")
    return {"ledger": write_sql(rows.mutate(**measures(rows)))}


def write_step_rows(question: Question) -> dict[str, str]:
    """SQL of `rows`: what each row of the ledger of some steps adds to the metrics of a question."""
    return {"rows": write_sql(list_step_rows(question))}


def write_rates(question: Question) -> dict[str, str]:
    """SQL of `rows`: what each second of a sample, or without one, adds to the metrics of a question."""
    return {"rows": write_sql(list_rates(question))}


def write_progress() -> dict[str, str]:
    """SQL of `progress`: all of it, with the units that are worked out of it."""
    return {"progress": write_sql(list_worked_out())}


def write_jobs() -> dict[str, str]:
    """SQL of `jobs`: each time that a job held GPUs."""
    return {"jobs": write_sql(list_jobs(drop_repeats(input_table("allocations"))))}


def write_held() -> dict[str, str]:
    """SQL of `held`: the GPUs that a job holds."""
    return {"held": write_sql(list_held(input_table("allocations")))}


def write_activity(overlaps: bool) -> dict[str, str]:
    """SQL of `activity`: what they did."""
    return {"activity": write_sql(list_activity(input_table("samples"), overlaps))}


def write_waits() -> dict[str, str]:
    """SQL of the tables `waits` and `wait_reasons`; the second reads the first."""
    return {"waits": write_sql(list_all_waits()), "wait_reasons": write_sql(list_all_reasons())}
