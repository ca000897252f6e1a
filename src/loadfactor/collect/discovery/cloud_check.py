"""Which questions about its instances an account or a project answers, and what would allow the others."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from loadfactor.base.errors import LoadfactorError

Refused = Iterable[tuple[str, str]]
"""Each question, and why it may not be asked; empty where it may."""


@dataclass(frozen=True)
class CloudQuestion:
    """One question: `works`, else why not."""

    asked: str
    works: bool
    error: str | None = None


@dataclass(frozen=True)
class CloudCheck:
    """One account or project."""

    name: str
    questions: tuple[CloudQuestion, ...]


def check_instances(clouds: Mapping[str, Callable[[], Refused]]) -> list[CloudCheck]:
    """What each of them answers, by name. Raises no LoadfactorError."""
    found = []
    for name, find_refused in clouds.items():
        try:
            said = [CloudQuestion(asked, not error, error or None) for asked, error in find_refused()]
        except LoadfactorError as error:
            said = [CloudQuestion("instances", works=False, error=str(error))]
        found.append(CloudCheck(name, tuple(said)))
    return found
