"""The reader of a console's output: lines become iterations and attempts, by the tables of `families`."""

import re
from collections.abc import Iterable
from datetime import tzinfo
from math import prod
from typing import Final

from loadfactor.sources.base import Input
from loadfactor.sources.training_logs.families import (
    BEGINS,
    FAMILIES,
    FLAGS,
    RESUME_HINT,
    RESUMES,
    SAID,
    SAID_HINT,
)
from loadfactor.sources.training_logs.family import LogFamily, Value, read_clock_s, read_number
from loadfactor.sources.training_logs.hugging_face import BAR, BARS, DESCRIBED
from loadfactor.sources.training_logs.iteration import Attempt, Iteration, RunLog, Values
from loadfactor.sources.training_logs.line_times import LineTimes
from loadfactor.sources.training_logs.log_lines import LogLine, split_log
from loadfactor.sources.training_logs.sections import SECTION_HINT, SECTIONS, add_pause
from loadfactor.sources.training_logs.torchtitan import MESH

_SAME_MS: Final = 2_000  # two lines of one step that lie no further apart are of one step, not of a restart
_STEP_MAX: Final = 10**12


class TextLog:
    """One log while its lines are read; `finish` gives what it is a log of."""

    def __init__(self, where: str, zone: tzinfo) -> None:
        self._where = where
        self.times = LineTimes(zone)
        self._said: Values = {}
        self._clock_ms: int | None = None
        self._seen = {family.name: _Attempts(family) for family in FAMILIES}

    def read(self, source: Input) -> None:
        """All lines of a log."""
        for line in split_log(source):
            self.take(line)

    def take(self, line: LogLine) -> None:
        """One line."""
        text = line.text
        at_ms = self.times.find(text)
        for family in FAMILIES:
            if family.hint in text:
                self._take_steps(family, line, at_ms)
        if SECTION_HINT.search(text):
            for kind, length_s in find_values(SECTIONS, text):
                self._pause(kind, length_s, line.rank, at_ms)
        if at_ms is not None:
            self._clock_ms = at_ms
        if SAID_HINT.search(text):
            self._learn(text)
        if RESUME_HINT.search(text):
            step = next((v for _, v in find_values(RESUMES, text)), None)
            if step is not None:
                self._begin(int(step), None)
        if BEGINS.search(text):
            self._begin(None, self._clock_ms if at_ms is None else at_ms)

    def finish(self) -> RunLog | None:
        """What the most telling family says that any line was of; None where there is none."""
        self._seen[BARS.name].choose_bar(self._said)
        for family in FAMILIES:
            attempts = self._seen[family.name].attempts
            if any(attempt.iterations for attempt in attempts):
                return RunLog(self._where, family.name, [a for a in attempts if a.iterations])
        return None

    def _take_steps(self, family: LogFamily, line: LogLine, at_ms: int | None) -> None:
        if family is BARS:
            values = self._find_bars(line.text)
        else:
            values = [found for found in (self._find_step(family, line.text),) if found]
        for step, of_line in values:
            one = Iteration(step, of_line, self._said, at_ms, self._clock_ms)
            self._seen[family.name].add(one, line.rank)

    def _find_step(self, family: LogFamily, text: str) -> tuple[int, Values] | None:
        for line in family.lines:
            found = line.pattern.search(text)
            if found is None:
                continue
            step = self._step_of(found)
            if step is None:
                return None
            values: Values = {}
            for name, number in find_values(family.values, text):
                values.setdefault(name, number)
            if "epoch" in found.groupdict():
                values["epoch"] = float(found["epoch"])
            return step + line.offset, values
        return None

    def _step_of(self, found: re.Match[str]) -> int | None:
        if "step" in found.groupdict():
            return int(found["step"]) if len(found["step"]) < len(str(_STEP_MAX)) else None
        steps, epochs, epoch = self._said.get("steps"), self._said.get("epochs"), read_number(found["epoch"])
        return round(epoch * steps / epochs) if steps and epochs and epoch is not None else None

    def _find_bars(self, text: str) -> list[tuple[int, Values]]:
        bars = []
        for bar in BAR.finditer(text):
            elapsed_s = read_clock_s(bar["elapsed"])
            if elapsed_s is not None and len(bar["step"]) < 12 and not DESCRIBED.search(text[: bar.start()]):
                bars.append((int(bar["step"]), {"elapsed_s": elapsed_s, "total": float(bar["total"][:12])}))
        return bars

    def _learn(self, text: str) -> None:
        """What a line says of the run. The iterations before keep what was said before them."""
        new = dict(find_values(SAID, text))
        for name, pattern in FLAGS:
            flag = pattern.search(text)
            if flag and not (name in self._said and flag[1] in ("False", "None")):
                new[name] = float(flag[1] in ("True", "full"))
        mesh = MESH.search(text)
        if mesh:
            new["gpus"] = float(prod(int(size) for size in mesh["sizes"].split(", ")))
        if any(self._said.get(name) != number for name, number in new.items()):
            self._said = self._said | new

    def _pause(self, kind: str, length_s: float, rank: str, at_ms: int | None) -> None:
        for steps in self._seen.values():
            if seen := steps.attempts[-1].iterations:
                add_pause(seen[-1].pauses, kind, length_s, rank, at_ms)

    def _begin(self, step: int | None, at_ms: int | None) -> None:
        for steps in self._seen.values():
            steps.begin(step, at_ms)


class _Attempts:
    """The iterations of one family, in attempts."""

    def __init__(self, family: LogFamily) -> None:
        self._again = family.again
        self.attempts = [Attempt()]
        self._last_of: dict[str, int] = {}  # the last step that each rank wrote

    def begin(self, step: int | None, at_ms: int | None) -> None:
        """A start of the run, from the checkpoint of this step and at this time where they are known."""
        if self.attempts[-1].iterations:
            self.attempts.append(Attempt())
            self._last_of = {}
        attempt = self.attempts[-1]
        attempt.from_step = attempt.from_step if step is None else step
        attempt.began_ms = at_ms if attempt.began_ms is None else attempt.began_ms

    def add(self, one: Iteration, rank: str) -> None:
        """An iteration, unless another rank or another line of it said it before."""
        seen = self.attempts[-1].iterations
        if self._again == "rank":
            key = f"{one.values.get('total')}"  # bars of evaluation are drawn between those of training
            if one.step > self._last_of.get(key, -1):
                self._last_of[key] = one.step
                seen.append(one)
            return
        own = self._last_of.get(rank)
        self._last_of[rank] = one.step
        if not seen or one.step > seen[-1].step:
            seen.append(one)
            return
        last = seen[-1]
        if own is None or one.step > own or (one.step == own and own != last.step):
            return  # a rank that is behind the one that was read
        same = one.step == last.step
        if same and (self._again == "metric" or one.values == last.values or _lie_close(last, one)):
            last.values = one.values | last.values
            return
        self.attempts.append(Attempt([one]))
        self._last_of = {rank: one.step}

    def choose_bar(self, said: Values) -> None:
        """Leave the bar of training, of several: the one with the steps that the log says, else the one that took longest."""
        longest: dict[float, float] = {}
        for attempt in self.attempts:
            for one in attempt.iterations:
                total = one.values["total"]
                longest[total] = max(longest.get(total, 0.0), one.values["elapsed_s"])
        steps = said.get("steps")
        if not longest or (steps is None and "trains" not in said):
            self.attempts = []
            return
        chosen = steps if steps in longest else max(longest, key=lambda total: longest[total])
        for attempt in self.attempts:
            attempt.iterations = [one for one in attempt.iterations if one.values["total"] == chosen]


def find_values(values: Iterable[Value], text: str) -> list[tuple[str, float]]:
    """Those of these values that a line has."""
    found = []
    for one in values:
        match = one.pattern.search(text)
        number = read_number(match[1]) if match else None
        if number is not None and number >= 0:
            found.append((one.name, number * one.scale))
    return found


def _lie_close(one: Iteration, other: Iteration) -> bool:
    return one.at_ms is not None and other.at_ms is not None and abs(other.at_ms - one.at_ms) <= _SAME_MS
