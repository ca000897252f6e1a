"""Holdings, kept from minute to minute: attributed once an hour, and again where the tables that say it changed.

Minute by minute that would attribute the same holders to the same GPUs each time, at most of the cost. The holdings of an
hour are kept instead, of the past as many hours as fit, and each minute is cut from them. Of nodes of which allocations or
devices changed they are attributed anew: that is exact where every allocation of the hour names its GPU, and is listed or, all
of them, known from labels. Otherwise, and where outages, prices or what follows from whole tables changed, all is attributed anew.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.booking import LedgerFacts, book, list_facts, view_placed
from loadfactor.books.charging.billed_prices import has_bills
from loadfactor.store.session import Session
from loadfactor.tables.schema import IS_LISTED, Span

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CHANGED: Final = 0.2
"""Where more of the rows changed, all is attributed anew: that is no more work."""
MOST_GPU_HOURS: Final = 100_000
"""So many of the past are attributed at once, where several hours are."""
_STATED: Final = ("devices", "allocations", "outages", "prices", "exchange_rates")
"""The tables that say who held what."""
_OF_MANY: Final = ("outages", "prices", "exchange_rates", "unlisted", "node_names")
"""Tables of which a row says something of many GPUs; the last two as `list_facts` makes them."""
_NAMED: Final = """
SELECT 'device' AS level, device_id AS name, node, hash('devices', *COLUMNS(*)) AS reported FROM devices
UNION ALL SELECT 'device', device_id, node, hash('allocations', *COLUMNS(*)) FROM allocations
UNION ALL SELECT level, name, if(level = 'node', name, NULL), hash('sources', level, name, by_list) FROM sources"""


@dataclass(frozen=True)
class _HeldHours:
    """The holdings of whole hours, and what they were made from, as hashes.

    `stated`: of all rows; `whole`: of what concerns more than single GPUs; `named`: of each row, with the GPU, node or pool named.
    """

    hours: Span
    holdings: "pa.Table"
    stated: tuple[object, ...]
    whole: tuple[object, ...]
    named: "pa.Table"
    by_gpu: bool
    """Whether each GPU's holders followed from what is reported of it and of its node."""


class KeptHoldings:
    """The holdings of the last hours that were requested, at the settings of then."""

    def __init__(self) -> None:
        self._kept: _HeldHours | None = None

    def show(self, session: Session, span: Span, with_bills: bool) -> None:
        """Put the holdings of a span into the table `holdings` of a session, as long as they are in their hours.

        Of GPUs that nobody holds for a part of an hour, those of the whole hour: whether they work all the same is judged by all
        samples of an hour, as where it is booked whole.
        """
        self._refresh(session, span, with_bills)
        assert self._kept is not None
        hours = span[0] - span[0] % MS_PER_HOUR, span[1] + -span[1] % MS_PER_HOUR
        among = "all_holdings"
        if session.derived.get(among) is not self._kept:
            among = "registered_holdings"  # a minute reads them once, which a table of them would cost as well
            session.raw.register(among, self._kept.holdings)
        session.materialize(
            "holdings",
            f"WITH held AS (SELECT * FROM {among} WHERE from_utc < {hours[1]} AND to_utc > {hours[0]})"
            f" SELECT * FROM held WHERE (from_utc < {span[1]} AND to_utc > {span[0]})"
            " OR device_id IN (SELECT device_id FROM held WHERE free)",
        )

    def _refresh(self, session: Session, span: Span, with_bills: bool) -> None:
        """Attribute what changed since the last time, or all hours that a span touches, and those after it that fit."""
        hours = span[0] - span[0] % MS_PER_HOUR, span[1] + -span[1] % MS_PER_HOUR
        kept, stated = self._kept, (with_bills, *_digest_stated(session))
        if with_bills and has_bills(session):
            kept = None  # they make prices, too
        if kept is not None and kept.stated == stated and kept.hours[0] <= hours[0] and hours[1] <= kept.hours[1]:
            return
        for name in _STATED:
            session.view_table(name, name)
        facts = list_facts(session)
        whole = (facts.numbered, facts.filled, with_bills, *(_digest(session, name) for name in _OF_MANY))
        named = session.fetch(_NAMED)
        last = session.span()[1]
        most_ms = MOST_GPU_HOURS // max(1, facts.gpus) * MS_PER_HOUR
        hours = hours[0], max(hours[1], min(last + -last % MS_PER_HOUR, hours[0] + most_ms))
        by_gpu = is_by_gpu(session, hours, facts)
        changed = None
        is_one = hours[1] - hours[0] == MS_PER_HOUR
        if is_one and kept is not None and by_gpu and kept.by_gpu and (kept.hours, kept.whole) == (hours, whole):
            changed = _find_changed(session, kept, named)
        self._kept = None  # until it is whole again
        book(session, (hours,), until="holdings", with_bills=with_bills, among=changed)
        holdings = session.fetch("SELECT * FROM holdings")
        if changed and kept is not None:
            holdings = _replace(session, kept, changed, holdings)
        self._kept = _HeldHours(hours, holdings, stated, whole, named, by_gpu)
        if not changed:  # a session that reads more of these hours has them already
            session.materialize("all_holdings", "SELECT * FROM holdings")
            session.derived["all_holdings"] = self._kept


def _digest_stated(session: Session) -> tuple[tuple[object, ...], ...]:
    """Of all rows of the tables that say who held what, once a session."""
    if "stated" not in session.derived:
        for name in _STATED:
            session.view_table(name, name)
        session.derived["stated"] = tuple(_digest(session, name) for name in _STATED)
    digests: tuple[tuple[object, ...], ...] = session.derived["stated"]
    return digests


def _digest(session: Session, name: str) -> tuple[object, ...]:
    """Of all rows of a table, in any order."""
    return session.fetch_one(f"SELECT count(*), sum(hash(*COLUMNS(*)))::VARCHAR FROM {name}")


def is_by_gpu(session: Session, span: Span, facts: LedgerFacts) -> bool:
    """Whether each GPU's holders follow from what is reported of it and of its node, in a span."""
    if facts.numbered or facts.filled or facts.tracked:
        return False
    view_placed(session, (span,))
    rows, named, labelled = session.fetch_one(
        f"SELECT count(*), count(device_id), count(*) FILTER (NOT {IS_LISTED}) FROM allocations"
    )
    (others,) = session.fetch_one("SELECT (SELECT count(*) FROM unlisted) + (SELECT count(*) FROM node_names)")
    return named == rows and labelled in (0, rows) and not others


def _find_changed(session: Session, kept: _HeldHours, named: "pa.Table") -> str | None:
    """A table of the GPUs of which something else is reported now, with all of their nodes; None where that is most of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pairs = (kept.named, named), (named, kept.named)  # no row is there twice: rows of one key are one
    changed = [rows.filter(pc.invert(pc.is_in(rows["reported"], others["reported"]))) for rows, others in pairs]
    session.register("changed_names", pa.concat_tables(changed))
    (is_wide,) = session.fetch_one("SELECT count(*) > 0 FROM changed_names WHERE level IN ('pool', 'fleet')")
    if is_wide:
        return None
    session.raw.register("kept_holdings", kept.holdings)
    session.materialize(
        "placed", "SELECT device_id, node FROM all_devices UNION SELECT device_id, node FROM kept_holdings"
    )
    session.raw.unregister("kept_holdings")
    gpus = "SELECT name FROM changed_names WHERE level = 'device'"
    nodes = f"SELECT node FROM changed_names UNION SELECT node FROM placed WHERE device_id IN ({gpus})"
    session.materialize(
        "changed_gpus",
        f"SELECT DISTINCT device_id FROM (SELECT name AS device_id FROM ({gpus})"
        f" UNION ALL SELECT p.device_id FROM placed AS p SEMI JOIN ({nodes}) AS n ON p.node = n.node)",
    )
    (count,) = session.fetch_one("SELECT count(*) FROM changed_gpus")
    return "changed_gpus" if 0 < count <= MOST_CHANGED * kept.holdings.num_rows else None


def _replace(session: Session, kept: _HeldHours, changed: str, anew: "pa.Table") -> "pa.Table":
    """Join what was kept of the other GPUs with what was attributed anew, its intervals numbered after those that were kept."""
    import pyarrow as pa
    import pyarrow.compute as pc

    gpus = session.fetch(f"SELECT device_id FROM {changed}")["device_id"]
    stays = kept.holdings.filter(pc.invert(pc.is_in(kept.holdings["device_id"], gpus)))
    after = pc.max(kept.holdings["span"]).as_py() - kept.hours[0] + 1
    spans = pc.add(anew["span"], after)
    return pa.concat_tables([stays, anew.set_column(anew.schema.get_field_index("span"), "span", spans)])
