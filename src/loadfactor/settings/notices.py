"""Whom notices reach, and which users are called wasteful: the tables [notices] and [wasteful]."""

from fnmatch import fnmatchcase

from pydantic import Field

from loadfactor.settings.table import SettingsTable


class NoticesTable(SettingsTable):
    """What is told to users of their own jobs, and of them to others."""

    opt_out: tuple[str, ...] = Field(
        default=(),
        description="Users who get no notice and are in no list of wasteful users: names as the books have them, with * and ?.",
    )

    def leaves_out(self, user: str | None) -> bool:
        """Whether a user opted out."""
        return user is not None and any(fnmatchcase(user, pattern) for pattern in self.opt_out)


class WastefulRule(SettingsTable):
    """From when on `loadfactor users --wasteful` names a user: one of both rules, of time that was observed enough."""

    utilization_below: float = Field(
        default=0.15, ge=0, le=1, description="Named: mean GPU utilization of the observed time below this share."
    )
    least_gpu_hours: float = Field(
        default=24.0, ge=0, description="Low utilization counts over at least so many held GPU-hours."
    )
    idle_gpu_hours: float = Field(default=24.0, gt=0, description="Named, too: at least so many idle GPU-hours.")
    least_coverage: float = Field(
        default=0.5, gt=0, le=1, description="Share of the held time that must have been observed."
    )
