"""What `loadfactor.toml` says of every source that `loadfactor up` asks on a schedule: its name, how often, how far back."""

from pydantic import BaseModel, ConfigDict, Field, field_validator

from loadfactor.base.quantities import parse_duration_s


class AskedSource(BaseModel):
    """A source that `loadfactor up` asks: what servers, clouds and clusters have in common."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="", max_length=100, description="What to call it.")
    every: str = Field(default="60s", description="How often it is asked: 30s, 5min.")
    backfill: str = Field(default="", description="How far back to begin the first time: 14d. By default, an hour.")

    @field_validator("every", "backfill")
    @classmethod
    def _long(cls, text: str) -> str:
        if text:
            parse_duration_s(text)
        return text

    @property
    def every_s(self) -> float:
        """Seconds between two questions."""
        return parse_duration_s(self.every)

    @property
    def backfill_s(self) -> float:
        """How many seconds back it begins where nothing was asked yet."""
        return parse_duration_s(self.backfill or "1h")
