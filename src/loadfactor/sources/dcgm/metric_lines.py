"""Lines of Prometheus text → series, values and times: plain lines in columns, by Arrow; every other line by itself, carefully."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Input
from loadfactor.sources.dcgm.fields import BY_KEY, convert, is_large, may_be_blank, parse_value
from loadfactor.sources.dcgm.known_series import (
    FOREIGN,
    GPU,
    HOLDERS,
    KEY,
    KIND,
    LABELS,
    NAME,
    NOWHERE,
    PLACE,
    TITLE,
    UNKEPT,
    VALUE,
    KnownSeries,
)
from loadfactor.sources.gpu_scrapes.fields import READ_KEYS, UNTIMED, Field, FieldValues
from loadfactor.sources.gpu_scrapes.scrape_table import TextGaps
from loadfactor.sources.parsing.exposition import find_head_end
from loadfactor.sources.parsing.text_blocks import TextBlock, split_blocks
from loadfactor.sources.parsing.times import EPOCH_MS_BELOW, EPOCH_MS_DIGITS, SECONDS_BELOW, parse_epoch_ms

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LineBatch:
    """Lines as they were read. `at_ms` is UNTIMED and `values` NaN where a line has none; `series` as in KnownSeries."""

    series: NDArray[np.int32]
    values: NDArray[np.float64]  # in our units
    at_ms: NDArray[np.int64]
    lines: NDArray[np.int64]


def find_values(
    batch: LineBatch, facts: NDArray[np.int32], is_total: NDArray[np.bool_], before: NDArray[np.int64], text: int
) -> FieldValues:
    """The lines of a batch that hold values."""
    at = np.flatnonzero((facts[batch.series, KIND] == VALUE) & ~np.isnan(batch.values))
    of = facts[batch.series[at]]
    place, gpu, key, labels, holders, name = of.T[[PLACE, GPU, KEY, LABELS, HOLDERS, NAME]]
    texts = np.full(len(at), text, np.int32)
    return FieldValues(
        place,
        gpu,
        key,
        labels,
        holders,
        name,
        is_total[at],
        batch.values[at],
        batch.at_ms[at],
        before[at],
        batch.lines[at],
        texts,
    )


_WHOLE: Final = re.compile(r"\.\d{6}")  # how the exporter ends a fraction: nothing of it is missing
_OTHER: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*(?:\{.*\})?")  # a line of any exporter
SKIPPED: Final = {
    FOREIGN: "skipped: not a DCGM metric",
    UNKEPT: "skipped: a DCGM field that is not kept",
    NOWHERE: "skipped: a value that does not say of which GPU it is",
}
_PLAIN: Final = r"^-?[0-9]{1,19}(?:\.[0-9]{1,19})?(?:[eE][+-]?[0-9]{1,2})?$"
"""A number that Arrow reads as Python does."""
_LF, _HASH, _BRACE = b"\n#}"
_KEPT: Final = [BY_KEY.get(key, Field(key, ())) for key in READ_KEYS]
_MULTIPLY, _DIVIDE = np.array([(field.multiply, field.divide) for field in _KEPT]).T
_IS_LARGE, _IS_MASK = np.array([(is_large(field), field.mask) for field in _KEPT]).T


class MetricLine(NamedTuple):
    """A title, or a value of a series; the time is UNTIMED where the line has none, the value NaN where it has none."""

    series: int
    value: float
    at_ms: int


def sort_by_time(inputs: Sequence[Input]) -> Sequence[Input]:
    """Inputs by the first time in them, however rotation named them; those without times before, as they were named."""
    return sorted(inputs, key=_find_first_ms) if len(inputs) > 1 else inputs


class _Columns(NamedTuple):
    series: NDArray[np.int32]
    values: NDArray[np.float64]
    at_ms: Ints


class LineReader:
    """Parses the lines of one text. `found`, `unknown`, `timed`: one is of a DCGM field, is no exposition, has a time."""

    def __init__(self, label: str, known: KnownSeries, gaps: TextGaps) -> None:
        self.found = self.unknown = self.timed = False
        self._label, self._known, self._gaps = label, known, gaps

    def read(self, block: TextBlock) -> LineBatch:
        """The lines of a block that say something: plain ones in columns, each other by `parse`."""
        data = np.frombuffer(block.data, np.uint8)
        ends = np.flatnonzero(data == _LF)
        has_end = block.data.endswith(b"\n")
        if not has_end:
            ends = np.append(ends, len(data))
        starts = np.append(0, ends[:-1] + 1)
        lines = np.flatnonzero(ends > starts)
        starts, ends = starts[lines], ends[lines]
        braces, hashes = np.flatnonzero(data == _BRACE), np.flatnonzero(data == _HASH)
        until = np.searchsorted(braces, ends)
        is_title = data[starts] == _HASH
        has_labels = until - np.searchsorted(braces, starts) == 1
        is_plain = is_title | (has_labels & (np.searchsorted(hashes, starts) == np.searchsorted(hashes, ends)))
        if not has_end:
            is_plain[-1:] = False
        series = np.full(len(lines), -1, np.int32)
        values, at_ms = np.full(len(lines), np.nan), np.full(len(lines), UNTIMED)
        at = np.flatnonzero(is_plain)
        if len(at):
            heads_end = np.where(is_title[at], ends[at], np.append(braces, 0)[until[at] - 1] + 1)
            read = self._read_plain(block.data, starts[at], heads_end, ends[at])
            is_plain[at] = read.series >= 0
            series[at], values[at], at_ms[at] = read
        for i in np.flatnonzero(~is_plain).tolist():
            line = block.data[starts[i] : ends[i]].decode()
            parsed = self.parse(line, not has_end and i == len(lines) - 1)
            if parsed is not None:
                series[i], values[i], at_ms[i] = parsed
        says = series >= 0
        return LineBatch(series[says], values[says], at_ms[says], lines[says] + block.line)

    def _read_plain(self, data: bytes, starts: Ints, heads_end: Ints, ends: Ints) -> "_Columns":
        """Series, values and times of lines with one pair of braces, and of titles; the series is -1 where it takes `parse`."""
        n = len(starts)
        offsets = np.append(np.stack([starts, heads_end, ends], axis=1), len(data)).astype(np.int32)
        parts = pa.Array.from_buffers(pa.string(), 3 * n, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        heads = parts.take(pa.array(np.arange(0, 3 * n, 3))).dictionary_encode()
        numbers = np.array([self._known.identify(head) for head in heads.dictionary.to_pylist()], np.int32)
        odd = [self._known.facts[i, KIND] == FOREIGN and not is_name(self._known.heads[i]) for i in numbers.tolist()]
        index = heads.indices.to_numpy()
        series = numbers[index]
        kind, key = self._known.facts[series, KIND], self._known.facts[series, KEY]

        words = pc.ascii_split_whitespace(pc.ascii_ltrim_whitespace(parts.take(pa.array(np.arange(1, 3 * n, 3)))))
        first, count = words.offsets.to_numpy()[:-1], np.diff(words.offsets.to_numpy())
        timed, valued = count == 2, kind != TITLE
        values, times = np.full(n, np.nan), np.full(n, np.nan)
        values[valued] = _read_numbers(words.values.take(pa.array(first[valued])))
        times[timed] = _read_numbers(words.values.take(pa.array(first[timed] + 1)))
        with np.errstate(invalid="ignore", over="ignore"):
            unclear = may_be_blank(values, _IS_LARGE[key]) | (
                _IS_MASK[key] & ((values < 0) | (values != np.floor(values)))
            )
            is_plain = (kind == TITLE) | (
                (count <= 2)
                & np.isfinite(values)
                & ~((kind == VALUE) & unclear)
                & (~timed | ((times >= 0) & (times < EPOCH_MS_BELOW)))
            )
            at_ms = np.where(times >= SECONDS_BELOW, times, np.rint(times * MS_PER_S))
        is_plain &= ~np.array(odd, bool)[index]

        for skipped, count in zip(
            SKIPPED, np.bincount(kind[is_plain], minlength=VALUE + 1)[list(SKIPPED)].tolist(), strict=True
        ):
            self.skip(SKIPPED[skipped], count)
        of_dcgm = is_plain & (kind > FOREIGN)
        self.found = self.found or bool(of_dcgm.any())
        self.timed = self.timed or bool((of_dcgm & timed).any())
        values = np.where(kind == VALUE, convert(values, _MULTIPLY[key], _DIVIDE[key]), np.nan)
        return _Columns(
            np.where(is_plain, series, -1), values, np.where(timed & is_plain, at_ms, UNTIMED).astype(np.int64)
        )

    def parse(self, line: str, last: bool) -> MetricLine | None:
        """Series, value and time of a line, or None; `last` where it has no end."""
        if line[:1] == "#":
            return MetricLine(self._known.identify(line), math.nan, UNTIMED)
        if not line or line.isspace():
            return None
        cut = find_head_end(line)
        head, rest = line[:cut], line[cut:].partition("#")[0].split()  # behind the mark stands an exemplar
        series = self._known.identify(head)
        facts = self._known.facts[series]
        kind = int(facts[KIND])
        if kind == FOREIGN or not 1 <= len(rest) <= 2:
            self.unknown = self.unknown or not (rest and is_name(head) and _is_number(rest[0]))
            self.skip(SKIPPED[FOREIGN])
            return None
        self.found = True
        self.timed = self.timed or len(rest) == 2
        nothing = MetricLine(series, math.nan, UNTIMED if len(rest) == 1 else 0)
        if kind in SKIPPED:
            self.skip(SKIPPED[kind])
            return nothing
        if last:  # saved scrapes often lack the last line end; logs are cut
            self.skip("last line without an end: it may be cut off")
            if len(rest[1]) != EPOCH_MS_DIGITS if len(rest) == 2 else self.timed or not _WHOLE.search(rest[0][-7:]):
                return nothing
        value = parse_value(rest[0], BY_KEY[READ_KEYS[facts[KEY]]])
        if isinstance(value, str):
            self.skip(f"{value} in {self._known.names.all[facts[NAME]]}")
            return nothing
        if len(rest) == 1:
            return MetricLine(series, value, UNTIMED)
        at_ms = parse_epoch_ms(rest[1])
        if at_ms is None:
            self.skip("skipped: a value with an unreadable time")
            return nothing
        return MetricLine(series, value, at_ms)

    def skip(self, what: str, count: int = 1) -> None:
        """So many lines are no measurement."""
        self._gaps.add(self._label, what, count)


def _read_numbers(texts: pa.Array) -> NDArray[np.float64]:
    """Numbers in digits; NaN for whatever else."""
    try:
        numbers = pc.cast(texts, pa.float64())
    except pa.ArrowInvalid:
        numbers = pc.cast(pc.if_else(pc.match_substring_regex(texts, _PLAIN), texts, None), pa.float64())
    return numbers.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def is_name(head: str) -> bool:
    """True when this is the name, with labels or without, of a metric of any exporter."""
    return _OTHER.fullmatch(head) is not None


def _find_first_ms(source: Input) -> int:
    """The first time in a text, 0 when its first lines have none; what is wrong with it is reported when it is read."""
    try:
        for block in split_blocks(source, 1):
            for line in block.data.decode().split("\n"):
                rest = line[find_head_end(line) :].partition("#")[0].split() if line[:1] != "#" else []
                if rest:
                    return (parse_epoch_ms(rest[1]) or 0) if len(rest) == 2 else 0
    except SourceError:
        pass
    return 0


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
