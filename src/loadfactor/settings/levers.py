"""What `loadfactor.toml` says of levers that were pulled: the tables [[lever]]."""

from datetime import date
from decimal import Decimal
from typing import Any

from pydantic import Field, field_validator

from loadfactor.settings.money import read_amount
from loadfactor.settings.table import SettingsTable


class DoneLever(SettingsTable):
    """A lever of `loadfactor savings` that was pulled, and what was promised of it."""

    lever: str = Field(min_length=1, description="Its name, as `loadfactor savings` prints it.")
    done: date = Field(description="The day since which it works, UTC.")
    promised: Decimal | None = Field(default=None, description="What it was to save a month.")
    team: str | None = Field(default=None, min_length=1, description="The team that did it; all, where none is named.")

    @field_validator("promised", mode="before")
    @classmethod
    def _amount(cls, written: Any) -> Decimal | None:
        return None if written is None else read_amount(written, "promised")
