"""Requests as plain arrays, chunk by chunk, and what was met while they were read."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import Limits, shorten
from loadfactor.base.units import NS_PER_S, S_PER_DAY

Ints = NDArray[np.int64]
TOKENS: Final = Limits(at_least=0, at_most=1e8)  # of a prompt or an answer
LONGEST_D: Final = 366  # from the first request of a trace to its last
MOST_HASH: Final = 2**63 - 1


@dataclass(frozen=True)
class RequestChunk:
    """Requests in order of time, `at_ns` from the first; `hashes[offsets[i]:offsets[i+1]]` are the prefix blocks of request i.

    `offsets` is empty where the trace has no prefix blocks.
    """

    at_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    offsets: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    hashes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass
class TraceReport:
    """What was read, filled while a trace streams: rows, rows with a number missing (left out), and the longest silence."""

    requests: int = 0
    unreadable: int = 0
    first_unreadable_line: int = 0
    span_s: float = 0.0
    longest_gap_s: float = 0.0
    block_tokens: int = 0
    _last_ns: int = field(default=0, repr=False)

    def count(self, at_ns: Ints) -> None:
        """Count the requests of a chunk."""
        if at_ns.size:
            gaps = np.diff(at_ns, prepend=self._last_ns)
            self.longest_gap_s = max(self.longest_gap_s, float(gaps.max()) / NS_PER_S)
            self._last_ns = int(at_ns[-1])
            self.span_s = self._last_ns / NS_PER_S
            self.requests += at_ns.size

    def count_unreadable(self, line: int) -> None:
        """Count a row that lacks a number."""
        self.unreadable += 1
        self.first_unreadable_line = self.first_unreadable_line or line


class ChunkBuilder:
    """Collects the requests of a trace, timed from the first one, into chunks of `size`."""

    def __init__(self, label: str, size: int) -> None:
        self._label, self._size = label, size
        self._first_ns: int | None = None
        self._last_ns = 0
        self._requests: list[tuple[int, int, int]] = []
        self._blocks: list[list[int]] = []

    @property
    def full(self) -> bool:
        """True when a chunk should be taken."""
        return len(self._requests) >= self._size

    def add(self, line: int, written: object, at_ns: int, prompt: int, output: int, blocks: Iterable[int] = ()) -> None:
        """Add a request; `written` is its time as it stands in that line.

        Raises SourceError when it is before the one above, or a number makes no sense.
        """
        where = f"{self._label}, line {line}"
        for name, tokens in (("prompt", prompt), ("output", output)):
            if not TOKENS.admit(tokens):
                raise SourceError(f"{where}: {name} tokens must be {TOKENS.words}, got {shorten(str(tokens))}")
        if self._first_ns is None:
            self._first_ns = self._last_ns = at_ns
        if at_ns < self._last_ns:
            raise SourceError(f"{where}: {written} is before the line above it; sort the trace by time")
        if at_ns - self._first_ns > LONGEST_D * S_PER_DAY * NS_PER_S:
            raise SourceError(f"{where}: {shorten(str(written))} is more than {LONGEST_D} days after the first request")
        held = list(blocks)
        if held and not 0 <= min(held) <= max(held) <= MOST_HASH:
            raise SourceError(f"{where}: a hash of a prefix block must be at least 0 and at most {MOST_HASH:,}")
        self._last_ns = at_ns
        self._requests.append((at_ns - self._first_ns, prompt, output))
        self._blocks.append(held)

    def take(self, with_blocks: bool = False) -> RequestChunk:
        """The requests collected since the last call, at least one."""
        at_ns, prompts, outputs = (column.copy() for column in np.array(self._requests, np.int64).T)
        blocks, self._requests, self._blocks = self._blocks, [], []
        if not with_blocks:
            return RequestChunk(at_ns, prompts, outputs)
        offsets = np.concatenate([[0], np.cumsum([len(b) for b in blocks])]).astype(np.int64)
        return RequestChunk(at_ns, prompts, outputs, offsets, np.array([h for b in blocks for h in b], np.int64))

    def __len__(self) -> int:
        return len(self._requests)
