"""Energy and carbon: the table [energy], what a GPU draws where nobody measured it, and what the building and the grid add."""

from typing import Self

from pydantic import Field, model_validator

from loadfactor.settings.table import HomePath, SettingsTable


class EnergySettings(SettingsTable):
    """What energy at the meter and its carbon are worked out of, besides measured power."""

    pue: float | None = Field(
        default=None,
        ge=1,
        description="Power into the building over power into the GPUs, where `grid` does not say it.",
    )
    grid: HomePath | None = Field(
        default=None, description="CSV of region, hour (UTC, empty: every hour), kgco2e_per_kwh and perhaps pue."
    )
    region: str = Field(default="", description="Region of the grid in which GPUs of no pool in `regions` are.")
    regions: dict[str, str] = Field(default={}, description="Region of the grid by pool.")
    held_percent: float | None = Field(
        default=None, ge=0, le=100,
        description="Estimated power of a held GPU whose power nobody measured, of its full power. By default unknown.",
    )  # fmt: skip
    free_percent: float | None = Field(
        default=None, ge=0, le=100, description="The same of a GPU that nobody holds. By default unknown."
    )
    gpu_w: dict[str, float] = Field(
        default={}, description="Full power of a GPU by accelerator, W; the catalog's by default."
    )
    statements: bool = Field(default=False, description="Whether statements say the energy and carbon of a team.")

    @property
    def is_given(self) -> bool:
        """Whether anything is known besides measured power."""
        return self.pue is not None or self.grid is not None or not (self.held_percent is self.free_percent is None)

    @property
    def basis(self) -> str:
        """How power is estimated where nobody measured it, in words; empty where it is not.

        >>> EnergySettings(held_percent=60).basis
        'where power was not measured, 60 % of full power of a held GPU'
        """
        parts = [
            f"{percent:g} % of full power of a {words} GPU"
            for percent, words in ((self.held_percent, "held"), (self.free_percent, "free"))
            if percent is not None
        ]
        return f"where power was not measured, {' and '.join(parts)}" if parts else ""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if any(not watts > 0 for watts in self.gpu_w.values()):
            raise ValueError("a power in gpu_w is not above 0; write watts, like 700")
        if self.grid is not None and not (self.region or self.regions):
            raise ValueError("say in which region of the grid the GPUs are: region, or regions by pool")
        return self
