"""One line of a progress file: which process it is of, work, an epoch, FLOPs, a section; checked, in numbers that can be true."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, PlainSerializer

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import EARLIEST_MS, LATEST_MS, MOST_AMOUNT
from loadfactor.base.units import MS_PER_S, S_PER_MIN, US_PER_S

FORMAT: Final = 1
UNITS: Final = {
    "samples": "train_sample",
    "tokens": "train_token",
    "padded_tokens": "padded_token",
    "model_flops": "model_flop",
}
"""Amounts of a record, and the units of `progress` they are."""
MOST_STEPS: Final = 1_000_000
"""Of one record: nobody makes more in a tenth of a second."""
_LONGEST_TEXT: Final = 200
_LONGEST_NETWORK: Final = 20_000
_MOST_DEVICES: Final = 64
"""Of one process: no machine has more."""
_MOST: Final = 2**53
_MOST_WORK: Final = MOST_AMOUNT / MOST_STEPS
"""Of the steps of one record together: what a run makes in a minute is still an amount."""
Amount = float | tuple[float | None, ...]
"""Of each step alike, or one a step."""
Span = tuple[int, int]
"""Numbers of steps, first and last."""
STEP: Final = "step"
BIN_MS: Final = S_PER_MIN * MS_PER_S


@dataclass(frozen=True)
class Begin:
    """Which process a file is of. `lineage`: the run over its restarts."""

    file: str
    at_ms: int
    job: str
    lineage: str
    attempt: int | None
    replica: str
    is_rank: bool
    """Amounts are what this rank did, rather than all of them."""
    rank: int
    experiment: str | None = None
    user: str | None = None


@dataclass(frozen=True)
class Work:
    """Steps that were made in an interval: `steps` of them were over, with numbers `first` … `last` where they have any."""

    from_ms: int
    to_ms: int
    first: int | None
    last: int | None
    steps: int
    amounts: dict[str, Amount]
    """By unit."""
    is_made: bool = True
    """Made in this interval; false for what is only reported in it of steps before."""


@dataclass(frozen=True)
class Epoch:
    """An epoch that ended; `step` is the last one before."""

    at_ms: int
    number: int | None
    step: int | None


@dataclass(frozen=True)
class SectionTime:
    """Time in which no step advanced; `length_ms` of several put together is less than from start to end."""

    from_ms: int
    to_ms: int
    length_ms: int
    kind: str


@dataclass(frozen=True)
class SignOfLife:
    """The process was alive, or ended."""

    at_ms: int
    dropped: int = 0


@dataclass(frozen=True)
class Facts:
    """What a process found out: the GPUs that it works on, by their UUIDs, or what is known of its network."""

    at_ms: int
    devices: tuple[str, ...] = ()
    network: dict[str, Any] = field(default_factory=dict)


Record = Begin | Work | Epoch | SectionTime | SignOfLife | Facts


def read_line(line: bytes | str) -> dict[str, Any]:
    """The object of a line. Raises SourceError where it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SourceError("is not JSON") from error
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        raise SourceError("is no record: it has no kind")
    return record


def read_record(record: dict[str, Any]) -> Record | None:
    """The meaning of a record; None for a kind that a later version writes. Raises SourceError naming what cannot be."""
    kind = record["kind"]
    if kind == "begin":
        return _read_begin(record)
    if kind == "work":
        return _read_work(record)
    if kind == "flops":
        return _read_flops(record)
    if kind == "epoch":
        return Epoch(_instant(record, "at"), _count(record, "epoch"), _count(record, "step"))
    if kind == "section":
        from_ms, to_ms = _interval(record)
        return SectionTime(
            from_ms,
            to_ms,
            min(to_ms - from_ms, round((_amount(record, "us") or 0) * MS_PER_S / US_PER_S)),
            _text(record, "section"),
        )
    if kind in ("devices", "network"):
        return _read_facts(record)
    if kind in ("alive", "end"):
        return SignOfLife(_instant(record, "at"), _count(record, "dropped_calls") or 0)
    return None


def _read_begin(record: dict[str, Any]) -> Begin:
    if record.get("format") != FORMAT:
        raise SourceError(f"has format {str(record.get('format'))[:20]}, this version of loadfactor reads {FORMAT}")
    job, is_rank = _text(record, "job"), record.get("counts") == "rank"
    rank = _count(record, "rank") or 0
    host, pid = record.get("host") or "?", _count(record, "pid") or 0
    lineage = _text(record, "run") if record.get("run") else job
    at_ms, attempt = _instant(record, "at"), _count(record, "attempt")
    replica = f"{str(host)[:_LONGEST_TEXT]}:{pid}" + (
        f":{rank}" if is_rank else ""
    )  # containers of a host may share pids
    named = (_text(record, name) if record.get(name) else None for name in ("experiment", "user"))
    return Begin(_text(record, "id"), at_ms, job, lineage, attempt, replica, is_rank, rank, *named)


def _read_work(record: dict[str, Any]) -> Work:
    from_ms, to_ms = _interval(record)
    steps, first = _count(record, "steps"), _count(record, "step")
    if steps is None or steps > MOST_STEPS:
        raise SourceError(f"steps {str(record.get('steps'))[:20]} is no number of steps")
    amounts = {
        unit: amount for name, unit in UNITS.items() if (amount := _amounts(record, name, max(steps, 1))) is not None
    }
    for name, unit in UNITS.items():
        if unit in amounts and sum_amount(amounts[unit], 0, max(steps, 1)) > _MOST_WORK:
            raise SourceError(f"{name} is more than {_MOST_WORK:g} in all, which no steps make")
    return Work(from_ms, to_ms, first, None if first is None else first + max(steps, 1) - 1, steps, amounts)


def _read_flops(record: dict[str, Any]) -> Work:
    at_ms, first, last, total = (
        _instant(record, "at"),
        _count(record, "step"),
        _count(record, "last"),
        _amount(record, "model_flops"),
    )
    if total is None or (first is not None and (last is None or last < first)):
        raise SourceError("is no record of FLOPs")
    span = 1 if first is None or last is None else last - first + 1
    return Work(at_ms, at_ms, first, last, 0, {UNITS["model_flops"]: total / span}, is_made=False)


def _read_facts(record: dict[str, Any]) -> Facts:
    devices, network = record.get("devices") or [], record.get("network") or {}
    if not isinstance(devices, list) or not all(isinstance(d, str) and 0 < len(d) <= _LONGEST_TEXT for d in devices):
        raise SourceError("has devices that are no names")
    if not isinstance(network, dict) or len(json.dumps(network)) > _LONGEST_NETWORK:
        raise SourceError("has a network that is none")
    return Facts(_instant(record, "at"), tuple(devices[:_MOST_DEVICES]), network)


def _interval(record: dict[str, Any]) -> tuple[int, int]:
    from_ms, to_ms = _instant(record, "from"), _instant(record, "to")
    if to_ms < from_ms:
        raise SourceError("ends before it begins")
    return from_ms, to_ms


def _instant(record: dict[str, Any], name: str) -> int:
    value = record.get(name)
    if type(value) is not int or not EARLIEST_MS <= value <= LATEST_MS:
        raise SourceError(f"{name} {str(value)[:40]} is no time in milliseconds since 1970")
    return value


def _count(record: dict[str, Any], name: str) -> int | None:
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST or value != int(value):
        raise SourceError(f"{name} {str(value)[:40]} is no whole number")
    return int(value)


def _amount(record: dict[str, Any], name: str) -> float | None:
    return _check_amount(name, record.get(name))


def _check_amount(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= _MOST_WORK
        or math.isnan(value)
    ):
        raise SourceError(f"{name} {str(value)[:40]} is no amount")
    return value


def _amounts(record: dict[str, Any], name: str, steps: int) -> Amount | None:
    value = record.get(name)
    if not isinstance(value, list):
        return _check_amount(name, value)
    if len(value) != steps:
        raise SourceError(f"{name} has {len(value)} amounts for {steps} steps")
    return tuple(_check_amount(name, one) for one in value)


def _text(record: dict[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value or len(value) > _LONGEST_TEXT:
        raise SourceError(f"{name} {str(value)[:40]!r} is no name")
    return value


def sum_amount(amount: Amount, start: int, stop: int) -> float:
    """Of the steps from a place to another, counted from the first one.

    >>> sum_amount(4.0, 1, 3), sum_amount((1.0, None, 3.0), 0, 3)
    (8.0, 4.0)
    """
    if isinstance(amount, tuple):
        return sum(value or 0 for value in amount[start:stop])
    return amount * (stop - start)


def check_lines(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """The records of a body that was sent. Raises SourceError naming the line that is none, or before which no file begins."""
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            record = read_line(line)
            if not records and record["kind"] != "begin":
                raise SourceError("comes before the line of kind begin that every body starts with")
            read_record(record)
            if _count(record, "n") is None:
                raise SourceError("has no number n")
        except SourceError as error:
            raise SourceError(f"line {number} {error}") from error
        records.append(record)
    return records


@dataclass
class StepPiece:
    """Steps of one bin in sequence; `first` is None where they have no numbers. `stretch`: index of that of its process."""

    stretch: int
    first: int | None
    span: int
    steps: int
    amounts: dict[str, Amount]


@dataclass
class Bin:
    """The work of a process that began in one minute."""

    from_ms: int
    to_ms: int
    pieces: list[StepPiece] = field(default_factory=list)


_IN_JSON: Final = (
    PlainSerializer(lambda sections: [[*key, *spent] for key, spent in sections.items()]),
    BeforeValidator(lambda stored: {(minute, kind): spent for minute, kind, *spent in stored}),
)
"""Sections as a list, because keys of JSON are texts."""


@dataclass
class ProcessProgress:
    """A process by its records, in their order."""

    begin: Begin
    through: int = 0
    """The number of the last record taken."""
    to_ms: int = 0
    """Its last word."""
    stretches: list[list[int]] = field(default_factory=list)
    """Steps with numbers that grow, as [first, last]: it went back between them."""
    bins: list[Bin] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    epoch_stretches: list[int] = field(default_factory=list)
    sections: Annotated[dict[tuple[int, str], list[int]], *_IN_JSON] = field(default_factory=dict)
    """By minute and kind: when the first began, and how long all took."""
    dropped: int = 0
    is_by_epoch: bool = False
    """Its steps are numbered anew in every epoch."""
    ended_epoch: bool = False
    """The last record ended one."""
    devices: tuple[str, ...] = ()
    network: dict[str, Any] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """Take a record."""
        if isinstance(record, Work):
            self._work(record)
        elif isinstance(record, Epoch):
            self.epochs.append(record)
            self.epoch_stretches.append(len(self.stretches) - 1)
            self.to_ms = max(self.to_ms, record.at_ms)
            self.ended_epoch = True
        elif isinstance(record, SectionTime):
            found = self.sections.setdefault((record.from_ms // BIN_MS, record.kind), [record.from_ms, 0])
            found[1] += record.length_ms
            self.to_ms = max(self.to_ms, record.to_ms)
        elif isinstance(record, SignOfLife):
            self.to_ms = max(self.to_ms, record.at_ms)
            self.dropped += record.dropped
        elif isinstance(record, Facts):
            self.to_ms = max(self.to_ms, record.at_ms)
            self.devices = record.devices or self.devices
            self.network = {**self.network, **record.network}

    def _work(self, work: Work) -> None:
        self.to_ms = max(self.to_ms, work.to_ms)
        if work.first is not None and work.last is not None and work.is_made:
            if work.steps:
                self._follow(work.first, work.last)
            elif self.stretches and work.first < self.stretches[-1][1]:  # the first part of a step that comes again
                self._follow(work.first, work.first - 1)
        bins, minute = self.bins, work.from_ms // BIN_MS
        if not bins or bins[-1].from_ms // BIN_MS != minute:
            bins.append(Bin(work.from_ms, work.to_ms))
        bins[-1].to_ms = max(bins[-1].to_ms, work.to_ms)
        span = max(work.steps, 1) if work.first is None or work.last is None else work.last - work.first + 1
        piece = StepPiece(max(len(self.stretches) - 1, 0), work.first, span, work.steps, work.amounts)
        if not (bins[-1].pieces and _join(bins[-1].pieces[-1], piece)):
            bins[-1].pieces.append(piece)

    def _follow(self, first: int, last: int) -> None:
        if self.stretches and first >= self.stretches[-1][1]:
            self.stretches[-1][1] = last
        else:
            self.is_by_epoch |= bool(self.stretches) and self.ended_epoch
            self.stretches.append([first, last])
        self.ended_epoch = False

    def forget_before(self, bins: int) -> None:
        """Keep the last bins only: rows of earlier ones stand."""
        del self.bins[:-bins]
        if self.bins:
            since_ms = self.bins[0].from_ms
            self.sections = {key: value for key, value in self.sections.items() if value[0] >= since_ms}
            kept = [i for i, epoch in enumerate(self.epochs) if epoch.at_ms >= since_ms]
            self.epochs, self.epoch_stretches = [self.epochs[i] for i in kept], [self.epoch_stretches[i] for i in kept]


def _join(before: StepPiece, piece: StepPiece) -> bool:
    """Put steps to those that they follow, where each of them made the same; whether they could be."""
    if before.stretch != piece.stretch or any(
        isinstance(amount, tuple) for amount in (*before.amounts.values(), *piece.amounts.values())
    ):
        return False
    follows = piece.first == (None if before.first is None else before.first + before.span)
    if not follows or before.amounts != piece.amounts or before.steps != before.span or piece.steps != piece.span:
        return False
    before.span += piece.span
    before.steps += piece.steps
    return True
