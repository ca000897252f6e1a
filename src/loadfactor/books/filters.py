"""Filters of questions: one value of a dimension, which the books must know."""

from collections.abc import Mapping
from shlex import quote

from loadfactor.base.errors import InputError, no_such
from loadfactor.metrics.query.calendar import PERIODS
from loadfactor.metrics.query.question import OF_A_HOLDER, UNKNOWN_HOLDER
from loadfactor.store.session import Session
from loadfactor.tables.schema import DIMENSIONS, columns_of


def check_filters(session: Session, where: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Filters that name something the books know; InputError naming what is near when they do not."""
    for name, value in where.items():
        if name not in DIMENSIONS:
            raise no_such("dimension", name, DIMENSIONS)
        if name in ("hour", *PERIODS, "state"):
            raise InputError(
                f"nothing can be chosen by {name!r}; use --from and --to for time, or one of job, team, device …"
            )
        column, known = DIMENSIONS[name], {UNKNOWN_HOLDER} if name in OF_A_HOLDER else set()
        for table in ("allocations", "devices", "queue_events"):
            if column in columns_of(table):
                session.view_table(table, table)
                sql = f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL"
                known |= {found for (found,) in session.raw.execute(sql).fetchall()}
        if value not in known:
            raise no_such(
                name,
                value,
                known,
                f"`loadfactor show paid_gpu_hours --by {name} --store {quote(str(session.folder))}` lists them",
            )
    return tuple(where.items())
