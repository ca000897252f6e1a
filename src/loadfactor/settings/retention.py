"""How long what the books hold is kept: the table [retention]."""

from typing import Final, Self

from pydantic import Field, model_validator

from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.settings.table import Duration, SettingsTable

FOREVER: Final = "forever"
LEAST: Final = Duration("7d")
"""Shorter would drop days that are open: what agents, pairs and schedulers send late is of some days before."""


class Age(Duration):
    """A length of time of whole days that things are kept, or forever."""

    @property
    def s(self) -> float:
        """It in seconds; without end where it is forever."""
        return float("inf") if self == FOREVER else super().s

    @classmethod
    def read(cls, text: str) -> "Age":
        """The age that a text gives. Raises ValueError where it is none, or too short."""
        if text.strip().lower() == FOREVER:
            return cls(FOREVER)
        age = cls(Duration.read(text))
        if age.s < LEAST.s:
            raise ValueError(
                f"{text!r} is too short: days that rows may still come for are kept; write {LEAST} or more"
            )
        return age


_ORDER: Final = (
    ("samples", "ledger", "days that the ledger does not have need no samples"),
    ("steps", "ledger", "days that the ledger does not have need no steps"),
    ("events", "ledger", "days that the ledger does not have need no events"),
    ("ledger", "requests", "they say who used the GPUs of the ledger"),
    ("ledger", "statements", "a month that the ledger has is closed"),
)
"""What is kept no longer than something else, and why."""


class RetentionSettings(SettingsTable):
    """How long each kind of rows is kept before `loadfactor up` or `loadfactor retain` drops it."""

    samples: Age = Field(
        default=Age(FOREVER),
        description="Samples of GPUs and nodes: 30d, 18mo, 3y. Days without theirs keep their ledger as it was booked.",
    )
    ledger: Age = Field(
        default=Age(FOREVER), description="The ledger and its sums, and with it all that is known of its days."
    )
    statements: Age = Field(default=Age(FOREVER), description="Statements of closed months.")
    steps: Age = Field(default=Age(FOREVER), description="What jobs report: progress, checkpoints and other sections.")
    events: Age = Field(default=Age(FOREVER), description="Events of GPUs, and of jobs that waited.")
    requests: Age = Field(
        default=Age(FOREVER), description="Requests to served models, which say who used the GPUs of the ledger."
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for shorter, longer, why in _ORDER:
            least, most = getattr(self, shorter), getattr(self, longer)
            if most.s < least.s and (shorter == "ledger" or shorter in self.model_fields_set):
                raise ValueError(f"{longer} = {most} is less than {shorter} = {least}: {why}; keep {longer} as long")
        return self

    def until_ms(self, name: str, now_ms: int) -> int:
        """Until when what is called so goes at an instant: a midnight UTC. What is known of days goes with their ledger."""
        age_s = min(getattr(self, name).s, float("inf") if name in ("statements", "requests") else self.ledger.s)
        until_ms = max(0.0, now_ms - age_s * MS_PER_S)
        return int(until_ms - until_ms % MS_PER_DAY)
