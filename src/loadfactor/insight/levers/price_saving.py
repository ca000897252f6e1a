"""What levers of price have in common: the hours that other levers left, and what other prices would have saved of them."""

from dataclasses import dataclass, field

from loadfactor.insight.diagnosis.finding import Range
from loadfactor.insight.levers.lever import MEDIUM, Level, name_confidence


@dataclass(frozen=True)
class PriceSaving:
    """What other prices would have saved in the window, for so many GPU-hours of it, and what says so.

    `saved` is the low end of `saved_range`, where there is a range; None where it is not known for want of what is `missing`.
    `confidence` is a share of one.
    """

    lever: str
    title: str
    saved: float | None
    gpu_hours: float
    evidence: tuple[str, ...]
    action: str
    saved_range: Range | None = None
    confidence: float = MEDIUM
    missing: tuple[str, ...] = ()
    confidence_word: Level = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence_word", name_confidence(self.confidence))


@dataclass(frozen=True)
class KeptHours:
    """What a job held beyond what levers saved, of all it held, GPU-hours, and what it paid for an hour."""

    gpu_hours: float
    held_hours: float
    price: float
