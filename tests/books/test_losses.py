"""Losses of random fleets beside slow oracles: idle intervals as the ledger defines them, and the waterfall of what was paid."""

import random
from math import fsum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st
from tests.insight.levers.fleet import START, at, held, keep
from tests.ledger.fleets import HOUR, Fleet, add, batches
from tests.ledger.test_books_balance import SETTINGS
from tests.long import rest_long

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_HOUR, MS_PER_MIN
from loadfactor.books.booking import book
from loadfactor.books.books import Books
from loadfactor.books.losses.facts import LossFacts, read_losses
from loadfactor.books.losses.idle import STEP_MS
from loadfactor.metrics.fullness import DROPS
from loadfactor.metrics.query.calendar import instant
from loadfactor.settings.config import settings
from loadfactor.tables.schema import IDLE_BELOW
from loadfactor.tables.work import SECTION_KINDS

HOURS = 8
GPUS = {"a": "n1", "b": "n1", "c": "n2", "d": "n2"}
Found = set[tuple[str, float, int, int, float]]


def make_books(folder: Path, rng: np.random.Generator) -> Books:
    """Books of four GPUs: jobs, idle and active by turns, here and there without a sample; one gets a GPU later, one runs twice."""

    def draw(least: float, most: float) -> float:
        return float(rng.integers(round(least * 20), round(most * 20))) / 20

    start, end, ended = draw(0, 3), draw(4, 8), draw(2, 5)
    allocations = [
        *held("alone", ["a"], draw(0, 4), draw(5, 8)),
        *held("grows", ["b"], start, end),
        *held("grows", ["c"], start + 0.35, end),
        *held("twice", ["d"], 0.5, ended, attempt=0),
        *held("twice", ["d"], ended + draw(0, 0.2), HOURS, attempt=1),
    ]
    activity: dict[str, list[tuple[float, float, float]]] = {gpu: [] for gpu in GPUS}
    for spans in activity.values():
        now = 0.0
        while now < HOURS:
            length = int(rng.integers(1, 20)) / 12
            if rng.random() < 0.9:
                spans.append((now, min(now + length, HOURS), float(rng.choice([0.0, 0.0, 0.02, 0.6]))))
            now += length
    return keep(folder, GPUS, HOURS, allocations, activity)


def find_slowly(facts: LossFacts, without: list[tuple[str, str]]) -> Found:
    """Every step of the window, booked: those in which all held time of a run was idle, joined."""
    session = facts._session
    first, last = facts.window
    hours = range(first - first % MS_PER_HOUR, last, MS_PER_HOUR)
    spans = tuple((max(hour, first), min(hour + MS_PER_HOUR, last)) for hour in hours)
    book(session, spans, range(first - first % STEP_MS + STEP_MS, last, STEP_MS), facts._idle_below)
    rows = session.raw.execute("SELECT job_id, attempt, device_id, from_utc, to_utc, state, gpu_s FROM book").fetchall()
    steps: dict[tuple[str, float, int], list[tuple[int, int, str, float]]] = {}
    for job, attempt, device, start, end, state, gpu_s in rows:
        if job is not None and (job, device) not in without:
            steps.setdefault((job, attempt, start // STEP_MS), []).append((start, end, state, gpu_s))
    out: Found = set()
    for run in {key[:2] for key in steps}:
        joined: list[list[Any]] = []
        for _, parts in sorted((key, of) for key, of in steps.items() if key[:2] == run):
            if all(state == "idle" for _, _, state, _ in parts):
                start, end = min(p[0] for p in parts), max(p[1] for p in parts)
                if not joined or joined[-1][1] < start:
                    joined.append([start, end, 0.0])
                joined[-1][1] = end
                joined[-1][2] += sum(p[3] for p in parts)
        out |= {(*run, start, end, round(gpu_s, 3)) for start, end, gpu_s in joined}
    return out


@pytest.mark.long
@pytest.mark.parametrize("seed", rest_long(range(12), 2))
def test_idle_stretches_are_those_of_the_ledger(tmp_path: Path, seed: int) -> None:
    """Whatever jobs hold and do, in a window that cuts hours, too, and without a GPU of a job: the same, to the millisecond."""
    rng = np.random.default_rng(seed)
    books = make_books(tmp_path, rng)
    window = (START, at(HOURS)) if seed % 2 else (at(0.7), at(6.55) + MS_PER_MIN)
    without = [("grows", "b")] if seed % 3 == 0 else []
    with read_losses(books, instant(window[0]), instant(window[1])) as facts:
        stretches = facts.find_idle(facts.runs, without)
        found = {
            (
                s.run.job,
                s.run.attempt,
                s.interval.from_ms,
                s.interval.to_ms,
                round(sum(p.gpu_s for p in s.interval.pieces), 3),
            )
            for s in stretches
        }
        expected = find_slowly(facts, without)
    assert found == expected
    assert len(expected) > 1


TOML = """
[[network]]
match = { job_id = ["*1", "*2", "*a"] }
model = "gpt2-xl"
sequence_length = 1024
datatype = "bf16"
"""
GROUPS = (("team",), ("job", "day"))


@pytest.mark.parametrize("examples", rest_long((1, 4)))
def test_losses_unknown_and_useful_add_up(examples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On random fleets with work of all kinds, to a billionth, in hours and money, in total and by group."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loadfactor.toml").write_text(TOML)
    settings.cache_clear()

    @given_settings(SETTINGS, max_examples=examples)
    @given(st.randoms(use_true_random=False))
    def run(rnd: random.Random) -> None:
        check_one(rnd)

    run()


def check_one(rnd: random.Random) -> None:
    fleet = Fleet(rnd)
    for row in fleet.tables["progress"]:
        if rnd.random() < 0.3:
            row["unit"] = "model_flop"
        if row["unit"] in ("train_token", "model_flop"):
            row["amount"] *= rnd.choice((1.0, 1e6, 1e15))
        row["cause"] = rnd.choice((None, "restart", "preemption", "cosmic rays"))
        begin = row["from_utc"] + rnd.randrange(-HOUR, HOUR)
        section = {"from_utc": begin, "to_utc": begin + rnd.randrange(2 * HOUR), "kind": rnd.choice(SECTION_KINDS)}
        fleet.tables["job_sections"].append({"job_id": row["job_id"], **section})
    with TemporaryDirectory() as folder:
        books = Books(Path(folder) / "store")
        add(books, batches(fleet.tables), "all", Path(folder))
        with books.snapshot() as snapshot:
            try:
                found = snapshot.waterfall(rnd.choice(GROUPS))
            except InputError:  # books that know of no GPU
                return
            hours, cost = snapshot.show(("paid_gpu_hours", "cost"))
    for group in (found.all, *found.rows):
        for fall in (group.gpu_hours, group.cost):
            if fall is not None:
                least = {"underused": -IDLE_BELOW * fall.idle}  # the activity of idle time is effective, too
                assert all(getattr(fall, drop.name) >= least.get(drop.name, 0.0) - 1e-9 for drop in DROPS)
                amounts = [*(getattr(fall, drop.name) for drop in DROPS), fall.useful]
                assert fsum(amounts) == pytest.approx(fall.paid, rel=1e-9, abs=1e-9)
                for of in {part.of for part in group.causes}:
                    of_whole = [part for part in group.causes if part.of == of]
                    parts = [part.gpu_hours if fall is group.gpu_hours else part.cost for part in of_whole]
                    assert min(parts) >= 0
                    assert fsum(parts) == pytest.approx(getattr(fall, of), rel=1e-9, abs=1e-9)
        held = group.gpu_hours
        if not held.not_math + held.lost_work + held.failed_work + held.useful:
            assert held.uncounted == pytest.approx(held.after("active"), abs=1e-9)
    assert found.all.gpu_hours.paid == pytest.approx(hours.value, rel=1e-9)
    if found.all.cost is not None and cost.value is not None:
        assert found.all.cost.paid == pytest.approx(cost.value, rel=1e-9, abs=1e-9)
    for drop in DROPS:
        parts = fsum(getattr(group.gpu_hours, drop.name) for group in found.rows)
        assert parts == pytest.approx(getattr(found.all.gpu_hours, drop.name), rel=1e-9, abs=1e-9)
