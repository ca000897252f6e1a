"""Runs of jobs as they become known, saying by saying: one entry a run, which keeps the name and number it was told under.

A saying is a row of JOBS without its empty cells. Accounting (sacct, slurmdbd) counts before the controller (scontrol, slurmctld),
which knows sooner, and alone says which GPUs of which node a job has and why it waits.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from loadfactor.base.units import MS_PER_DAY
from loadfactor.sources.slurm.job_table import JOBS, OPEN_STATES
from loadfactor.sources.slurm.notes import Notes
from loadfactor.sources.slurm.runs import number_runs

Saying = dict[str, Any]
Run = dict[str, Any]
"""A saying with `accounted`, whether accounting knows it, `waits` (see `_wait`), and `told_as`: its id and attempt."""

KEPT_MS: Final = MS_PER_DAY
"""So long after its last run ended a job is remembered, for runs that follow."""
UNFINISHED: Final = ("pending", *OPEN_STATES)
VANISHED: Final = "vanished"
_CONTROLLER_ALONE: Final = ("placed", "indices", "restarts", "reason")
_SOONER: Final = ("state", "eligible", "started", "ended", "held", "nodes")
"""What the controller knows of an open job before accounting does."""


def is_open(saying: Mapping[str, Any]) -> bool:
    """Whether more is to come of a run."""
    return saying.get("ended") is None and saying.get("state") in UNFINISHED


class KnownJobs:
    """The runs of each job id."""

    def __init__(self) -> None:
        self.runs: dict[str, list[Run]] = {}
        self.touched: set[str] = set()
        """Ids of which something new was said since they were numbered last."""
        self._numbers: dict[str, str] = {}
        """Ids of the tasks of arrays by their raw number."""

    def put(self, saying: Saying, is_accounting: bool, at_ms: int) -> None:
        """Take what was said at an instant."""
        saying = self._name_task(_set_right(saying, is_accounting, at_ms))
        runs = self.runs.setdefault(saying["job_id"], [])
        known = _find_run(runs, saying)
        if known is None:
            known = {"waits": {}}
            runs.append(known)
        before = dict(known)
        _merge(known, saying, is_accounting, at_ms)
        if saying.get("started") is not None:
            runs[:] = [one for one in runs if one is known or not _is_wait_of(one, known)]
        if known != before:
            self.touched.add(saying["job_id"])

    def _name_task(self, saying: Saying) -> Saying:
        """Under its id, where accounting knows the start of an array's task by its raw number only."""
        number = saying.get("job_number")
        if number is not None:
            self._numbers[number] = saying["job_id"]
            return saying
        task = self._numbers.get(saying["job_id"], "")
        began = saying.get("started")
        if began is not None and any(run.get("started") == began for run in self.runs.get(task, ())):
            return {**saying, "job_id": task, "job_number": saying["job_id"]}
        return saying

    def end(self, job_id: str, at_ms: int) -> int:
        """Nobody knows the job any more: what of it was open ended when it was seen last; how many runs."""
        found = [run for run in self.runs.get(job_id, ()) if is_open(run)]
        for run in found:
            run |= {"state": VANISHED, "ended": max(at_ms, run.get("started") or run.get("submitted") or 0)}
            self.touched.add(job_id)
        return len(found)

    def drop(self, job_id: str) -> None:
        """Forget what waits under an id that nobody uses any more: tasks of an array go on under their own."""
        self.runs.pop(job_id, None)
        self.touched.discard(job_id)

    def number(self, notes: Notes, label: str) -> pa.Table:
        """The runs of the jobs that were touched, as `number_runs` numbers them; what was told of one before stays its name."""
        at_hand = [run for job_id in sorted(self.touched) for run in self.runs.get(job_id, ())]
        self.touched.clear()
        if not at_hand:
            return JOBS.append(pa.field("attempt", pa.float64())).empty_table()
        rows = [
            {name: run.get(name) for name in JOBS.names} | {"line": line, "reason": explain(run)}
            for line, run in enumerate(at_hand)
        ]
        numbered = number_runs(pa.Table.from_pylist(rows, schema=JOBS), notes, label)
        names, attempts = [], []
        for line, name, attempt in zip(*(numbered[c].to_pylist() for c in ("line", "job_id", "attempt")), strict=True):
            told = at_hand[line].setdefault("told_as", [name, attempt])
            names.append(told[0])
            attempts.append(told[1])
        numbered = numbered.set_column(0, "job_id", pa.array(names, pa.string()))
        return numbered.set_column(numbered.num_columns - 1, "attempt", pa.array(attempts, pa.float64()))

    def forget(self, before_ms: int) -> Iterator[str]:
        """The ids whose runs all ended long enough before an instant; they are no longer known."""
        for job_id, runs in list(self.runs.items()):
            if job_id not in self.touched and all(_ended_before(run, before_ms - KEPT_MS) for run in runs):
                del self.runs[job_id]
                for run in runs:
                    self._numbers.pop(run.get("job_number") or "", None)
                yield job_id


def _ended_before(run: Run, at_ms: int) -> bool:
    return not is_open(run) and (run.get("ended") or run.get("started") or run.get("submitted") or 0) < at_ms


def _set_right(saying: Saying, is_accounting: bool, at_ms: int) -> Saying:
    """Without what did not happen: times that are only expected, the start of a job that was cancelled before.

    The reason that the controller gives of a job that waits no longer is why it ended.
    """
    wrong: tuple[str, ...] = ()
    if saying.get("state") == "pending":
        wrong = ("started", "ended", *(("eligible",) if (saying.get("eligible") or 0) > at_ms else ()))
    else:
        wrong += () if is_accounting else ("reason",)
        wrong += ("started",) if saying.get("state") == "cancelled" and not saying.get("held") else ()
    return {name: value for name, value in saying.items() if name not in wrong}


def _find_run(runs: Iterable[Run], saying: Saying) -> Run | None:
    """The run that a saying is of: the one with its start, else the one submitted with it that had none."""
    started, submitted = saying.get("started"), saying.get("submitted")
    alike = [one for one in runs if one.get("cluster") in (None, saying.get("cluster")) or not saying.get("cluster")]
    if started is not None:
        found = next((one for one in alike if one.get("started") == started), None)
        return found or next((one for one in alike if _is_wait_of(one, saying)), None)
    return next((one for one in alike if one.get("submitted") == submitted), None)


def _is_wait_of(one: Run, started: Mapping[str, Any]) -> bool:
    """Whether a run that nobody saw start is the waiting for one that started."""
    return one.get("started") is None and one.get("submitted") == started.get("submitted")


def _merge(run: Run, saying: Saying, is_accounting: bool, at_ms: int) -> None:
    """Put what is said into what is known."""
    _wait(run, saying, is_accounting, at_ms)
    if saying.get("started") is None and run.get("started") is not None:
        return  # an older saying
    is_less = run.get("accounted", False) and not is_accounting
    was_open = is_open(run)
    if run.get("state") == VANISHED:
        del run["state"], run["ended"]
    is_stale = is_open(saying) and "state" in run and not is_open(run)
    for name, value in saying.items():
        if value is None or (is_stale and name in ("state", "ended")):
            continue
        if (
            is_less
            and name not in _CONTROLLER_ALONE
            and run.get(name) is not None
            and not (was_open and name in _SOONER)
        ):
            continue
        if not is_less and name in _CONTROLLER_ALONE and is_accounting and run.get(name) is not None:
            continue
        run[name] = value
    run["accounted"] = run.get("accounted", False) or is_accounting


def _wait(run: Run, saying: Saying, is_accounting: bool, at_ms: int) -> None:
    """Count how long a job waits for which reason: `waits` has ms by reason, `waits_for` the reason now and since when."""
    if is_accounting and saying.get("started") is None and is_open(saying):
        return  # accounting repeats an old reason
    since = run.pop("waits_for", None)
    if since is not None:
        until = saying.get("started") or saying.get("ended") or at_ms
        waited = max(0, until - since[1])
        run["waits"] = run["waits"] | {since[0]: run["waits"].get(since[0], 0) + waited}
    if saying.get("state") == "pending" and saying.get("reason"):
        run["waits_for"] = [saying["reason"], at_ms]


def explain(run: Run) -> str | None:
    """Why a job waited: for the reason that it waited longest for, as far as that was seen; else what Slurm said last."""
    waits: dict[str, int] = run.get("waits", {})
    if run.get("state") == "pending" or not waits:
        said: str | None = run.get("reason")
        return said
    return max(waits, key=lambda reason: waits[reason])
