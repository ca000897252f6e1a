"""What must the books say of a small fleet? Slowly and obviously: loops over the instants at which anything changes.

Nothing is shared with the implementation but the declarations of the tables, the names and bits of signals, the step that votes
make (`learn_steps`), and the rules as written in docs/formulas.md and in the docstrings of `store.sample_files` and of the modules
of `ledger`.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from tests.ledger.oracle_cells import BASES, DAY, HOLDER, HOUR, PLACE, Cell, Row, Sample

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
        known = [(r["from_utc"], r["to_utc"]) for n in ("devices", "allocations", "progress") for r in self.t[n]]
        known += [(r["at_utc"], r["at_utc"]) for r in self.t["queue_events"]]
        known += [(s.from_utc, s.to_utc) for s in self.samples]
        ends = [max(x for x in pair if x is not None) for pair in known if pair != (None, None)]
        out = [(r["from_utc"], r["to_utc"]) for r in self.t["outages"]]
        ends += [max(x for x in pair if x is not None) for pair in out if pair != (None, None)]
        starts = [a for a, _ in known if a is not None] or [a for a, _ in out if a is not None]
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

    def speaks(self, device: Row, by_list: bool = False) -> bool:
        """Does any allocation, whenever it was, name the GPU, another of its node, its node, its pool or the whole fleet?

        None speaks of a GPU that is only estimated to be there. `by_list`: does one that labels do not name?
        """
        if device.get("estimated"):
            return False
        node, pool = device["node"], device["pool"]
        on_node = {d["device_id"] for d in self.t["devices"] if lasts(d) and node is not None and d["node"] == node}
        for row in filter(lasts, self.t["allocations"]):
            if by_list and row["known_from"] in LABELLED:
                continue
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


LABELLED = ("labels", "bridged")
"""How allocations are known that nobody lists."""
LINGER = 10 * 60 * 1000
"""So long before and after a listed job its labels count for nothing, in milliseconds."""


def find_unknown_holders(cells: list[Cell]) -> None:
    """Of one GPU in one hour: unheld time in which it works, or of which no allocation source speaks, has an unknown holder."""
    stretches: list[list[Cell]] = []
    for cell in sorted(cells, key=lambda c: c.from_utc):
        if cell.demand == 0:
            if not stretches or stretches[-1][-1].to_utc != cell.from_utc:
                stretches.append([])
            stretches[-1].append(cell)
    never_held = all(c.demand == 0 for c in cells)
    for stretch in stretches:
        start, end = stretch[0].from_utc, stretch[-1].to_utc
        inside = [c for c in stretch if c.part and start <= c.part.from_utc and c.part.to_utc <= end]
        whole = [c for c in inside if c.part and c.part.from_utc > c.hour and c.part.to_utc == c.part.row["to_utc"]]
        whole = [c for c in whole if c.activity != "unobserved"]
        trust_edges = any(c.activity == "busy" for c in whole) or (not whole and never_held)
        evidence = inside if trust_edges else whole
        for cell in stretch:
            works = cell.activity == "busy" and any(cell is c for c in evidence)
            unseen = not cell.by_list and cell.part is None  # labels alone speak of it, and there are none
            if works or (cell.state != "down" and (not cell.spoken or unseen)):
                cell.keys["holder"], cell.state = "unknown", cell.activity


def fill_payers(ask: Row, labels: Iterable[Row]) -> Row:
    """What a list says of a holder, and what labels say where it says nothing."""
    said = list(labels)
    filled = {**ask}
    for column in ("user", "team", "project", "experiment_id", "purpose"):
        if filled[column] is None:
            filled[column] = max((s[column] for s in said if s[column] is not None), default=None)
    return filled


class Oracle(OracleInventory):
    """The books of a fleet given as rows, in full."""

    def book(self, cuts: Iterable[int] = ()) -> list[Cell]:
        """The whole ledger."""
        points = {self.start, self.end, *cuts, *range(self.start // HOUR * HOUR, self.end + HOUR, HOUR)}
        for name in ("devices", "allocations", "outages", "prices", "exchange_rates"):
            points |= {r[c] for r in self.t[name] for c in ("from_utc", "to_utc")} - {None}
        points |= {x for s in self.samples for x in (s.from_utc, s.to_utc)}
        listed = [r for r in self.t["allocations"] if r["known_from"] not in LABELLED]
        points |= {r["from_utc"] - LINGER for r in listed} | {
            r["to_utc"] + LINGER for r in listed if r["to_utc"] is not None
        }
        edges = sorted(p for p in points if self.start <= p <= self.end)
        cells = [cell for a, b in itertools.pairwise(edges) for cell in self.moment(a, b)]
        hours: dict[tuple[str, int], list[Cell]] = defaultdict(list)
        for cell in cells:
            if cell.keys["device_id"] is not None:
                hours[cell.keys["device_id"], cell.hour].append(cell)
        for of_hour in hours.values():
            find_unknown_holders(of_hour)
        for cell in cells:
            if cell.state == "unallocated" and not cell.spoken:
                cell.keys["holder"], cell.state = "unknown", cell.activity
        return cells

    def moment(self, a: int, b: int) -> Iterable[Cell]:
        """All cells between two instants between which nothing changes."""
        there = self.there(a)
        of_node: dict[str, list[str]] = defaultdict(list)
        for d in there.values():
            if d["node"] is not None:
                of_node[d["node"]].append(d["device_id"])
        asks: list[Row] = []
        for row in self.t["allocations"]:
            if not covers(row, a) or row["known_from"] in LABELLED:
                continue
            gpus = count_asked(row)
            own_ask = {
                **{c: row[c] for c in (*HOLDER, "job_number", "device_id", "node", "pool", "gpu_indices")},
                "gpus": gpus,
                "inferred": False,
            }
            if row["device_id"] is None and row["node"] is not None and gpus == len(of_node[row["node"]]):
                asks += [{**own_ask, "device_id": d, "gpus": 1.0} for d in of_node[row["node"]]]
            else:
                asks.append(own_ask)
        asks = self.named_by_numbers(self.named_by_labels(asks, a, there), there)
        unnamed = [x for x in asks if x["device_id"] is None]
        nodes = {x["node"] for x in unnamed} - {None}
        pools = {x["pool"] for x in unnamed if x["node"] is None} - {None}
        fleet = any(x["node"] is None and x["pool"] is None for x in unnamed)

        def place(d: Row) -> str:
            if fleet:
                return "fleet"
            if d["pool"] in pools:
                return f"pool {d['pool']}"
            return f"node {d['node']}" if d["node"] in nodes else f"gpu {d['device_id']}"

        members: dict[str, list[Row]] = defaultdict(list)
        for d in there.values():
            members[place(d)].append(d)
        wanted: dict[str, list[Row]] = defaultdict(list)
        for x in asks:
            own: Row = dict.fromkeys(("device_id", *PLACE))
            if x["device_id"] is not None:
                near = [there[x["device_id"]]] if x["device_id"] in there else []
                own = dict(near[0]) if near else own
                x["gpus"] *= own["share"] if near else 0
            elif x["node"] is not None:
                near, own["node"] = [d for d in there.values() if d["node"] == x["node"]], x["node"]
            elif x["pool"] is not None:
                near, own["pool"] = [d for d in there.values() if d["pool"] == x["pool"]], x["pool"]
            else:
                near = list(there.values())
            if near:
                wanted[min(place(d) for d in near)].append({**x, "own": own})
        for name, devices in members.items():
            yield from self.shared_out(a, b, devices, wanted[name])

    def named_by_labels(self, asks: list[Row], at: int, there: dict[str, Row]) -> list[Row]:
        """Listed holders on the GPUs that labels name for them, and holders that only labels know."""
        labels = [
            {**r, "gpus": count_asked(r)}
            for r in self.t["allocations"]
            if r["known_from"] in LABELLED and covers(r, at)
        ]
        out = []
        for ask in asks:
            if ask["device_id"] is not None:
                own = [label for label in labels if label["job_id"] in (ask["job_id"], ask["job_number"])]
                out.append(fill_payers(ask, own))
                continue
            named: dict[str, list[Row]] = defaultdict(list)
            for label in labels:
                device = there.get(label["device_id"])
                if device is None or label["job_id"] not in (ask["job_id"], ask["job_number"]):
                    continue
                if ask["node"] is not None and device["node"] != ask["node"]:
                    continue
                if ask["node"] is None and ask["pool"] is not None and device["pool"] != ask["pool"]:
                    continue
                named[label["device_id"]].append(label)
            if not named:
                out.append(ask)
                continue
            filled = fill_payers(ask, [label for of in named.values() for label in of])
            most = {d: max(label["gpus"] for label in of) for d, of in named.items()}
            whole = sum(gpus * there[d]["share"] for d, gpus in most.items())
            fits = min(1.0, ask["gpus"] / whole)
            out += [{**filled, "device_id": d, "gpus": gpus * fits} for d, gpus in most.items()]
            if ask["gpus"] - whole > 1e-9:
                out.append({**filled, "gpus": ask["gpus"] - whole, "gpu_indices": None})
        seen = {label["device_id"] for label in labels if label["known_from"] == "labels"}
        for label in labels:
            device = there.get(label["device_id"])
            is_known = label["device_id"] in seen or device is None or self.speaks(device, by_list=True)
            if label["known_from"] == "bridged" and is_known:
                continue
            lists = [
                r
                for r in self.t["allocations"]
                if r["known_from"] not in LABELLED
                and label["job_id"] in (r["job_id"], r["job_number"])
                and r["from_utc"] - LINGER <= at
                and (r["to_utc"] is None or at < r["to_utc"] + LINGER)
            ]
            if not lists:
                out.append({**{c: label[c] for c in (*HOLDER, "device_id", "node", "pool", "gpus")}, "inferred": True})
        return out

    def named_by_numbers(self, asks: list[Row], there: dict[str, Row]) -> list[Row]:
        """Holders on the GPUs that their numbers name, node by node, where all numbers of a node fit and nothing contradicts."""
        out = []
        asking: dict[str, list[Row]] = defaultdict(list)
        for x in asks:
            has_numbers = x["device_id"] is None and x["node"] is not None and x.get("gpu_indices") is not None
            (asking[x["node"]] if has_numbers else out).append(x)
        for node, of_node in asking.items():
            gpus = [d for d in there.values() if d["node"] == node]
            by_number = {d.get("gpu_index"): d["device_id"] for d in gpus}
            fits = set(by_number) == set(range(len(gpus))) and all(d["share"] == 1.0 for d in gpus)
            taken = {x["device_id"] for x in asks if x["device_id"] is not None}
            named = []
            for x in of_node:
                numbers = [int(text) for text in x["gpu_indices"].split(",") if text.isdigit()]
                mine = [by_number[n] for n in numbers if n in by_number]
                fits &= len(mine) == len(set(mine)) == x["gpus"]
                named += [{**x, "device_id": d, "gpus": 1.0} for d in mine]
            by_numbers = [x["device_id"] for x in named]
            fits &= len(set(by_numbers)) == len(by_numbers) and not taken.intersection(by_numbers)
            out += named if fits and node not in self.misnumbered else of_node
        return out

    @cached_property
    def misnumbered(self) -> set[str]:
        """Nodes on which labels ever named a GPU for a job, longer than they linger, that is none of its numbers."""
        rows = [*self.t["allocations"], *self.t["devices"]]
        edges = sorted(({0, 2**62} | {r[c] for r in rows for c in ("from_utc", "to_utc")}) - {None})
        found = set()
        for job, label in itertools.product(self.t["allocations"], repeat=2):
            if job["known_from"] in LABELLED or job["gpu_indices"] is None or job["device_id"] is not None:
                continue
            if label["known_from"] not in LABELLED or label["job_id"] not in (job["job_id"], job["job_number"]):
                continue
            seen = [d for d in self.t["devices"] if d["device_id"] == label["device_id"] and d["node"] == job["node"]]
            lasted: dict[str, int] = {}
            for a, b in itertools.pairwise(edges):
                numbers = [d["gpu_index"] for d in seen if covers(d, a) and covers(job, a) and covers(label, a)]
                lasted = {str(n): lasted.get(str(n), 0) + b - a for n in numbers if n is not None}
                if any(ms > LINGER and n not in job["gpu_indices"].split(",") for n, ms in lasted.items()):
                    found.add(job["node"])
        return found

    def shared_out(self, a: int, b: int, devices: list[Row], asks: list[Row]) -> Iterable[Cell]:
        """One place: what holders have (scaled down alike where they ask for more than there is), what is down, what is left."""
        total = sum(d["share"] for d in devices)
        broken = sum(d["share"] for d in devices if self.down(d, a))
        cost: dict[str, float | None] = {}
        for basis in BASES:
            prices = [self.price(d, a, basis) for d in devices]
            weights = [d["share"] for d in devices]
            cost[basis] = (
                None if None in prices else sum(p * w for p, w in zip(prices, weights, strict=True)) / sum(weights)
            )
        same = {c: devices[0][c] if len({d[c] for d in devices}) == 1 else None for c in ("device_id", *PLACE)}
        listed = sum(x["gpus"] for x in asks if not x["inferred"])
        labelled = sum(x["gpus"] for x in asks if x["inferred"])
        demand = listed + labelled
        left = total - min(listed, total) if total - min(listed, total) > 1e-9 else 0.0
        fits = {
            False: min(1.0, total / listed) if listed else 1.0,
            True: min(1.0, left / labelled) if labelled else 1.0,
        }

        spoken = all(self.speaks(d) for d in devices)
        is_listed = not any(d.get("estimated") for d in devices)
        by_list = any(self.speaks(d, by_list=True) for d in devices)

        def cell(state: str, gpus: float, holder: Row, where: Row) -> Cell:
            who = "known" if state == "held" else "nobody"
            keys = {c: holder.get(c) for c in HOLDER} | {c: where[c] for c in ("device_id", *PLACE)} | {"holder": who}
            out = Cell(
                a, b, state, keys, gpus, cost, self.sample(where["device_id"], a), spoken, demand, is_listed, by_list
            )
            out.state = out.activity if state == "held" else state
            return out

        for x in asks:
            if x["gpus"] * fits[x["inferred"]] > 0:
                where = {c: same[c] if x["own"][c] is None else x["own"][c] for c in same}
                yield cell("held", x["gpus"] * fits[x["inferred"]], x, where)
        rest = left - min(labelled, left)
        broken = min(broken, rest)
        for state, gpus in (("unallocated", rest - broken), ("down", broken)):
            if gpus > 1e-9:
                yield cell(state, gpus, {}, same)
