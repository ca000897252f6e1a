"""The waits that queue events and allocations speak of, found by looking at each job's events in order."""

from collections.abc import Iterable
from typing import Any

from tests.ledger.oracle_cells import WHO as HOLDER_WHO
from tests.ledger.oracle_cells import Row

EVENTS = ("submitted", "eligible", "held", "requeued", "started", "cancelled")
WHO = (*HOLDER_WHO, "queue")


def list_waits(tables: dict[str, list[Row]]) -> list[Row]:
    """Every wait: queued, ended, whether it ended in a start, and of whom."""
    events: dict[tuple[str, int, str], Row] = {}
    starts: dict[tuple[Any, ...], Row] = {}
    queued = {row["job_id"] for row in tables["queue_events"]}
    for row in tables["allocations"]:
        if row["known_from"] == "labels":
            continue
        if row["submitted_utc"] is not None or row["eligible_utc"] is not None or row["job_id"] in queued:
            key = (row["job_id"], row["submitted_utc"], row["eligible_utc"], row["from_utc"])
            start = starts.setdefault(key, {"gpus": 0.0, **dict.fromkeys(("pool", *WHO))})
            start["gpus"] += (1.0 if row["gpus"] is None else row["gpus"]) * (
                1.0 if row["share"] is None else row["share"]
            )
            widen(start, row, ("pool", *WHO))

    def record(job: str, at: int | None, event: str, row: Row) -> None:
        if at is not None:
            known = events.setdefault((job, at, event), {"gpus": None, "reason": None, **dict.fromkeys(("pool", *WHO))})
            widen(known, row, ("gpus", "pool", *WHO, *(["reason"] if "reason" in row else [])))

    for (job, submitted, eligible, since), row in starts.items():
        record(job, submitted, "submitted", row)
        record(job, eligible, "eligible", row)
        record(job, since, "started", row)
    for row in tables["queue_events"]:
        record(row["job_id"], row["at_utc"], row["event"], row)
    out = []
    order = {"requeued": 0, "started": 2, "cancelled": 2}
    for job in sorted({j for j, _, _ in events}):
        mine = sorted(
            ((at, order.get(e, 1), e, row) for (j, at, e), row in events.items() if j == job), key=lambda x: x[:3]
        )
        who: Row = dict.fromkeys(("pool", *WHO))
        for *_, row in mine:
            widen(who, row, who)
        episode: list[Any] = []
        for event in mine:
            episode.append(event)
            if event[2] in ("started", "cancelled"):
                out.append({"job_id": job, **who, **_episode(episode)})
                episode = []
        if episode:
            out.append({"job_id": job, **who, **_episode(episode)})
    return [w for w in out if w["queued"] is not None]


def widen(known: Row, row: Row, columns: Iterable[str]) -> None:
    """Keep the greatest value that is known."""
    for c in columns:
        if row[c] is not None and (known[c] is None or row[c] > known[c]):
            known[c] = row[c]


def _episode(events: list[Any]) -> Row:
    eligible = [at for at, _, e, _ in events if e == "eligible"]
    asked = [at for at, _, e, _ in events if e in ("submitted", "requeued")]
    ends = [(at, e) for at, _, e, _ in events if e in ("started", "cancelled")]
    gpus = [row["gpus"] for *_, row in events if row["gpus"] is not None]
    queued = max(eligible) if eligible else min(asked) if asked else None
    said = [
        (at, EVENTS.index(e), row["reason"].split(":")[0])
        for at, _, e, row in events
        if row["reason"] is not None and e not in ("started", "cancelled") and queued is not None and at >= queued
    ]
    return {
        "reason": max(said)[2] if said else None,
        "queued": queued,
        "ended": ends[0][0] if ends else None,
        "started": bool(ends) and ends[0][1] == "started",
        "gpus": max(gpus) if gpus else None,
    }
