"""Which devices did a log see, and from when until when? One step before the first sample to the last."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.tables import DEVICES
from loadfactor.units import MS_PER_HOUR, MS_PER_S

_EARLY: Final = 1024  # instants of a device that its step is read from
_BATCH: Final = 50_000


@dataclass
class _Seen:
    node: str | None
    accelerator: str | None
    first_ms: int
    last_ms: int
    early_ms: set[int] = field(default_factory=set)


class Fleet:
    """The devices of the files read so far; a few numbers each, however long the logs are."""

    def __init__(self, options: ReadOptions, default_step_s: float) -> None:
        self._options = options
        self._default_step_s = default_step_s
        self._seen: dict[str, _Seen] = {}

    def see(self, device_id: str, at_ms: NDArray[np.int64], node: str | None, accelerator: str | None) -> None:
        """This device has samples at these instants (at least one)."""
        low, high = int(at_ms.min()), int(at_ms.max())
        seen = self._seen.get(device_id)
        if seen is None:
            seen = self._seen[device_id] = _Seen(node, accelerator, low, high)
        seen.first_ms, seen.last_ms = min(seen.first_ms, low), max(seen.last_ms, high)
        seen.node, seen.accelerator = node or seen.node, accelerator or seen.accelerator
        if len(seen.early_ms) < _EARLY:
            seen.early_ms.update(at_ms[: _EARLY - len(seen.early_ms)].tolist())

    def rows(self) -> Iterator[Rows]:
        """The devices, in the order first seen."""
        items = list(self._seen.items())
        for i in range(0, len(items), _BATCH):
            batch = items[i : i + _BATCH]
            columns = {
                "device_id": [k for k, _ in batch],
                "node": [s.node for _, s in batch],
                "accelerator": [s.accelerator for _, s in batch],
                "pool": [self._options.pool] * len(batch),
                "from_utc": [s.first_ms - self._step_ms(s) for _, s in batch],
                "to_utc": [s.last_ms for _, s in batch],
            }
            schema = pa.schema([DEVICES.schema.field(name) for name in columns])
            yield Rows("devices", pa.table(columns, schema=schema))

    def _step_ms(self, seen: _Seen) -> int:
        return step_ms(sorted(seen.early_ms), self._options.step_s, self._default_step_s)


def step_ms(times_ms: list[int], step_s: float | None, default_step_s: float) -> int:
    """The nominal step of a series: as told, else the median distance of its sorted instants (an hour at most), else the default.

    >>> step_ms([0, 30_000, 60_000, 600_000], None, 1)
    30000
    """
    if step_s is not None:
        return round(step_s * MS_PER_S)
    gaps = np.diff(np.asarray(times_ms, dtype=np.int64))
    gaps = gaps[gaps > 0]
    return min(int(np.median(gaps)), MS_PER_HOUR) if len(gaps) else round(default_step_s * MS_PER_S)
