"""The reader of a console's output: lines become iterations and attempts, by the tables of `families`."""

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import tzinfo
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB, NS_PER_MS
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.text_blocks import join_pieces
from loadfactor.sources.parsing.times import OFFSET, LocalClock, parse_stamp
from loadfactor.sources.training_logs.families import (
    BAR,
    BARS,
    BEGINS,
    DESCRIBED,
    FAMILIES,
    FLAGS,
    MESH,
    REPORTED,
    REPORTED_HINT,
    RESUME_HINT,
    RESUMES,
    LogFamily,
    Value,
    read_clock_s,
    read_number,
)
from loadfactor.sources.training_logs.iteration import (
    EVALUATION,
    SECTION_HINT,
    SECTIONS,
    Attempt,
    Iteration,
    Iterations,
    RunLog,
    Values,
    add_pause,
)

_SAME_MS: Final = 2_000  # two lines of one step that lie no further apart are of one step, not of a restart
_STEP_MAX: Final = 10**12
_WITHIN: Final = 100  # characters: what stands later in a line is data
_ISO: Final = re.compile(
    rf"(?<!\d)\d{{4}}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?(?: ?UTC\b| ?{OFFSET}(?![\d-]))?"
)
_COMPACT: Final = re.compile(r"(?<!\d)(20\d\d)(\d\d)(\d\d)[ T-](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)")
_AMERICAN: Final = re.compile(r"(?<!\d)(\d\d)/(\d\d)/(\d{4})[ ,]+(\d\d:\d\d:\d\d)")
_CTIME: Final = re.compile(
    r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ([A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d) (?:([A-Z]{3,4}) )?(\d{4})\b"
)
_UNIVERSAL: Final = ("UTC", "GMT")
_COLOURS: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_])")
_ENDS: Final = re.compile(r"[\r\n]+")
_RANK: Final = re.compile(
    r"\s*(\[(?:default|rank|Rank )\s*\d+\]:?|\(?\w+, pid=\d+(?:, ip=[\d.]+)?\)|\d{1,5}:(?=\s))\s*"
)
_LONGEST: Final = BYTES_PER_MIB
"""Of a longer line only the end is read: no line of an iteration is so long."""
_NUMBER_LAST: Final = re.compile(r"\d[.,]?$")
_LIMIT_BYTES: Final = 256 * BYTES_PER_MIB
_ITERATION_TIME: Final = "iteration-time"
_ROUNDED: Final = 0.001
"""The last digit of `train_samples_per_second`."""


class LogLine(NamedTuple):
    """A line, and the rank that wrote it, where it says so."""

    text: str
    rank: str


class TextLog:
    """One log while its lines are read; `finish` gives what it is a log of."""

    def __init__(self, where: str, zone: tzinfo) -> None:
        self._where = where
        self.times = LineTimes(zone)
        self._of_run: Values = {}
        self._clock_ms: int | None = None
        self.epochs_alone = False
        """Whether a line says an epoch and nothing how many steps an epoch has."""
        self.ends_in_number = False
        """Whether the last line has no end and stops at a number, which may lack digits."""
        self._seen = {family.name: _Attempts(family) for family in FAMILIES}

    def read(self, source: Input) -> None:
        """All lines of a log."""
        for line in split_log(source):
            self.take(line)
            self.ends_in_number = (
                _NUMBER_LAST.search(line.text) is not None
            )  # what is left behind the last end comes last

    def take(self, line: LogLine) -> None:
        """One line."""
        text = line.text
        at_ms = self.times.find(text)
        for family in FAMILIES:
            if family.hint in text:
                self._take_steps(family, line, at_ms)
            if family.after_hint and family.after_hint in text:
                self._seen[family.name].complete(find_values(family.after, text))
        if SECTION_HINT.search(text):
            for kind, length_s in find_values(SECTIONS, text):
                for steps in self._seen.values():
                    if seen := steps.attempts[-1].iterations:
                        add_pause(seen[-1].pauses, kind, length_s, line.rank, at_ms)
        if at_ms is not None:
            self._clock_ms = at_ms
        if REPORTED_HINT.search(text):
            self._learn(text)
        if RESUME_HINT.search(text):
            step = next((v for _, v in find_values(RESUMES, text)), None)
            if step is not None:
                self._begin(int(step), None)
        if BEGINS.search(text):
            self._begin(None, self._clock_ms if at_ms is None else at_ms)

    def finish(self) -> RunLog | None:
        """The log of the first family of `FAMILIES` that any line was of; None where there is none."""
        self._seen[BARS.name].choose_bar(self._of_run)
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
            one = Iteration(step, of_line, self._of_run, at_ms, self._clock_ms)
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
            if "elapsed" in found.groupdict() and (elapsed_s := read_clock_s(found["elapsed"])) is not None:
                values["elapsed_s"] = elapsed_s
            return step + line.offset, values
        return None

    def _step_of(self, found: re.Match[str]) -> int | None:
        if "step" in found.groupdict():
            passed = found.groupdict().get("passed") or "0"
            if max(len(found["step"]), len(passed)) >= len(str(_STEP_MAX)):
                return None
            return int(found["step"]) + int(int(passed) * self._of_run.get("epoch_steps", 0))
        steps, epochs, epoch = self._of_run.get("steps"), self._of_run.get("epochs"), read_number(found["epoch"])
        if steps and epochs:
            return None if epoch is None else round(epoch * steps / epochs)
        self.epochs_alone = True
        return None

    def _find_bars(self, text: str) -> list[tuple[int, Values]]:
        bars = []
        for bar in BAR.finditer(text):
            elapsed_s = read_clock_s(bar["elapsed"])
            if elapsed_s is not None and len(bar["step"]) < 12 and not DESCRIBED.search(text[: bar.start()]):
                bars.append((int(bar["step"]), {"elapsed_s": elapsed_s, "total": float(bar["total"][:12])}))
        return bars

    def _learn(self, text: str) -> None:
        """Values of the run in a line. The iterations before keep those that were known before them."""
        new = dict(find_values(REPORTED, text))
        for name, pattern in FLAGS:
            flag = pattern.search(text)
            if flag and not (name in self._of_run and flag[1] in ("False", "false", "None")):
                new[name] = float(flag[1].lower() not in ("false", "none"))
        mesh = MESH.search(text)
        if mesh:
            new["gpus"] = float(prod(int(size) for size in mesh["sizes"].split(", ")))
        if any(self._of_run.get(name) != number for name, number in new.items()):
            self._of_run = self._of_run | new

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
        """An iteration, unless another rank or another line of it wrote it before."""
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
        if same and (
            self._again == "metric"
            or one.values == last.values
            or (last.at_ms is not None and one.at_ms is not None and abs(one.at_ms - last.at_ms) <= _SAME_MS)
        ):
            last.values = one.values | last.values
            return
        self.attempts.append(Attempt(Iterations([one])))
        self._last_of = {rank: one.step}

    def complete(self, values: Iterable[tuple[str, float]]) -> None:
        """Values of the last iteration that lines behind it say."""
        if seen := self.attempts[-1].iterations:
            seen[-1].values = dict(values) | seen[-1].values

    def choose_bar(self, of_run: Values) -> None:
        """Leave the bar of training, of several: the one with the steps that the log says, else the one that took longest."""
        longest: dict[float, float] = {}
        for attempt in self.attempts:
            for one in attempt.iterations:
                total = one.values["total"]
                longest[total] = max(longest.get(total, 0.0), one.values["elapsed_s"])
        steps = of_run.get("steps")
        if not longest or (steps is None and "trains" not in of_run):
            self.attempts = []
            return
        chosen = steps if steps in longest else max(longest, key=lambda total: longest[total])
        for attempt in self.attempts:
            attempt.iterations = Iterations(one for one in attempt.iterations if one.values["total"] == chosen)


def find_values(values: Iterable[Value], text: str) -> list[tuple[str, float]]:
    """Those of these values that a line has."""
    found = []
    lowered = text.lower()
    for one in values:
        if one.hint not in lowered:
            continue
        match = one.pattern.search(text)
        number = read_number(match[1]) if match else None
        if number is not None and number >= 0:
            found.append((one.name, number * one.scale))
    return found


class LineTimes:
    """The times of the lines of one log, in their order; local ones are of `zone`."""

    def __init__(self, zone: tzinfo) -> None:
        self._clock = LocalClock(zone)
        self.has_local = False

    def find(self, line: str) -> int | None:
        """The instant a line says, in ms since 1970 UTC.

        >>> from datetime import UTC
        >>> times = LineTimes(UTC)
        >>> times.find("[after megatron is initialized] datetime: 2021-05-23 08:23:57 ")
        1621758237000
        >>> times.find("05/23/2021 08:23:57 - INFO - root") == times.find("Sun May 23 08:23:57 2021")
        True
        >>> times.find("[20251202 06:56:28][rank-7/8][INFO ] iteration 4408/ 5000 |")
        1764658588000
        """
        begin = line[:_WITHIN]
        if begin.count(":") < 2:
            return None
        iso = _ISO.search(begin)
        if iso:
            return self._place(iso[0])
        found = _COMPACT.search(begin)
        if found:
            return self._place(f"{found[1]}-{found[2]}-{found[3]} {found[4]}")
        found = _AMERICAN.search(begin)
        if found:
            month, day = (found[1], found[2]) if int(found[1]) <= 12 else (found[2], found[1])
            return self._place(f"{found[3]}-{month}-{day} {found[4]}")
        found = _CTIME.search(begin)
        if found and found[2] in _UNIVERSAL:
            stamp = parse_stamp(f"{found[1]} {found[3]}")
            return stamp.at_ns // NS_PER_MS if stamp else None
        return self._place(f"{found[1]} {found[3]}") if found else None

    def _place(self, text: str) -> int | None:
        stamp = parse_stamp(text)
        if stamp is None:
            return None
        at_ms = stamp.at_ns // NS_PER_MS
        if stamp.zoned:
            return at_ms
        self.has_local = True
        utc, exists = self._clock.convert(np.array([at_ms], dtype=np.int64))
        return int(utc[0]) if exists[0] else None


def split_log(source: Input) -> Iterator[LogLine]:
    """The lines of a log. A bar that was drawn over itself is as many lines; what follows the last end is one, too, if empty."""
    rest = ""
    for text in _decode(source):
        *lines, rest = _ENDS.split(rest + text)
        rest = rest[-_LONGEST:]
        for line in lines:
            yield _clean(line)
    yield _clean(rest)


def _clean(line: str) -> LogLine:
    if "\x1b" in line:
        line = _COLOURS.sub("", line)
    found = _RANK.match(line)
    return LogLine(line[found.end() :], found[1]) if found else LogLine(line, "")


def _decode(source: Input) -> Iterator[str]:
    decoder = None
    for chunk in source.chunks:
        if decoder is None:
            wide = chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
            decoder = codecs.getincrementaldecoder("utf-16" if wide else "utf-8-sig")("replace")
        yield decoder.decode(chunk)
    if decoder is not None:
        yield decoder.decode(b"", final=True)


def read_json_log(source: Input) -> RunLog | None:
    """The run that the JSON tells of; None where the input is no JSON of these kinds. SourceError where it is damaged."""
    begin = next((piece for piece in source.chunks if piece), b"")
    if _HISTORY.search(begin.decode("utf-8", "replace")):
        return _read_trainer_state(source)
    if _is_line_of_json(begin):
        return None
    text = join_pieces(source.label, source.chunks, _LIMIT_BYTES, "check that it is the right file")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        if b'"log_history"' not in text:
            return None  # lines of JSON, or a log that begins with a brace
        raise SourceError(f"{source.label} is not JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(parsed, dict):
        return None
    if isinstance(parsed.get("log_history"), list):
        return _read_trainer_state(source)
    if isinstance(parsed.get(_ITERATION_TIME), dict) and isinstance(parsed[_ITERATION_TIME].get("values"), dict):
        return _read_golden_values(source.label, parsed[_ITERATION_TIME])
    return None


def _is_line_of_json(begin: bytes) -> bool:
    """Whether more follows after a first line that is JSON by itself."""
    line, _, rest = begin.partition(b"\n")
    try:
        return bool(rest.strip()) and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _split_state(source: Input) -> Iterator[dict[str, Any]]:
    """The entries of `log_history` one by one, then the state around them. SourceError where it is no JSON."""
    decode, pieces = codecs.getincrementaldecoder("utf-8-sig")("replace"), iter(source.chunks)
    text, head, at = "", "", 0
    scan = json.JSONDecoder().raw_decode
    try:
        for piece in pieces:
            text += decode.decode(piece)
            if begin := _HISTORY.search(text):
                head, at = text[: begin.end()], begin.end()
                break
        while True:
            at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
            if text[at : at + 1] == "]":
                break
            try:
                entry, at = scan(text, at)
            except ValueError:
                more = next(pieces, None)
                if more is None or len(text) - at > _LONGEST_ENTRY:
                    raise
                text, at = text[at:] + decode.decode(more), 0
                continue
            if isinstance(entry, dict):
                yield entry
        rest = "".join([text[at:], *map(decode.decode, pieces)])
        yield json.loads(head + rest)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{source.label} is not JSON: {str(error).splitlines()[0]}") from None


_HISTORY: Final = re.compile(r'"log_history"\s*:\s*\[')
_BETWEEN: Final = re.compile(r"[\s,]*")
_LONGEST_ENTRY: Final = 16 * BYTES_PER_MIB


def _read_trainer_state(source: Input) -> RunLog:
    """Lines of `log_history` with a loss or an evaluation, and the last, which says how long training took, of how many samples."""
    end: dict[str, Any] = {}
    state: dict[str, Any] = {}
    last_step, is_padded = 0, False
    for state in _split_state(source):  # the last one is the state
        step = _number(state.get("step"))
        if step is not None and "log_history" not in state:
            end = state if "train_runtime" in state else end
            last_step = max(last_step, int(step)) if _tells_of_steps(state) else last_step
            is_padded |= _tells_of_steps(state) and _read_padded(state) is not None
    last = int(_number(end.get("step")) or 0)
    runtime_s, samples_per_s = _number(end.get("train_runtime")), _number(end.get("train_samples_per_second"))
    of_run: Values = {}
    if runtime_s and samples_per_s and last:
        is_exact = _ROUNDED * runtime_s < 1  # the rate is rounded, so that samples of a longer training are an estimate
        samples = runtime_s * samples_per_s
        of_run["step_samples" if is_exact else "guessed_samples"] = (round(samples) if is_exact else samples) / last
    sums = {"flops": _number(end.get("total_flos")) or _number(state.get("total_flos"))}
    if not is_padded:
        sums["padded_tokens"] = _number(state.get("num_input_tokens_seen"))
    iterations = Iterations()
    for entry in _split_state(source):
        number = _number(entry.get("step"))
        if number is None or "log_history" in entry:
            continue
        step = int(number)
        if "eval_runtime" in entry and iterations:
            add_pause(iterations[-1].pauses, EVALUATION, _number(entry["eval_runtime"]) or 0.0)
        if not _tells_of_steps(entry) or (iterations and step <= iterations[-1].step):
            continue
        found = {
            "epoch": _number(entry.get("epoch")),
            "tokens": _number(entry.get("num_tokens")),
            "padded_tokens": _read_padded(entry),
            "step_s": runtime_s / last if runtime_s and last else None,
        }
        found |= {
            name: total * step / last_step for name, total in sums.items() if total
        }  # the state keeps the sum alone
        iterations.append(Iteration(step, {k: v for k, v in found.items() if v is not None}, of_run))
    return RunLog(source.label, "trainer_state.json", [Attempt(iterations, 0)] if iterations else [])


def _tells_of_steps(entry: Mapping[str, Any]) -> bool:
    return not {"loss", "num_tokens", "train_runtime"}.isdisjoint(entry)


def _read_padded(entry: Mapping[str, Any]) -> float | None:
    return _number(entry.get("num_input_tokens_seen", entry.get("tokens/total")))


def _read_golden_values(where: str, times: dict[str, Any]) -> RunLog:
    """Seconds of an iteration at some of the steps; they stand for the steps since the one before."""
    steps = sorted((int(step), number) for step, number in times["values"].items() if step.isdigit())
    iterations = Iterations(
        Iteration(step, {} if (seconds := _number(number)) is None else {"step_s": seconds}, {})
        for step, number in steps
        if step > 0
    )
    return RunLog(where, "Megatron golden values", [Attempt(iterations, 0)] if iterations else [])


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    number = read_number(str(value))
    return number if number is not None and number >= 0 else None
