"""Text of `sacct -P` for tests: a heading, and rows in which only what a test is about is typed."""

from pathlib import Path
from typing import Any

from tests.sources.reading import read

from loadfactor.sources.slurm import SOURCE

FIELDS = (
    "JobID", "JobIDRaw", "User", "Account", "Partition", "State", "Submit", "Eligible", "Start", "End", "AllocTRES", "ReqTRES",
    "NodeList",
)  # fmt: skip
DAY = "2026-10-01T"


def tres(gpus: int, kind: str = "h100") -> str:
    """TRES of a job as sacct writes it: its GPUs with and without their type."""
    return f"billing=8,cpu=8,gres/gpu:{kind}={gpus},gres/gpu={gpus},mem=64G,node=1"


def job(number: str, start: str = "09:00:00", end: str = "10:00:00", gpus: int = 1, **fields: str) -> dict[str, str]:
    """A job of that day that ran from `start` to `end` on n1; `fields` say what is different."""
    who = {"JobID": number, "JobIDRaw": number.split("_")[0], "User": "ann", "Account": "vision", "Partition": "gpu"}
    when = {"Submit": f"{DAY}08:00:00", "Eligible": f"{DAY}08:00:00", "Start": f"{DAY}{start}", "End": f"{DAY}{end}"}
    what = {"State": "COMPLETED", "AllocTRES": tres(gpus), "ReqTRES": tres(gpus), "NodeList": "n1"}
    return who | when | what | fields


def write_sacct(
    rows: list[dict[str, str]], fields: tuple[str, ...] = FIELDS, mark: str = "|", closed: bool = False
) -> str:
    lines = [mark.join(fields), *(mark.join(row.get(name, "") for name in fields) for row in rows)]
    return "".join(line + (mark if closed else "") + "\n" for line in lines)


class Books:
    """What the rows of an import say, by hand."""

    def __init__(self, *texts: str | bytes, folder: Path, **options: Any) -> None:
        from datetime import UTC

        from loadfactor.sources.base import ReadOptions

        paths = []
        for number, text in enumerate(texts):
            path = folder / f"slurm-{number}.txt"
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            paths.append(path)
        reading = read(SOURCE, *paths, options=ReadOptions(**{"timezone": UTC, **options}))
        rows = {name: table.to_pylist() for name, table in reading.tables.items()}
        self.allocations, self.events = rows.get("allocations", []), rows.get("queue_events", [])
        self.devices, self.outages = rows.get("devices", []), rows.get("outages", [])
        self.gaps = {gap.what: gap.count for gap in reading.gaps}

    def hours(self, column: str = "job_id") -> dict[str, float]:
        out: dict[str, float] = {}
        for row in self.allocations:
            if row["to_utc"] is not None:
                gpus = row["gpus"] * (1.0 if row["share"] is None else row["share"])
                out[row[column]] = out.get(row[column], 0.0) + gpus * (row["to_utc"] - row["from_utc"]) / 3.6e6
        return out

    def held(self, job_id: str) -> list[tuple[str | None, float]]:
        return [(row["node"], row["gpus"]) for row in self.allocations if row["job_id"] == job_id]

    def happened(self, job_id: str) -> list[str]:
        rows = sorted((row["at_utc"], row["event"]) for row in self.events if row["job_id"] == job_id)
        return [event for _, event in rows]
