"""Holders of GPUs: more than there was to hold, unknown ones, and those that are inferred."""

from collections.abc import Iterator
from typing import Final

from loadfactor.base.units import MS_PER_HOUR, S_PER_HOUR
from loadfactor.books.booking import book, has_numbers, list_facts, list_misnumbered
from loadfactor.books.charging.instances import name_nodes
from loadfactor.books.check.finding import ROUNDING, SHOWN_NAMES, Examined, Finding, add_places, name_some
from loadfactor.store.manifest import subtract
from loadfactor.tables.schema import EVEN_SPLIT, IS_LISTED, NUMBERED

UNATTRIBUTED_REMEDY: Final = "import allocations, use an exporter with job labels, or import the log with --job JOB"


def find_excess(books: Examined) -> Iterator[Finding]:
    """Allocations that ask for more than there was."""
    session = books.session
    start, end = session.span()
    for name in ("allocations", "devices"):
        session.view_table(name, name)
    (requested_gpu_hours,) = session.fetch_one(
        f"""WITH asking AS (
              SELECT *, greatest(from_utc, {start}) AS since, least(coalesce(to_utc, {end}), {end}) AS until
              FROM allocations WHERE from_utc < {end} AND {IS_LISTED}
            ), again AS (  -- a run that overlapping logs name twice on one GPU asks once
              SELECT *, if(device_id IS NULL, NULL, max(until) OVER (
                PARTITION BY device_id, job_id, attempt ORDER BY since ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
              )) AS before FROM asking
            )
            SELECT coalesce(sum(coalesce(gpus, 1) * coalesce(a.share, 1) * coalesce(d.share, 1)
              * greatest(0, until - greatest(since, coalesce(before, since)))), 0) / {MS_PER_HOUR}
            FROM again a LEFT JOIN (SELECT device_id, min(share) AS share FROM devices GROUP BY ALL) d USING (device_id)"""
    )
    excess = requested_gpu_hours - books.total("allocated_gpu_hours")
    if excess > ROUNDING * max(1.0, requested_gpu_hours):
        yield Finding(
            "missing",
            "allocations ask for more than was installed, because they overlap or name GPUs not installed then",
            "check the times of allocations and devices; overlapping holders share what there was",
            gpu_hours=excess,
        )


def find_unattributed(books: Examined) -> Iterator[Finding]:
    """Time with an unknown holder, and how to say who held it."""
    unattributed, paid = books.total("unattributed_gpu_hours"), books.total("paid_gpu_hours")
    if unattributed > ROUNDING * paid:
        yield Finding(
            "missing",
            "time with an unknown holder, because no allocation speaks of these GPUs or they work unallocated",
            UNATTRIBUTED_REMEDY,
            **books.amounts("unattributed_gpu_hours", "unattributed_cost"),
        )


def find_inferred_holders(books: Examined) -> Iterator[Finding]:
    """Holders that nobody listed as they are: read from labels of samples, or estimated."""
    session = books.session
    session.view_table("allocations", "allocations")
    listed = f"FROM allocations WHERE {IS_LISTED}"
    labelled, split = session.fetch_one(
        f"""SELECT
              count(DISTINCT job_id) FILTER (NOT {IS_LISTED} AND job_id NOT IN (
                SELECT job_id {listed} UNION SELECT coalesce(job_number, job_id) {listed})),
              count(DISTINCT job_id) FILTER (known_from = '{EVEN_SPLIT}')
            FROM allocations"""
    )
    if labelled:
        yield Finding(
            "note",
            f"jobs that only labels of samples name: {labelled:,}; who held their GPUs is inferred",
            "import what a scheduler says, where there is one",
        )
    if split:
        yield Finding(
            "note",
            f"jobs of several nodes whose GPUs were split evenly over these: {split:,}; how many were on which node is an estimate",
            "collect labels of samples, or import what the scheduler says of single nodes",
        )


def _name_list(books: Examined) -> str:
    """The command that lists the GPUs of nodes: of the scheduler whose jobs these are."""
    books.session.view_table("allocations", "allocations")
    pods, jobs = books.session.fetch_one(
        """SELECT coalesce(bool_or(tags LIKE '%"namespace":%'), false), coalesce(bool_or(tags NOT LIKE '%"namespace":%'), true)
           FROM allocations"""
    )
    commands = ("`kubectl get nodes -o json`", "`scontrol show node`")
    return " or ".join(command for command, is_there in zip(commands, (pods, jobs), strict=True) if is_there)


def find_unlisted(books: Examined) -> Iterator[Finding]:
    """Nodes, pools or fleets whose GPUs nobody lists, with the hours booked for them."""
    hours, places = books.session.fetch_one(
        f"SELECT coalesce(sum(gpu_s), 0) / {S_PER_HOUR}, count(DISTINCT coalesce(node, pool, ''))"
        " FROM ledger WHERE has_source IS NULL"
    )
    if hours:
        yield Finding(
            "missing",
            f"GPUs that nobody lists ({places:,} nodes or pools), taken to be as many as jobs held at once",
            f"import what lists them: {_name_list(books)}, an exporter's samples, or a devices table",
            gpu_hours=hours,
        )


def find_uncounted(books: Examined) -> Iterator[Finding]:
    """Jobs that hold more GPUs that nobody lists than are counted."""
    facts = list_facts(books.session)
    held, counted = (
        (0, 0) if "unlisted" in facts.empty else books.session.fetch_one("SELECT sum(held), sum(most) FROM unlisted")
    )
    if held > counted:
        places = books.session.fetch_one(
            "SELECT string_agg(place, ', ') FROM (SELECT coalesce(node, pool, 'the fleet') || ': ' || held AS place"
            f" FROM unlisted WHERE most < held ORDER BY held DESC, place LIMIT {SHOWN_NAMES})"
        )
        yield Finding(
            "missing",
            f"jobs hold {int(held):,} GPUs that nobody lists; {int(counted):,} of them are counted, the most that are"
            f" without a list ({places[0]})",
            f"correct gpus in allocations, or import what lists them: a devices table, {_name_list(books)}",
        )


def find_counted_twice(books: Examined) -> Iterator[Finding]:
    """Nodes on which a scheduler counts another number of GPUs than are listed by name, and what it counts beyond these."""
    session = books.session
    name_nodes(session)
    differing = session.raw.execute(
        f"""SELECT node, sum(share) FILTER (by_number) AS counted, sum(share) FILTER (NOT by_number) AS named FROM (
              SELECT DISTINCT coalesce(called, node) AS node, coalesce(share, 1.0) AS share, by_number,
                if(by_number, substr(device_id, length(node) + 1), device_id) AS gpu
              FROM (SELECT *, starts_with(device_id, node || '{NUMBERED}') AS by_number FROM devices)
              LEFT JOIN node_names USING (node) WHERE node IS NOT NULL)
            GROUP BY node HAVING counted IS NOT NULL AND named IS NOT NULL AND abs(counted - named) > 1e-6 ORDER BY node"""
    ).fetchall()
    if differing:
        named = ", ".join(f"{node}: {counted:g} and {there:g}" for node, counted, there in differing[:SHOWN_NAMES])
        nodes = {node for node, *_ in differing}
        beyond = [p for p in books.places if p.node in nodes and (p.device or "").startswith(f"{p.node}{NUMBERED}")]
        hours, cost = add_places(beyond, "paid_gpu_hours", "cost")
        yield Finding(
            "missing",
            f"nodes of which a scheduler counts another number of GPUs than others list: {len(differing):,}"
            f" ({named}{', …' if len(differing) > SHOWN_NAMES else ''}); those listed count, and what the scheduler counts beyond"
            " them",
            f"compare {_name_list(books)} with `nvidia-smi -L`: an exporter misses GPUs, or the list is out of date",
            gpu_hours=hours,
            cost=cost,
        )


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
    book(session, subtract((session.span(),), session.manifest.dropped.hours), until="claims")
    jobs, hours = session.fetch_one(
        f"""SELECT count(*), coalesce(sum(hours), 0) FROM (
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
