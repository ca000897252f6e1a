"""Who holds GPUs at the end of the books: jobs, or the pods of one owner together."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from loadfactor.store.session import Session


@dataclass(frozen=True)
class OpenJob:
    """A job whose end nobody reported: since when it holds GPUs, whose it is, and its tags."""

    job: str
    began_ms: int
    user: str | None
    team: str | None
    pool: str | None
    purpose: str | None
    cluster: str
    namespace: str
    owner: str
    """Kind and name of what owns a pod: Deployment/chat."""


@dataclass(frozen=True)
class Holder:
    """What can be ended by itself: a job, or all pods of one owner. `began_ms` is since when the first of them holds GPUs."""

    name: str
    began_ms: int
    last_began_ms: int
    jobs: tuple[OpenJob, ...]

    @property
    def is_pods(self) -> bool:
        """Whether they are pods of Kubernetes."""
        return bool(self.jobs[0].namespace)

    @property
    def user(self) -> str | None:
        """Their user; None where it is not known, or they have several."""
        users = {job.user for job in self.jobs}
        return users.pop() if len(users) == 1 else None

    @property
    def purpose(self) -> str | None:
        """Their purpose, likewise."""
        purposes = {job.purpose for job in self.jobs}
        return purposes.pop() if len(purposes) == 1 else None


def list_open_jobs(session: Session) -> list[OpenJob]:
    """The jobs whose last run has no end, in order."""
    session.view_table("allocations", "allocations")
    rows = session.raw.execute(
        """SELECT job_id, min(from_utc), max(user), max(team), max(pool), max(purpose), max(tags) FROM allocations
           WHERE to_utc IS NULL AND job_id IS NOT NULL GROUP BY job_id ORDER BY job_id"""
    ).fetchall()
    found = []
    for job, began_ms, user, team, pool, purpose, text in rows:
        tags = json.loads(text) if text else {}
        names = (str(tags.get(name, "")) for name in ("cluster", "namespace", "owner"))
        found.append(OpenJob(job, began_ms, user, team, pool, purpose, *names))
    return found


def group_jobs(jobs: Sequence[OpenJob]) -> list[Holder]:
    """The holders that jobs are, each by itself, pods by what owns them."""
    groups: dict[str, list[OpenJob]] = defaultdict(list)
    for job in jobs:
        groups[f"{job.namespace}/{job.owner}" if job.owner else job.job].append(job)
    return [
        Holder(name, min(of.began_ms for of in own), max(of.began_ms for of in own), tuple(own))
        for name, own in groups.items()
    ]
