"""Small fleets whose losses can be checked by hand: jobs on GPUs with activity by minutes, at 2 dollars an hour."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.ledger.fleets import HOUR, MINUTE, Row, add, batch

from loadfactor.books.books import Books

START = 1_767_225_600_000
PRICE = 2.0


def at(hours: float) -> int:
    """An instant, hours after the start."""
    return START + round(hours * HOUR)


def held(job: str, gpus: Sequence[str], start: float, end: float | None, **said: Any) -> list[Row]:
    """A job that holds GPUs from one hour to another."""
    to = None if end is None else at(end)
    row = {"job_id": job, "from_utc": at(start), "to_utc": to, "submitted_utc": at(start), **said}
    return [{**row, "device_id": gpu} for gpu in gpus]


def keep(
    folder: Path,
    gpus: Mapping[str, str],
    hours: float,
    allocations: Sequence[Row],
    activity: Mapping[str, Sequence[tuple[float, float, float]]],
    price: float | None = PRICE,
    pools: Mapping[str, str] | None = None,
    **tables: Sequence[Row],
) -> Books:
    """Books of GPUs (with their nodes): samples of 5 minutes; `activity` of each GPU from one hour to another."""
    devices = [
        {
            "device_id": gpu,
            "node": node,
            "accelerator": "H100",
            "pool": (pools or {}).get(gpu),
            "from_utc": START,
            "to_utc": at(hours),
        }
        for gpu, node in gpus.items()
    ]
    samples = [
        {"device_id": gpu, "from_utc": START + (m - 5) * MINUTE, "to_utc": START + m * MINUTE, "sm_active_share": share}
        for gpu, spans in activity.items()
        for start, end, share in spans
        for m in range(round(start * 60) + 5, round(end * 60) + 1, 5)
    ]
    prices = [] if price is None else [{"basis": "contracted", "price_per_gpu_hour": price}]
    named = {"devices": devices, "allocations": allocations, "samples": samples, "prices": prices, **tables}
    books = Books(folder / "store")
    add(books, [batch(name, list(rows)) for name, rows in named.items() if rows], "fleet", folder)
    return books
