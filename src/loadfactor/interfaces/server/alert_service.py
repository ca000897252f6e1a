"""Alerts of a running server: minutes of data are judged as they are complete, and dispatchers tell receivers what came of it."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from loadfactor.base.clock import LARGEST_SKEW_MS, ClockWatch, format_utc, now_ms
from loadfactor.base.defects import DEFECTS
from loadfactor.base.health import HealthReason, Trouble
from loadfactor.base.units import MS_PER_S, S_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.books.watched import find_imported
from loadfactor.collect.arrivals import LiveArrivals
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.delivery.board import read_board
from loadfactor.insight.alerts.delivery.dispatcher import Dispatcher, make_dispatcher
from loadfactor.insight.alerts.delivery.outbox import Judged, Outbox
from loadfactor.insight.alerts.delivery.payloads import Links
from loadfactor.insight.alerts.delivery.pending import Backlog
from loadfactor.insight.alerts.judge import REMEMBERED_MS, STEP_MS, Judge
from loadfactor.insight.alerts.rule import Rule
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.gauges.rules import RuleVerdicts
from loadfactor.interfaces.server.log import write_line
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.reading import iso
from loadfactor.settings.alerts import AlertReceiver
from loadfactor.settings.config import Settings, smtp_password

LOOK_EVERY_S: Final = 3.0
"""So often it looks whether another minute is complete."""
AGAIN_S: Final = 30.0
"""After so long it begins again where judging failed."""
MOST_BUSY: Final = 1 / 30
"""It judges for this share of one core's time at most: a very large fleet is judged several minutes at once."""
LATE_EVERY_S: Final = 300.0
"""Minutes that data came late for are judged again at most so often."""
FORGET_AFTER_S: Final = float(S_PER_HOUR)
"""Old alerts are forgotten when the clock was not set for so long: one that is ahead would forget what is not old."""
STEPS_AT_ONCE: Final = 60
"""After a long time away so many minutes are judged and kept at once."""

FoundT = TypeVar("FoundT")


@dataclass(frozen=True)
class AlertSettings:
    """How alerts are judged, and who hears of them."""

    rules: tuple[Rule, ...]
    receivers: Sequence[AlertReceiver]
    links: Links
    judge_after_ms: int


class AlertService:
    """Judges the books of a server and tells receivers, on its event loop; what takes long runs in a thread of its own."""

    def __init__(
        self,
        books: Books,
        settings: Settings,
        address: str,
        note_clock: Callable[[str], None] = lambda _what: None,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        """`address`: where links lead unless settings say it. `note_clock` hears that the clock was ahead.

        Raises InputError where settings of rules are wrong.
        """
        self.arrivals = LiveArrivals()
        self._trouble = Trouble()
        """Why nothing is judged now."""
        self.verdicts: RuleVerdicts | None = None
        """Verdicts of the conditions of rules at the end of the last minute that was judged."""
        self._books, self._address = books, address
        self._note_clock, self._clock_ms = note_clock, clock_ms
        self._clock, self._steady_s = ClockWatch(), time.monotonic()
        self._taken = self._next = self.read(settings)
        self._changed = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "alerts")
        self._outbox: Outbox | None = None
        self._judge: Judge | None = None
        self._dispatchers: Sequence[Dispatcher] = ()
        self._judged_ms: int | None = None
        self._backlogs: dict[str, Backlog] = {}
        self._firing = 0
        self._late_s = 0.0
        self._took_s = self._usually_s = 0.0
        self._last_import = 0
        self._stopped = False

    def read(self, settings: Settings) -> "AlertSettings":
        """The settings of alerts as they are taken. Raises InputError where rules are wrong."""
        table, rules = settings.alerts, configure(RULES, settings.alert)
        judge_after_ms = round(table.judge_after.s * MS_PER_S)
        return AlertSettings(rules, table.receiver, Links(table.link or self._address, table.runbooks), judge_after_ms)

    def take(self, settings: "AlertSettings") -> None:
        """Judge and tell as these say, once what is under way is done."""
        self._next = settings
        self._changed.set()

    async def run(self) -> None:
        """Judge and tell until cancelled."""
        try:
            await self._judge_and_tell()
        finally:
            self._stopped = True

    async def _judge_and_tell(self) -> None:
        while self._outbox is None:
            self._outbox = await self._try(self._open)
            if self._outbox is None:
                await asyncio.sleep(AGAIN_S)
        self._taken = self._next  # which may have changed meanwhile
        while True:
            self._changed.clear()
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(work) for work in self._begin_work(self._outbox)]
                await self._changed.wait()
                for task in running:
                    task.cancel()
            while await self._try(self._take_next) is None:
                await asyncio.sleep(AGAIN_S)

    def _begin_work(self, outbox: Outbox) -> list[Coroutine[Any, Any, None]]:
        """What judges, and what tells each receiver."""
        by_name = {rule.name: rule for rule in self._taken.rules}
        self._dispatchers = [
            make_dispatcher(receiver, outbox, by_name, self._taken.links, smtp_password())
            for receiver in self._taken.receivers
        ]
        return [self._go_on(), *(dispatcher.run() for dispatcher in self._dispatchers)]

    def stop(self) -> None:
        """Wait for what is being judged and kept, and close the outbox."""
        self._stopped = True
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._outbox is not None:
            self._outbox.close()

    def reasons(self) -> list[HealthReason]:
        """List why nothing is judged, and which receivers do not take what they are sent."""
        reasons = []
        if self._trouble.cause:
            action = "see what the cause names; minutes are judged later, and nothing is left out"
            since_utc = format_utc(self._trouble.since_ms)
            reasons.append(HealthReason("alerts", None, "degraded", self._trouble.cause, since_utc, action))
        for dispatcher in self._dispatchers:
            if dispatcher.trouble.cause:
                action = "see to the receiver, or to its table in the configuration; alerts are sent again later"
                cause, since_utc = dispatcher.trouble.cause, format_utc(dispatcher.trouble.since_ms)
                reasons.append(HealthReason("alerts", dispatcher.name, "degraded", cause, since_utc, action))
        return reasons

    def health(self) -> dict[str, Any]:
        """State of the alerts in GET /health; it reads neither the disk nor the books."""
        backlogs = {dispatcher.name: self._backlogs.get(dispatcher.name, Backlog()) for dispatcher in self._dispatchers}
        return {
            "judged": None if self._judged_ms is None else iso(instant(self._judged_ms)),
            "firing": self._firing,
            "error": self._trouble.cause or None,
            "receivers": [
                {
                    "name": dispatcher.name,
                    "pending": backlogs[dispatcher.name].pending,
                    "silenced": backlogs[dispatcher.name].held,
                    "given_up": backlogs[dispatcher.name].given_up,
                    "error": dispatcher.trouble.cause or None,
                }
                for dispatcher in self._dispatchers
            ],
        }

    async def _go_on(self) -> None:
        """Judge minute after minute."""
        while True:
            is_done = await self._try(self._judge_next)
            for dispatcher in self._dispatchers:
                dispatcher.woken.set()
            if is_done is None:
                await asyncio.sleep(AGAIN_S)
            elif is_done:
                due_s = time.monotonic() + self._usually_s / MOST_BUSY
                await asyncio.sleep(LOOK_EVERY_S)
                while time.monotonic() < due_s and not self._was_set():
                    await asyncio.sleep(LOOK_EVERY_S)

    def _was_set(self) -> bool:
        """Whether the clock was set since the last call."""
        was_set = self._clock.read_step() != 0
        if was_set:
            self._steady_s = time.monotonic()
        return was_set

    async def _try(self, work: Callable[[], FoundT]) -> FoundT | None:
        """Run `work` on the thread; None where it fails, which is logged and ends nothing."""
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except Exception as error:  # a defect of a rule must not stop the server
            message = DEFECTS.explain("alerts", error) or type(error).__name__
            if message != self._trouble.cause:
                write_line(level="error", event="alerts are not judged", error=message)
            self._trouble.note(message)
            return None
        self._trouble.note("")
        return found

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _open(self) -> Outbox:
        outbox = Outbox(self._books.store.folder)
        outbox.begin(self._taken.receivers, self._clock_ms())
        return outbox

    def _take_next(self) -> bool:
        """Take the settings that wait; the judge goes on from what it kept, with their rules."""
        assert self._outbox is not None
        self._outbox.begin(self._next.receivers, self._clock_ms())
        self._taken, self._judge = self._next, None
        return True

    def _judge_next(self) -> bool:
        """Judge some of the minutes that are complete; whether there is nothing more to do for now."""
        outbox, now, began_s = self._outbox, self._clock_ms(), time.thread_time()
        assert outbox is not None
        until = now - self._taken.judge_after_ms
        until -= until % STEP_MS
        try:
            outbox.mend_times(now)
            judge = self._judge = self._judge or self._begin(outbox, until)
            if until - judge.judged_ms > REMEMBERED_MS:  # our clock was set: what lies between was no time
                judge.skip_to(until - STEPS_AT_ONCE * STEP_MS)
            ends = min(until, judge.judged_ms + STEPS_AT_ONCE * STEP_MS)
            is_ahead = judge.judged_ms > until + LARGEST_SKEW_MS
            late = None if is_ahead else self._find_late(outbox, judge)
            if ends > judge.judged_ms or late is not None or is_ahead:
                with self._books.watch() as watched:
                    if is_ahead:
                        self._note_clock(
                            f"alerts were judged until {iso(instant(judge.judged_ms))}: our clock was ahead"
                        )
                        transitions = judge.go_back(watched, until, outbox.list_ended(until - REMEMBERED_MS))
                    else:
                        transitions = judge.step(watched, max(ends, judge.judged_ms), late)
                self.verdicts = RuleVerdicts(judge.rules, dict(judge.verdicts), judge.judged_ms)
                judged = Judged(judge.judged_ms, judge.dump(), judge.alive)
                outbox.keep(judged, transitions, self._taken.receivers, self._clock_ms())
                if late is not None:
                    outbox.end_late(late)
                if is_ahead or self._was_set():
                    self._steady_s = time.monotonic()
                if time.monotonic() - self._steady_s > FORGET_AFTER_S:
                    outbox.forget_old(now)
                self._judged_ms = judge.judged_ms
        except BaseException:
            self._judge = None  # it may know more than was kept
            raise
        board = read_board(self._books.store.folder, now, ("firing",))
        self._firing, self._backlogs = len(board.alerts), dict(board.receivers or {})
        took_s = time.thread_time() - began_s
        self._usually_s, self._took_s = min(took_s, self._took_s), took_s  # the first time much is compiled
        return self._stopped or ends >= until

    def _begin(self, outbox: Outbox, until: int) -> Judge:
        """The judge as it was kept; a new one begins now, and one that was away for very long leaves the time between out."""
        state = outbox.read_state()
        with self._books.watch() as watched:
            self.arrivals.know(watched.find_job_starts(until, STEP_MS))
        self._last_import = self._books.store.manifest.last_import
        if state is None:
            return Judge(self._taken.rules, until)
        judge = Judge.load(self._taken.rules, state)
        judge.skip_to(until - REMEMBERED_MS)
        return judge

    def _find_late(self, outbox: Outbox, judge: Judge) -> int | None:
        """Since when minutes are to be judged again; None where there are none, or they were a moment ago."""
        came = [self.arrivals.take()]
        if self._books.store.manifest.last_import > self._last_import:
            with self._books.store.read() as session:
                came.append(find_imported(session, self._last_import))
                self._last_import = session.manifest.last_import
        since = min((at for at in came if at is not None), default=None)
        if since is not None and since < judge.judged_ms:
            outbox.note_late(max(since, judge.judged_ms - REMEMBERED_MS))
        if time.monotonic() - self._late_s < LATE_EVERY_S:
            return None
        late = outbox.read_late()
        self._late_s = self._late_s if late is None else time.monotonic()
        return late
