"""What there is to know of the list of GPUs: which nobody lists, and which two sides count differently."""

from collections.abc import Iterator
from typing import Final

from loadfactor.ledger.unlisted import NUMBERED
from loadfactor.store.session import Session
from loadfactor.units import S_PER_HOUR

_SHOWN: Final = 3
Said = tuple[str, str]
"""What was found, and what to do."""


def find_unlisted(session: Session) -> Iterator[Said]:
    """Nodes, pools or fleets whose GPUs nobody lists, with the hours booked for them."""
    hours, places = session.raw.execute(
        f"SELECT coalesce(sum(gpu_s), 0) / {S_PER_HOUR}, count(DISTINCT coalesce(node, pool, ''))"
        " FROM ledger WHERE has_source IS NULL"
    ).fetchall()[0]
    if hours:
        yield (
            f"{hours:,.2f} GPU-hours are of GPUs that nobody lists ({places:,} nodes or pools): there are taken to be as many as"
            " jobs held at once",
            "import what lists them: `scontrol show node`, an exporter's samples, or a devices table",
        )


def find_counted_twice(session: Session) -> Iterator[Said]:
    """Nodes on which a scheduler counts another number of GPUs than are listed by name."""
    session.view_table("devices", "devices")
    differing = session.raw.execute(
        f"""SELECT node, sum(share) FILTER (by_number) AS counted, sum(share) FILTER (NOT by_number) AS named FROM (
              SELECT DISTINCT node, device_id, coalesce(share, 1.0) AS share,
                starts_with(device_id, node || '{NUMBERED}') AS by_number FROM devices WHERE node IS NOT NULL)
            GROUP BY node HAVING counted IS NOT NULL AND named IS NOT NULL AND abs(counted - named) > 1e-6 ORDER BY node"""
    ).fetchall()
    if differing:
        named = ", ".join(f"{node}: {counted:g} and {there:g}" for node, counted, there in differing[:_SHOWN])
        yield (
            f"nodes of which a scheduler counts another number of GPUs than others list: {len(differing):,}"
            f" ({named}{', …' if len(differing) > _SHOWN else ''}); those listed count, and what the scheduler counts beyond them",
            "check whether an exporter misses GPUs there, or the list is out of date",
        )
