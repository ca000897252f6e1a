"""What one process made: stretches of steps, and bins of a minute with what was done in them."""

from dataclasses import dataclass, field
from typing import Final

from loadfactor.base.units import MS_PER_S, S_PER_MIN
from loadfactor.sources.progress_records.records import Amount, Begin, Epoch, Said, SectionTime, SignOfLife, Work

Span = tuple[int, int]
"""Numbers of steps, first and last."""
STEP: Final = "step"
BIN_MS: Final = S_PER_MIN * MS_PER_S


@dataclass
class StepPiece:
    """Steps of one bin that follow each other; `first` is None where they have no numbers. `stretch`: which of its process."""

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
    sections: dict[tuple[int, str], list[int]] = field(default_factory=dict)
    """By minute and kind: when the first began, and how long all took."""
    dropped: int = 0
    is_by_epoch: bool = False
    """Its steps are numbered anew in every epoch."""
    ended_epoch: bool = False
    """The last record ended one."""

    def take(self, said: Said) -> None:
        """Take a record."""
        if isinstance(said, Work):
            self._work(said)
        elif isinstance(said, Epoch):
            self.epochs.append(said)
            self.epoch_stretches.append(len(self.stretches) - 1)
            self.to_ms = max(self.to_ms, said.at_ms)
            self.ended_epoch = True
        elif isinstance(said, SectionTime):
            found = self.sections.setdefault((said.from_ms // BIN_MS, said.kind), [said.from_ms, 0])
            found[1] += said.length_ms
            self.to_ms = max(self.to_ms, said.to_ms)
        elif isinstance(said, SignOfLife):
            self.to_ms = max(self.to_ms, said.at_ms)
            self.dropped += said.dropped

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
        """Keep the last bins only: what was said of earlier ones stands."""
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
