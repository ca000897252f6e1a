"""What must the books say of a small fleet? Slowly and obviously: loops over the instants at which anything changes.

Nothing is shared with the implementation but the declarations of the tables, the names and bits of signals, the step that votes
make (`learn_steps`), and the rules as
written in docs/glossary.md and in the docstrings of `store.sample_files` and of the modules of `ledger`.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from typing import Any

from loadfactor.store.sample_layout import StepVote
from loadfactor.store.step_votes import learn_steps
from loadfactor.tables import MEASUREMENTS

Row = dict[str, Any]
HOUR, DAY = 3_600_000, 86_400_000
BASES = ("effective", "contracted", "owned", "list", "estimate")
WHO = ("user", "team", "project", "experiment_id", "purpose")
HOLDER = ("job_id", *WHO)
PLACE = ("node", "accelerator", "pool")
SIGNALS = (
    "busy_share", "engine_active_share", "sm_active_share", "tensor_active_share", "dram_active_share",
    "fp32_active_share", "sm_occupancy_share",
)  # fmt: skip
PEAKS = {"h100-pcie": (63.015e9, 600e9), "a10": (31.508e9, None)}
"""PCIe of one direction and NVLink of both, bytes/s, of accelerators of fleets; the catalog has no price of them."""
BEST = (("sm_active_share", "sm_active"), ("engine_active_share", "engine_active"), ("busy_share", "gpu_util"))
SLOWING = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80
STATES = ("unallocated", "idle", "busy", "unobserved", "down")


def covers(row: Row, at: int) -> bool:
    """Does a row speak of the instant? Open ends speak of everything."""
    return (row["from_utc"] is None or row["from_utc"] <= at) and (row["to_utc"] is None or at < row["to_utc"])


def lasts(row: Row) -> bool:
    """Has its interval any length?"""
    return row["from_utc"] is None or row["to_utc"] is None or row["from_utc"] < row["to_utc"]


@dataclass
class Sample:
    """A sample's interval, cut at hours: the part in one of them."""

    row: Row
    from_utc: int
    to_utc: int

    def rank(self) -> tuple[Any, ...]:
        """Which sample counts, of several: the smallest."""
        kinds = [self.row[c] is not None for c, _ in BEST]
        best = kinds.index(True) if True in kinds else len(kinds)
        return best, self.to_utc - self.from_utc, self.row["source"], -self.from_utc, self.row["to_utc"]


@dataclass
class Cell:
    """What one holder (or nobody) had of one place between two instants, in one state."""

    from_utc: int
    to_utc: int
    state: str
    keys: dict[str, str | None]
    gpus: float
    cost: dict[str, float | None]
    part: Sample | None
    spoken: bool
    demand: float = 0.0

    @property
    def sample(self) -> Row | None:
        return self.part and self.part.row

    @property
    def activity(self) -> str:
        """What the sample says, whoever holds it."""
        seen = [self.part.row[c] for c, _ in BEST if self.part.row[c] is not None] if self.part else []
        return ("idle" if seen[0] < 0.05 else "busy") if seen else "unobserved"

    @property
    def hour(self) -> int:
        return self.from_utc // HOUR * HOUR

    @cached_property
    def sums(self) -> dict[str, float]:
        """Everything that can be added up, in GPU-seconds and the like."""
        s = self.gpus * (self.to_utc - self.from_utc) / 1000
        out: dict[str, float] = defaultdict(float)
        out["gpu_s"] = s
        out["has_source_s"] = s * self.spoken
        for basis, cost in self.cost.items():
            if cost is not None:
                out[f"cost_{basis}"] = cost * s / 3600
                out[f"priced_{basis}"] = s
        if self.sample is None:
            return out
        row = self.sample
        held = self.state in ("idle", "busy")
        for column, basis in BEST:
            if held and row[column] is not None:
                out[f"effective_{basis}_s"] = row[column] * s
                out[f"observed_{basis}_s"] = s
                out[f"hist_{min(math.floor(row[column] * 20), 19):02d}_s"] = s
                break
        for column in SIGNALS:
            if row[column] is not None:
                name = column.removesuffix("_share")
                out[f"{name}_s"], out[f"{name}_measured_s"] = row[column] * s, s
        if row["mem_used_bytes"] is not None and row["mem_total_bytes"] is not None:
            out["mem_used_byte_s"], out["mem_total_byte_s"] = row["mem_used_bytes"] * s, row["mem_total_bytes"] * s
            out["mem_measured_s"] = s
        if row["power_w"] is not None:
            out["energy_j"], out["energy_measured_s"] = row["power_w"] * s, s
        if row["temperature_c"] is not None:
            out["temperature_c_s"], out["temperature_c_measured_s"] = row["temperature_c"] * s, s
        both = [row[f"pcie_{way}_bytes_per_s"] for way in ("rx", "tx")]
        for name, rate in zip(("pcie_rx", "pcie_tx", "nvlink"), (*both, row["nvlink_bytes_per_s"]), strict=True):
            if rate is not None:
                out[f"{name}_bytes"], out[f"{name}_measured_s"] = rate * s, s
        busier = max((rate for rate in both if rate is not None), default=None)
        if busier is not None:
            out["pcie_bytes"] = busier * s
        peaks = PEAKS.get(str(self.keys["accelerator"]), (None, None))
        for name, rate, peak in zip(("pcie", "nvlink"), (busier, row["nvlink_bytes_per_s"]), peaks, strict=True):
            if rate is not None and peak is not None:
                out[f"{name}_of_peak_bytes"], out[f"{name}_peak_bytes"] = rate * s, peak * s
                out[f"{name}_peak_measured_s"] = s
        if row["throttle_mask"] is not None:
            out["throttled_s"], out["throttle_measured_s"] = s * bool(row["throttle_mask"] & SLOWING), s
        return out

    @property
    def peak(self) -> float | None:
        row = self.sample
        if (
            row is None
            or self.state in ("unallocated", "down")
            or None in (row["mem_used_bytes"], row["mem_total_bytes"])
        ):
            return None
        return float(row["mem_used_bytes"] / row["mem_total_bytes"])


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
            if works or (cell.state != "down" and not cell.spoken):
                cell.keys["holder"], cell.state = "unknown", cell.activity


class Oracle:
    """The books of a fleet given as rows, in full."""

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

    # -- at an instant -------------------------------------------------------------------------------------------------

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
        """Does any allocation, whenever it was, name the GPU, another of its node, its node, its pool or the whole fleet?"""
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

    def book(self, cuts: Iterable[int] = ()) -> list[Cell]:
        """The whole ledger."""
        points = {self.start, self.end, *cuts, *range(self.start // HOUR * HOUR, self.end + HOUR, HOUR)}
        for name in ("devices", "allocations", "outages", "prices", "exchange_rates"):
            points |= {r[c] for r in self.t[name] for c in ("from_utc", "to_utc")} - {None}
        points |= {x for s in self.samples for x in (s.from_utc, s.to_utc)}
        edges = sorted(p for p in points if self.start <= p <= self.end)
        cells = [cell for a, b in itertools.pairwise(edges) for cell in self.moment(a, b)]
        hours: dict[tuple[str, int], list[Cell]] = defaultdict(list)
        for cell in cells:
            if cell.keys["device_id"] is not None:
                hours[cell.keys["device_id"], cell.hour].append(cell)
        for of_hour in hours.values():
            find_unknown_holders(of_hour)
        return cells

    def moment(self, a: int, b: int) -> Iterable[Cell]:
        """All cells between two instants between which nothing changes."""
        there = {
            d["device_id"]: {**d, "share": 1.0 if d["share"] is None else d["share"]}
            for d in self.t["devices"]
            if covers(d, a)
        }
        of_node: dict[str, list[str]] = defaultdict(list)
        for d in there.values():
            if d["node"] is not None:
                of_node[d["node"]].append(d["device_id"])
        asks = []
        for row in self.t["allocations"]:
            if not covers(row, a):
                continue
            gpus = (1.0 if row["gpus"] is None else row["gpus"]) * (1.0 if row["share"] is None else row["share"])
            ask = {**{c: row[c] for c in (*HOLDER, "device_id", "node", "pool")}, "gpus": gpus}
            if row["device_id"] is None and row["node"] is not None and gpus == len(of_node[row["node"]]):
                asks += [{**ask, "device_id": d, "gpus": 1.0} for d in of_node[row["node"]]]
            else:
                asks.append(ask)
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
        demand = sum(x["gpus"] for x in asks)
        fits = min(1.0, total / demand) if demand else 1.0

        spoken = all(self.speaks(d) for d in devices)

        def cell(state: str, gpus: float, holder: Row, where: Row) -> Cell:
            who = "known" if state == "held" else "nobody"
            keys = {c: holder.get(c) for c in HOLDER} | {c: where[c] for c in ("device_id", *PLACE)} | {"holder": who}
            out = Cell(a, b, state, keys, gpus, cost, self.sample(where["device_id"], a), spoken, demand)
            out.state = out.activity if state == "held" else state
            return out

        for x in asks:
            if x["gpus"] * fits > 0:
                where = {c: same[c] if x["own"][c] is None else x["own"][c] for c in same}
                yield cell("held", x["gpus"] * fits, x, where)
        rest = total - min(demand, total)
        broken = min(broken, rest)
        for state, gpus in (("unallocated", rest - broken), ("down", broken)):
            if gpus > 1e-9:
                yield cell(state, gpus, {}, same)

    # -- waits ---------------------------------------------------------------------------------------------------------

    def waits(self) -> list[Row]:
        """Every wait: queued, ended, whether it ended in a start, and of whom."""
        events: dict[tuple[str, int, str], Row] = {}
        starts: dict[tuple[Any, ...], Row] = {}
        queued = {row["job_id"] for row in self.t["queue_events"]}
        for row in self.t["allocations"]:
            if row["submitted_utc"] is not None or row["eligible_utc"] is not None or row["job_id"] in queued:
                key = (row["job_id"], row["submitted_utc"], row["eligible_utc"], row["from_utc"])
                start = starts.setdefault(key, {"gpus": 0.0, **dict.fromkeys(("pool", *WHO))})
                start["gpus"] += (1.0 if row["gpus"] is None else row["gpus"]) * (
                    1.0 if row["share"] is None else row["share"]
                )
                _widen(start, row, ("pool", *WHO))

        def record(job: str, at: int | None, event: str, row: Row) -> None:
            if at is not None:
                known = events.setdefault((job, at, event), {"gpus": None, **dict.fromkeys(("pool", *WHO))})
                _widen(known, row, ("gpus", "pool", *WHO))

        for (job, submitted, eligible, since), row in starts.items():
            record(job, submitted, "submitted", row)
            record(job, eligible, "eligible", row)
            record(job, since, "started", row)
        for row in self.t["queue_events"]:
            record(row["job_id"], row["at_utc"], row["event"], row)
        out = []
        order = {"requeued": 0, "started": 2, "cancelled": 2}
        for job in sorted({j for j, _, _ in events}):
            mine = sorted(
                ((at, order.get(e, 1), e, row) for (j, at, e), row in events.items() if j == job), key=lambda x: x[:3]
            )
            who: Row = dict.fromkeys(("pool", *WHO))
            for *_, row in mine:
                _widen(who, row, who)
            episode: list[Any] = []
            for event in mine:
                episode.append(event)
                if event[2] in ("started", "cancelled"):
                    out.append({"job_id": job, **who, **_episode(episode)})
                    episode = []
            if episode:
                out.append({"job_id": job, **who, **_episode(episode)})
        return [w for w in out if w["queued"] is not None]


def _widen(known: Row, row: Row, columns: Iterable[str]) -> None:
    """Keep the greatest value that is known."""
    for c in columns:
        if row[c] is not None and (known[c] is None or row[c] > known[c]):
            known[c] = row[c]


def _episode(events: list[Any]) -> Row:
    eligible = [at for at, _, e, _ in events if e == "eligible"]
    asked = [at for at, _, e, _ in events if e in ("submitted", "requeued")]
    ends = [(at, e) for at, _, e, _ in events if e in ("started", "cancelled")]
    gpus = [row["gpus"] for *_, row in events if row["gpus"] is not None]
    return {
        "queued": max(eligible) if eligible else min(asked) if asked else None,
        "ended": ends[0][0] if ends else None,
        "started": bool(ends) and ends[0][1] == "started",
        "gpus": max(gpus) if gpus else None,
    }


# -- questions -------------------------------------------------------------------------------------------------------------

DIMENSIONS = {
    "device": "device_id",
    "node": "node",
    "accelerator": "accelerator",
    "pool": "pool",
    "job": "job_id",
    "experiment": "experiment_id",
    "user": "user",
    "team": "team",
    "project": "project",
    "purpose": "purpose",
}
OF_A_JOB = ("job", "experiment", "user", "team", "project", "purpose", "hour", "day")
UNITS = {"sample": "train_sample", "token": "train_token", "output_token": "output_token", "request": "request"}
Answers = dict[tuple[Any, ...], dict[str, tuple[Any, float | None]]]
"""Value and coverage of each metric, by group."""


def local_day(at: int, zone: tzinfo) -> str:
    """The date on the wall at an instant."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)).astimezone(zone).date().isoformat()


def midnights(start: int, end: int, zone: tzinfo) -> list[int]:
    """Every instant between two at which the date on the wall changes, found by looking at each quarter of an hour."""
    quarter = HOUR // 4
    grid = range(start // quarter * quarter, end + quarter, quarter)
    return [b for a, b in itertools.pairwise(grid) if local_day(a, zone) != local_day(b, zone)]


@dataclass
class Asked:
    """A question: dimensions, window, zone, basis."""

    by: tuple[str, ...]
    start: int
    end: int
    zone: tzinfo = UTC
    basis: str = "contracted"
    without_idle: bool = False


def answers(oracle: Oracle, asked: Asked) -> Answers:
    """Every metric of every group."""
    cuts = [asked.start, asked.end, *midnights(asked.start, asked.end, asked.zone)]
    cells = [c for c in oracle.book(cuts) if c.from_utc >= asked.start and c.to_utc <= asked.end]

    def key(keys: Row, at: int, state: str | None = None) -> tuple[Any, ...]:
        values = {"hour": at // HOUR * HOUR, "day": local_day(at, asked.zone), "state": state}
        of_unknown = "unknown holder" if keys.get("holder") == "unknown" else None
        return tuple(
            values[d] if d in values else (of_unknown if d in OF_A_JOB and of_unknown else keys[DIMENSIONS[d]])
            for d in asked.by
        )

    groups: dict[tuple[Any, ...], list[Cell]] = defaultdict(list)
    for c in cells:
        groups[key(c.keys, c.from_utc, c.state)].append(c)
    out: Answers = {k: _ledger_metrics(g, asked) for k, g in groups.items()}
    if not asked.by and not out:
        out[()] = {}
    if all(d in OF_A_JOB for d in asked.by):
        for name, unit in UNITS.items():
            for k, reading in _per_unit(oracle, asked, cells, unit, key).items():
                out[k][f"cost_per_{name}"] = reading
    if all(d in (*OF_A_JOB, "pool") for d in asked.by):
        for k, readings in _wait_metrics(oracle, asked, key).items():
            out.setdefault(k, {}).update(readings)
    return out


def _ledger_metrics(cells: list[Cell], asked: Asked) -> dict[str, tuple[Any, float | None]]:
    """Fullness, signals and money of one group."""

    def total(column: str, states: Iterable[str] = STATES, priced: bool = False, holder: str | None = None) -> float:
        return sum(
            c.sums.get(column, 0.0)
            for c in cells
            if c.state in states
            and (not priced or c.cost[asked.basis] is not None)
            and (holder is None or c.keys["holder"] == holder)
        )

    def share(known: float, needed: float) -> float | None:
        return known / needed if needed else None

    def least(*shares: float | None) -> float | None:
        return min((x for x in shares if x is not None), default=None)

    def known(value: Any, coverage: float | None) -> tuple[Any, float | None]:
        return (None if coverage == 0 else value), coverage

    def ratio(over: float, under: float, coverage: float | None) -> tuple[Any, float | None]:
        return (None if coverage == 0 or under == 0 else over / under), coverage

    held = ("idle", "busy", "unobserved")
    s = {state: total("gpu_s", [state]) for state in STATES}
    paid, in_use, observed = sum(s.values()), sum(s[x] for x in held), s["idle"] + s["busy"]
    allocated, unattributed = (total("gpu_s", held, holder=h) for h in ("known", "unknown"))
    effective = sum(total(f"effective_{b}_s") for _, b in BEST)
    seen = share(observed, in_use)
    out: dict[str, tuple[Any, float | None]] = {
        "paid_gpu_hours": (paid / 3600, 1.0),
        "allocated_gpu_hours": (allocated / 3600, 1.0),
        "unattributed_gpu_hours": (unattributed / 3600, 1.0),
        "unallocated_gpu_hours": (s["unallocated"] / 3600, 1.0),
        "unobserved_gpu_hours": (s["unobserved"] / 3600, 1.0),
        "down_gpu_hours": (s["down"] / 3600, 1.0),
        "observed_gpu_hours": known(observed / 3600, seen),
        "idle_gpu_hours": known(s["idle"] / 3600, seen),
        "busy_gpu_hours": known(s["busy"] / 3600, seen),
        "effective_gpu_hours": known(effective / 3600, seen),
        "allocation": ratio(allocated, paid, share(total("has_source_s"), paid)),
        "utilization": ratio(effective, observed, seen),
        "load_factor": ratio(effective, paid, seen),
        "utilization_histogram": known([total(f"hist_{k:02d}_s") / 3600 for k in range(20)], seen),
    }
    for name, column in (
        ("gpu_util", "busy"),
        ("engine_activity", "engine_active"),
        ("sm_activity", "sm_active"),
        ("tensor_activity", "tensor_active"),
        ("dram_activity", "dram_active"),
        ("fp32_activity", "fp32_active"),
        ("sm_occupancy", "sm_occupancy"),
        ("throttled_share", "throttled"),
    ):
        measured = total("throttle_measured_s" if column == "throttled" else f"{column}_measured_s", held)
        out[name] = ratio(total(f"{column}_s", held), measured, share(measured, in_use))
    memory = share(total("mem_measured_s", held), in_use)
    out["mem_utilization"] = ratio(total("mem_used_byte_s", held), total("mem_total_byte_s", held), memory)
    peaks = [c.peak for c in cells if c.peak is not None]
    out["mem_utilization_peak"] = (max(peaks) if peaks else None, None)
    hottest = [c.sample["temperature_c"] for c in cells if c.sample and c.sample["temperature_c"] is not None]
    out["temperature_c_max"] = (max(hottest) if hottest else None, None)
    for name, over, under, seconds in (
        ("power_w", "energy_j", "energy_measured_s", "energy_measured_s"),
        ("temperature_c", "temperature_c_s", "temperature_c_measured_s", "temperature_c_measured_s"),
        ("pcie_saturation", "pcie_of_peak_bytes", "pcie_peak_bytes", "pcie_peak_measured_s"),
        ("nvlink_saturation", "nvlink_of_peak_bytes", "nvlink_peak_bytes", "nvlink_peak_measured_s"),
    ):
        out[name] = ratio(total(over, held), total(under, held), share(total(seconds, held), in_use))
    out["energy_kwh"] = known(total("energy_j") / 3.6e6, share(total("energy_measured_s"), paid))
    cost = f"cost_{asked.basis}"
    for name, states in (
        ("cost", STATES),
        ("idle_cost", ("idle",)),
        ("busy_cost", ("busy",)),
        ("unallocated_cost", ("unallocated",)),
        ("unobserved_cost", ("unobserved",)),
        ("down_cost", ("down",)),
    ):
        priced = share(total("gpu_s", states, priced=True), total("gpu_s", states))
        out[name] = known(total(cost, states), least(priced, seen) if states in (("idle",), ("busy",)) else priced)
    lone = share(total("gpu_s", held, True, "unknown"), unattributed)
    out["unattributed_cost"] = known(total(cost, held, holder="unknown"), lone)
    both = ("idle", "busy")
    worked = sum(
        c.sums[f"effective_{b}_s"] * c.cost[asked.basis] / 3600
        for c in cells
        for _, b in BEST
        if c.cost[asked.basis] and c.state in both
    )
    priced_seen = least(share(total("gpu_s", both, priced=True), observed), seen)
    out["effective_cost"] = known(worked, priced_seen)
    out["underused_cost"] = known(total(cost, ("busy",)) - worked, priced_seen)
    out["underused_gpu_hours"] = known((s["busy"] - effective) / 3600, seen)
    priced = share(total("gpu_s", priced=True), paid)
    of_priced = sum(total(f"effective_{b}_s", priced=True) for _, b in BEST)
    value = None if priced == 0 or seen == 0 or of_priced == 0 else total(cost) / (of_priced / 3600)
    out["cost_per_effective_gpu_hour"] = (value, least(priced, seen))
    return out


def _per_unit(
    oracle: Oracle, asked: Asked, cells: list[Cell], unit: str, key: Any
) -> dict[Any, tuple[Any, float | None]]:
    """Cost of the jobs that worked on it, in their held states, over what they made and kept in the window."""
    who: dict[str, Row] = {}
    for c in cells:
        if c.keys["job_id"] is not None:
            _widen(who.setdefault(c.keys["job_id"], dict.fromkeys(HOLDER)), c.keys, HOLDER)
    amounts: dict[Any, float] = defaultdict(float)
    jobs = set()
    limits = sorted({asked.start, asked.end, *midnights(asked.start, asked.end, asked.zone)} | set(range(0)))
    for p in oracle.t["progress"]:
        if p["unit"] != unit:
            continue
        a, b = p["from_utc"], p["to_utc"]
        if a == b:
            pieces = [(a, b, p["amount"])] if asked.start <= a < asked.end else []
        else:
            edges = {a, b, *limits, *range(a // HOUR * HOUR, b + HOUR, HOUR)}
            inside = sorted(e for e in edges if max(a, asked.start) <= e <= min(b, asked.end))
            pieces = [(x, y, p["amount"] * (y - x) / (b - a)) for x, y in itertools.pairwise(inside)]
        if pieces:
            jobs.add(p["job_id"])
        for x, _, amount in pieces:
            if p["job_id"] in who and p["kept"] is not False:
                amounts[key({**who[p["job_id"]], "job_id": p["job_id"]}, x)] += amount
    states = ("busy",) if asked.without_idle else ("idle", "busy", "unobserved")
    cost, priced, needed = defaultdict(float), defaultdict(float), defaultdict(float)
    for c in cells:
        if c.keys["job_id"] in jobs:
            k = key(c.keys, c.from_utc)
            needed[k] += c.sums["gpu_s"] * (c.state in states)
            if c.state in states and c.cost[asked.basis] is not None:
                cost[k] += c.sums[f"cost_{asked.basis}"]
                priced[k] += c.sums["gpu_s"]
    out = {}
    for k in needed:
        if amounts[k]:
            coverage = priced[k] / needed[k] if needed[k] else None
            out[k] = (None if coverage == 0 else cost[k] / amounts[k], coverage)
    return out


def _wait_metrics(oracle: Oracle, asked: Asked, key: Any) -> dict[Any, dict[str, tuple[Any, float | None]]]:
    """Waits that ended in a start inside the window, by when they ended; and how many still waited, or gave up in it."""
    started: dict[Any, list[tuple[float, str, float]]] = defaultdict(list)
    waiting: dict[Any, int] = defaultdict(int)
    for w in oracle.waits():
        if w["started"] and asked.start <= w["ended"] < asked.end:
            gpus = 1.0 if w["gpus"] is None else w["gpus"]
            started[key(w, w["ended"])].append(((w["ended"] - w["queued"]) / 1000, w["job_id"], gpus))
        if w["queued"] < asked.end and (
            w["ended"] is None or w["ended"] >= asked.end or (not w["started"] and w["ended"] >= asked.start)
        ):
            waiting[key(w, max(w["queued"], asked.start))] += 1
    keys = {*started, *waiting} or (set() if asked.by else {()})
    out: dict[Any, dict[str, tuple[Any, float | None]]] = {}
    for k in keys:
        rows = sorted(started[k])
        n, left = len(rows), waiting[k]
        coverage = n / (n + left) if n + left else None
        weight = sum(g for *_, g in rows)
        of = out[k] = {"queue_waiting": (left, None)}
        for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            of[f"queue_wait_s_{name}"] = (_quantile([w for w, *_ in rows], q), coverage)
            of[f"queue_wait_s_{name}_gpu_weighted"] = (_reached(rows, q * weight), coverage)
        of["queue_wait_s_mean"] = (sum(w for w, *_ in rows) / n if n else None, coverage)
        of["queue_wait_s_mean_gpu_weighted"] = (sum(w * g for w, _, g in rows) / weight if weight else None, coverage)
    return out


def _quantile(values: list[float], q: float) -> float | None:
    """Linear between ranks."""
    if not values:
        return None
    at = q * (len(values) - 1)
    low = math.floor(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def _reached(rows: list[tuple[float, str, float]], needed: float) -> float | None:
    """The first wait at which the GPUs so far reach what is needed."""
    so_far = 0.0
    for wait, _, gpus in rows:
        so_far += gpus
        if so_far >= needed * (1 - 1e-12):
            return wait
    return None
