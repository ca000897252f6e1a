"""What do commands cost? Processor time of each command of README, and of what is asked of the demo fleet, from start to end.

Each is a process of its own, with caches that begin empty: the first of them compiles SQL, and of the others the least of two
counts, or the one that there is of those that take long. `plan_serve_first_cpu_s` is that of a new environment of a user who had
another: the same package in another folder, with the user's cache. `plan_serve_compile_cpu_s` is that of a user's first at all.
`help_over_python` is `--help` over `python -c pass`. `booking_us_per_sample_demo` is booking all of the demo again, in microseconds
of processor time a sample.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import loadfactor
from loadfactor.base.units import US_PER_S
from loadfactor.books.books import Books
from loadfactor.books.rebuild import refresh
from loadfactor.tables.schema import IDLE_BELOW

NAME = "commands"
ROUNDS = 2
SHORT_ROUNDS = 25
"""Turns of what takes hardly longer than Python's own start."""
LONG_S = 4.0
"""What takes longer is measured in one round: that moves by less of it."""
ROOT = Path(__file__).parents[1]
PROGRAM = "from loadfactor.interfaces.cli import main; main()"
SERVING = "plan serve --model llama-3.1-8b --users 50 --price-per-gpu-hour 2"
IMPORT, HELP = "import tables examples/october --store books", "--help"
OF_README = {
    "import_cpu_s_readme": IMPORT,
    "report_cpu_s_readme": "report --store books",
    "savings_cpu_s_readme": "savings --store books",
    "plan_train_cpu_s": "plan train --model llama-3.1-70b --accelerator h100-sxm --gpus 512 --tokens 15T",
    "help_cpu_s": HELP,
}
"""The commands of README, by key, in its order; the books are three days of eight GPUs."""
OF_DEMO = {
    "report_cpu_s_demo": "report",
    "savings_cpu_s_demo": "savings",
    "diagnose_cpu_s_demo": "diagnose",
    "report_why_cpu_s_demo": "report --why",
    "alerts_test_cpu_s_demo": "alerts test",
}
"""Questions of the demo fleet of 200 GPUs and 14 days."""


def run(quick: bool) -> dict[str, float]:  # noqa: ARG001 (what README shows is small)
    """All figures."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPYCACHEPREFIX": str(place / "bytecode"), "XDG_CACHE_HOME": str(place / "cache")}
        turns = [
            (_spend(environment, place, "-c", "pass"), _command(environment, place, HELP)) for _ in range(SHORT_ROUNDS)
        ]
        python, help_ = (min(of) for of in zip(*turns, strict=True))
        (place / "examples").symlink_to(ROOT / "examples")
        found = {"help_over_python": help_ / python}
        found["demo_cpu_s"] = _command(environment, place, "demo --store demo")
        for key, words in OF_README.items():
            if words == IMPORT:  # each round into a store of its own
                _command(environment, place, words)
                found[key] = min(_command(environment, place, f"{words}-{n}") for n in range(ROUNDS))
            else:
                found[key] = help_ if words == HELP else _ask(environment, place, words)
        found["show_cpu_s_readme"] = _ask(environment, place, "show --store books")
        found["plan_serve_compile_cpu_s"] = _command(environment, place, SERVING)
        found["plan_serve_cpu_s"] = min(_command(environment, place, SERVING) for _ in range(ROUNDS))
        found["plan_serve_first_cpu_s"] = _command(_move(environment, place), place, SERVING)
        found |= {key: _ask(environment, place, f"{words} --store demo") for key, words in OF_DEMO.items()}
        return found | {
            "booking_us_per_sample_demo": _book(place / "demo")
        }  # last: the books are of another threshold then


def _move(environment: Mapping[str, str], place: Path) -> dict[str, str]:
    """Another environment of the same user: a copy of the package, whose bytecode is compiled, too."""
    package = Path(loadfactor.__file__).parent
    shutil.copytree(package, place / "other" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    before = [path for path in (environment.get("PYTHONPATH") or "").split(os.pathsep) if path]
    return {**environment, "PYTHONPATH": os.pathsep.join([str(place / "other"), *before])}


def _book(folder: Path) -> float:
    """Microseconds of processor time a sample of booking everything again: the second time, when all SQL is compiled."""
    books = Books(folder)
    samples = sum(file.rows for file in books.store.manifest.of("samples"))
    spent = 0.0
    for times in (0.99, 0.98):
        with books.store.write() as writer:
            before = time.process_time()
            refresh(writer, lambda _what, _share: None, IDLE_BELOW * times)
            spent = time.process_time() - before
    return spent * US_PER_S / samples


def _ask(environment: Mapping[str, str], place: Path, words: str) -> float:
    """The least of some rounds, after one that fills the caches."""
    first = _command(environment, place, words)
    return min(_command(environment, place, words) for _ in range(ROUNDS if first < LONG_S else 1))


def _command(environment: Mapping[str, str], place: Path, words: str) -> float:
    return _spend(environment, place, "-c", PROGRAM, *words.split())


def _spend(environment: Mapping[str, str], place: Path, *words: str) -> float:
    """Seconds of processor time of a process of Python. What leaves with 1 has an answer that is no."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *words],
        env=environment,
        cwd=place,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.decode()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
