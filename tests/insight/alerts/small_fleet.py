"""Small fleets whose alerts can be told by hand: GPUs of one node, held by one job, with a level for every minute."""

from collections.abc import Callable, Iterable
from pathlib import Path

from tests.ledger.fleets import Row, Tables, add, batches

from loadfactor.books.books import Books

START = 1_790_000_000_000 // 3_600_000 * 3_600_000
MINUTE, HOUR = 60_000, 3_600_000
Level = Callable[[int], float | None]
"""Minutes since the start → SM activity, None where nothing was measured."""


def make_tables(level: Level, hours: int = 10, gpus: int = 2, **more: object) -> Tables:
    """GPUs of the node n0, held by the job j of ann in the team red, sampled each minute; `more` are columns of the allocations."""
    end = START + hours * HOUR
    ids = [f"g{n}" for n in range(gpus)]
    devices: list[Row] = [
        {
            "device_id": g,
            "node": "n0",
            "accelerator": "h100-sxm",
            "from_utc": START,
            "to_utc": end,
            "known_from": "list",
        }
        for g in ids
    ]
    allocations: list[Row] = [
        {"job_id": "j", "device_id": g, "user": "ann", "team": "red", "from_utc": START, "to_utc": end, **more}
        for g in ids
    ]
    return {
        "devices": devices,
        "allocations": allocations,
        "samples": list(make_samples(level, range(hours * 60), ids)),
    }


def make_samples(level: Level, minutes: Iterable[int], ids: Iterable[str]) -> Iterable[Row]:
    """Samples of these minutes."""
    for minute in minutes:
        for device in ids:
            value, at = level(minute), START + minute * MINUTE
            if value is not None:
                times = {"from_utc": at, "to_utc": at + MINUTE}
                yield {"device_id": device, **times, "sm_active_share": value, "source": "s"}


def make_books(folder: Path, tables: Tables) -> Books:
    """Books that hold these rows."""
    folder.mkdir(exist_ok=True)
    books = Books(folder / "store")
    add(books, batches(tables), "all", folder)
    return books


def minutes(at_ms: int | None) -> float | None:
    """Minutes since the start."""
    return None if at_ms is None else (at_ms - START) / MINUTE
