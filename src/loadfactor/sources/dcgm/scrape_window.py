"""Values of one time belong to one scrape of a GPU; scrapes are put into the order of time before they become rows."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.dcgm.known_series import KnownSeries
from loadfactor.sources.gpu_scrapes.fields import UNTIMED, FieldValues
from loadfactor.sources.gpu_scrapes.scrape_table import ScrapeColumns, ScrapeTable, TextGaps, Timeline, number_cells
from loadfactor.sources.parsing.steps import EXPORTER_STEP_S, is_within_reach, learn_step_of
from loadfactor.sources.parsing.times import EPOCH_MS_BELOW

SCRAPES_HELD: Final = 20_000  # of one GPU at one time each; a few hundred bytes a reading
_TIME_BITS: Final = EPOCH_MS_BELOW.bit_length()
_PLACES_MAX: Final = 1 << 63 - _TIME_BITS


class Drained(NamedTuple):
    """Scrapes that are taken out, by GPU in the order of time; and the times of all that were held, by GPU, to see its step in."""

    scrapes: ScrapeColumns
    times_ms: dict[int, NDArray[np.int64]]


class ScrapeWindow:
    """Holds the latest scrapes of all GPUs, so that rows come in the order of time and memory stays bounded."""

    def __init__(self, known: KnownSeries, gaps: TextGaps) -> None:
        self._known, self._gaps = known, gaps
        self._table = ScrapeTable(known, gaps)
        self._rows = _Codes()  # of the scrapes in the table, by place and time
        self._scrapes = _Codes()  # by GPU and time
        self._order: dict[int, int] = {}  # of GPUs, as they were first seen
        self._done_ms = np.empty(0, np.int64)  # by GPU
        self._limit = 0
        self.full = False  # True when the older half should be taken out

    @property
    def done_ms(self) -> NDArray[np.int64]:
        """Through which time the scrapes of each GPU were taken out."""
        return np.append(self._done_ms, np.full(len(self._known.gpus) - len(self._done_ms), UNTIMED))

    def feed(self, readings: FieldValues, texts: list[str]) -> int:
        """Adds values to their scrapes, in their order, until the window is full; how many it took."""
        if len(self._known.places) > _PLACES_MAX:
            raise SourceError(f"{texts[0]}: more than {_PLACES_MAX} devices; import fewer files at once")
        missing = len(self._known.gpus) - len(self._done_ms)
        self._done_ms = np.append(self._done_ms, np.full(missing, UNTIMED))
        cells, firsts = number_cells(readings.place, readings.at_ms)
        places = self._known.list_places()
        first = readings.pick(firsts)
        code, scrape = _encode(first.place, first.at_ms), _encode(first.gpu, first.at_ms)
        row = self._rows.find(code)
        is_new = (row < 0) & places.sized[first.place]
        is_scrape = is_new & _is_first(scrape, is_new) & (self._scrapes.find(scrape) < 0)
        full = len(self._scrapes) + np.cumsum(is_scrape) > max(SCRAPES_HELD, self._limit)
        stop, end = len(readings), len(firsts)
        if full.any():
            end = int(np.argmax(full)) + 1
            self.full, stop = True, int(firsts[end - 1]) + 1
        late = np.flatnonzero((row < 0) & (first.at_ms <= self._done_ms[first.gpu]))
        if len(late) and late[0] < end:
            self._refuse(readings, int(firsts[late[0]]), texts)
        opened = np.flatnonzero(is_new[:end])
        row[opened] = len(self._table) + np.arange(len(opened))
        self._rows.add(code[opened], row[opened])
        begun = np.flatnonzero(is_scrape[:end])
        self._scrapes.add(scrape[begun], np.zeros(len(begun), np.int64))
        for gpu in first.gpu[begun][np.sort(np.unique(first.gpu[begun], return_index=True)[1])].tolist():
            self._order.setdefault(gpu, len(self._order))
        self._table.open_rows(first.pick(opened))
        self._table.feed(readings.pick(slice(stop)), row[cells[:stop]], texts)
        return stop

    def drain(self, everything: bool) -> Drained:
        """Takes out the older half of the scrapes held, or all."""
        held = self._table.columns
        if not len(held):
            return Drained(held, {})
        times = _list_times(held)
        all_times = np.sort(np.concatenate(list(times.values())))
        until = all_times[-1 if everything else len(all_times) // 2]
        newest = np.zeros(len(self._known.gpus), np.int64)  # may still be being read
        newest[list(times)] = [of_gpu[-1] for of_gpu in times.values()]
        complete = (held.at_ms <= until) & (everything | (held.at_ms < newest[held.gpu]))
        taken = self._table.drain(complete)
        order = np.zeros(len(self._known.gpus), np.int64)
        order[list(self._order)] = list(self._order.values())
        taken = taken.pick(np.lexsort((np.arange(len(taken)), taken.at_ms, order[taken.gpu])))
        last = np.append(taken.gpu[1:] != taken.gpu[:-1], True)[: len(taken)]
        self._done_ms[taken.gpu[last]] = taken.at_ms[last]
        left = self._table.columns
        self._rows, self._scrapes = _Codes(), _Codes()
        self._rows.add(_encode(left.place, left.at_ms), np.arange(len(left)))
        codes = np.unique(_encode(left.gpu, left.at_ms))
        self._scrapes.add(codes, np.zeros(len(codes), np.int64))
        self._limit, self.full = 2 * len(self._scrapes), False
        return Drained(taken, times)

    def _refuse(self, readings: FieldValues, i: int, texts: list[str]) -> None:
        label, gpu, at_ms = texts[readings.text[i]], self._known.gpus.all[readings.gpu[i]], int(readings.at_ms[i])
        if at_ms == UNTIMED:
            raise SourceError(f"{label}: its lines carry no times; say when it was scraped with --at")
        when = datetime.fromtimestamp(at_ms / MS_PER_S, UTC)
        raise SourceError(
            f"{label}, line {readings.line[i]}: a value of {gpu} at {when:%Y-%m-%d %H:%M:%S} UTC stands far behind later "
            "ones; sort the lines by time, and import files that overlap one after the other"
        )


class _Codes:
    """Whole numbers, each with what it stands for, found by halving."""

    def __init__(self) -> None:
        self._codes = np.empty(0, np.int64)
        self._of = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._codes)

    def find(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The meaning of each of these, -1 where it is not here."""
        if not len(self):
            return np.full(len(codes), -1)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self) - 1)
        return np.where(self._codes[at] == codes, self._of[at], -1)

    def add(self, codes: NDArray[np.int64], of: NDArray[np.int64]) -> None:
        """Adds codes that are not here."""
        codes, of = np.concatenate([self._codes, codes]), np.concatenate([self._of, of])
        order = np.argsort(codes, kind="stable")
        self._codes, self._of = codes[order], of[order]


def _encode(number: NDArray[np.int32], at_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    return number.astype(np.int64) << _TIME_BITS | (at_ms & (1 << _TIME_BITS) - 1)


def _is_first(codes: NDArray[np.int64], among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """True for the first of equal codes, of those marked."""
    at = np.flatnonzero(among)
    found = np.zeros(len(codes), bool)
    found[at[np.unique(codes[at], return_index=True)[1]]] = True
    return found


def date_values(readings: FieldValues, options: ReadOptions, texts: list[str], gaps: TextGaps) -> FieldValues:
    """FieldValues without a time get one: as the caller says, a step later for each further scrape of their GPU."""
    untimed = readings.before >= 0
    if options.at_ms is None or not untimed.any():
        return readings
    at_ms = options.at_ms + np.rint(readings.before * (options.step_s or 0) * MS_PER_S).astype(np.int64)
    dated = replace(readings, at_ms=np.where(untimed, at_ms, readings.at_ms))
    if options.step_s is not None:
        return dated
    further = readings.before > 0
    for text, count in zip(*np.unique(readings.text[further], return_counts=True), strict=True):
        gaps.add(texts[text], "skipped: a further scrape without a time (say the step with --step)", int(count))
    return dated.pick(~further)


def _list_times(held: ScrapeColumns) -> dict[int, NDArray[np.int64]]:
    order = np.lexsort((held.at_ms, held.gpu))
    gpu, at_ms = held.gpu[order], held.at_ms[order]
    new_gpu = np.append(True, gpu[1:] != gpu[:-1])[: len(gpu)]
    keep = new_gpu | np.append(True, at_ms[1:] != at_ms[:-1])[: len(gpu)]
    gpu, at_ms = gpu[keep], at_ms[keep]
    starts = np.flatnonzero(np.append(True, gpu[1:] != gpu[:-1])[: len(gpu)])
    return dict(zip(gpu[starts].tolist(), np.split(at_ms, starts[1:]), strict=True))


class WindowSteps:
    """The step and the last scrape of each GPU."""

    def __init__(self, step_s: float | None) -> None:
        self._step_s = step_s
        self._step_ms: dict[int, int] = {}
        self._last_ms: dict[int, int] = {}

    def find_intervals(self, line: Timeline, times_ms: dict[int, NDArray[np.int64]]) -> None:
        """Steps and starts of the scrapes; `times_ms` are those known so far of each GPU, to see its step in."""
        steps: dict[bytes, int] = {}  # GPUs of one node are read at the same times
        begins = np.flatnonzero(line.is_first)
        for a, b in zip(begins.tolist(), [*begins[1:].tolist(), len(line.gpu)], strict=False):
            gpu = int(line.gpu[a])
            times = times_ms[gpu]
            if gpu not in self._step_ms or len(times) > 2:
                seen = times.tobytes()
                if seen not in steps:
                    steps[seen] = learn_step_of(times, self._step_s, EXPORTER_STEP_S)  # type: ignore[arg-type]
                self._step_ms[gpu] = steps[seen]
            at_ms, step_ms = line.at_ms[a:b], self._step_ms[gpu]
            before_ms = np.append(self._last_ms.get(gpu, -1), at_ms[:-1])
            near = (before_ms >= 0) & is_within_reach(at_ms, before_ms, step_ms)  # type: ignore[arg-type]
            line.start_ms[a:b] = np.where(near, before_ms, at_ms - step_ms)
            line.step_ms[a:b] = step_ms
            self._last_ms[gpu] = int(at_ms[-1])
