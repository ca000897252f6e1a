"""Runs every benchmark in `BENCHMARKS` and writes bench.json: name → number. `--quick` takes smaller inputs; names pick some.

Each benchmark puts its numbers into the file and leaves the others as they are.
"""

import json
import sys
from pathlib import Path
from types import ModuleType

from benchmarks import (
    agent,
    alert_load,
    alerts,
    bills,
    books,
    chargeback,
    dcgm,
    diagnosis,
    imports,
    live,
    pictures,
    questions,
    remote_write,
    sacct,
    serving,
    sessions,
    sizing,
    smi,
    soak,
    traces,
    track,
    training,
)

BENCHMARKS: tuple[ModuleType, ...] = (
    books,
    imports,
    smi,
    dcgm,
    sessions,
    live,
    remote_write,
    sacct,
    bills,
    agent,
    track,
    traces,
    soak,
    questions,
    chargeback,
    alerts,
    alert_load,
    diagnosis,
    training,
    serving,
    sizing,
    pictures,
)  # each has NAME and run(quick: bool) -> dict[str, float]


def main(arguments: list[str]) -> None:
    """Run all benchmarks, or those named, print each number as it comes, and put it into bench.json."""
    quick = "--quick" in arguments
    names = [a for a in arguments if not a.startswith("-")]
    path = Path("bench.json")
    results: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for benchmark in BENCHMARKS:
        if names and benchmark.NAME not in names:
            continue
        for name, value in benchmark.run(quick=quick).items():
            results[name] = value
            print(f"{name:32s} {value:,.4g}", flush=True)
        path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
