"""Held time without experiment, team, project or purpose: how much it is, what it cost, and the rule that would give it one."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from loadfactor.base.errors import InputError, no_such
from loadfactor.metrics.query.question import UNKNOWN_HOLDER
from loadfactor.metrics.query.reading import Readings, iso
from loadfactor.store.session import Session
from loadfactor.tables.tagging import ORIGINAL, read_object
from loadfactor.tables.tagging_rules import GIVES, PREFIXES, TAGS

ASKED: Final = ("allocated_gpu_hours", "cost")
OF_A_JOB: Final = ("user", "team", "project", "queue", "pool", "job")
"""Dimensions of untagged time, besides tags."""
DEFAULT_BY: Final = ("user", "team")
OFTEN: Final = 0.1
"""A tag is suggested where jobs that have it hold at least so much of the untagged time."""
MOST_HINTS: Final = 3
_TELLING: Final = ("experiment", "exp", "run", "wandb", "mlflow")
"""Words in the names of tags that say what a job is an experiment of."""

Ask = Callable[[Sequence[str], Sequence[str]], Readings]
"""Readings of metrics by dimensions, in the window requested."""


@dataclass
class HeldTime:
    """Held GPU-hours and their cost; None where no price of it is known."""

    gpu_hours: float = 0.0
    cost: float | None = None

    def add(self, hours: float, cost: float | None) -> None:
        """More of it."""
        self.gpu_hours += hours
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost


@dataclass(frozen=True)
class UntaggedGroup:
    """Held time without experiment of one group. `missing` is what its jobs lack; `rule` would give them an experiment."""

    by: dict[str, str | None]
    gpu_hours: float
    cost: float | None
    jobs: int
    missing: tuple[str, ...]
    match: str | None
    rule: str | None


@dataclass(frozen=True)
class TagHint:
    """A tag that many jobs without experiment have: a rule could take it as the experiment."""

    tag: str
    gpu_hours: float
    experiment: str


@dataclass(frozen=True)
class Untagged:
    """Time without tags. Shares are of held time and of its cost, None where there is none; `without` by what is missing."""

    window: dict[str, str]
    currency: str
    tagged_share: float | None
    tagged_cost_share: float | None
    rows: tuple[UntaggedGroup, ...]
    held: HeldTime
    without: dict[str, HeldTime]
    unattributed: HeldTime
    hints: tuple[TagHint, ...]


_NOTHING_SAID: Final = (None, None, None, None)


@dataclass(frozen=True, slots=True)
class _Job:
    """Values in the allocations of a job."""

    columns: Mapping[str, str | None]
    tags: Mapping[str, Any]
    reported: Mapping[str, Any]

    def find(self, name: str) -> str | None:
        """The value of a dimension that a list can be by and rules can match; None where it has none."""
        found = self.columns.get(name) if name in OF_A_JOB else self.tags.get(name)
        return found if isinstance(found, str) and found else None


@dataclass
class _Group:
    held: HeldTime = field(default_factory=HeldTime)
    jobs: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    match: dict[str, str] = field(default_factory=dict)


def check_by(by: Sequence[str]) -> tuple[str, ...]:
    """Check the dimensions of a list. Raises InputError naming what nothing can be listed by."""
    for name in by:
        if name not in OF_A_JOB and name not in TAGS and not name.startswith(PREFIXES):
            raise no_such("dimension", name, (*OF_A_JOB, *TAGS, "label.NAME"))
    return tuple(dict.fromkeys(by)) or DEFAULT_BY


def find_untagged(session: Session, ask: Ask, by: Sequence[str]) -> Untagged:
    """Held time without tags, the most expensive group first. Every number is a reading of the ledger, or a sum of them."""
    by = check_by(by)
    jobs = _read_jobs(session)
    readings = ask(ASKED, ("job", "user", "team", *[name for name in GIVES if name != "team"]))
    groups: dict[tuple[str | None, ...], _Group] = {}
    total, without = HeldTime(), {name: HeldTime() for name in GIVES}
    by_tag: dict[str, float] = {}
    for job, (user, team, experiment, project, purpose), hours, cost in _list_held(readings):
        has = {"experiment": experiment, "team": team, "project": project, "purpose": purpose}
        total.add(hours, cost)
        missing = [name for name, value in has.items() if value is None]
        for name in missing:
            without[name].add(hours, cost)
        if experiment is not None:
            continue
        queue, pool, tags, original = jobs.get(job, _NOTHING_SAID)
        columns = {"job": job, "user": user, "team": team, "project": project, "queue": queue, "pool": pool}
        known = _Job(columns, read_object(tags), read_object(original))
        values = tuple(known.find(name) for name in by)
        group = groups.setdefault(values, _Group(match=_match(by, values, known)))
        group.held.add(hours, cost)
        group.jobs.add(job)
        group.missing.update(missing)
        for tag in known.tags:
            by_tag[tag] = by_tag.get(tag, 0.0) + hours
    if not readings:
        raise InputError("nothing was held in that time; `loadfactor show paid_gpu_hours --by job` says what there was")
    untagged = without["experiment"]
    first = readings[0]
    (unknown,) = _list_unattributed(ask)
    return Untagged(
        {"from": iso(first.start), "to": iso(first.end)},
        next(r.currency for r in readings if r.currency),
        _share(untagged.gpu_hours, total.gpu_hours),
        _share(untagged.cost or 0.0, total.cost or 0.0),
        tuple(sorted((_finish(by, key, group) for key, group in groups.items()), key=_rank)),
        total,
        without,
        unknown,
        tuple(_list_hints(by_tag, untagged.gpu_hours)),
    )


def _list_held(readings: Readings) -> Iterator[tuple[str, Sequence[str | None], float, float | None]]:
    """Of every job what it held and that cost: job, holder, GPU-hours, cost."""
    hours, costs = (readings.column(name) for name in ASKED)
    for key, held, cost in zip(readings.keys, hours, costs, strict=True):
        job = key[0]
        if job is not None and job != UNKNOWN_HOLDER and isinstance(held, float) and held > 0:
            yield job, key[1:], held, cost if isinstance(cost, float) else None


def _list_unattributed(ask: Ask) -> Iterator[HeldTime]:
    hours, cost = (r.value for r in ask(("unattributed_gpu_hours", "unattributed_cost"), ()))
    yield HeldTime(hours if isinstance(hours, float) else 0.0, cost if isinstance(cost, float) else None)


def _read_jobs(session: Session) -> dict[str, tuple[str | None, ...]]:
    """Of each job queue, pool, tags and original holder, as its allocations say; of several texts the greatest."""
    session.view_table("allocations", "allocations")
    columns = ("queue", "pool", "tags", ORIGINAL)
    latest = ", ".join(f"max({column}) AS {column}" for column in columns)
    rows = session.raw.execute(f"SELECT job_id, {latest} FROM allocations GROUP BY job_id").fetchall()
    return {job: texts for job, *texts in rows}


def _match(by: Sequence[str], values: Sequence[str | None], job: _Job) -> dict[str, str]:
    """Match of a rule that would find the jobs of a group, from what their source reported."""
    found = {}
    for name, value in zip(by, values, strict=True):
        reported = job.reported.get(name, value)
        if reported:
            found["job_id" if name == "job" else name] = reported
    return found


def _finish(by: Sequence[str], key: tuple[str | None, ...], group: _Group) -> UntaggedGroup:
    missing = tuple(name for name in GIVES if name in group.missing)
    match = write_match(group.match) if group.match else None
    rule = match and f'[[tag]]\nmatch = {match}\nexperiment = "NAME"\n'
    named = dict(zip(by, key, strict=True))
    return UntaggedGroup(named, group.held.gpu_hours, group.held.cost, len(group.jobs), missing, match, rule)


def _rank(group: UntaggedGroup) -> tuple[float, float, str]:
    return -(group.cost or 0.0), -group.gpu_hours, str(group.by)


def _share(part: float, whole: float) -> float | None:
    """The rest of the whole; None of nothing."""
    return None if not whole else max(0.0, 1 - part / whole)


def _list_hints(by_tag: Mapping[str, float], hours: float) -> Iterator[TagHint]:
    """The tags that could say what experiment the untagged jobs are of, the most frequent first."""
    telling = [tag for tag in by_tag if tag in ("comment", "wckey") or any(word in tag.lower() for word in _TELLING)]
    often = sorted((tag for tag in telling if by_tag[tag] >= OFTEN * hours), key=lambda tag: (-by_tag[tag], tag))
    for tag in often[:MOST_HINTS]:
        yield TagHint(tag, by_tag[tag], f"{{{tag}}}")


def write_match(match: Mapping[str, str]) -> str:
    """Write a rule's match as it stands in loadfactor.toml; values are meant as they are, not as globs.

    >>> write_match({"user": "ann", "label.app": "a*"})
    '{ user = "ann", "label.app" = "a[*]" }'
    """
    escaped = {name: "".join(f"[{c}]" if c in "*?[" else c for c in value) for name, value in match.items()}
    cells = ", ".join(
        f"{json.dumps(n) if '.' in n else n} = {json.dumps(v, ensure_ascii=False)}" for n, v in escaped.items()
    )
    return f"{{ {cells} }}"
