"""What is there at an instant? GPUs, their prices, whether they are down, whether anybody speaks of them, what samples say."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable

from tests.ledger.oracle_cells import DAY, HOUR, Row, Sample

from loadfactor.store.manifest import StepVote
from loadfactor.store.step_votes import learn_steps
from loadfactor.tables.schema import MEASUREMENTS


def covers(row: Row, at: int) -> bool:
    """Does a row speak of the instant? Open ends speak of everything."""
    return (row["from_utc"] is None or row["from_utc"] <= at) and (row["to_utc"] is None or at < row["to_utc"])


def lasts(row: Row) -> bool:
    """Has its interval any length?"""
    return row["from_utc"] is None or row["to_utc"] is None or row["from_utc"] < row["to_utc"]


def count_asked(row: Row) -> float:
    """How many GPUs an allocation asks for."""
    return (1.0 if row["gpus"] is None else row["gpus"]) * (1.0 if row["share"] is None else row["share"])


def settled(rows: Iterable[Row], step_ms: float | None, lone_ms: float | None) -> list[Sample]:
    """Every sample's interval, cut at hours; one without length stays as an instant, which nothing can be booked on.

    A start that was not given is the sample before when at most 1.5 nominal steps back, else one nominal step. The nominal step:
    as told, else as the devices of the source agree on, else what the source usually does.
    """
    latest = {(r["device_id"], r["source"], r["to_utc"]): r for r in rows}
    before: dict[tuple[str, str, int], int] = {}
    for (device, source, to), (other, of, then) in itertools.pairwise(sorted(latest)):
        if (device, source) == (other, of):
            before[other, of, then] = to
    steps = learnt(latest, before, max(HOUR, step_ms or 0, lone_ms or 0))
    out = []
    for (device, source, to), row in latest.items():
        nominal = step_ms or steps.get(source) or lone_ms or 0
        start = row["from_utc"]
        if start is None:
            last = before.get((device, source, to))
            start = last if last is not None and to - last <= 1.5 * nominal else math.floor(to - nominal + 0.5)
        if start == to:
            out.append(Sample(row, to, to))
        while start < to:
            cut = min(to, (start // HOUR + 1) * HOUR)
            out.append(Sample(row, start, cut))
            start = cut
    return out


def learnt(
    rows: dict[tuple[str, str, int], Row], before: dict[tuple[str, str, int], int], longest: float
) -> dict[str, int]:
    """The step of each source: every device votes, day by day, for the gap that most of its gaps are like."""
    gaps: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for (device, source, to), row in rows.items():
        last = before.get((device, source, to))
        if last is None or row["from_utc"] is not None:
            continue
        day = (to - 1) // DAY
        if (last - 1) // DAY == day or to - last <= 1.5 * longest:
            gaps[device, source, day].append(to - last)
    votes = []
    for (device, source, _), of in gaps.items():
        like = {gap: sorted(g for g in of if gap <= g <= math.floor(gap * 1.1)) for gap in of}
        most = max(sorted(like), key=lambda gap: len(like[gap]))
        votes.append(StepVote(source, like[most][(len(like[most]) - 1) // 2], len(of), device, device))
    return learn_steps(votes)


class OracleInventory:
    """What a fleet given as rows has at any instant."""

    def __init__(
        self, tables: dict[str, list[Row]], step_ms: float | None = None, lone_ms: float | None = None
    ) -> None:
        self.t = defaultdict(list, tables)
        self.samples = settled(self.t["samples"], step_ms, lone_ms)
        known = [
            (r["from_utc"], r["to_utc"]) for n in ("devices", "allocations", "outages", "progress") for r in self.t[n]
        ]
        known += [(r["at_utc"], r["at_utc"]) for r in self.t["queue_events"]]
        known += [(s.from_utc, s.to_utc) for s in self.samples]
        ends = [max(x for x in pair if x is not None) for pair in known if pair != (None, None)]
        starts = [a for a, _ in known if a is not None]
        self.start, self.end = (min(starts), max(ends)) if starts else (0, 0)
        self.unlisted = list(self.count_unlisted())

    def count_unlisted(self) -> Iterable[Row]:
        """GPUs that jobs held at once where they name none, at most: as devices since the first of them.

        Until a list says that the last GPU there ended; those of jobs that begin afterwards are counted anew.
        """
        of_place: dict[tuple[str | None, str | None], list[Row]] = defaultdict(list)
        for row in self.t["allocations"]:
            if row["device_id"] is None and lasts(row):
                of_place[row["node"], None if row["node"] else row["pool"]].append(row)
        for (node, pool), rows in of_place.items():
            name = node or (f"pool {pool}" if pool else "fleet")
            for begin, end in itertools.pairwise([0, *self.told_ends(node, pool), 2**62]):
                of_time = [r for r in rows if begin <= (r["from_utc"] or 0) < end]
                starts = [r["from_utc"] or 0 for r in of_time]
                held = [sum(count_asked(r) for r in of_time if covers(r, at)) for at in starts]
                for number in range(math.ceil(max(held, default=0) - 1e-9)):
                    own = {"device_id": f"{name}:gpu{number}", "node": node, "pool": pool, "from_utc": min(starts)}
                    yield {**own, "accelerator": None, "share": None, "to_utc": end, "estimated": True}

    def told_ends(self, node: str | None, pool: str | None) -> list[int]:
        """When lists say that the last GPU of a node, a pool or all of them ended."""
        told = [d for d in self.t["devices"] if d["known_from"] == "list" and lasts(d)]
        if node is not None:
            told = [d for d in told if d["node"] == node]
        elif pool is not None:
            told = [d for d in told if d["pool"] in (pool, None)]
        ends = {d["to_utc"] for d in told} - {None}
        return sorted(at for at in ends if not any(covers(d, at) for d in told))

    def there(self, at: int) -> dict[str, Row]:
        """The GPUs at an instant: those listed, and on nodes, in pools or in fleets of which none is, those that must be."""
        listed = [d for d in self.t["devices"] if covers(d, at)]
        found = list(listed)
        for d in self.unlisted:
            if d["node"] is not None:
                known = any(o["node"] == d["node"] for o in listed)
            elif d["pool"] is not None:
                known = any(o["pool"] in (d["pool"], None) for o in listed)
            else:
                known = bool(listed)
            if not known and covers(d, at):
                found.append(d)
        return {d["device_id"]: {**d, "share": 1.0 if d["share"] is None else d["share"]} for d in found}

    def price(self, device: Row, at: int, basis: str) -> float | None:
        """The price of a GPU: the most specific that applies, of equals the one that began last, then the lower."""
        of = {"device_id": 4, "pool": 2, "accelerator": 1}
        found = [
            (-sum(w for c, w in of.items() if p[c] is not None), -(p["from_utc"] or 0), self.in_usd(p, at))
            for p in self.t["prices"]
            if p["basis"] == basis and covers(p, at) and all(p[c] in (None, device[c]) for c in of)
        ]
        return min(found, key=lambda f: (f[0], f[1], math.inf if f[2] is None else f[2]))[2] if found else None

    def in_usd(self, price: Row, at: int) -> float | None:
        """A price in the currency of the books; None while a foreign one has no exchange rate."""
        if price["currency"] in (None, "USD"):
            return float(price["price_per_gpu_hour"])
        begun = [
            r for r in self.t["exchange_rates"] if r["currency"] == price["currency"] and (r["from_utc"] or 0) <= at
        ]
        latest = max(begun, key=lambda r: r["from_utc"] or 0, default=None)
        if latest is None or not covers(latest, at):
            return None
        return float(price["price_per_gpu_hour"] * latest["rate"])

    def down(self, device: Row, at: int) -> bool:
        """Is it unusable: itself, or its whole node?"""
        return any(
            covers(o, at)
            and (
                o["device_id"] == device["device_id"]
                or (o["device_id"] is None and o["node"] == device["node"] is not None)
            )
            for o in self.t["outages"]
        )

    def speaks(self, device: Row) -> bool:
        """Does any allocation, whenever it was, name the GPU, another of its node, its node, its pool or the whole fleet?

        None speaks of a GPU that is only estimated to be there.
        """
        if device.get("estimated"):
            return False
        node, pool = device["node"], device["pool"]
        on_node = {d["device_id"] for d in self.t["devices"] if lasts(d) and node is not None and d["node"] == node}
        for row in filter(lasts, self.t["allocations"]):
            if row["device_id"] is None and row["node"] is None and row["pool"] is None:
                return True
            if row["device_id"] is not None and row["device_id"] in {device["device_id"], *on_node}:
                return True
            if (row["node"] is not None and row["node"] == node) or (row["pool"] is not None and row["pool"] == pool):
                return True
        return False

    def sample(self, device_id: str | None, at: int) -> Sample | None:
        """What the samples of a GPU say at an instant: the best one, each of its measurements from the best that took it."""
        found = [s for s in self.samples if s.row["device_id"] == device_id and s.from_utc <= at < s.to_utc]
        if not found:
            return None
        found.sort(key=Sample.rank)
        row = dict(found[0].row)
        for column in MEASUREMENTS:
            row[column] = next((s.row[column] for s in found if s.row[column] is not None), None)
        memory = ("mem_used_bytes", "mem_total_bytes")  # a share of one sample rather than of two
        both = [s for s in found if all(s.row[c] is not None for c in memory)]
        row |= {c: both[0].row[c] for c in memory if both}
        return Sample(row, found[0].from_utc, found[0].to_utc)
