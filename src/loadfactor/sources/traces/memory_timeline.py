"""Memory timelines of torch.profiler (`export_memory_timeline`): raw events, or sizes by category over time.

They say what memory was used for and nothing of time on the GPU. Formats as of torch/profiler/_memory_profiler.py: raw is a list of
[ns, action, bytes, category], JSON is [times, sizes], with a size for each category.
"""

import json
from typing import Any, Final

import numpy as np

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.traces.pieces import TracePieces
from loadfactor.tables.trace_events import MemoryUse, TraceCapture, no_gpu_events, no_host_events

FORMAT: Final = "memory timeline of torch.profiler"
_CATEGORIES: Final = (
    "parameter",
    "optimizer state",
    "input",
    "temporary",
    "activation",
    "gradient",
    "autograd detail",
    "unknown",
)
"""By their numbers, as torch.profiler._memory_profiler._CATEGORY_TO_INDEX has them."""
_LARGEST: Final = 512 * BYTES_PER_MIB
_RAW = 4


def read_memory_timeline(pieces: TracePieces) -> TraceCapture:
    """The peak of a timeline and what it was made of. Raises SourceError where it is none, or not whole."""
    path, text = pieces.path, bytearray()
    for piece in pieces:
        text += piece
        if len(text) > _LARGEST:
            raise SourceError(f"{path} is a list of lists of more than {_LARGEST:,} bytes, which no memory timeline is")
    try:
        rows: Any = json.loads(text)
    except ValueError as e:
        raise SourceError(f"{path} is no whole JSON ({e}); export it again") from None
    try:
        use = _read_raw(rows) if rows and len(rows[0]) == _RAW and len(rows) != 2 else _read_sizes(rows)
    except (TypeError, ValueError, IndexError, OverflowError):
        raise SourceError(
            f"{path} is a list of lists, but neither a trace nor a memory timeline of torch.profiler"
        ) from None
    return TraceCapture(
        trace=path.name,
        path=str(path),
        format=FORMAT,
        names=(),
        devices=(),
        gpu=no_gpu_events(),
        host=no_host_events(),
        memory=(use,),
        notes=("A memory timeline: it says what memory was used for, and nothing of what the GPU did.",),
    )


def _read_raw(rows: list[Any]) -> MemoryUse:
    """Peaks of signed sizes one after the other; what was there before the profiler began counts from the start."""
    table = np.array([[at_ns, size, category] for at_ns, _, size, category in rows], np.int64)
    used = np.cumsum(table[:, 1])
    peak = int(used.argmax())
    before = table[: peak + 1]
    sums = {name: int(before[before[:, 2] == k, 1].sum()) for k, name in enumerate(_CATEGORIES)}
    return _say(int(used[peak]), int(table[peak, 0]), len(table), sums)


def _read_sizes(rows: list[Any]) -> MemoryUse:
    """Peaks of sums over time, a column for each category; older versions put a column of zeros before them."""
    times, sizes = rows
    table = np.array(sizes, np.int64)
    totals = table.sum(axis=1)
    place = int(totals.argmax())
    named = dict(zip(_CATEGORIES, table[place, -len(_CATEGORIES) :].tolist(), strict=True))
    return _say(int(totals[place]), int(times[place]), len(times), named)


def _say(peak: int, at_ns: int | None, events: int, by_category: dict[str, int]) -> MemoryUse:
    return MemoryUse(
        device="?",
        peak_allocated_bytes=peak,
        peak_at_ns=at_ns if at_ns is not None and at_ns >= 0 else None,
        peak_reserved_bytes=None,
        events=events,
        by_category={name: size for name, size in by_category.items() if size},
    )
