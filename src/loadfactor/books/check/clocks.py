"""Clocks that differ: nodes whose GPUs work before their jobs begin, or after these have ended.

A job works only while it has its GPUs. Where a scheduler and samples keep the same time, no sample is busy that lies as a whole
just before a job or just after one. A clock that is off moves all of the work one way: at most begins, or at most ends, it is on
the far side. How far it is off is known from below alone, because jobs take their time, and up to what is looked at.
"""

from collections.abc import Iterator
from shlex import quote
from typing import Final

from loadfactor.base.errors import DamageError
from loadfactor.base.units import MS_PER_S, S_PER_MIN
from loadfactor.books.check.finding import Examined, Finding, add_places, name_some
from loadfactor.books.dropped_days import STAYS, say_days
from loadfactor.ledger.columns import ACTIVITIES
from loadfactor.metrics.query.calendar import instant
from loadfactor.store.federation import list_sessions
from loadfactor.store.import_records import GONE, list_imports
from loadfactor.store.session import Session
from loadfactor.store.source_status import SET_CLOCKS, explain_status, read_statuses
from loadfactor.tables.schema import IDLE_BELOW, IS_LISTED


def find_unobserved(books: Examined) -> Iterator[Finding]:
    """Held time that nothing measured."""
    coverage = books.totals["observed_gpu_hours"].coverage
    if coverage is not None and coverage < 1:
        there = f" --store {quote(books.session.name)}"
        do = f"check the exporters of the hours in `loadfactor show unobserved_gpu_hours --by day{there}`"
        amounts = books.amounts("unobserved_gpu_hours", "unobserved_cost")
        yield Finding("missing", "not all held time is observed", do, coverage, **amounts)


_GAPS: Final = """
    WITH hidden AS (
      SELECT node, device_id, from_utc, to_utc FROM ledger WHERE device_id IS NOT NULL
      QUALIFY state = 'unobserved' AND has_source AND NOT by_list
        AND gpu_s >= 0.999 * sum(gpu_s) OVER (PARTITION BY device_id, from_utc, to_utc)
    ), begun AS (
      SELECT *, CASE WHEN from_utc <= max(to_utc) OVER (
        PARTITION BY device_id ORDER BY from_utc, to_utc ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) THEN 0 ELSE 1 END AS begins FROM hidden
    ), numbered AS (
      SELECT *, sum(begins) OVER (PARTITION BY device_id ORDER BY from_utc, to_utc ROWS UNBOUNDED PRECEDING) AS gap FROM begun
    ), gaps AS (
      SELECT node, min(from_utc) AS from_utc, max(to_utc) AS to_utc FROM numbered GROUP BY node, device_id, gap
    )
    SELECT coalesce(node, '?') AS node, from_utc, to_utc, count(*) FROM gaps GROUP BY node, from_utc, to_utc
    ORDER BY to_utc - from_utc DESC, from_utc, node"""
"""Intervals without a sample of GPUs of which labels alone say who held them, by node, the longest first."""


def find_gaps(books: Examined) -> Iterator[Finding]:
    """List the gaps in scrapes of GPUs of which labels alone say who held them."""
    gaps = books.session.raw.execute(_GAPS).fetchall()
    if not gaps:
        return
    devices = {
        device
        for (device,) in books.session.raw.execute(
            "SELECT DISTINCT device_id FROM ledger WHERE state = 'unobserved' AND has_source AND NOT by_list"
        ).fetchall()
    }
    hours, cost = add_places(
        [p for p in books.places if p.device in devices], "unobserved_gpu_hours", "unobserved_cost"
    )
    shown = [f"{node} {_say_times(since, until)}, {gpus:,} GPUs" for node, since, until, gpus in gaps]
    yield Finding(
        "missing",
        f"gaps in the scrapes of GPUs of which labels alone say who held them: {len(gaps):,} ({name_some(shown)}); who was named"
        " before and after held them meanwhile, else nobody knows who did",
        "see why the exporter gave nothing then; what a Prometheus still has fills the gap:"
        " `loadfactor import prometheus URL --last 30d`",
        gpu_hours=hours,
        cost=cost,
    )


def find_import_gaps(books: Examined) -> Iterator[Finding]:
    """List what imports could not take."""
    for record in list_imports(books.session):
        for where, what, count in (gap for gap in record.gaps if gap[1] != GONE):
            yield Finding("note", f"{where.rsplit('/', 1)[-1]}: {what} (×{count:,})", "not measured there")


def find_dropped(books: Examined) -> Iterator[Finding]:
    """Days whose samples were dropped: that their ledger stays as it is, and what would be otherwise."""
    span, dropped = books.session.span(), books.session.manifest.dropped
    if days := say_days(dropped.frozen, span):
        yield Finding(
            "note", f"samples of {days} were dropped ([retention] samples); {STAYS}", "nothing; `loadfactor retain`"
        )
    if days := say_days(dropped.changed, span):
        yield Finding(
            "note",
            f"prices, holders or other rows of {days} came or changed after the samples were dropped; {STAYS}",
            "closed months tell what was charged; for other numbers ask a backup of before, where it still has the samples",
        )
    if days := say_days(dropped.redefined, span):
        yield Finding(
            "note",
            f"the ledger of {days} is that of an earlier version, or of an earlier idle_below or catalog: its samples were dropped;"
            f" {STAYS}",
            "nothing; compare with later days knowing that",
        )


def find_failing_sources(books: Examined) -> Iterator[Finding]:
    """Sources of live collection that send nothing, or sent nothing for a while, as the server reported it last."""
    for source in read_statuses(books.session.folder):
        reason = explain_status(source)
        if reason is not None and reason.severity == "note":
            yield Finding("note", f"{source.name}: {reason.cause}", reason.action)
        elif reason is not None:
            since = f" since {instant(source.since_ms):%Y-%m-%d %H:%M} UTC" if source.since_ms else ""
            yield Finding("missing", f"{source.name} is {source.status}{since}: {reason.cause}", reason.action)
        for gap in source.gaps:
            began = f"{source.name}: {gap.target} gave nothing"
            if gap.to_ms is None:
                since = f"{instant(gap.from_ms):%Y-%m-%d %H:%M} UTC"
                yield Finding("missing", f"{began} since {since}: {gap.error}", "start it, or take it off the list")
            else:
                yield Finding(
                    "note", f"{began} from {_say_times(gap.from_ms, gap.to_ms)}: {gap.error}", "not measured there"
                )
        for what, count in source.unknown:
            yield Finding("note", f"{source.name}: {what} (×{count:,})", "it counts as unknown")
        for skipped in source.skipped:
            since = f"{instant(skipped.since_ms):%Y-%m-%d %H:%M} UTC"
            yield Finding("note", f"{source.name}: {skipped.words} (since {since})", "what came beside them is kept")
        for failure in source.failures:
            times = _say_times(failure.from_ms, failure.to_ms)
            yield Finding(
                "note", f"{source.name} failed from {times}: {failure.error}", "it was asked for that time later"
            )


def _say_times(from_ms: int, to_ms: int) -> str:
    return f"{instant(from_ms):%Y-%m-%d %H:%M} to {instant(to_ms):%Y-%m-%d %H:%M} UTC"


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
    for side, reported in (("start", "before their jobs begin"), ("end", "after their jobs have ended")):
        found = [(node, ms) for node, where, ms in off if where == side]
        if found:
            nodes = [node for node, _ in found]
            hours, cost = add_places(
                [p for p in books.places if p.node in nodes], "unattributed_gpu_hours", "unattributed_cost"
            )
            least = min(ms for _, ms in found) / MS_PER_S
            yield Finding(
                "missing",
                f"nodes whose clocks differ from the scheduler's: on {len(nodes):,} ({name_some(nodes)}) GPUs work {reported}, by"
                f" {least:,.0f} s or more; what nobody is known to hold there",
                f"{SET_CLOCKS}; where whole hours are off, import with the --timezone that the times are in",
                gpu_hours=hours,
                cost=cost,
            )


_EDGES: Final = f"""
    WITH listed AS (
      SELECT coalesce(a.node, d.node) AS node, a.from_utc, coalesce(a.to_utc, {2**62}) AS to_utc
      FROM allocations a LEFT JOIN (SELECT DISTINCT device_id, node FROM devices) d USING (device_id)
      WHERE {IS_LISTED}
        AND coalesce(a.node, d.node) IN (SELECT s.node FROM devices s SEMI JOIN suspects USING (device_id))
    ), before AS (
      SELECT *, max(to_utc) OVER (
        PARTITION BY node ORDER BY from_utc, to_utc ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
      ) AS held_to FROM listed
    ), begun AS (
      SELECT *, sum(CASE WHEN from_utc < held_to + {AROUND_MS} THEN 0 ELSE 1 END) OVER (
        PARTITION BY node ORDER BY from_utc, to_utc ROWS UNBOUNDED PRECEDING
      ) AS interval FROM before
    ), intervals AS (
      SELECT node, min(from_utc) AS from_utc, max(to_utc) AS to_utc FROM begun GROUP BY node, interval
    ), edges AS (
      SELECT node, 'start' AS side, from_utc AS at_utc FROM intervals
      UNION ALL SELECT node, 'end', to_utc FROM intervals WHERE to_utc < {2**62}
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


def check_files(session: Session) -> None:
    """Read every file of the books. Raises DamageError naming the first damaged one, and how many more there are.

    So it does if an older manifest was put in place of the newest.
    """
    damaged = []
    for of in list_sessions(session):
        of.place.refuse_older(of.manifest)
        for file in of.manifest.files:
            try:
                of.place.locate([file], again=True)
            except DamageError as error:
                damaged.append(error)
    if len(damaged) > 1:
        raise DamageError(f"{damaged[0]}; {len(damaged) - 1} more of its files are damaged")
    if damaged:
        raise damaged[0]


def find_losses(books: Examined) -> Iterator[Finding]:
    """List the losses by damaged files."""
    for loss in books.session.manifest.losses:
        yield Finding(
            "wrong",
            f"lost with a damaged file, now in quarantine: {loss.what}",
            "import again what `loadfactor imports` names",
        )
