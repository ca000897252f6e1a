"""Random operations under random clocks, with random kills: nothing that was acknowledged is lost.

A day passes with each round. Two of three clocks are wrong, by up to 400 days; every third operation is a process of its own whose
clock a library shifts, the others are children that die at a durable step. What was acknowledged is tallied here, and compared with
what is there by the right clock.
"""

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from tests.torture.children import Child, Outcome, at_each_step, die_at, run
from tests.torture.conftest import ROUNDS

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_S
from loadfactor.books.books import Books
from loadfactor.books.retention import retain
from loadfactor.insight.alerts.delivery.board import read_board
from loadfactor.insight.alerts.delivery.outbox import Outbox
from loadfactor.interfaces.pages.alerts import end_silence, make_silence
from loadfactor.settings.retention import Age, RetentionSettings
from loadfactor.store.backup import find_damage
from loadfactor.store.folder import Folder
from loadfactor.store.live import LiveBatch, LiveLog
from loadfactor.store.scheduled_backups import back_up_when_due
from loadfactor.store.tokens import create_token, read_tokens, revoke_token
from loadfactor.store.trusted_time import read_clock

START: Final = datetime(2026, 3, 24, tzinfo=UTC)
MONTH: Final = "2026-03"
MONTH_END: Final = datetime(2026, 4, 1, tzinfo=UTC)
GPUS: Final = ("g0", "g1")
SCRAPED: Final = "scraped"
"""A GPU whose samples the machine's own clock stamps, right or wrong: they are not tallied, and may not say what time it is."""
LARGEST_SHIFT_DAYS: Final = 400
KEPT_BACKUPS: Final = 2
SILENCE_DAYS: Final = 100
CHAIN_ROUNDS: Final = 25
"""So many rounds go over one store."""
RETENTION: Final = '[retention]\nsamples = "7d"\nledger = "60d"\n'
SHIM: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int status = real(id, at);
  char *shift = getenv("CLOCK_SHIFT_S");
  if (shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += atol(shift);
  return status;
}
time_t time(time_t *to) { struct timespec at; clock_gettime(CLOCK_REALTIME, &at); if (to) *to = at.tv_sec; return at.tv_sec; }
int gettimeofday(struct timeval *to, void *zone) {
  struct timespec at; clock_gettime(CLOCK_REALTIME, &at); to->tv_sec = at.tv_sec; to->tv_usec = at.tv_nsec / 1000; return 0;
}
"""


@dataclass
class Tally:
    """What was acknowledged, counted by the test alone. `backups`: those that the right clock made, in their order."""

    samples: set[tuple[str, int]] = field(default_factory=set)
    backups: list[str] = field(default_factory=list)
    silences: set[str] = field(default_factory=set)
    lifted: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    closings: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class State:
    """What a store and its backups hold by the right clock; `hours` are observed GPU-hours."""

    samples: set[tuple[str, int]]
    hours: dict[str, float]
    backups: dict[str, bool]
    silences: set[str]
    tokens: dict[str, bool]
    closings: set[str]


# -- what children do --------------------------------------------------------------------------------------------------


def under_clock(now_ms: int, last_step: int, task: Callable[..., Any], *arguments: object) -> Any:
    """Do a task while the clock begins at `now_ms`; die at a durable step, or never (0)."""
    began_s = time.monotonic()
    machine_time, machine_datetime = time.time, datetime

    def read_time() -> float:
        return now_ms / MS_PER_S + time.monotonic() - began_s

    class ShiftedDatetime(datetime):
        """A datetime whose now is that of the shifted clock."""

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return machine_datetime.fromtimestamp(read_time(), tz)

    for module in [module for name, module in sys.modules.items() if name.startswith("loadfactor.")]:
        if getattr(module, "time", None) is machine_time:
            module.time = read_time  # type: ignore[attr-defined]
        if getattr(module, "datetime", None) is machine_datetime and module.__name__.endswith("closings"):
            module.datetime = ShiftedDatetime  # type: ignore[attr-defined]
    time.time = read_time

    def hook(number: int, name: str, given: tuple[Any, ...]) -> None:
        if number == last_step:
            die_at(name, given)

    at_each_step(hook)
    return task(*arguments)


def import_day(store: Path, folder: Path) -> None:
    Books(store).add("tables", [folder])


def take_live(store: Path, at_ms: int) -> None:
    """Acknowledge samples that the clock of this machine stamped, and make files of them."""
    books = Books(store)
    to_utc = [at_ms - at_ms % MS_PER_HOUR + n * MS_PER_HOUR for n in (1, 2)]
    rows = pa.table({"device_id": [SCRAPED] * 2, "source": ["s"] * 2, "to_utc": to_utc, "busy_share": [0.5, 0.5]})
    with LiveLog.open(store, after=books.store.manifest.live_through) as log:
        log.acknowledge([LiveBatch("s", "samples", rows, "s")])
        log.discard_through(books.flush())


def drop_expired(store: Path) -> None:
    books = Books(store)
    kept = RetentionSettings(samples=Age("7d"), ledger=Age("60d"))
    retain(books.store, books.idle_below, kept, lambda _what, _share: None)


def back_up(store: Path, copies: Path, now_ms: int) -> str:
    """The name of the backup that was made; empty if there is one of this day."""
    now = datetime.fromtimestamp(now_ms / MS_PER_S, UTC)
    done = back_up_when_due(Folder(store), copies, "daily", KEPT_BACKUPS, now)
    return Path(done.newest).name if done.made else ""


def silence(store: Path) -> str:
    return make_silence(Folder(store), "*", {}, (f"{SILENCE_DAYS}d", None), "why").id


def lift(store: Path, silence_id: str) -> str:
    return end_silence(Folder(store), silence_id).id


def serve_alerts(store: Path, now_ms: int) -> None:
    """What a server does with the outbox: mend times, and forget what is old."""
    place = Folder(store)
    with closing(Outbox(store, lambda at_ms: read_clock(place, at_ms).expiry_ms)) as outbox:
        outbox.mend_times(now_ms)
        outbox.forget_old(now_ms)


def make_token(store: Path, now_ms: int) -> str:
    return create_token(store, "read", None, "t", now_ms)[0].id


def revoke(store: Path, token_id: str, now_ms: int) -> str:
    return revoke_token(store, token_id, now_ms).id


def close(store: Path, is_known_to_lack: bool) -> str:
    return Books(store).close_month(MONTH, is_known_to_lack=is_known_to_lack).closing or ""


def look(store: Path, copies: Path, now_ms: int) -> State:
    """Everything that may not be lost."""
    books = Books(store)
    with books.store.read() as session:
        session.view_table("all_samples", "samples")
        rows = session.raw.execute(
            f"SELECT DISTINCT device_id, to_utc FROM all_samples WHERE device_id != '{SCRAPED}'"
        ).fetchall()
    found = books.show(("observed_gpu_hours",), ("device",))
    hours = {str(key[0]): float(found.column("observed_gpu_hours")[place] or 0) for place, key in enumerate(found.keys)}
    expiry_ms = read_clock(books.store.place, now_ms).expiry_ms
    silences = {of.id for of in read_board(store, expiry_ms, ()).silences if of.is_active(expiry_ms)}
    with books.snapshot() as snapshot:
        closings = {of.name for of in snapshot.list_closings(MONTH)}
    backups = {
        path.name: not find_damage(path, Folder(path).read_newest())
        for path in copies.glob("*Z")
    }  # fmt: skip
    tokens = {record.id: record.revoked_ms is None for record in read_tokens(store)}
    return State({(name, int(at)) for name, at in rows}, hours, backups, silences, tokens, closings)


# -- the chain ---------------------------------------------------------------------------------------------------------


class Chain:
    """One store, day after day, and what was acknowledged of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rnd = random.Random(seed)
        self.folder, self.store, self.copies = folder, folder / "store", folder / "copies"
        self.tally = Tally()
        self.now_ms = 0
        self.clock = shutil.which("cc") and self._build_clock()
        (folder / "loadfactor.toml").write_text(RETENTION)
        inventory = folder / "inventory"
        inventory.mkdir()
        rows = [f"{gpu},h100-sxm,{START:%Y-%m-%dT%H:%M:%SZ},2027-01-01T00:00:00Z" for gpu in GPUS]
        (inventory / "devices.csv").write_text("\n".join(["device_id,accelerator,from_utc,to_utc", *rows]))
        held = [f"j,{gpu},red,{START:%Y-%m-%dT%H:%M:%SZ},2026-06-01T00:00:00Z" for gpu in GPUS]
        (inventory / "allocations.csv").write_text("\n".join(["job_id,device_id,team,from_utc,to_utc", *held]))
        (inventory / "prices.csv").write_text("basis,price_per_gpu_hour\ncontracted,2\n")
        self._do(partial(run, import_day, self.store, inventory))

    def _build_clock(self) -> Path:
        library = self.folder / "clock.so"
        (self.folder / "clock.c").write_text(SHIM)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, self.folder / "clock.c", "-ldl"], check=True)
        return library

    def _do(self, work: Callable[[], Outcome]) -> Outcome:
        done = work()
        assert done.code == 0, done.said
        return done

    def work_in_child(self, may_die: bool, shown_ms: int, task: Callable[..., Any], *arguments: object) -> Outcome:
        """Do a task under a clock, in a child that may die at a durable step or at any moment."""
        if not may_die:
            return run(under_clock, shown_ms, 0, task, *arguments)
        if self.rnd.random() < 0.6:
            return run(under_clock, shown_ms, self.rnd.randint(1, 40), task, *arguments)
        child = Child(under_clock, shown_ms, 0, task, *arguments)
        child.kill(self.rnd.uniform(0, 1.5))
        return child.end()

    def command(self, may_die: bool, shown_ms: int, *words: object) -> Outcome:
        """Run the command line in a process of its own, whose clock is shifted; kill it at any moment."""
        shift_s = round(shown_ms / MS_PER_S - time.time())
        environment = os.environ | {"LD_PRELOAD": str(self.clock), "CLOCK_SHIFT_S": str(shift_s)}
        line = [sys.executable, "-m", "loadfactor", *map(str, words), "--store", str(self.store)]
        process = subprocess.Popen(
            line, cwd=self.folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            said, _ = process.communicate(timeout=self.rnd.uniform(0.5, 6) if may_die else 240)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
        return Outcome(process.returncode, said)

    def step(self, day: int) -> str:
        """Do something on a day, under some clock; what it was."""
        rnd, tally = self.rnd, self.tally
        self.now_ms = round((START + timedelta(days=day + 1)).timestamp() * MS_PER_S)
        days = rnd.choice((0.0, rnd.uniform(-LARGEST_SHIFT_DAYS, LARGEST_SHIFT_DAYS), rnd.choice((-3, 3, 60, 370))))
        shown_ms = self.now_ms + round(days * MS_PER_DAY)
        may_die = rnd.random() < 0.5
        is_process = self.clock and rnd.random() < 1 / 3
        self._import(day, shown_ms, may_die, bool(is_process))
        name = rnd.choice(
            ("live", "retain", "retain", "backup", "backup", "silence", "lift", "alerts", "token", "close")
        )
        if name == "lift" and not tally.silences:
            name = "silence"
        do = partial(self.work_in_child, may_die, shown_ms)
        done: Outcome | None = None
        if name == "live":
            done = do(take_live, self.store, shown_ms)
        elif name == "retain":
            done = self.command(may_die, shown_ms, "retain") if is_process else do(drop_expired, self.store)
            is_refused = "--confirm" in done.said
            assert done.was_killed or done.code == 0 or is_refused, done
            assert done.was_killed or is_refused == (abs(days) > 1), (days, done)
        elif name == "backup":
            done = do(back_up, self.store, self.copies, shown_ms)
            if done.result and not days:
                tally.backups.append(done.result)
        elif name == "silence":
            if is_process:
                words = ("alerts", "silence", "*", "--for", f"{SILENCE_DAYS}d", "--reason", "why")
                done = self.command(may_die, shown_ms, *words)
                if done.code == 0:
                    tally.silences.add(done.said.strip().rsplit(" ", 1)[1].rstrip("."))
            else:
                done = do(silence, self.store)
                tally.silences |= {done.result} - {None}
        elif name == "lift":
            chosen = rnd.choice(sorted(tally.silences))
            tally.silences.discard(chosen)  # killed, it may be lifted or not
            done = do(lift, self.store, chosen)
            tally.lifted |= {done.result} - {None}
        elif name == "alerts":
            done = do(serve_alerts, self.store, shown_ms)
        elif name == "token":
            if tally.tokens and rnd.random() < 0.3:
                chosen = rnd.choice(sorted(tally.tokens))
                tally.tokens.discard(chosen)
                done = do(revoke, self.store, chosen, shown_ms)
                tally.revoked |= {done.result} - {None}
            else:
                done = do(make_token, self.store, shown_ms)
                tally.tokens |= {done.result} - {None}
        elif name == "close":
            done = do(close, self.store, rnd.random() < 0.5)
            tally.closings |= {done.result} - {None, ""}
            is_over = max(shown_ms, self.now_ms) >= MONTH_END.timestamp() * MS_PER_S
            assert is_over or not done.result, f"{MONTH} was closed before it ended"
        said = "" if done is None else f", exit {done.code}"
        assert done is None or done.was_killed or done.code in (0, 1), (name, days, done)
        return f"{name} under a clock {days:+.1f} days off{', killed' if done and done.was_killed else said}"

    def _import(self, day: int, shown_ms: int, may_die: bool, is_process: bool) -> None:
        """Import the samples of a day, whose times are true; if that is killed, once more."""
        folder = self.folder / f"day{day}"
        folder.mkdir()
        begins_ms = round((START + timedelta(days=day)).timestamp() * MS_PER_S)
        times_ms = [begins_ms + hour * MS_PER_HOUR for hour in range(1, 25)]
        rows = [f"{gpu},{at_ms},s,0.5" for gpu in GPUS for at_ms in times_ms]
        (folder / "samples.csv").write_text("\n".join(["device_id,to_utc,source,busy_share", *map(_iso_row, rows)]))
        for may in (may_die, False):
            if is_process:
                done = self.command(may, shown_ms, "import", "tables", folder)
            else:
                done = self.work_in_child(may, shown_ms, import_day, self.store, folder)
            assert done.code == 0 or done.was_killed, done
            if done.code == 0:
                break
        self.tally.samples |= {(gpu, at_ms) for gpu in GPUS for at_ms in times_ms}

    def check(self, what: str) -> None:
        """Compare what is there with what was acknowledged."""
        tally = self.tally
        state: State = self._do(partial(run, look, self.store, self.copies, self.now_ms)).result
        gone = tally.samples - state.samples
        # By the true time, samples of days that ended seven days ago may be dropped; their ledger stays.
        young = sorted(row for row in gone if row[1] > self.now_ms - 7 * MS_PER_DAY)
        assert not young, f"{what}: {len(young)} samples of the last 7 days are gone, as {young[0]}"
        for gpu in GPUS:
            hours = sum(name == gpu for name, _ in tally.samples)
            assert state.hours.get(gpu) == pytest.approx(hours), (
                f"{what}: {gpu} has {state.hours.get(gpu)} of {hours} h"
            )
        for name in tally.backups[-KEPT_BACKUPS:]:
            assert state.backups.get(name), f"{what}: backup {name} is gone or damaged; there are {state.backups}"
        assert tally.silences <= state.silences, f"{what}: silences {tally.silences - state.silences} are over"
        assert not tally.lifted & state.silences, f"{what}: silences {tally.lifted & state.silences} hold again"
        assert tally.tokens <= {name for name, is_valid in state.tokens.items() if is_valid}, what
        assert not any(state.tokens[name] for name in tally.revoked), what
        assert tally.closings <= state.closings, f"{what}: closings {tally.closings - state.closings} are gone"


def _iso_row(row: str) -> str:
    gpu, at_ms, rest = row.split(",", 2)
    return f"{gpu},{datetime.fromtimestamp(int(at_ms) / MS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ},{rest}"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chain", range(max(1, ROUNDS // CHAIN_ROUNDS)))
def test_wrong_clocks_and_kills_lose_nothing(chain: int, tmp_path: Path) -> None:
    """25 days of one store: imports, live rows, retention, backups, silences, tokens, a closed month; clocks up to 400 days off."""
    days = Chain(tmp_path, seed=4300 + chain)
    history: list[str] = []
    for day in range(min(ROUNDS, CHAIN_ROUNDS)):
        history.append(days.step(day))
        print(f"round {day}: {history[-1]}", flush=True)
        days.check(f"chain {chain}, round {day}, after {'; '.join(history[-3:])}")
