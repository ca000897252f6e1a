"""What there is to know of the list of GPUs: which nobody lists, and which two sides count differently."""

from collections.abc import Iterator

from loadfactor.base.units import S_PER_HOUR
from loadfactor.books.check.finding import SHOWN_NAMES, Examined, Finding, add_places
from loadfactor.books.node_names import name_nodes
from loadfactor.ledger.columns import NUMBERED


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
            "import what lists them: `scontrol show node`, an exporter's samples, or a devices table",
            gpu_hours=hours,
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
            "compare Gres of `scontrol show node` with `nvidia-smi -L`: an exporter misses GPUs, or the list is out of date",
            gpu_hours=hours,
            cost=cost,
        )
