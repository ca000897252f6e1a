"""Credits that providers owe for outages of a month: availability of each node or all, by the contracts [[sla]], with the evidence.

A GPU belongs to the first contract that covers it. An outage is time that the ledger books as down: installed, not usable, held by
nobody and not at work, each GPU-second once however many outages overlap. It counts unless the contract leaves it out. Time of
which nothing is known counts as available: what nobody measured, and hours of the month before the books begin and after they end,
of GPUs that were there at that instant.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from itertools import pairwise
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_HOUR, MS_PER_S
from loadfactor.books.charging.bill_lines import read_month
from loadfactor.books.charging.instances import name_nodes
from loadfactor.metrics.query.calendar import Window, instant, milliseconds
from loadfactor.metrics.query.reading import Readings
from loadfactor.money.currency import add_exactly, from_minor, round_to_minor
from loadfactor.settings.config import FILE
from loadfactor.settings.sla import Sla, matches
from loadfactor.store.import_records import list_imports
from loadfactor.store.manifest import intersect, merge, subtract
from loadfactor.store.sample_files import read
from loadfactor.store.session import Session, empty
from loadfactor.tables.schema import ALWAYS, Span

ASKED: Final = ("paid_gpu_hours", "measured_share", "cost")
HOUR: Final = timedelta(hours=1)
DIGITS: Final = 9
"""Decimal places of an availability: the eighth of a second of a month."""
ALL: Final = "all"
HELD: Final = "held or at work"
ANNOUNCED: Final = "announced maintenance"
LIVE: Final = "live"


@dataclass(frozen=True)
class OutageProof:
    """An outage of GPUs of a node in the month; `left_out` is why it does not count, empty where it does."""

    node: str | None
    devices: tuple[str, ...]
    start: datetime
    end: datetime
    gpus: float
    gpu_hours: float
    reasons: tuple[str, ...]
    sources: tuple[str, ...]
    left_out: str


@dataclass(frozen=True)
class CreditLine:
    """GPU-hours of a node, or of all, in the month, its availability, its price and what of that is owed.

    `gpu_hours`: of the month, outside the books too; `unknown_gpu_hours` of them are outside, or neither down nor measured. None
    where no price is known of it; `priced_share` is the part of its installed time that has one.
    """

    node: str | None
    gpu_hours: float
    installed_gpu_hours: float
    down_gpu_hours: float
    counted_gpu_hours: float
    unknown_gpu_hours: float
    availability: Decimal
    cost: float | None
    priced_share: float | None
    credit_share: Decimal
    credit: Decimal | None


@dataclass(frozen=True)
class CreditClaim:
    """What one contract owes: by line, with every outage, those that do not count too."""

    sla: str
    provider: str
    contract: str
    promised: Decimal
    per: str
    steps: tuple[tuple[Decimal, Decimal], ...]
    rules: tuple[str, ...]
    lines: tuple[CreditLine, ...]
    outages: tuple[OutageProof, ...]
    cost: float | None
    credit: Decimal


@dataclass(frozen=True)
class CreditsOwed:
    """Credits of a month, as far as the books know it."""

    month: str
    start: datetime
    end: datetime
    known_from: datetime
    known_until: datetime
    currency: str
    basis: str
    claims: tuple[CreditClaim, ...]
    credit: Decimal

    @property
    def is_complete(self) -> bool:
        """Whether the books know the whole month."""
        return self.known_from <= self.start and self.end <= self.known_until


@dataclass(frozen=True, slots=True)
class ListedOutage:
    """An outage as a source lists it."""

    span: Span
    reason: str
    source: str


@dataclass
class DeviceTime:
    """Time of a GPU (or a part of one) in the month: what the ledger books as down, with how many GPUs that is, and the rest."""

    down: list[tuple[Span, float]] = field(default_factory=list)
    up: list[Span] = field(default_factory=list)
    gpu_s: float = 0.0

    @property
    def gpus(self) -> float:
        """How many GPUs it is: a part of one, where it is a part."""
        return round(
            self.gpu_s * MS_PER_S / sum(of[1] - of[0] for of in merge([*self.up, *(s for s, _ in self.down)])), DIGITS
        )


@dataclass(frozen=True, slots=True)
class OutagePiece:
    """Time of a GPU in outages in which nothing changes: under which reasons, by which sources, and why it does not count."""

    node: str | None
    device: str
    span: Span
    gpus: float
    reasons: tuple[str, ...]
    sources: tuple[str, ...]
    left_out: str

    @property
    def gpu_hours(self) -> float:
        """Its GPU-hours."""
        return self.gpus * (self.span[1] - self.span[0]) / MS_PER_HOUR


Place = tuple[str | None, str | None, str | None]
"""Node, pool and accelerator."""


def find_availability(counted: float, gpu_hours: float) -> Decimal:
    """The availability of GPUs: one less what counted outages took of their GPU-hours of the month, to nine digits.

    >>> find_availability(7.44, 744.0), find_availability(0.0, 744.0)
    (Decimal('0.990000000'), Decimal('1.000000000'))
    """
    return Decimal(f"{1 - counted / gpu_hours:.{DIGITS}f}")


def find_credits(
    session: Session,
    ask: Callable[..., Readings],
    view_span: Callable[[Window | None], bool],
    contracts: Sequence[Sla],
    month: str | None,
    span: tuple[datetime, datetime],
    zone: tzinfo,
    basis: str,
) -> CreditsOwed:
    """What every contract owes of a month, by default the last that the books know whole.

    Raises InputError where no contract is configured, or the books know nothing of the month.
    """
    if not contracts:
        raise InputError(
            f'no contract in {FILE}; write [[sla]] with provider = "…", availability = 0.995 and credit = [{{ below = 0.995,'
            " credit = 0.1 }]"
        )
    window, month = choose_month(month, span, zone)
    start, end = (
        instant(limit) for limit in window.limits
    )  # UTC: differences of local times leave out changes of the clock
    found = ask(ASKED, ("node", "pool", "accelerator", "state"), start=start, end=end, timezone=zone, basis=basis)
    known = max(start, span[0]), min(end, span[1])
    places = _gather(found)
    for hours, since in (((known[0] - start) / HOUR, known[0]), ((end - known[1]) / HOUR, known[1] - HOUR)):
        if hours > 0:
            edge = ask("paid_gpu_hours", ("node", "pool", "accelerator"), start=since, end=since + HOUR, timezone=zone)
            for (node, pool, accelerator), gpus in zip(edge.keys, edge.column("paid_gpu_hours"), strict=True):
                if isinstance(gpus, float):
                    places[node, pool, accelerator].outside += gpus * hours
    view_span(window)
    devices = _read_devices(session)
    outages = _list_outages(session)
    claims, taken = [], set[Place]()
    for sla in contracts:
        own = {place: sums for place, sums in places.items() if sla.covers(*place) and place not in taken}
        taken |= set(own)
        pieces = [
            piece
            for place in own
            for device, time in devices.get(place, {}).items()
            for piece in judge_outages(
                sla, place[0], device, time, [*outages[device, None], *outages[None, place[0]]], zone
            )
        ]
        claims.append(_claim(sla, own, pieces, zone, session.currency))
    credit = add_exactly(claim.credit for claim in claims)
    start, end, since, until = (at.astimezone(zone) for at in (start, end, *known))
    return CreditsOwed(month, start, end, since, until, session.currency, basis, tuple(claims), credit)


def choose_month(month: str | None, span: tuple[datetime, datetime], zone: tzinfo) -> tuple[Window, str]:
    """A month and its name: the one given, else the last that the books know to its end, else the one that they end in."""
    if month is not None:
        return read_month(month, zone), month
    last = span[1].astimezone(zone)
    first_day = last.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    before = first_day - timedelta(days=1)
    name = before.strftime("%Y-%m") if span[0] < first_day else last.strftime("%Y-%m")
    return read_month(name, zone), name


@dataclass
class _Sums:
    """Sums of a place in the month."""

    installed: float = 0.0
    outside: float = 0.0
    down: float = 0.0
    unknown: float = 0.0
    cost: float | None = None
    priced: float = 0.0

    def add(self, other: "_Sums") -> None:
        """More of it."""
        self.installed, self.down = self.installed + other.installed, self.down + other.down
        self.outside += other.outside
        self.unknown, self.priced = self.unknown + other.unknown, self.priced + other.priced
        if other.cost is not None:
            self.cost = (self.cost or 0.0) + other.cost


def _gather(found: Readings) -> dict[Place, _Sums]:
    """GPU-hours and cost of each node, pool and model."""
    out: dict[Place, _Sums] = {}
    columns = [found.column(name) for name in ASKED]
    coverage = [reading.coverage for reading in found if reading.metric == "cost"]
    for (node, pool, accelerator, state), paid, measured, cost, priced in zip(
        found.keys, *columns, coverage, strict=True
    ):
        sums = out.setdefault((node, pool, accelerator), _Sums())
        hours = paid if isinstance(paid, float) else 0.0
        sums.installed += hours
        if state == "down":
            sums.down += hours
        else:
            sums.unknown += hours * (1 - (measured if isinstance(measured, float) else 0.0))
        if isinstance(cost, float):
            sums.cost = (sums.cost or 0.0) + cost
            sums.priced += hours * (1.0 if priced is None else priced)
    return {place: sums for place, sums in out.items() if sums.installed}


def _read_devices(session: Session) -> dict[Place, dict[str, DeviceTime]]:
    """Of the ledger of the month, the time of GPUs that have an outage in it, by place."""
    name_nodes(session)
    session.view_table("outages", "outages")
    rows = session.raw.execute(
        """SELECT node, pool, accelerator, device_id, state = 'down', from_utc, to_utc, sum(gpu_s) FROM window_ledger
           WHERE state = 'down' OR device_id IN (SELECT device_id FROM outages WHERE device_id IS NOT NULL) OR node IN (
             SELECT coalesce(n.called, o.node) FROM outages o LEFT JOIN node_names n ON n.node = o.node
             WHERE o.device_id IS NULL)
           GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    found: dict[Place, dict[str, DeviceTime]] = defaultdict(lambda: defaultdict(DeviceTime))
    for *place, device, is_down, since, until, gpu_s in rows:
        time = found[place[0], place[1], place[2]][device]
        time.gpu_s += gpu_s
        if is_down:
            time.down.append(((since, until), round(gpu_s * MS_PER_S / (until - since), DIGITS)))
        else:
            time.up.append((since, until))
    return found


def _list_outages(session: Session) -> dict[tuple[str | None, str | None], list[ListedOutage]]:
    """All outages of the books, of a GPU or else of a node, under the names of the ledger, each with where it was read."""
    numbers: dict[tuple[str | None, str | None, int], set[int]] = defaultdict(set)
    logs = session.manifest.logs_of("outages")
    stated = f"FROM {read(session.paths(logs))} WHERE import_no > 0" if logs else f"FROM ({empty('outages')})"
    columns = f"device_id, node, from_utc, {'import_no' if logs else '0'} AS import_no"
    for device, node, since, number in session.raw.execute(f"SELECT DISTINCT {columns} {stated}").fetchall():
        numbers[device, node, since].add(number)
    listed = sorted({number for of_outage in numbers.values() for number in of_outage})
    records = list_imports(session, f"import_no IN ({', '.join(map(str, listed))})") if listed else []
    sources = {record.number: f"{record.source}, import {record.number}" for record in records}
    called = dict(session.raw.execute("SELECT node, called FROM node_names").fetchall())
    found: dict[tuple[str | None, str | None], list[ListedOutage]] = defaultdict(list)
    for device, node, since, until, reason in session.raw.execute(
        "SELECT device_id, node, from_utc, to_utc, reason FROM outages"
    ).fetchall():
        source = "; ".join(sources[number] for number in sorted(numbers[device, node, since]) if number in sources)
        outage = ListedOutage((since, ALWAYS[1] if until is None else until), reason or "", source or LIVE)
        found[(device, None) if device is not None else (None, called.get(node, node))].append(outage)
    return found


def judge_outages(
    sla: Sla, node: str | None, device: str, time: DeviceTime, outages: Sequence[ListedOutage], zone: tzinfo
) -> Iterator[OutagePiece]:
    """Pieces of the outages of a GPU, down or not, each with why it does not count."""
    announced = merge(
        [
            (milliseconds(_place(item.start, zone)), milliseconds(_place(item.end, zone)))
            for item in sla.maintenance
            if matches(node, item.node)
        ]
    )
    bounds = sorted({at for span in (*announced, *(outage.span for outage in outages)) for at in span})

    def cut(span: Span, gpus: float, left_out: str = "") -> Iterator[OutagePiece]:
        inside = bounds[bisect_right(bounds, span[0]) : bisect_left(bounds, span[1])]
        for piece in pairwise((span[0], *inside, span[1])):
            there = [of for of in outages if of.span[0] <= piece[0] and piece[1] <= of.span[1]]
            reasons = tuple(sorted({of.reason for of in there}))
            why = left_out or _leave_out(sla, reasons, bool(intersect((piece,), announced)))
            yield OutagePiece(node, device, piece, gpus, reasons, tuple(sorted({of.source for of in there})), why)

    down = _join(piece for span, gpus in time.down for piece in cut(span, gpus))
    runs = merge([piece.span for piece in down if not piece.left_out])
    least_ms = sla.least_outage.s * MS_PER_S
    short = [run for run in runs if run[1] - run[0] < least_ms]
    for piece in down:
        is_short = not piece.left_out and any(run[0] <= piece.span[0] and piece.span[1] <= run[1] for run in short)
        yield replace(piece, left_out=f"shorter than {sla.least_outage}") if is_short else piece
    listed = merge([outage.span for outage in outages])
    up = subtract(intersect(merge(time.up), listed), merge([span for span, _ in time.down]))
    yield from _join(piece for span in up for piece in cut(span, time.gpus, HELD))


def _place(at: datetime, zone: tzinfo) -> datetime:
    return at if at.tzinfo else at.replace(tzinfo=zone)


def _leave_out(sla: Sla, reasons: Sequence[str], is_announced: bool) -> str:
    """Why an outage of these reasons does not count; empty where it does."""
    if is_announced:
        return ANNOUNCED
    if any(matches(reason, sla.exclude) for reason in reasons):
        return "its reason is excluded"
    return "" if any(matches(reason, sla.reasons) for reason in reasons or ("",)) else "its reason does not count"


def _join(pieces: Iterable[OutagePiece]) -> list[OutagePiece]:
    """Pieces of a GPU in order, those that touch and differ in nothing but their time as one."""
    out: list[OutagePiece] = []
    for piece in pieces:
        longer = replace(piece, span=(out[-1].span[0], piece.span[1])) if out else piece
        if out and out[-1].span[1] == piece.span[0] and replace(longer, span=out[-1].span) == out[-1]:
            out[-1] = longer
        else:
            out.append(piece)
    return out


def _claim(
    sla: Sla, own: dict[Place, _Sums], pieces: Sequence[OutagePiece], zone: tzinfo, currency: str
) -> CreditClaim:
    """What a contract owes for the GPUs that are its own."""
    nodes: dict[str | None, _Sums] = defaultdict(_Sums)
    for (node, _, _), sums in own.items():
        nodes[node if sla.per == "node" else ALL].add(sums)
    counted: dict[str | None, float] = defaultdict(float)
    for piece in pieces:
        if not piece.left_out:
            counted[piece.node if sla.per == "node" else ALL] += piece.gpu_hours
    lines = []
    for node, sums in nodes.items():
        hours = sums.installed + sums.outside
        availability = find_availability(min(counted[node], hours), hours)
        share = sla.find_credit(availability)
        credit = (
            None if sums.cost is None else from_minor(round_to_minor(share * Decimal(sums.cost), currency), currency)
        )
        lines.append(
            CreditLine(
                node,
                hours,
                sums.installed,
                sums.down,
                counted[node],
                sums.unknown + sums.outside,
                availability,
                sums.cost,
                sums.priced / sums.installed,
                share,
                credit,
            )
        )
    lines.sort(key=lambda line: (-(line.credit or 0), line.availability, line.node or ""))
    costs = [line.cost for line in lines if line.cost is not None]
    return CreditClaim(
        sla.label,
        sla.provider,
        sla.contract,
        sla.availability,
        sla.per,
        tuple((step.below, step.credit) for step in sla.credit),
        tuple(_say_rules(sla)),
        tuple(lines),
        tuple(_prove(pieces, zone)),
        sum(costs) if costs else None,
        add_exactly(line.credit for line in lines if line.credit is not None),
    )


def _prove(pieces: Iterable[OutagePiece], zone: tzinfo) -> Iterator[OutageProof]:
    """The outages of nodes in order, GPUs of one node that were out together as one."""
    together: dict[OutagePiece, list[OutagePiece]] = defaultdict(list)
    for piece in pieces:
        together[replace(piece, device="", gpus=0.0)].append(piece)
    for alike, of in sorted(together.items(), key=lambda item: (item[0].node or "", item[0].span, item[0].left_out)):
        start, end = (instant(at).astimezone(zone) for at in alike.span)
        yield OutageProof(
            alike.node,
            tuple(piece.device for piece in of),
            start,
            end,
            sum(piece.gpus for piece in of),
            sum(piece.gpu_hours for piece in of),
            alike.reasons,
            alike.sources,
            alike.left_out,
        )


def _say_rules(sla: Sla) -> Iterator[str]:
    """What counts and what does not, in words."""
    if tuple(sla.reasons) != ("*",):
        yield f"only reasons {', '.join(sla.reasons)} count"
    if sla.exclude:
        yield f"reasons {', '.join(sla.exclude)} do not count"
    if sla.maintenance:
        yield "announced maintenance does not count"
    if sla.least_outage.s:
        yield f"outages of a GPU shorter than {sla.least_outage} do not count"
    yield "outages while a GPU was held or at work do not count"
    yield "time of which nothing is known counts as available"
