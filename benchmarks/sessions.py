"""Are answers whole while the books change? Questions of 16 threads and 4 processes, beside a writer that never rests.

The writer imports, forgets and compacts all the time. A GPU comes with two imports: one brings it, its job and every second of its
samples, the other the samples between them. How many hours it was there, and how many of them its job was seen busy, is known by
how it was made, so every state of the books between two changes is known. An answer that fails or is that of no such state is
counted in `sessions_wrong`. `sessions_states_seen` says how many of the states were met with, `sessions_changes` how often the
books changed meanwhile.
"""

import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from loadfactor.base.units import MS_PER_HOUR, MS_PER_S, S_PER_MIN
from loadfactor.books.books import Books
from loadfactor.sources.base import ReadOptions

NAME = "sessions"
THREADS, PROCESSES = 16, 4
GPUS = 4
START = datetime(2026, 3, 1, 20, tzinfo=UTC)  # longer stays reach into the next day
START_MS = round(START.timestamp()) * MS_PER_S
STEP_MS = S_PER_MIN * MS_PER_S
PRICE = 2.5
METRICS = ("paid_gpu_hours", "allocated_gpu_hours", "busy_gpu_hours", "unobserved_gpu_hours", "cost")

Seen = tuple[str, ...]
"""A state: of each GPU whether it is `none`, `half` of its samples, or `whole`."""


def run(quick: bool) -> dict[str, float]:
    """10,000 questions, half of them asked by threads and half by processes; `quick` asks 300."""
    each = 150 if quick else 5_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for gpu in range(GPUS):
            _make(folder / f"half-{gpu}", gpu, first=True)
            _make(folder / f"rest-{gpu}", gpu, first=False)
        _bring(folder, "half", 0)
        with multiprocessing.get_context("spawn").Pool(PROCESSES + 2, maxtasksperchild=1) as pool:
            changes = pool.apply_async(_write, (folder,))
            began = time.perf_counter()
            asked = [pool.apply_async(_ask_from_threads, (folder, each))]
            asked += [pool.apply_async(_ask, (folder, each // PROCESSES, n)) for n in range(PROCESSES)]
            answers = [answer for found in asked for answer in found.get()]
            took = time.perf_counter() - began
            (folder / "done").touch()
            made = changes.get()
    wrong = [answer for answer in answers if not isinstance(answer, tuple)]
    for what in sorted(set(wrong))[:5]:
        print(f"  {what}", file=sys.stderr, flush=True)
    return {
        "sessions_questions": float(len(answers)),
        "sessions_wrong": float(len(wrong)),
        "sessions_questions_per_s": len(answers) / took,
        "sessions_states_seen": float(len({answer for answer in answers if isinstance(answer, tuple)})),
        "sessions_changes": float(made),
    }


# -- the writer ----------------------------------------------------------------------------------------------------------


def list_changes() -> list[tuple[str, str, int]]:
    """A round of changes (verb, which half, GPU), from only the first half of the first GPU back to it."""
    others = range(1, GPUS)
    changes = [("bring", "rest", 0)]
    changes += [("bring", half, gpu) for gpu in others for half in ("half", "rest")]
    changes += [("compact", "", 0)]
    changes += [("forget", "rest", gpu) for gpu in range(GPUS)]
    changes += [("bring", "rest", 1), ("forget", "half", 2), ("compact", "", 0), ("forget", "rest", 1)]
    return changes + [("forget", "half", gpu) for gpu in others if gpu != 2]


def list_states() -> set[Seen]:
    """Every state that a round of changes passes."""
    there = {("half", 0)}
    states = set()
    for verb, half, gpu in list_changes():
        if verb == "bring":
            there.add((half, gpu))
        elif verb == "forget":
            there.remove((half, gpu))
        states.add(
            tuple(
                "none" if ("half", gpu) not in there else "whole" if ("rest", gpu) in there else "half"
                for gpu in range(GPUS)
            )
        )
    return states


def _write(folder: Path) -> int:
    """Change the books until all is asked; how often."""
    changes = 0
    for verb, half, gpu in cycle(list_changes()):
        if (folder / "done").exists():
            break
        if verb == "bring":
            _bring(folder, half, gpu)
        elif verb == "forget":
            books = Books(folder / "books")
            record = next(r for r in reversed(books.imports) if Path(r.paths[0]).parent.name == f"{half}-{gpu}")
            books.forget(record.number)
        else:
            Books(folder / "books").compact()
        changes += 1
    return changes


def _bring(folder: Path, half: str, gpu: int) -> None:
    options = ReadOptions(step_s=STEP_MS / MS_PER_S, price_per_gpu_hour=PRICE)
    Books(folder / "books").add("tables", [folder / f"{half}-{gpu}"], options)


def _make(folder: Path, gpu: int, first: bool) -> None:
    """The files of an import: every second sample of a GPU that is busy for 2**gpu hours; the first half brings GPU and job too."""
    folder.mkdir()
    end = START_MS + _hours(gpu) * MS_PER_HOUR
    at = np.arange(START_MS + (STEP_MS if first else 2 * STEP_MS), end + 1, 2 * STEP_MS)
    device = [f"GPU-{gpu}"]
    pq.write_table(
        pa.table({"device_id": device * len(at), "to_utc": at, "sm_active_share": [0.5] * len(at)}),
        folder / "samples.parquet",
    )
    if first:
        stay = {"device_id": device, "from_utc": [START_MS], "to_utc": [end]}
        pq.write_table(pa.table(stay), folder / "devices.parquet")
        pq.write_table(pa.table(stay | {"job_id": [f"job-{gpu}"]}), folder / "allocations.parquet")


def _hours(gpu: int) -> int:
    return 2**gpu


# -- those who ask -------------------------------------------------------------------------------------------------------


def _ask_from_threads(folder: Path, questions: int) -> list[Seen | str]:
    """What threads of one process are answered."""
    with ThreadPoolExecutor(THREADS) as threads:
        asked = [threads.submit(_ask, folder, len(range(n, questions, THREADS)), n) for n in range(THREADS)]
        return [answer for found in asked for answer in found.result()]


def _ask(folder: Path, questions: int, seed: int) -> list[Seen | str]:
    """The state that each answer is of, or what is wrong with it."""
    draw = random.Random(seed)
    books = Books(folder / "books")
    kinds: tuple[Callable[[Books], dict[Seen, bool]], ...] = (_ask_total, _ask_by_device, _ask_by_hour, _ask_of_window)
    found: list[Seen | str] = []
    for _ in range(questions):
        kind = draw.choice(kinds)
        try:
            right = [state for state, fits in kind(books).items() if fits]
            found.append(right[0] if right else f"{kind.__name__}: no state of the books")
        except Exception as error:
            found.append(f"{kind.__name__}: {type(error).__name__}: {error}")
    return found


def _ask_total(books: Books) -> dict[Seen, bool]:
    values = [reading.value for reading in books.show(METRICS)]
    return {
        state: _are_same(values, np.sum([_tell(*of) for of in enumerate(state)], axis=0)) for state in list_states()
    }


def _ask_by_device(books: Books) -> dict[Seen, bool]:
    values = [(reading.by["device"], reading.value) for reading in books.show(METRICS, by="device")]
    told = {}
    for state in list_states():
        there = [(gpu, what) for gpu, what in enumerate(state) if what != "none"]
        wanted = [(f"GPU-{gpu}", value) for gpu, what in there for value in _tell(gpu, what)]
        told[state] = [name for name, _ in values] == [name for name, _ in wanted] and _are_same(
            [value for _, value in values], [value for _, value in wanted]
        )
    return told


def _ask_by_hour(books: Books) -> dict[Seen, bool]:
    """Busy hours by hour: those that were there the longest are there alone at the end."""
    values = [reading.value for reading in books.show("busy_gpu_hours", by="hour")]
    return {state: _are_same(values, list(_busy_by_hour(state))) for state in list_states()}


def _busy_by_hour(state: Seen) -> Iterator[float]:
    there = [(gpu, what) for gpu, what in enumerate(state) if what != "none"]
    for hour in range(max(_hours(gpu) for gpu, _ in there)):
        yield sum((1.0 if what == "whole" else 0.5) for gpu, what in there if hour < _hours(gpu))


def _ask_of_window(books: Books) -> dict[Seen, bool]:
    """The first half hour, which no row of the ledger knows by itself."""
    values = [r.value for r in books.show(METRICS, end=START + timedelta(hours=0.5))]
    return {
        state: _are_same(values, np.sum([_tell(*of) / _hours(of[0]) / 2 for of in enumerate(state)], axis=0))
        for state in list_states()
    }


def _tell(gpu: int, what: str) -> npt.NDArray[np.float64]:
    """What METRICS are of a GPU in a state."""
    hours = float(_hours(gpu))
    if what == "none":
        return np.zeros(len(METRICS))
    busy = hours if what == "whole" else hours / 2
    return np.array([hours, hours, busy, hours - busy, hours * PRICE])


def _are_same(found: object, wanted: object) -> bool:
    one, other = np.asarray(found, dtype=float), np.asarray(wanted, dtype=float)
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=1e-9, atol=1e-9))
