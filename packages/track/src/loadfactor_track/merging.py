"""Merges reports of `run.step` and its sisters into few records: pure, called 20 times a second by the thread that writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Union

from .units import NS_PER_MS, NS_PER_US

AMOUNTS: Final = ("samples", "tokens", "padded_tokens", "model_flops")
Record = dict[str, Any]
Number = Union[int, float, None]  # noqa: UP007 - Python 3.9

Amounts = tuple[Number, Number, Number, Number]


class StepCall:
    """Calls of `run.step` that follow each other and have the same amounts: `count` of them, the last one at `at_ns`.

    `step` is the number of the first, `next` the one that would follow. `done`: false for a micro-batch of a step that goes on.
    """

    __slots__ = ("amounts", "at_ns", "count", "done", "next", "step")

    def __init__(self, at_ns: int, step: int | None, amounts: Amounts, done: bool) -> None:
        self.at_ns, self.step, self.amounts, self.done, self.count = at_ns, step, amounts, done, 1
        self.next = None if step is None else step + 1

    @property
    def last(self) -> int | None:
        """The number of the last one."""
        return None if self.step is None else self.step + self.count - 1


class SectionCall(NamedTuple):
    """A section that ended."""

    from_ns: int
    to_ns: int
    name: str


class EpochCall(NamedTuple):
    """An epoch that ended, and its number where it was given."""

    at_ns: int
    epoch: int | None


class FlopsCall(NamedTuple):
    """Model FLOPs since the last report."""

    at_ns: int
    amount: float


class NetworkCall(NamedTuple):
    """What is known of the network by now; later ones add to it."""

    at_ns: int
    facts: dict[str, Any]


Call = Union[StepCall, SectionCall, EpochCall, FlopsCall, NetworkCall]  # noqa: UP007 - Python 3.9


class _Steps:
    """Steps that become one record: their numbers follow each other, or have none."""

    def __init__(self, from_ms: int, call: StepCall) -> None:
        self.from_ms = self.to_ms = from_ms
        self.first = self.last = call.step
        self.amounts: list[tuple[Amounts, int]] = []
        """Of steps that are alike, and how many there are."""
        self.span = self.steps = 0
        self.is_open = False
        """The last of them goes on."""

    def takes(self, call: StepCall) -> bool:
        """Whether a call goes on here. A step that is not done has a record of its own, so amounts are of whole steps."""
        if self._goes_on(call):
            return call.count == 1
        if self.is_open or not call.done or self.steps < self.span:
            return False
        return call.step is None if self.last is None else call.step == self.last + 1

    def add(self, call: StepCall, at_ms: int, counted: int) -> None:
        """`counted`: how many steps the call ends that were not counted before."""
        if self.amounts and self._goes_on(call):
            amounts, count = self.amounts.pop()
            if count > 1:
                self.amounts.append((amounts, count - 1))
            self.amounts.append((tuple(map(_add, amounts, call.amounts)), 1))  # type: ignore[arg-type]
        else:
            self.amounts.append((call.amounts, call.count))
            self.span += call.count
        self.last, self.to_ms, self.is_open = call.last, at_ms, not call.done
        self.steps += counted

    def _goes_on(self, call: StepCall) -> bool:
        return call.step == self.last and (call.step is not None or self.is_open)

    def record(self) -> Record:
        """The record of these steps."""
        record: Record = {"kind": "work", "from": self.from_ms, "to": self.to_ms}
        if self.first is not None:
            record["step"] = self.first
        record["steps"] = self.steps
        for index, name in enumerate(AMOUNTS):
            values = [(amounts[index], count) for amounts, count in self.amounts]
            if any(value is not None for value, _ in values):
                alike = all(value == values[0][0] for value, _ in values)
                record[name] = values[0][0] if alike else [value for value, count in values for _ in range(count)]
        return record


class Merger:
    """Makes records of calls, in their order. What it remembers is the last step, its time, and what FLOPs were reported for."""

    def __init__(self, began_ms: int) -> None:
        self._reached_ms = began_ms
        self._last: int | None = None
        self._last_counted = False
        self._flops_from: int | None = None

    def merge(self, calls: Iterable[Call]) -> list[Record]:
        """The records of these calls."""
        records: list[Record] = []
        steps: _Steps | None = None
        for call in calls:
            if isinstance(call, StepCall):
                for part in self._divide(call):
                    if steps is not None and not steps.takes(part):
                        records.append(steps.record())
                        steps = None
                    steps = self._add_step(steps, part)
                continue
            if steps is not None:
                records.append(steps.record())
                steps = None
            self._add_other(records, call)
        if steps is not None:
            records.append(steps.record())
        return records

    def _divide(self, call: StepCall) -> tuple[StepCall, ...]:
        """The call; in two where its first step was counted before and others follow, so that amounts are of whole steps."""
        if call.step is None or call.step != self._last or call.count == 1:
            return (call,)
        first = StepCall(call.at_ns, call.step, call.amounts, call.done)
        others = StepCall(call.at_ns, call.step + 1, call.amounts, call.done)
        others.count = call.count - 1
        return first, others

    def _add_step(self, steps: _Steps | None, call: StepCall) -> _Steps:
        at_ms = max(self._reached_ms, call.at_ns // NS_PER_MS)
        if steps is None:
            steps = _Steps(self._reached_ms, call)
        goes_on = call.step is not None and call.step == self._last
        counted = call.count if call.done else 0
        if goes_on and self._last_counted:
            counted -= call.done
        steps.add(call, at_ms, counted)
        self._last_counted = call.done or (goes_on and self._last_counted)
        self._reached_ms, self._last = at_ms, call.last
        if self._flops_from is None:
            self._flops_from = call.step
        return steps

    def _add_other(self, records: list[Record], call: Call) -> None:
        if isinstance(call, SectionCall):
            self._add_section(records, call)
        elif isinstance(call, NetworkCall):
            records.append({"kind": "network", "at": call.at_ns // NS_PER_MS, "network": call.facts})
        elif isinstance(call, EpochCall):
            numbers = {"epoch": call.epoch, "step": self._last}
            records.append(
                {"kind": "epoch", "at": call.at_ns // NS_PER_MS, **{k: v for k, v in numbers.items() if v is not None}}
            )
        elif isinstance(call, FlopsCall):
            record: Record = {
                "kind": "flops",
                "at": max(self._reached_ms, call.at_ns // NS_PER_MS),
                "model_flops": call.amount,
            }
            if self._last is not None:
                first = self._last if self._flops_from is None else min(self._flops_from, self._last)
                record |= {"step": first, "last": self._last}
                self._flops_from = None
            records.append(record)

    @staticmethod
    def _add_section(records: list[Record], call: SectionCall) -> None:
        from_ms, to_ms = call.from_ns // NS_PER_MS, call.to_ns // NS_PER_MS
        before = records[-1] if records else {}
        if (
            before.get("kind") == "section" and before["section"] == call.name
        ):  # waits between steps that nobody reported
            before["to"], before["us"] = to_ms, before["us"] + (call.to_ns - call.from_ns) // NS_PER_US
            return
        us = (call.to_ns - call.from_ns) // NS_PER_US
        records.append({"kind": "section", "section": call.name, "from": from_ms, "to": max(from_ms, to_ms), "us": us})


def _add(old: Number, new: Number) -> Number:
    return new if old is None else old if new is None else old + new
