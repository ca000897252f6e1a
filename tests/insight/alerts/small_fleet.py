"""Small fleets whose alerts can be told by hand: GPUs of one node, held by one job, with a level for every minute."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.ledger.fleets import Row, Tables, add, batches

from loadfactor.books.books import Books
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.judge import replay
from loadfactor.insight.alerts.rule import Rule
from loadfactor.tables.schema import Span

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


NAMES = ("device_id", "node", "job_id", "pool", "queue")


def judge_together(
    folder: Path, scenes: Mapping[str, Tables], rules: Sequence[Rule], span: Span | None = None
) -> dict[str, list[Alert]]:
    """What fires in each of some small fleets that stand beside each other in the same books, by the name of the fleet.

    Devices, nodes, jobs, pools and queues have the fleet in their names while they are judged, and not in the answer.
    """
    together = defaultdict[str, list[Row]](list)
    for scene, tables in scenes.items():
        for table, rows in tables.items():
            together[table] += [
                {
                    name: f"{scene}/{value}" if name in NAMES and value is not None else value
                    for name, value in row.items()
                }
                for row in rows
            ]
    fired: dict[str, list[Alert]] = {scene: [] for scene in scenes}
    for alert in replay(make_books(folder, together), rules, span):
        scene = next(iter(alert.by.values())).partition("/")[0]
        by, holder = (
            {name: value.removeprefix(f"{scene}/") for name, value in of.items()} for of in (alert.by, alert.holder)
        )
        evidence = tuple(fact.replace(f"{scene}/", "") for fact in alert.evidence)
        fired[scene].append(replace(alert, by=by, holder=holder, evidence=evidence))
    return fired


def list_times(alerts: Iterable[Alert]) -> list[tuple[str, float | None, float | None, float | None]]:
    """Rule, and minutes from which on, at which and until when, of every alert."""
    return [(a.rule, minutes(a.start_ms), minutes(a.fired_ms), minutes(a.end_ms)) for a in alerts]


def minutes(at_ms: int | None) -> float | None:
    """Minutes since the start."""
    return None if at_ms is None else (at_ms - START) / MINUTE
