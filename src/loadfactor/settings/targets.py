"""Targets: the tables [[target]], what a metric of the fleet, a team or a project is to be, by when."""

from datetime import date
from typing import Annotated, Self

from pydantic import Field, model_validator

from loadfactor.settings.table import SettingsTable, unique


class Target(SettingsTable):
    """What a metric is to be by a day, at least or at most: of a team or a project, without either of the fleet."""

    metric: str = Field(min_length=1, description="Name of the metric; `loadfactor metrics` lists them.")
    team: str | None = Field(default=None, min_length=1, description="The team whose target it is.")
    project: str | None = Field(default=None, min_length=1, description="The project whose target it is.")
    at_least: float | None = Field(default=None, description="What it is to reach, in the metric's unit: 0.6 is 60 %.")
    at_most: float | None = Field(default=None, description="What it is to come down to, in place of at_least.")
    due: date = Field(description="The day by which: 2027-06-01.")

    @property
    def goal(self) -> float:
        """What it is to be."""
        return self.at_least if self.at_least is not None else self.at_most or 0.0

    @property
    def where(self) -> dict[str, str]:
        """Whose it is, as a filter."""
        return {name: value for name, value in (("team", self.team), ("project", self.project)) if value}

    @model_validator(mode="after")
    def _has_one_goal(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a target has either at_least or at_most; write at_least = 0.6")
        return self


Targets = Annotated[
    tuple[Target, ...], unique("two targets of {item.metric} for the same; keep one", "metric", "team", "project")
]
"""Targets that differ in metric or owner."""
