"""The devices that a log or a table mentions: each there from one step before its first sample to its last."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.sources.parsing.steps import learn_step_of
from loadfactor.tables.schema import DEVICES

_BATCH: Final = 50_000


@dataclass
class _Presence:
    node: str | None = None
    accelerator: str | None = None
    index: int | None = None
    from_ms: int | None = None  # earliest start that a row states
    first_ms: int | None = None  # earliest timestamp of a sample that states no start
    last_ms: int | None = None
    open: bool = False  # held by somebody without an end
    early_ms: set[int] = field(default_factory=set)


class DevicesSeen:
    """The devices mentioned so far; a few numbers each, however long the input is.

    A device's step is learnt from its first `learn_from` instants, and is `default_step_s` where they do not show it.
    """

    def __init__(self, options: ReadOptions, default_step_s: float, learn_from: int, where: str = "") -> None:
        self._options, self._where = options, where
        self._default_step_s, self._learn_from = default_step_s, learn_from
        self._seen: dict[str, _Presence] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def name(self, device_id: str, node: str | None, accelerator: str | None = None, index: int | None = None) -> None:
        """Where this device is, what it is, and its number there; None changes nothing."""
        seen = self._seen.setdefault(device_id, _Presence())
        seen.node, seen.accelerator = node or seen.node, accelerator or seen.accelerator
        seen.index = seen.index if index is None else index

    def see_instants(self, device_id: str, first_ms: int, last_ms: int, some_ms: Iterable[int]) -> None:
        """This device has samples from `first_ms` to `last_ms` that state no start; `some_ms` are instants of them."""
        seen = self._seen.setdefault(device_id, _Presence())
        seen.first_ms, seen.last_ms = _min(seen.first_ms, first_ms), _max(seen.last_ms, last_ms)
        if len(seen.early_ms) < self._learn_from:
            few = zip(range(self._learn_from - len(seen.early_ms)), some_ms, strict=False)
            seen.early_ms.update(at for _, at in few)

    def see_interval(self, device_id: str, from_ms: int | None, to_ms: int | None, open_end: bool = False) -> None:
        """This device is mentioned from `from_ms` to `to_ms`, each where known; `open_end` where that has no end yet."""
        seen = self._seen.setdefault(device_id, _Presence())
        seen.from_ms, seen.last_ms = _min(seen.from_ms, from_ms), _max(seen.last_ms, to_ms)
        seen.open |= open_end

    def make_rows(self) -> Iterator[Rows]:
        """The devices, in the order first seen."""
        items = list(self._seen.items())
        for i in range(0, len(items), _BATCH):
            batch = items[i : i + _BATCH]
            columns = {
                "device_id": [device_id for device_id, _ in batch],
                "node": [seen.node for _, seen in batch],
                "accelerator": [seen.accelerator for _, seen in batch],
                "pool": [self._options.pool] * len(batch),
                "gpu_index": [seen.index for _, seen in batch],
                "from_utc": [self._find_first(seen) for _, seen in batch],
                "to_utc": [None if seen.open else seen.last_ms for _, seen in batch],
            }
            schema = pa.schema([DEVICES.schema.field(name) for name in columns])
            yield Rows("devices", pa.table(columns, schema=schema), self._where, inferred=True)

    def _find_first(self, seen: _Presence) -> int | None:
        """The start that the rows state, or one step before the first timestamp, whichever is earlier."""
        if seen.first_ms is None:
            return seen.from_ms
        step_ms = learn_step_of(sorted(seen.early_ms), self._options.step_s, self._default_step_s)
        return _min(seen.from_ms, seen.first_ms - step_ms)


def _min(one: int | None, two: int | None) -> int | None:
    return min((t for t in (one, two) if t is not None), default=None)


def _max(one: int | None, two: int | None) -> int | None:
    return max((t for t in (one, two) if t is not None), default=None)
