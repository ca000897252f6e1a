"""What the scripts counted themselves, and what the books say after an import of what the tracker wrote."""

import json
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from loadfactor.books.books import Books

UNITS = {"samples": "train_sample", "tokens": "train_token", "padded_tokens": "padded_token", "flops": "model_flop"}


@dataclass
class Work:
    """What was kept and what was lost, by unit, and how often each kind of section came."""

    kept: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    lost: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    words: Counter[str] = field(default_factory=Counter)


def read_counted(folder: Path) -> Work:
    """Of all ranks together: a step is kept as it was made last, and lost as it was made before."""
    lines: list[tuple[int, int, dict[str, float]]] = []
    work = Work()
    for path in sorted(folder.glob("counted-*.txt")):
        attempt, rank = map(int, path.stem.split("-")[1:])
        for line in path.read_text().splitlines():
            if "=" in line:
                parts = (part.split("=") for part in line.split())
                lines.append((attempt, rank, {name: float(value) for name, value in parts}))
            elif rank == 0:
                work.words[line] += 1
    last: dict[float, int] = {}
    for attempt, _, line in lines:
        last[line["step"]] = max(attempt, last.get(line["step"], attempt))
    for attempt, rank, line in lines:
        amounts = work.kept if attempt == last[line["step"]] else work.lost
        for name, unit in UNITS.items():
            if name in line:
                amounts[unit] += line[name]
        if rank == 0 and line["done"]:
            amounts["step"] += 1
    return work


def read_books(folder: Path) -> Work:
    """What the books say of a fresh store after `loadfactor import progress`."""
    store = folder / "books"
    start = [sys.executable, "-c", "from loadfactor.interfaces.cli import main; main()"]
    said = subprocess.run(
        [*start, "import", "progress", str(folder / "progress"), "--store", str(store)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    books, work = Books(store), Work()
    for row in books.table("progress").execute().itertuples():
        amounts = work.kept if row.kept else work.lost
        amounts[row.unit] += row.amount
        assert row.kept or row.cause == "restart"
    work.words.update(books.table("job_sections").execute()["kind"])
    return work


def check_work(folder: Path) -> Work:
    """The books say what the script counted, no more and no less. What they say."""
    counted, found = read_counted(folder), read_books(folder)
    assert found.kept.pop("epoch", 0) == counted.words["epoch"]
    found.lost.pop("epoch", None)  # one that came again
    assert found.kept == counted.kept
    assert found.lost == counted.lost
    return found


def count_written(folder: Path) -> float:
    """How many samples there are in the files that the tracker has written by now."""
    lines = [json.loads(line) for path in folder.rglob("*.jsonl") for line in path.read_text().splitlines()]
    work = [line for line in lines if line["kind"] == "work"]
    return sum(
        sum(line["samples"]) if isinstance(line["samples"], list) else line["samples"] * max(1, line["steps"])
        for line in work
    )
