"""Stretches in which all GPUs of a node were free and nobody waited: what could have been given back for that time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from loadfactor.base.units import MS_PER_MIN
from loadfactor.books.compiled_sql import Queries, recall
from loadfactor.books.losses.stretches import Stretch, StretchPiece, cut_out, join, merge
from loadfactor.store.session import Session
from loadfactor.tables.schema import Span

WaitSpan = tuple[str | None, int, int | None]
"""A wait: the pool, from when, and until when; None while it lasts."""
LEAST_WAIT_MS: Final = MS_PER_MIN
"""Waits that are shorter are a scheduler's round, not a lack of GPUs."""


@dataclass(frozen=True)
class FreeStretch:
    """A node (or a GPU of no known node) that stood free as a whole while nobody waited for its pool."""

    node: str | None
    pool: str | None
    stretch: Stretch


def list_waits(session: Session) -> list[WaitSpan]:
    """Every wait that the books know: its pool, and from when to when; None while it lasts."""
    for name in ("allocations", "queue_events"):
        session.view_table(name, name)
    session.create_view("waits", recall("waits", _compile_waits)["waits"])
    rows = session.raw.execute("SELECT pool, queued_utc, ended_utc FROM waits ORDER BY ALL").fetchall()
    return [(pool, queued, ended) for pool, queued, ended in rows]


def _compile_waits() -> Queries:
    from loadfactor.books.expressions import write_waits  # Ibis takes longer to import than most answers

    return write_waits()


def find_free(session: Session, waits: Iterable[WaitSpan], window: Span) -> list[FreeStretch]:
    """The free stretches of the table `asked_ledger`. Who waits for no pool in particular waits for all."""
    waited: dict[str | None, list[Span]] = {}
    for pool, queued, ended in waits:
        end = window[1] if ended is None else ended
        if end - queued >= LEAST_WAIT_MS:
            waited.setdefault(pool, []).append((queued, end))
    everywhere = waited.get(None, [])
    everybody = merge(span for of in waited.values() for span in of)
    places: dict[tuple[Any, ...], tuple[list[StretchPiece], list[Span]]] = {}
    rows = session.raw.execute(
        """SELECT coalesce(node, device_id) AS place, node, max(pool), from_utc, to_utc, state = 'unallocated' AS free,
                  sum(gpu_s)
           FROM asked_ledger WHERE place IS NOT NULL
           GROUP BY place, node, from_utc, to_utc, free ORDER BY place, from_utc, to_utc"""
    ).fetchall()
    pools: dict[tuple[Any, ...], str | None] = {}
    for place, node, pool, start, end, is_free, gpu_s in rows:
        free, used = places.setdefault((place, node), ([], []))
        pools[place, node] = pool or pools.get((place, node))
        if is_free:
            free.append(StretchPiece(start, end, gpu_s))
        else:
            used.append((start, end))
    out = []
    for key, (free, used) in places.items():
        pool = pools[key]
        queue = everybody if pool is None else merge([*waited.get(pool, ()), *everywhere])
        holes = merge([*used, *queue])
        out += [FreeStretch(key[1], pool, stretch) for stretch in join(cut_out(free, holes))]
    return out
