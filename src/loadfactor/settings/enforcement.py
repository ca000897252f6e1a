"""What is done to holders that leave their GPUs idle: the tables [[enforce]], each of teams that it names."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from loadfactor.settings.digests import is_address
from loadfactor.settings.sla import matches
from loadfactor.settings.table import Duration, SettingsTable, unique

SCANCEL, SCALE, NOTHING = "scancel", "scale to zero", "nothing"


class EnforceTable(SettingsTable):
    """A policy: which holders of which teams, what decides, who is warned, and what follows after the grace."""

    name: str = Field(min_length=1, max_length=80, description="Name of the policy.")
    team: tuple[str, ...] = Field(min_length=1, description="The teams that it is for, each by its name: no patterns.")
    metric: str = Field(default="utilization", description="The metric that decides, a share; `loadfactor metrics`.")
    below: float | None = Field(default=None, ge=0, le=1, description="Idle where it is below this share: 0.01.")
    above: float | None = Field(default=None, ge=0, le=1, description="Or above this one, of metrics like idle_share.")
    window: Duration = Field(default=Duration("1h"), description="Over the last so much time, all of it held.")
    least_coverage: float = Field(
        default=0.95, gt=0, le=1, description="Share of that time that must have been observed to be judged."
    )
    pool: tuple[str, ...] = Field(default=("*",), description="Of holders in these pools, with * and ?.")
    allow_users: tuple[str, ...] = Field(default=(), description="Users to whom nothing is done, with * and ?.")
    allow_jobs: tuple[str, ...] = Field(default=(), description="Jobs to which nothing is done, by id, with * and ?.")
    allow_purposes: tuple[str, ...] = Field(
        default=(), description='Purposes to which nothing is done: ["notebook*", "serving"].'
    )
    to: tuple[str, ...] = Field(
        min_length=1, description="Addresses that are warned; {user} and {team} stand for names: {user}@example.com."
    )
    copy_to: tuple[str, ...] = Field(default=(), description="Addresses that get a copy of each warning and act.")
    grace: Duration = Field(default=Duration("1h"), description="Time between a warning that was taken and the act.")
    act: Literal["scancel", "scale to zero", "nothing"] = Field(
        description="What is done to a job of Slurm, to the owner of pods, or after the warning nothing more."
    )
    cluster: str = Field(default="", description="Name of the [[slurm]] or [[kubernetes]], where there are several.")
    most: int = Field(default=5, ge=1, le=1000, description="Acts at most in one call; the others wait for the next.")
    stale_after: Duration = Field(
        default=Duration("15min"), description="Nobody is judged where the books end longer ago than this."
    )

    @property
    def says(self) -> str:
        """What decides, in words."""
        limit = f"below {self.below:g}" if self.below is not None else f"above {self.above:g}"
        return f"{self.metric} {limit} over {self.window}"

    def is_idle(self, value: float) -> bool:
        """Whether a value of the metric is that of an idle holder."""
        return value < self.below if self.below is not None else value > (self.above or 0.0)

    def find_allowed(self, user: str | None, jobs: tuple[str, ...], purpose: str | None) -> str:
        """Why nothing is done to a holder; empty where something may be."""
        if user is not None and matches(user, self.allow_users):
            return f"user {user} is allowed"
        if any(matches(job, self.allow_jobs) for job in jobs):
            return "the job is allowed"
        if purpose is not None and matches(purpose, self.allow_purposes):
            return f"purpose {purpose} is allowed"
        return ""

    @field_validator("team")
    @classmethod
    def _named(cls, teams: tuple[str, ...]) -> tuple[str, ...]:
        for team in teams:
            if not team.strip() or any(c in team for c in "*?["):
                raise ValueError(f"{team!r} names no team; a policy is for teams by their names, without patterns")
        return teams

    @field_validator("to", "copy_to")
    @classmethod
    def _addressed(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for address in addresses:
            if not is_address(address.replace("{team}", "x").replace("{user}", "x")):
                raise ValueError(f"{address!r} is no address; write {{user}}@example.com")
        return addresses

    @model_validator(mode="after")
    def _decides(self) -> Self:
        if (self.below is None) == (self.above is None):
            raise ValueError("say below or above, one of the two: below = 0.01")
        return self


Policies = Annotated[tuple[EnforceTable, ...], unique("two [[enforce]] are called {item.name!r}; keep one", "name")]
"""Policies of different names."""
