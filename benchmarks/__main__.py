"""Runs every benchmark in `BENCHMARKS`, prints a table and writes bench.json: name → number. Names pick some.

`--quick` takes smaller inputs, of `QUICK` where nothing is named, and compares with the figures kept in figures.toml: it leaves
with 1 where one is more than `MOST` times what it was. Each benchmark adds its numbers to the file.
"""

import argparse
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

from benchmarks import (
    agent,
    alert_load,
    alerts,
    bills,
    books,
    chargeback,
    commands,
    dcgm,
    diagnosis,
    growth,
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
    tasks,
    traces,
    track,
    training,
    web_pages,
    year,
)

BENCHMARKS: tuple[ModuleType, ...] = (
    commands,
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
    growth,
    tasks,
    year,
    chargeback,
    alerts,
    alert_load,
    diagnosis,
    training,
    serving,
    sizing,
    web_pages,
    pictures,
)  # each has NAME and run(quick: bool) -> dict[str, float]

QUICK = (commands, questions, live)
"""What CI runs: a few minutes."""
FIGURES = Path(__file__).with_name("figures.toml")
MOST = 1.5
"""A figure may be so many times what it was: on machines with other work beside it times vary by a third."""
MACHINE = "machine_cpu_s"
"""Processor time of `measure_machine`: seconds of one machine are compared with those of another by it."""
WORK = (
    "import duckdb; duckdb.sql('SELECT sum(sqrt(i) * (i % 7)), count(DISTINCT i % 100003) FROM range(4000000) t(i)').fetchall();"
    " print(sum(len(str(i)) for i in range(1500000)))"
)


def main(arguments: list[str]) -> int:
    """Run all benchmarks, or those named, print each number as it comes, and put it into bench.json; 1 where one is too high."""
    words = read_words(arguments)
    quick, names = words.quick, words.names
    path = Path("bench.json")
    results: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = tomllib.loads(FIGURES.read_text(encoding="utf-8"))
    results[MACHINE] = measure_machine()
    speed = kept["quick"][MACHINE] / results[MACHINE]
    print(f"{'figure':36s} {'now':>10s} {'kept':>10s} {'times':>6s}")
    print(f"{MACHINE:36s} {results[MACHINE]:10.4g} {kept['quick'][MACHINE]:10.4g}")
    dear = []
    chosen = [benchmark for benchmark in BENCHMARKS if benchmark.NAME in names] or (QUICK if quick else BENCHMARKS)
    for benchmark in chosen:
        for name, value in benchmark.run(quick=quick).items():
            results[name] = value
            line = f"{name:36s} {value:10,.4g}"
            if quick and name in kept["quick"]:
                before = kept["quick"][name] / (speed if is_time(name) else 1)
                line += f" {before:10,.4g} {value / before:6.2f}"
                dear += [name] if value > MOST * before else []
            print(line, flush=True)
        path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if dear:
        print(f"more than {MOST} times what benchmarks/figures.toml keeps: {', '.join(dear)}", file=sys.stderr)
    return bool(dear)


def read_words(arguments: list[str]) -> argparse.Namespace:
    """The names and `quick` of a command line; `--help` lists the benchmarks."""
    listed = "\n".join(f"  {of.NAME:12s} {str(of.__doc__).splitlines()[0]}" for of in BENCHMARKS)
    parser = argparse.ArgumentParser(
        "python -m benchmarks", epilog=f"benchmarks:\n{listed}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="run only these")
    parser.add_argument("--quick", action="store_true", help="take smaller inputs, and compare with figures.toml")
    words = parser.parse_args(arguments)
    if unknown := set(words.names) - {of.NAME for of in BENCHMARKS}:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; --help lists them")
    return words


def is_time(name: str) -> bool:
    """Whether a figure is processor time, which another machine takes another of; the others are ratios and sizes."""
    return "_cpu_s" in name or "_us_per_" in name


def measure_machine() -> float:
    """Processor time of some work of DuckDB and Python, the least of five rounds."""
    return min(_measure_once() for _ in range(5))


def _measure_once() -> float:
    code = f"import time; {WORK}; print(time.process_time())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
