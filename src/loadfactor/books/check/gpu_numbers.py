"""GPUs that a scheduler names by number: what is booked by numbers alone, and nodes where they are not the driver's."""

from collections.abc import Iterator

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.booking import book
from loadfactor.books.check.finding import ROUNDING, Examined, Finding, add_places, name_some
from loadfactor.books.ledger_facts import has_numbers, list_misnumbered


def find_misnumbered(books: Examined) -> Iterator[Finding]:
    """Nodes whose GPUs a scheduler numbers otherwise than their driver, and what is booked there without a GPU."""
    nodes = list_misnumbered(books.session)
    if nodes:
        hours, _ = add_places(
            [p for p in books.places if p.node in nodes and p.device is None], "allocated_gpu_hours", "cost"
        )
        yield Finding(
            "missing",
            f"nodes on which labels name other GPUs for jobs than the scheduler's numbers do: {len(nodes):,} ({name_some(nodes)});"
            " what labels do not name is booked there by node",
            "compare the order of gres.conf with `nvidia-smi -L`: Slurm counts device files (Minor Number of `nvidia-smi -q`), the"
            " driver bus addresses",
            gpu_hours=hours,
        )


def find_booked_by_number(books: Examined) -> Iterator[Finding]:
    """Jobs that are booked on their GPUs because of numbers alone: an estimate, and how much of what was held it is."""
    session = books.session
    if not has_numbers(session):
        return
    book(session, (session.span(),), until="claims")
    jobs, hours = session.fetch_one(
        f"""SELECT count(*), sum(hours) FROM (
              SELECT job_id, sum(gpus * (to_utc - from_utc)) / {MS_PER_HOUR} AS hours FROM (
                SELECT job_id, gpus, from_utc, to_utc FROM claims WHERE device_id IS NOT NULL
                UNION ALL SELECT job_id, -gpus, from_utc, to_utc FROM known_claims WHERE device_id IS NOT NULL)
              GROUP BY job_id HAVING hours > {ROUNDING})"""
    )
    if jobs:
        yield Finding(
            "note",
            f"jobs that are booked on their GPUs by the scheduler's numbers alone: {jobs:,}; that they are the driver's, too, is an"
            " estimate; part of held time that is booked otherwise",
            "compare them once on a node of each kind: `scontrol show job -d` with `nvidia-smi` while a job runs there",
            coverage=max(0.0, 1 - hours / max(hours, books.total("allocated_gpu_hours"))),
            gpu_hours=hours,
        )
