"""Stretches of time in pieces with the GPU-seconds of each: what is idle or free without a break, and how much of it comes late."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadfactor.base.units import MS_PER_HOUR, MS_PER_S, S_PER_HOUR
from loadfactor.tables.schema import Span


@dataclass(frozen=True)
class StretchPiece:
    """GPU-seconds spread evenly over [from_ms, to_ms)."""

    from_ms: int
    to_ms: int
    gpu_s: float

    def within(self, span: Span) -> float:
        """Its GPU-seconds inside a span.

        >>> StretchPiece(0, 1000, 8.0).within((750, 5000))
        2.0
        """
        overlap = min(self.to_ms, span[1]) - max(self.from_ms, span[0])
        return self.gpu_s * overlap / (self.to_ms - self.from_ms) if overlap > 0 else 0.0


@dataclass(frozen=True)
class Stretch:
    """Pieces without a gap between them, in order."""

    pieces: tuple[StretchPiece, ...]

    @property
    def from_ms(self) -> int:
        """Its first instant."""
        return self.pieces[0].from_ms

    @property
    def to_ms(self) -> int:
        """The first instant after it."""
        return max(piece.to_ms for piece in self.pieces)

    @property
    def hours(self) -> float:
        """How long it is."""
        return (self.to_ms - self.from_ms) / MS_PER_HOUR

    def gpu_hours_after(self, seconds: float) -> float:
        """The GPU-hours that come later than so many seconds after its start.

        >>> Stretch((StretchPiece(0, 3_600_000, 7200.0),)).gpu_hours_after(900)
        1.5
        """
        late = (self.from_ms + round(seconds * MS_PER_S), self.to_ms)
        return sum(piece.within(late) for piece in self.pieces) / S_PER_HOUR


def merge(spans: Iterable[Span]) -> list[Span]:
    """The spans as few that do not touch, in order.

    >>> merge([(5, 7), (0, 2), (2, 3), (1, 3)])
    [(0, 3), (5, 7)]
    """
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def cut_out(pieces: Iterable[StretchPiece], holes: Sequence[Span]) -> list[StretchPiece]:
    """What of the pieces lies in none of the holes (merged, in order), in order of time.

    >>> [(p.from_ms, p.to_ms, p.gpu_s) for p in cut_out([StretchPiece(0, 10, 10.0)], [(2, 3), (8, 20)])]
    [(0, 2, 2.0), (3, 8, 5.0)]
    """
    out = []
    first = 0
    for piece in sorted(pieces, key=lambda p: (p.from_ms, p.to_ms)):
        while first < len(holes) and holes[first][1] <= piece.from_ms:
            first += 1
        start, number = piece.from_ms, first
        while number < len(holes) and holes[number][0] < piece.to_ms:
            if start < holes[number][0]:
                out.append((piece, start, holes[number][0]))
            start = max(start, holes[number][1])
            number += 1
        if start < piece.to_ms:
            out.append((piece, start, piece.to_ms))
    return [StretchPiece(start, end, piece.within((start, end))) for piece, start, end in out]


def join(pieces: Iterable[StretchPiece]) -> list[Stretch]:
    """The pieces, in order of their start, as stretches without a gap."""
    out: list[list[StretchPiece]] = []
    end = 0
    for piece in pieces:
        if out and piece.from_ms <= end:
            out[-1].append(piece)
            end = max(end, piece.to_ms)
        else:
            out.append([piece])
            end = piece.to_ms
    return [Stretch(tuple(of)) for of in out]
