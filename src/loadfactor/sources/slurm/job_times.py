"""Times of jobs → instants: local times in the zone that the caller names, seconds since 1970, or times with their offset.

sacct writes local times without an offset unless TZ or SLURM_TIME_FORMAT say otherwise, so the hour in which clocks are set back
comes twice. Which one is meant follows, where it does, from the order of a job's own times and from how long it ran.
"""

from collections.abc import Mapping
from datetime import UTC, tzinfo
from itertools import pairwise, product
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.base.units import MS_PER_S, S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.sources.parsing.cells import find_failing, quote
from loadfactor.sources.parsing.times import LocalClock
from loadfactor.sources.slurm.job_table import INSTANTS, NEVER
from loadfactor.sources.slurm.notes import Notes

GUESSED: Final = "local times in the hour that comes twice, which nothing tells apart: taken for the first of the two"
ZONE_REMEDY: Final = "name it with --timezone Europe/Berlin, or write UTC: TZ=UTC sacct …, SLURM_TIME_FORMAT=%s"
_LOCAL: Final = pa.timestamp("ms")
_ZONED: Final = pa.timestamp("ms", "UTC")
_MOST_SECONDS: Final = 2**33  # what stands for a time that is not set lies below
Pair = tuple[NDArray[np.int64], NDArray[np.int64]]


class JobTimes:
    """Reads the columns of times of one input."""

    def __init__(self, label: str, zone: tzinfo | None, notes: Notes) -> None:
        self._label, self._notes = label, notes
        self._clock = LocalClock(zone) if zone is not None else None
        self._is_utc = zone is UTC or str(zone) == "UTC"

    def convert(
        self, texts: Mapping[str, pa.Array], lines: NDArray[np.int64], ran_ms: pa.Array | None
    ) -> dict[str, pa.Array]:
        """Columns of text by name (as INSTANTS) as int64 ms; null where it has not happened.

        `ran_ms` is how long each job lasted from start to end, where that is known. SourceError names the line of a text that is
        no time, of a local time while no zone is named, and of one that the zone does not have.
        """
        pairs = {name: self._read(name, column, lines) for name, column in texts.items()}
        known = {name: column.is_valid().to_numpy(zero_copy_only=False) for name, (column, _) in pairs.items()}
        plain: dict[str, Pair] = {}
        for name, (column, is_local) in pairs.items():
            values = column.fill_null(0).to_numpy(zero_copy_only=False)
            plain[name] = self._place(name, values, known[name], lines) if is_local else (values, values)
        chosen = self._tell_apart(plain, known, lines, ran_ms)
        return {
            name: pa.array(values, mask=~(known[name] & (values >= EARLIEST_MS) & (values <= LATEST_MS)))
            for name, values in chosen.items()
        }

    def _read(self, name: str, column: pa.Array, lines: NDArray[np.int64]) -> tuple[pa.Array, bool]:
        """Milliseconds since 1970, and whether they are of the local clock."""
        never = pc.is_in(pc.utf8_lower(column), pa.array(NEVER))
        texts = pc.if_else(never, pa.scalar(None, pa.string()), column)
        if texts.null_count == len(texts):
            return pa.nulls(len(texts), pa.int64()), False
        try:
            return pc.cast(pc.cast(texts, _LOCAL), pa.int64()), True
        except pa.ArrowInvalid:
            pass
        try:
            return self._read_seconds(name, pc.cast(texts, pa.int64()), lines), False
        except pa.ArrowInvalid:
            pass
        first = texts.drop_null()[0].as_py()
        target = pa.int64() if first.isdigit() else _LOCAL
        try:
            if not first.isdigit():
                return pc.cast(pc.cast(texts, _ZONED), pa.int64()), False
        except pa.ArrowInvalid:
            target = _ZONED if first[10:].endswith("Z") or "+" in first or "-" in first[10:] else _LOCAL
        index = find_failing(texts, lambda part: pc.cast(part, target))
        raise SourceError(
            f"{self._label}, line {lines[index]}: {name} {quote(texts[index].as_py())} is no time as the lines above have it; "
            "write 2026-05-01T12:00:00 or seconds since 1970 throughout"
        )

    def _read_seconds(self, name: str, seconds: pa.Array, lines: NDArray[np.int64]) -> pa.Array:
        """Seconds since 1970; 0 is no time."""
        values = seconds.fill_null(0).to_numpy(zero_copy_only=False)
        wrong = ((values < EARLIEST_MS // MS_PER_S) & (values != 0)) | (values > _MOST_SECONDS)
        if wrong.any():
            index = int(wrong.argmax())
            raise SourceError(
                f"{self._label}, line {lines[index]}: {name} {values[index]} is no time in seconds since 1970"
            )
        return pa.array(values * MS_PER_S, mask=(values == 0))

    def _place(self, name: str, local: NDArray[np.int64], known: NDArray[np.bool_], lines: NDArray[np.int64]) -> Pair:
        """Both instants that each local time can mean."""
        if self._clock is None:
            index = int(known.argmax())
            written = str(np.datetime64(int(local[index]), "s" if local[index] % MS_PER_S else "ms"))[:19]
            raise SourceError(f"{self._label}, line {lines[index]}: {name} {written} has no time zone; {ZONE_REMEDY}")
        if self._is_utc:
            return local, local
        try:
            first, second = self._clock.find_candidates(local)
        except (OverflowError, ValueError):
            raise SourceError(f"{self._label}: {name} holds years that no calendar reaches") from None
        skipped = (first > second) & known
        if skipped.any():
            index = int(skipped.argmax())
            written = str(np.datetime64(int(local[index]), "ms"))[:19]
            raise SourceError(
                f"{self._label}, line {lines[index]}: {name} {written} does not exist in {self._clock.zone}, where the clock was "
                "set forward; is that the zone the times were written in?"
            )
        return first, second

    def _tell_apart(
        self,
        plain: dict[str, Pair],
        known: Mapping[str, NDArray[np.bool_]],
        lines: NDArray[np.int64],
        ran_ms: pa.Array | None,
    ) -> dict[str, NDArray[np.int64]]:
        """One of both instants of each time: the one that fits the others of its job, else the first."""
        out = {name: first.copy() for name, (first, _) in plain.items()}
        twice = {name: (second > first) & known[name] for name, (first, second) in plain.items()}
        rows: list[int] = np.flatnonzero(np.logical_or.reduce(list(twice.values()))).tolist() if twice else []
        guessed = 0
        order = [name for name in INSTANTS if name in plain]
        for row in rows:
            choices = [
                (int(plain[n][0][row]), int(plain[n][1][row])) if twice[n][row] else (int(plain[n][0][row]),)
                for n in order
            ]
            ran = ran_ms[int(row)].as_py() if ran_ms is not None else None
            fitting = [c for c in product(*choices) if _fits(dict(zip(order, c, strict=True)), known, row, ran)]
            guessed += len(fitting) != 1
            for name, value in zip(order, fitting[0] if fitting else [c[0] for c in choices], strict=True):
                out[name][row] = value
        self._notes.add(self._label, GUESSED, guessed, int(lines[rows[0]]) if guessed else None)
        return out


def _fits(times: Mapping[str, int], known: Mapping[str, NDArray[np.bool_]], row: int, ran_ms: int | None) -> bool:
    """Whether a job's times are in order and as far apart as it ran."""
    there = [times[name] for name in INSTANTS if name in times and known[name][row]]
    if any(later < earlier for earlier, later in pairwise(there)):
        return False
    if ran_ms is None or not all(name in times and known[name][row] for name in ("started", "ended")):
        return True
    return times["ended"] - times["started"] == ran_ms


def parse_elapsed_s(text: str | None) -> int | None:
    """Seconds of `1-02:03:04`, `02:03:04`, `03:04`, or of a plain number of seconds; None where it is none.

    >>> parse_elapsed_s("1-02:03:04"), parse_elapsed_s("00:00:09"), parse_elapsed_s("90"), parse_elapsed_s("Unknown")
    (93784, 9, 90, None)
    """
    days, dash, clock = (text or "").strip().rpartition("-")
    parts = clock.partition(".")[0].split(":")
    if not all(part.isdigit() for part in [*parts, *([days] if dash else [])]) or len(parts) > len(_CLOCK):
        return None
    seconds = sum(int(part) * unit for part, unit in zip(reversed(parts), _CLOCK, strict=False))
    return seconds + (int(days) * S_PER_DAY if dash else 0)


_CLOCK: Final[tuple[int, ...]] = (1, S_PER_MIN, S_PER_HOUR)
