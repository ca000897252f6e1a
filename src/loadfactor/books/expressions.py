"""Ibis expressions run in a session: compiled to SQL, worked out by DuckDB itself."""

from typing import Any

import ibis
import ibis.expr.operations as ops
import pyarrow as pa

from loadfactor.store.session import Session

Expr = Any


def fetch(session: Session, expression: Expr) -> pa.Table:
    """The rows of an expression over names of the session."""
    return session.fetch(compile_expression(session, expression))


def compile_expression(session: Session, expression: Expr) -> str:
    """SQL of an expression over names of the session; small tables inside it are put into the session."""
    for memory in expression.op().find(ops.InMemoryTable):
        session.register(memory.name, memory.data.to_pyarrow(memory.schema))
    return str(ibis.to_sql(expression, dialect="duckdb"))
