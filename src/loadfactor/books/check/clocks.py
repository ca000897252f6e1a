"""Clocks that differ: nodes whose GPUs work before their jobs begin, or after these have ended.

A job works only while it has its GPUs. Where a scheduler and samples keep the same time, no sample is busy that lies as a whole
just before a job or just after one. A clock that is off moves all of the work one way: at most begins, or at most ends, it is on
the far side. How far it is off is known from below alone, because jobs take their time, and up to what is looked at.
"""

from collections.abc import Iterator
from typing import Final

from loadfactor.base.units import MS_PER_S, S_PER_MIN
from loadfactor.books.check.collection import SET_CLOCKS
from loadfactor.books.check.finding import Examined, Finding, add_places, name_some
from loadfactor.ledger.columns import ACTIVITIES
from loadfactor.tables.schema import IDLE_BELOW, LABELS

AROUND_MS: Final = 15 * S_PER_MIN * MS_PER_S
"""So long before and after it holds jobs a node must be free, and is looked at."""
LEAST_MS: Final = S_PER_MIN * MS_PER_S
"""Less may be samples that come late, or jobs that take their time to end."""
ENOUGH: Final = 5
"""So many times a node must have begun and ended to hold jobs."""
MOST_EDGES: Final = 10
"""So many of these times are looked at of a node, the latest ones."""


def find_differing_clocks(books: Examined) -> Iterator[Finding]:
    """Nodes on which most work lies before or after the jobs that a scheduler lists.

    Only GPUs that the ledger saw work for nobody can be on them, so samples of the others are not read.
    """
    suspects = [
        place.device for place in books.places if place.device is not None and place.get("unattributed_gpu_hours")
    ]
    if not suspects:
        return
    session = books.session
    session.put("suspects", {"device_id": suspects})
    for name in ("allocations", "devices"):
        session.view_table(name, name)
    session.materialize("edges_of_jobs", _EDGES)
    times = session.raw.execute("SELECT at_utc FROM edges_of_jobs ORDER BY at_utc").fetchall()
    if not times:
        return
    around = tuple((at - AROUND_MS, at + AROUND_MS) for (at,) in times)
    session.view_table("samples", "samples", within=around)
    off = session.raw.execute(_OFF).fetchall()
    for side, said in (("start", "before their jobs begin"), ("end", "after their jobs have ended")):
        found = [(node, ms) for node, where, ms in off if where == side]
        if found:
            nodes = [node for node, _ in found]
            hours, cost = add_places(
                [p for p in books.places if p.node in nodes], "unattributed_gpu_hours", "unattributed_cost"
            )
            least = min(ms for _, ms in found) / MS_PER_S
            yield Finding(
                "missing",
                f"nodes whose clocks differ from the scheduler's: on {len(nodes):,} ({name_some(nodes)}) GPUs work {said}, by"
                f" {least:,.0f} s or more; what nobody is known to hold there",
                f"{SET_CLOCKS}; where whole hours are off, import with the --timezone that the times are in",
                gpu_hours=hours,
                cost=cost,
            )


_EDGES: Final = f"""
    WITH listed AS (
      SELECT coalesce(a.node, d.node) AS node, a.from_utc, coalesce(a.to_utc, {2**62}) AS to_utc
      FROM allocations a LEFT JOIN (SELECT DISTINCT device_id, node FROM devices) d USING (device_id)
      WHERE a.known_from IS DISTINCT FROM '{LABELS}'
        AND coalesce(a.node, d.node) IN (SELECT s.node FROM devices s SEMI JOIN suspects USING (device_id))
    ), before AS (
      SELECT *, max(to_utc) OVER (
        PARTITION BY node ORDER BY from_utc, to_utc ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS held_to FROM listed
    ), begun AS (
      SELECT *, sum(CASE WHEN from_utc < held_to + {AROUND_MS} THEN 0 ELSE 1 END) OVER (
        PARTITION BY node ORDER BY from_utc, to_utc ROWS UNBOUNDED PRECEDING
      ) AS stretch FROM before
    ), stretches AS (
      SELECT node, min(from_utc) AS from_utc, max(to_utc) AS to_utc FROM begun GROUP BY node, stretch
    ), edges AS (
      SELECT node, 'start' AS side, from_utc AS at_utc FROM stretches
      UNION ALL SELECT node, 'end', to_utc FROM stretches WHERE to_utc < {2**62}
    )
    SELECT * FROM edges QUALIFY row_number() OVER (PARTITION BY node, side ORDER BY at_utc DESC) <= {MOST_EDGES}"""
"""When nodes begin and end to hold jobs that a scheduler lists, having been free and staying free for a while."""

_OFF: Final = f"""
    WITH near AS (
      SELECT *, at_utc // {AROUND_MS} + unnest([-2, -1, 0, 1]) AS quarter FROM edges_of_jobs
    ), work AS (
      SELECT d.node, s.from_utc, s.to_utc, s.from_utc // {AROUND_MS} AS quarter
      FROM samples s JOIN (SELECT DISTINCT device_id, node FROM devices SEMI JOIN suspects USING (device_id)) d
        USING (device_id)
      WHERE coalesce({", ".join(kind.column for kind in ACTIVITIES)}) >= {IDLE_BELOW}
        AND s.from_utc > s.hour_utc AND s.to_utc = s.sampled_utc -- no part of one
    ), far AS (
      SELECT e.node, e.side, e.at_utc, max(CASE
          WHEN e.side = 'start' AND w.to_utc <= e.at_utc THEN e.at_utc - w.to_utc
          WHEN e.side = 'end' AND w.from_utc >= e.at_utc THEN w.from_utc - e.at_utc END) AS off_ms
      FROM near e JOIN work w ON w.node = e.node AND w.quarter = e.quarter
        AND w.from_utc < e.at_utc + {AROUND_MS} AND w.to_utc > e.at_utc - {AROUND_MS}
      GROUP BY ALL
    ), sides AS (
      SELECT node, side, count(*) AS edges, count(off_ms) / count(*) AS share,
        quantile_disc(coalesce(off_ms, 0), 0.5) AS off_ms
      FROM far GROUP BY node, side
    )
    SELECT one.node, one.side, one.off_ms FROM sides one JOIN sides other ON other.node = one.node AND other.side <> one.side
    WHERE least(one.edges, other.edges) >= {ENOUGH} AND one.off_ms >= {LEAST_MS} AND other.share < 0.25
    ORDER BY one.node"""
"""Nodes of which most begins, or most ends, have work on the far side, and the others have none; by so much at least."""
