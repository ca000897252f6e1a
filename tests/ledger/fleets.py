"""Which fleets could there be? Random small ones with everything that makes books hard, and the door they come in through."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from loadfactor.books.books import Books
from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.store.importing import Receipt, import_files
from loadfactor.tables.schema import BASES, TABLES, table

Row = dict[str, Any]
Tables = dict[str, list[Row]]
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000

STARTS = tuple(
    round(datetime(*d, tzinfo=UTC).timestamp() * 1000)
    for d in (
        (2025, 10, 25, 20),  # Berlin falls back in the night
        (2025, 3, 8, 22),  # New York springs forward
        (2026, 2, 28, 10),  # a month ends
        (2025, 12, 31, 17),  # a year ends
        (2026, 5, 5, 7),
    )
)
SHARES = (0.0, 0.01, 0.049, 0.05, 0.15, 0.3, 0.35, 0.5, 0.75, 0.999, 1.0)


def instants(rows: list[int] | tuple[int, ...]) -> pa.Array:
    """Instants as a column."""
    return pa.array(rows, pa.int64())


def batch(name: str, rows: list[Row], where: str = "") -> Rows:
    """Rows of a table as a source yields them."""
    return Rows(name, pa.Table.from_pylist(rows, schema=table(name).schema), where)


def source(items: list[Rows | Gap], name: str = "test", step_s: float | None = None) -> Source:
    """A source that yields these batches, whatever its files say."""

    def read(_paths: tuple[Path, ...], _options: ReadOptions) -> Iterator[Rows | Gap]:
        yield from items

    return Source(name, lambda paths: paths, read, step_s)


def add(books: Books, items: list[Rows | Gap], label: str, folder: Path, **options: Any) -> Receipt:
    """Import batches as the file called `label`."""
    path = folder / label
    path.write_text(label)
    lone_s, name = options.pop("lone_s", None), options.pop("source", "test")
    with books.store.write() as writer:  # neither compacted nor booked: readers do that in memory
        return import_files(
            writer, source(items, name, lone_s), (path,), ReadOptions(**options), lambda _what, _share: None
        )


def full(tables: Tables) -> Tables:
    """Rows with every column of their table, empty where not given."""
    return {t.name: [{c.name: row.get(c.name) for c in t.columns} for row in tables.get(t.name, [])] for t in TABLES}


def batches(tables: Tables) -> list[Rows | Gap]:
    """Tables as batches."""
    return [batch(name, rows) for name, rows in tables.items() if rows]


class Fleet:
    """A random fleet; every draw comes from `rnd`, so that a failing one can be shrunk."""

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.start = rnd.choice(STARTS)
        self.length = rnd.choice((2, 5, 26, 50)) * HOUR
        self.tables: Tables = {t.name: [] for t in TABLES}
        self.ids = [f"g{k}" for k in range(rnd.randint(1, 4))]
        self.jobs = {f"j{k}": self._who() for k in range(rnd.randint(1, 4))}
        for make in (
            self._devices,
            self._samples,
            self._allocations,
            self._outages,
            self._prices,
            self._rates,
            self._output,
            self._queue,
        ):
            make()
        self.tables = full(self.tables)

    def chance(self, share: float) -> bool:
        return self.rnd.randint(0, 99) < share * 100

    def at(self, low: int = 0, high: int | None = None) -> int:
        """An even instant of the fleet's span: sometimes a round one, sometimes an odd one."""
        step = self.rnd.choice((HOUR, 15 * MINUTE, MINUTE, 2))
        high = self.length if high is None else high
        return self.start + self.rnd.randint(low // step, max(low, high) // step) * step

    def span(self, open_end: float = 0.1) -> tuple[int, int | None]:
        a, b = sorted((self.at(), self.at()))
        return a, None if self.chance(open_end) else b + (a == b) * MINUTE

    def _who(self) -> Row:
        def some(*values: str) -> str | None:
            return self.rnd.choice((None, *values))

        return {
            "user": some("ann", "bob"),
            "team": some("red", "blue", "green"),
            "project": some("p", "q"),
            "experiment_id": some("e1", "e2"),
            "purpose": some("training", "serving"),
        }

    def _place(self) -> Row:
        return {
            "node": self.rnd.choice(("n0", "n0", "n1", None)),
            "accelerator": self.rnd.choice(("toy-x", "h100-pcie", "a10", None)),
            "pool": self.rnd.choice(("a", "b", None)),
            "share": self.rnd.choice((None, None, None, 1.0, 0.5, 1 / 7)),
            "gpu_index": self.rnd.choice((None, 0, 0, 1, 2)),
            "known_from": self.rnd.choice((None, "list", "list", "seen")),
        }

    def _devices(self) -> None:
        for name in self.ids:
            a: int | None = None if self.chance(0.2) else self.at(0, self.length // 2)
            for last in [False] * self.rnd.choice((0, 0, 1, 2)) + [True]:
                b: int | None = (
                    None
                    if last and self.chance(0.5)
                    else self.at()
                    if a is None
                    else a + self.rnd.randint(1, 12) * 25 * MINUTE
                )
                self.tables["devices"].append({"device_id": name, **self._place(), "from_utc": a, "to_utc": b})
                a = None if b is None else b + self.rnd.choice((0, 0, 7 * MINUTE, 2 * HOUR))

    def _samples(self) -> None:
        taken = set()
        for name in [*self.ids, "stranger"] if self.chance(0.1) else self.ids:
            for watcher in self.rnd.choice((("s1",), ("s1",), ("s1", "s2"), ())):
                step = self.rnd.choice((30 * SECOND, MINUTE, 10 * MINUTE, HOUR, 3 * HOUR))
                at = self.at()
                given = self.chance(0.3)
                has = [
                    c for c in ("busy_share", "sm_active_share", "engine_active_share", "power_w") if self.chance(0.6)
                ]
                has += ["mem_used_bytes", "mem_total_bytes", "throttle_mask"] * self.chance(0.4)
                has += ["tensor_active_share", "dram_active_share"] * self.chance(0.3)
                has += ["fp32_active_share", "sm_occupancy_share", "temperature_c"] * self.chance(0.3)
                has += [f"{link}_bytes_per_s" for link in ("pcie_rx", "pcie_tx", "nvlink") if self.chance(0.3)]
                for _ in range(self.rnd.randint(1, 10)):
                    row: Row = {"device_id": name, "source": watcher, "to_utc": at}
                    if given or self.chance(0.05):
                        row["from_utc"] = at - self.rnd.choice((0, step, step, step // 2, step * 2, 30 * HOUR))
                    row |= {c: self._value(c) for c in has if self.chance(0.9)}
                    if (row.get("busy_share") or 0) >= 0.05:  # what contradicts itself has a test of its own
                        row |= {c: max(row[c], 0.02) for c in has if c.endswith("active_share") and c in row}
                    if (name, watcher, at) not in taken:
                        self.tables["samples"].append(row)
                    taken.add((name, watcher, at))
                    at += self.rnd.choice((step, step, step, step, step + 2, step * 2, step * 3 // 2, 5 * step))

    def _value(self, column: str) -> float | int:
        if column == "throttle_mask":
            return self.rnd.choice((0, 1, 2, 4, 0x28, 0x100))
        if column == "mem_total_bytes":
            return 80e9
        rates = {"pcie_rx_bytes_per_s": 60e9, "pcie_tx_bytes_per_s": 60e9, "nvlink_bytes_per_s": 900e9}
        scale = {"mem_used_bytes": 80e9, "power_w": 700.0, "temperature_c": 90.0, **rates}.get(column, 1.0)
        return self.rnd.choice(SHARES) * scale

    def _allocations(self) -> None:
        if self.chance(0.15):  # no allocation source at all
            return
        keys = set()
        single = ("device", "device", "device", "device")  # a scheduler may know its GPUs, or only their nodes or pools
        levels = self.rnd.choice(
            ((*single, "node", "pool", "fleet", "all"), ("node", "node", "all"), ("pool", "pool", "node"))
        )
        for attempt in range(self.rnd.randint(0, 7)):
            job = self.rnd.choice(list(self.jobs))
            a, b = self.span()
            row: Row = {
                "job_id": job,
                **self.jobs[job],
                "from_utc": a,
                "to_utc": b,
                "attempt": self.rnd.choice((None, attempt)),
                "job_number": self.rnd.choice((None, job, f"number of {job}")),
            }
            level = self.rnd.choice(levels)
            if level in ("node", "all"):
                row |= {"node": self.rnd.choice(("n0", "n1")), "gpus": self.rnd.choice((None, 1, 2, 3, 0.5))}
                row["gpu_indices"] = self.rnd.choice((None, "0", "1", "0,1", "1,0,2", "0,0"))
            if level == "pool":
                row |= {"pool": self.rnd.choice(("a", "b", "nowhere")), "gpus": self.rnd.choice((None, 1, 2, 5))}
            if level == "fleet":
                row["gpus"] = self.rnd.choice((None, 1, 2, 0.25, 9))
            if self.chance(0.3):
                row["submitted_utc"] = a - self.rnd.choice((0, 2, MINUTE, 3 * HOUR))
                row["eligible_utc"] = self.rnd.choice(
                    (None, row["submitted_utc"], (row["submitted_utc"] + a) // 4 * 2 + a % 2)
                )
                if row["eligible_utc"] is not None and not row["submitted_utc"] <= row["eligible_utc"] <= a:
                    row["eligible_utc"] = a
            names: list[str | None] = [None]
            if level == "device":
                names = self.rnd.sample([*self.ids, "ghost"], self.rnd.randint(1, min(3, len(self.ids))))
                row["share"] = self.rnd.choice((None, None, 1.0, 0.5, 0.3, 0.7, 1 / 7, 1 / 3))
            for name in names:
                key = (job, name, row.get("node"), row.get("pool"), a)
                if key not in keys:
                    self.tables["allocations"].append({**row, "device_id": name})
                keys.add(key)
        if self.chance(0.2):  # labels alone speak
            self.tables["allocations"].clear()
        for _ in range(self.rnd.choice((0, 0, 1, 3, 6))):
            self._label(keys)

    def _label(self, keys: set[tuple[object, ...]]) -> None:
        """What labels of samples say of a GPU: a job that is listed, too, or that nobody else knows."""
        a, b = self.span()
        job = self.rnd.choice(list(self.jobs))
        name = self.rnd.choice((job, job, f"number of {job}", "unlisted"))
        device = self.rnd.choice([*self.ids, "ghost"])
        if (key := (name, device, None, None, a)) not in keys:
            row = {
                "job_id": name,
                "device_id": device,
                "from_utc": a,
                "to_utc": b,
                "known_from": self.rnd.choice(("labels", "labels", "bridged")),
            }
            self.tables["allocations"].append(
                {**row, **self._who(), "share": self.rnd.choice((None, None, 0.5, 1 / 3))}
            )
        keys.add(key)

    def _outages(self) -> None:
        for k in range(self.rnd.choice((0, 0, 1, 2))):
            a, b = self.span(open_end=0.3)
            whom = (
                {"device_id": self.rnd.choice(self.ids)}
                if self.chance(0.5)
                else {"node": self.rnd.choice(("n0", "n1"))}
            )
            self.tables["outages"].append({**whom, "from_utc": a + 2 * k, "to_utc": b if b is None else b + 2 * k})

    def _prices(self) -> None:
        keys = set()
        for _ in range(self.rnd.randint(0, 6)):
            a, b = self.span(open_end=0.5)
            row: Row = {
                "device_id": self.rnd.choice((None, None, None, *self.ids)),
                "pool": self.rnd.choice((None, None, "a", "b")),
                "accelerator": self.rnd.choice((None, None, "toy-x", "h100-pcie")),
                "from_utc": self.rnd.choice((None, a)),
                "to_utc": b,
                "basis": self.rnd.choice(("contracted", "contracted", *BASES)),
                "price_per_gpu_hour": self.rnd.choice((0.0, 1.0, 2.5, 3.99, 10.0)),
                "currency": self.rnd.choice((None, None, None, "USD", "EUR", "GBP")),
            }
            key = tuple(row[c] for c in ("device_id", "pool", "accelerator", "from_utc", "basis"))
            if key not in keys:
                self.tables["prices"].append(row)
            keys.add(key)

    def _rates(self) -> None:
        begun: set[tuple[str, int | None]] = set()
        for _ in range(self.rnd.choice((0, 0, 1, 3))):
            a, b = self.span(open_end=0.7)
            row: Row = {
                "currency": self.rnd.choice(("EUR", "GBP")),
                "from_utc": self.rnd.choice((None, a)),
                "to_utc": b,
            }
            if (row["currency"], row["from_utc"]) not in begun:
                self.tables["exchange_rates"].append(row | {"rate": self.rnd.choice((1.1, 0.5, 1.0))})
            begun.add((row["currency"], row["from_utc"]))

    def _output(self) -> None:
        keys = set()
        for _ in range(self.rnd.randint(0, 6)):
            a, b = self.span(open_end=0)
            b = a if self.chance(0.2) else b
            row: Row = {
                "job_id": self.rnd.choice([*self.jobs, "nobody"]),
                "unit": self.rnd.choice(("train_sample", "train_token", "request")),
                "from_utc": a,
                "to_utc": b,
                "amount": self.rnd.choice((0.0, 1.0, 100.0, 12345.5)),
                "kept": self.rnd.choice((None, True, True, False)),
            }
            key = (*(row[c] for c in ("job_id", "unit", "from_utc")), row["kept"] is not False)
            if key not in keys:
                self.tables["progress"].append(row)
            keys.add(key)

    def _queue(self) -> None:
        for job in [*self.jobs, "hopeless"]:
            at = self.at() + 1  # odd: never at the instant of an allocation
            for event in self.rnd.choice(
                (
                    (),
                    (),
                    ("submitted",),
                    ("submitted", "eligible", "started", "requeued", "started"),
                    ("submitted", "held", "eligible", "cancelled", "submitted"),
                )
            ):
                row = {
                    "job_id": job,
                    "at_utc": at,
                    "event": event,
                    "gpus": self.rnd.choice((None, 1, 4, 0.5)),
                    "pool": self.rnd.choice((None, "a")),
                }
                self.tables["queue_events"].append({**row, **(self.jobs.get(job) or {})})
                at += 2 * self.rnd.randint(1, HOUR)
