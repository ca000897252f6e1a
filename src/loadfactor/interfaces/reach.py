"""The reach of whoever asks a server: everything, or what one team held or waited for. One place for endpoints and pages."""

from collections.abc import Mapping

from loadfactor.base.errors import InputError, no_such
from loadfactor.books.snapshot import Snapshot
from loadfactor.metrics.query.question import UNKNOWN_HOLDER
from loadfactor.tables.schema import DIMENSIONS

NAMING = ("paid_gpu_hours", "queue_waiting")
"""Metrics that speak of everything a team held or waited for."""


class RefusedError(Exception):
    """A request that is not admitted, with the status that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def is_empty(snapshot: Snapshot) -> bool:
    """True where the books know of no time at all: nothing was received or imported yet."""
    try:
        first, last = snapshot.span
    except InputError:
        return True
    return first == last


class NothingKnownError(Exception):
    """The books know nothing yet of what may be read."""


def list_teams(snapshot: Snapshot) -> set[str]:
    found: set[str] = set()
    for name in ("allocations", "queue_events"):
        rows = snapshot.view(name)
        found |= {team for team in snapshot.fetch(rows.select("team").distinct())["team"].to_pylist() if team}
    return found


def keep_to_team(snapshot: Snapshot, filters: Mapping[str, str], team: str | None) -> dict[str, str]:
    """The filters, with the team of the token among them; as they are where it reads every team.

    Raises RefusedError for another team, InputError for a value that this team has nothing of, and NothingKnownError where the
    books do not know the team. None of them says what other teams have.
    """
    if team is None:
        return dict(filters)
    if filters.get("team", team) != team:
        raise RefusedError(403, f"this token reads team {team!r} alone; leave where=team=… out")
    if team == UNKNOWN_HOLDER or team not in list_teams(snapshot):
        raise NothingKnownError
    for name, value in filters.items():
        if name not in DIMENSIONS:
            raise no_such("dimension", name, DIMENSIONS)
        if name in ("team", "state", "hour", "day", "week", "month"):
            continue  # `show` says that nothing can be chosen by time
        if value not in names_of_team(snapshot, name, team):
            raise InputError(
                f"no {name} called {value!r} in what team {team!r} held or asked for; leave it out to see all"
            )
    return {**filters, "team": team}


def names_of_team(snapshot: Snapshot, dimension: str, team: str) -> set[str | None]:
    """The values of a dimension in what a team held or waited for."""
    return {key for (key,) in snapshot.show(NAMING, [dimension], where={"team": team}).keys}
