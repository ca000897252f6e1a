"""Which changes could there be? Two weeks of a fleet that differ by one cause, which is known, and by what always drifts."""

import random
from dataclasses import dataclass
from pathlib import Path

from tests.ledger.fleets import add, batches, full

from loadfactor.books.books import Books
from loadfactor.metrics.query.calendar import instant

DAY = 86_400_000
START = 1_790_553_600_000  # 2026-09-28, a Monday
CAUSES = {
    "price change": ("cost", "price"),
    "idle team": ("utilization", "fullness"),
    "broken exporter": ("effective_gpu_hours", "coverage"),
    "new nodes": ("cost", "volume"),
    "late bill": ("cost", "late data"),
}
"""The cause, a metric that it changes, and the part that is its truth."""


@dataclass(frozen=True)
class Truth:
    """What was changed: the metric to ask of, the part that has to stand first, and the team behind it, if one is."""

    cause: str
    metric: str
    part: str
    team: str | None

    @property
    def window(self):  # type: ignore[no-untyped-def]
        """The second week."""
        return instant(START + 7 * DAY), instant(START + 14 * DAY)


def write_change(cause: str, seed: int, folder: Path) -> tuple[Books, Truth]:
    """Books of two weeks of such a fleet."""
    rnd = random.Random(f"{cause} {seed}")
    teams = [f"team-{number}" for number in range(rnd.randint(3, 6))]
    kinds = {"h100-sxm": rnd.uniform(2, 4), "a100-80gb-sxm": rnd.uniform(1, 2)}
    tables: dict[str, list[dict[str, object]]] = {"devices": [], "allocations": [], "samples": [], "prices": []}
    hit = rnd.choice(teams)
    late_days = rnd.randint(2, 5) if cause == "late bill" else 0
    for kind, price in kinds.items():
        higher = price * rnd.uniform(1.15, 1.5) if cause == "price change" else price
        for begin, end, of in ((0, 7, price), (7, 14 - late_days, higher)):
            tables["prices"].append(
                {"basis": "contracted", "accelerator": kind, "price_per_gpu_hour": of,
                 "from_utc": START + begin * DAY, "to_utc": START + end * DAY}
            )  # fmt: skip
    for team in teams:
        kind, activity, gpus = rnd.choice(list(kinds)), rnd.uniform(0.3, 0.8), rnd.randint(3, 9)
        gpus = max(gpus, 6) if team == hit else gpus
        more = rnd.randint(2, 5) if cause == "new nodes" else 0
        for gpu in range(gpus + more):
            device = f"{team}-{gpu}"
            first = 7 if gpu >= gpus else 0
            row = {"device_id": device, "node": f"{team}-{gpu // 4}", "accelerator": kind, "pool": "main"}
            tables["devices"].append({**row, "from_utc": START + first * DAY, "to_utc": START + 14 * DAY})
            broken = cause == "broken exporter" and rnd.random() < 0.45
            for day in range(first, 14):
                begin = START + day * DAY
                end = begin + round(DAY * rnd.uniform(0.86, 0.94))
                tables["allocations"].append(
                    {"job_id": f"{team}-{day}", "team": team, "device_id": device, "from_utc": begin, "to_utc": end}
                )
                if day >= 7 and broken:
                    continue
                share = min(1.0, activity * rnd.uniform(0.96, 1.04))
                if day >= 7 and cause == "idle team" and team == hit:
                    share = 0.01
                tables["samples"].append(
                    {"device_id": device, "from_utc": begin, "to_utc": end, "sm_active_share": share}
                )
    books = Books(folder)
    add(books, batches(full(tables)), "fleet", folder.parent)
    metric, part = CAUSES[cause]
    return books, Truth(cause, metric, part, hit if cause == "idle team" else None)
