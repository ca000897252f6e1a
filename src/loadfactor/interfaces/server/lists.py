"""Jobs and devices of the books as rows."""

from datetime import datetime
from typing import Any

import ibis
import pyarrow as pa

from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.server.reach import names_of_team
from loadfactor.ledger.labels import drop_repeats
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.tables.schema import DIMENSIONS

JOB_DIMENSIONS = ("user", "team", "project", "experiment", "purpose")
INSTANT = pa.timestamp("ms", "UTC")


def list_jobs(
    snapshot: Snapshot, start: datetime | None, end: datetime | None, filters: dict[str, str], limit: int, offset: int
) -> pa.Table:
    """A row each time a job held GPUs in a window, in the order of the starts; `filters` are of the holder and the pool."""
    rows = drop_repeats(snapshot.view("allocations"))
    for name, value in filters.items():
        rows = rows.filter(rows[DIMENSIONS[name]] == value)
    gpus = ibis.coalesce(rows.gpus, 1.0) * ibis.coalesce(rows.share, 1.0)
    jobs = (
        rows.mutate(held=gpus)
        .group_by("job_id", "attempt", "from_utc")
        .aggregate(
            **{name: lambda t, column=DIMENSIONS[name]: t[column].max() for name in JOB_DIMENSIONS},
            gpus=lambda t: t.held.sum(),
            submitted=lambda t: t.submitted_utc.min(),
            to=lambda t: ibis.ifelse(t.to_utc.isnull().any(), ibis.null("int64"), t.to_utc.max()),
            end_state=lambda t: t.end_state.max(),
        )
    )
    if start is not None:
        jobs = jobs.filter(jobs.to.isnull() | (jobs.to > milliseconds(start)))
    if end is not None:
        jobs = jobs.filter(jobs.from_utc < milliseconds(end))
    jobs = jobs.rename({"job": "job_id", "from": "from_utc"})
    columns = ["job", "attempt", *JOB_DIMENSIONS, "gpus", "submitted", "from", "to", "end_state"]
    return as_instants(
        snapshot.fetch(jobs.select(columns).order_by("from", "job", "attempt").limit(limit, offset=offset))
    )


def list_devices(snapshot: Snapshot, team: str | None, limit: int, offset: int) -> pa.Table:
    """A row a GPU and stretch of time it stayed where it was, in the order of their names; of a team, those it held."""
    rows: Any = snapshot.view("devices")
    if team is not None:
        held = [name for name in names_of_team(snapshot, "device", team) if name is not None]
        rows = rows.filter(rows.device_id.isin(held)) if held else rows.limit(0)
    rows = rows.rename({"device": "device_id", "from": "from_utc", "to": "to_utc"})
    columns = ["device", "node", "accelerator", "pool", "share", "from", "to"]
    return as_instants(snapshot.fetch(rows.select(columns).order_by("device", "from").limit(limit, offset=offset)))


def as_instants(rows: pa.Table) -> pa.Table:
    """Rows with the columns from, to and submitted as instants rather than milliseconds."""
    for name in ("from", "to", "submitted"):
        if name in rows.column_names:
            place = rows.column_names.index(name)
            rows = rows.set_column(place, name, rows[name].cast(INSTANT))
    return rows
