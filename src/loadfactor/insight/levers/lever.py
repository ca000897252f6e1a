"""What a lever is: how it is found, and what it answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from loadfactor.insight.levers.remainder import TakenLoss
from loadfactor.insight.levers.situation import Situation

Level = Literal["low", "medium", "high"]
HIGH, MEDIUM, LOW = 0.9, 0.7, 0.4
"""How sure a lever can be: what was read off the books; what rests on one assumption; what rests on several."""
SURE_FROM: Final = 0.8
LIKELY_FROM: Final = 0.5


def name_confidence(confidence: float) -> Level:
    """A confidence as a word.

    >>> name_confidence(HIGH), name_confidence(MEDIUM), name_confidence(LOW)
    ('high', 'medium', 'low')
    """
    return "high" if confidence >= SURE_FROM else "medium" if confidence >= LIKELY_FROM else "low"


@dataclass(frozen=True)
class LeverResult:
    """What a lever would have taken of what was lost, and what says so. `action` names concrete settings."""

    taken: tuple[TakenLoss, ...] = ()
    evidence: tuple[str, ...] = ()
    action: str = ""
    confidence: float = MEDIUM


@dataclass(frozen=True)
class LossLever:
    """One thing to change. `find` takes what it would have saved out of what the levers before it left."""

    name: str
    title: str
    effort: Level
    risk: Level
    risk_of: str
    find: Callable[[Situation], LeverResult]
