"""What `--job` of an import names: a job's id, or an experiment with a single run, whichever of the two is imported first."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import InputError
from loadfactor.store.compaction import retag_rows
from loadfactor.store.import_records import list_imports
from loadfactor.store.sample_files import quote
from loadfactor.store.writer import Writer
from loadfactor.tables.schema import RUN

_SHOWN: Final = 5
_HELD: Final = ("allocations", "progress", "job_sections")
"""Tables whose rows `--job` gives a job."""


class NamedRun(NamedTuple):
    """The job that a name means; experiment and user where it is known as the one run of an experiment."""

    job: str
    experiment: str | None = None
    user: str | None = None


def find_run(writer: Writer, name: str) -> NamedRun:
    """The job by what a user calls it: its id, or the experiment that it alone is a run of; what nobody knows is an id.

    Raises InputError with the ids where an experiment has several runs.
    """
    writer.view_table("allocations", "allocations")
    typed = bool(list_imports(writer, f"held_by = {quote(name)}"))
    (is_job,) = writer.fetch_one(
        f"SELECT count(*) > 0 FROM allocations WHERE job_id = {quote(name)} AND (known_from = {quote(RUN)} OR NOT {typed})"
    )
    if is_job:
        return NamedRun(name)
    found = writer.raw.execute(
        f'SELECT job_id, max("user") FROM allocations WHERE experiment_id = {quote(name)} AND job_id <> {quote(name)}'
        " GROUP BY job_id ORDER BY ALL"
    ).fetchall()
    if len(found) > 1:
        ids = ", ".join(shlex.quote(job) for job, _ in found[:_SHOWN]) + (" …" if len(found) > _SHOWN else "")
        raise InputError(f"--job {name}: {len(found):,} runs have that name; give the id of one: {ids}")
    return NamedRun(found[0][0], name, found[0][1]) if found else NamedRun(name)


def name_held(writer: Writer) -> None:
    """Give what earlier imports have under the name of an experiment to its run, where a single one has come since."""
    held = {record.number: record.held_by for record in list_imports(writer, "held_by IS NOT NULL")}
    if not held:
        return
    writer.view_table("allocations", "allocations")
    runs = writer.raw.execute(
        f"""SELECT experiment_id, min(job_id), max("user") FROM allocations
           WHERE known_from = {quote(RUN)} AND experiment_id IS NOT NULL
           GROUP BY experiment_id HAVING count(DISTINCT job_id) = 1 AND min(job_id) <> experiment_id
             AND experiment_id IN (SELECT job_id FROM allocations WHERE known_from IS NULL)
             AND experiment_id NOT IN (SELECT job_id FROM allocations WHERE known_from = {quote(RUN)})"""
    ).fetchall()
    meant = {run[0]: [number for number, name in held.items() if name == run[0]] for run in runs}
    meant = {name: numbers for name, numbers in meant.items() if numbers}
    if meant:
        named = [NamedRun(job, name, user) for name, job, user in runs if name in meant]
        retag_rows(writer, lambda _table, rows: _rename(rows, named, meant), _HELD)


def _rename(rows: pa.Table, runs: Sequence[NamedRun], numbers: Mapping[str, Sequence[int]]) -> pa.Table:
    """Rows of imports that were given the name of an experiment, as rows of its run."""
    for run in runs:
        of = pa.array(numbers[str(run.experiment)], rows["import_no"].type)
        meant = pc.and_(pc.is_in(rows["import_no"], of), pc.equal(rows["job_id"], run.experiment))
        given: dict[str, str | None] = {"job_id": run.job}
        if "experiment_id" in rows.column_names:
            given |= {"experiment_id": run.experiment, "user": run.user}
        for name, text in given.items():
            old = rows[name]
            new = pc.if_else(meant, pa.scalar(text, pa.string()), old)
            values = new if name == "job_id" else pc.coalesce(old, new)
            rows = rows.set_column(rows.column_names.index(name), rows.field(name), values)
    return rows
