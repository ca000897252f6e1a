"""Jobs as every decoder of Slurm's output hands them over: one row a run of a job, whatever it was written in."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from itertools import groupby, pairwise, product
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.base.units import MS_PER_DAY, MS_PER_S, S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.sources.parsing.cells import find_failing, quote
from loadfactor.sources.parsing.times import LocalClock
from loadfactor.sources.slurm.gpus import Notes
from loadfactor.tables.schema import ALWAYS

TEXTS: Final = (
    "job_id",  # as people write it: 102_1
    "job_number",  # the raw id, where it is known
    "cluster",
    "user",
    "account",
    "wckey",
    "qos",
    "partition",
    "job_name",
    "comment",
    "admin_comment",
    "reservation",
    "reason",  # why it waits, or waited last
    "state",  # the first word, in lower case: running, cancelled
    "held",  # TRES or GRES that it was given
    "requested",  # TRES or GRES
    "nodes",  # hostlist
    "placed",  # GPUs on each of its nodes, where that is known: n1=3,n2=1
    "gres",  # what its nodes gave, where that names the model of its GPUs and TRES do not
    "indices",  # which of them these are, as Slurm numbers them, where that is known: n1=0 1 2,n2=5
)
INSTANTS: Final = ("submitted", "eligible", "started", "ended")
"""Milliseconds since 1970 UTC; null where it has not happened."""
JOBS: Final = pa.schema(
    [
        *((name, pa.string()) for name in TEXTS),
        *((name, pa.int64()) for name in INSTANTS),
        ("known_until", pa.int64()),  # of a job that still ran: when Slurm was queried, in ms
        ("restarts", pa.int64()),
        ("line", pa.int64()),  # where it stands in its input
    ]
)
OPEN_STATES: Final = ("running", "suspended", "completing", "configuring", "stopped", "signaling", "stage_out")
"""States of jobs that hold their GPUs. A suspended job keeps them: Slurm stops its processes and frees nothing of them."""
EXPECTED_END: Final = ("pending", "running", "suspended", "configuring", "stopped", "signaling")
"""States of jobs whose end scontrol, squeue and slurmrestd expect; sacct writes none."""
REQUEUED_STATES: Final = ("requeued", "preempted", "node_fail", "boot_fail", "resizing", "requeue_hold", "special_exit")
"""States that a run may end in that is followed by another run of the same job."""
NEVER: Final = ("", "none", "unknown", "n/a", "(null)", "null", "invalid", "infinite", "notset")
"""Words for a text or a time that is not there, in lower case."""
_LONG_STATES: Final = (
    "cancelled",
    "completed",
    "completing",
    "configuring",
    "node_fail",
    "out_of_memory",
    "preempted",
    "special_exit",
    "suspended",
)
GUESSED: Final = "local times in the hour that comes twice, which nothing tells apart: taken for the first of the two"
ZONE_REMEDY: Final = "name it with --timezone Europe/Berlin, or write UTC: TZ=UTC sacct …, SLURM_TIME_FORMAT=%s"
_LOCAL: Final = pa.timestamp("ms")
_ZONED: Final = pa.timestamp("ms", "UTC")
_MOST_SECONDS: Final = 2**33  # what stands for a time that is not set lies below
Pair = tuple[NDArray[np.int64], NDArray[np.int64]]
_CLOCK: Final[tuple[int, ...]] = (1, S_PER_MIN, S_PER_HOUR)
MISSING_RUNS: Final = "jobs whose runs before a requeue are missing: export with --duplicates (-D)"
_LATER: Final = ALWAYS[1]
_PLACES: Final = ("placed", "indices", "gres")
"""Columns of a run that one command reports, and another one, which knows its end, does not."""
_COMPARED: Final = (
    "job_id",
    "cluster",
    "user",
    "account",
    "job_name",
    "state",
    "submitted",
    "started",
    "ended",
    "restarts",
    *_PLACES,
)
Row = dict[str, Any]


def make_jobs(records: list[dict[str, Any]], queried_ms: int | None = None) -> pa.Table:
    """Records with any of these columns as a table with all of them; of a job that runs the end is what it may last to at most.

    `queried_ms`: when Slurm was queried, where that is known; a record's `ran_ms`, how long its job has run, may say it as well.
    """
    for record in records:
        if record.get("state") in OPEN_STATES and None not in (record.get("started"), record.get("ran_ms")):
            queried_ms = max(queried_ms or 0, record["started"] + record["ran_ms"])
    for record in records:
        record["known_until"] = queried_ms
        if _is_requeued(record, queried_ms):
            record |= {"state": "pending", "started": None}
        if record.get("state") in EXPECTED_END:
            record["ended"] = None
    return pa.Table.from_pylist([{name: record.get(name) for name in JOBS.names} for record in records], schema=JOBS)


def _is_requeued(record: Row, queried_ms: int | None) -> bool:
    """Whether a job that completes was requeued: nodes are cleaned up after its run, and its times are those expected of the next.

    The controller reports it as begun in the second of the query, with an end that is unknown or to come.
    """
    if record.get("state") != "completing" or record.get("ran_ms"):
        return False
    if record.get("ended") is None:  # a table of squeue may lack the column
        return record.get("ran_ms") == 0 or bool(record.get("restarts"))
    return queried_ms is not None and record["ended"] > queried_ms


def name_job(number: str, array: str | None, task: str | None, het: str | None, offset: str | None) -> str:
    """The id of a job as people write it, from its number, its array and task, or its heterogeneous job and place there.

    >>> name_job("103", "102", "1", None, None), name_job("2", "2", "3-5%2", None, None), name_job("201", None, None, "200", "1")
    ('102_1', '2_[3-5%2]', '200+1')
    """
    if array and task:
        return f"{array}_{task}" if task.isdigit() else f"{array}_[{task}]"
    return f"{het}+{offset}" if het and offset else number


def read_text(value: object) -> str | None:
    """A text, None where Slurm writes that there is none."""
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    return None if text.lower() in NEVER else text


def read_state(text: str | None) -> str | None:
    """The state of a job without who cancelled it; sacct without -P cuts it off with a +.

    >>> read_state("CANCELLED by 1001"), read_state("OUT_OF_ME+"), read_state("")
    ('cancelled', 'out_of_memory', None)
    """
    words = (text or "").split()
    if not words:
        return None
    state = words[0].lower()
    if state.endswith("+"):
        state = next((name for name in _LONG_STATES if name.startswith(state[:-1])), state[:-1])
    return state


class JobTimes:
    """Reads the columns of times of one input."""

    def __init__(self, label: str, zone: tzinfo | None, notes: Notes) -> None:
        self._label, self._notes = label, notes
        self._clock = LocalClock(zone) if zone is not None else None
        self._is_utc = zone is UTC or str(zone) == "UTC"

    def convert(
        self, texts: Mapping[str, pa.Array], lines: NDArray[np.int64], ran_ms: pa.Array | None
    ) -> dict[str, pa.Array]:
        """Columns of text by name (as INSTANTS) as int64 ms; null where it has not happened.

        `ran_ms` is how long each job lasted from start to end, where that is known. SourceError names the line of a text that is
        no time, of a local time while no zone is named, and of one that the zone does not have.
        """
        pairs = {name: self._read(name, column, lines) for name, column in texts.items()}
        known = {name: column.is_valid().to_numpy(zero_copy_only=False) for name, (column, _) in pairs.items()}
        plain: dict[str, Pair] = {}
        for name, (column, is_local) in pairs.items():
            values = column.fill_null(0).to_numpy(zero_copy_only=False)
            plain[name] = self._place(name, values, known[name], lines) if is_local else (values, values)
        chosen = self._choose_instants(plain, known, lines, ran_ms)
        return {
            name: pa.array(values, mask=~(known[name] & (values >= EARLIEST_MS) & (values <= LATEST_MS)))
            for name, values in chosen.items()
        }

    def _read(self, name: str, column: pa.Array, lines: NDArray[np.int64]) -> tuple[pa.Array, bool]:
        """Milliseconds since 1970, and whether they are of the local clock."""
        never = pc.is_in(pc.utf8_lower(column), pa.array(NEVER))
        texts = pc.if_else(never, pa.scalar(None, pa.string()), column)
        if texts.null_count == len(texts):
            return pa.nulls(len(texts), pa.int64()), False
        try:
            return pc.cast(pc.cast(texts, _LOCAL), pa.int64()), True
        except pa.ArrowInvalid:
            pass
        try:
            return self._read_seconds(name, pc.cast(texts, pa.int64()), lines), False
        except pa.ArrowInvalid:
            pass
        first = texts.drop_null()[0].as_py()
        target = pa.int64() if first.isdigit() else _LOCAL
        try:
            if not first.isdigit():
                return pc.cast(pc.cast(texts, _ZONED), pa.int64()), False
        except pa.ArrowInvalid:
            target = _ZONED if first[10:].endswith("Z") or "+" in first or "-" in first[10:] else _LOCAL
        index = find_failing(texts, lambda part: pc.cast(part, target))
        raise SourceError(
            f"{self._label}, line {lines[index]}: {name} {quote(texts[index].as_py())} is no time as the lines above have it; "
            "write 2026-05-01T12:00:00 or seconds since 1970 throughout"
        )

    def _read_seconds(self, name: str, seconds: pa.Array, lines: NDArray[np.int64]) -> pa.Array:
        """Seconds since 1970; 0 is no time."""
        values = seconds.fill_null(0).to_numpy(zero_copy_only=False)
        wrong = ((values < EARLIEST_MS // MS_PER_S) & (values != 0)) | (values > _MOST_SECONDS)
        if wrong.any():
            index = int(wrong.argmax())
            raise SourceError(
                f"{self._label}, line {lines[index]}: {name} {values[index]} is no time in seconds since 1970"
            )
        return pa.array(values * MS_PER_S, mask=(values == 0))

    def _place(self, name: str, local: NDArray[np.int64], known: NDArray[np.bool_], lines: NDArray[np.int64]) -> Pair:
        """Both instants that each local time can mean."""
        if self._clock is None:
            index = int(known.argmax())
            written = str(np.datetime64(int(local[index]), "s" if local[index] % MS_PER_S else "ms"))[:19]
            raise SourceError(f"{self._label}, line {lines[index]}: {name} {written} has no time zone; {ZONE_REMEDY}")
        if self._is_utc:
            return local, local
        try:
            first, second = self._clock.find_candidates(local)
        except (OverflowError, ValueError):
            raise SourceError(f"{self._label}: {name} holds years that no calendar reaches") from None
        skipped = (first > second) & known
        if skipped.any():
            index = int(skipped.argmax())
            written = str(np.datetime64(int(local[index]), "ms"))[:19]
            raise SourceError(
                f"{self._label}, line {lines[index]}: {name} {written} does not exist in {self._clock.zone}, where the clock was "
                "set forward; is that the zone the times were written in?"
            )
        return first, second

    def _choose_instants(
        self,
        plain: dict[str, Pair],
        known: Mapping[str, NDArray[np.bool_]],
        lines: NDArray[np.int64],
        ran_ms: pa.Array | None,
    ) -> dict[str, NDArray[np.int64]]:
        """One of both instants of each time: the one that fits the others of its job, else the first."""
        out = {name: first.copy() for name, (first, _) in plain.items()}
        twice = {name: (second > first) & known[name] for name, (first, second) in plain.items()}
        rows: list[int] = np.flatnonzero(np.logical_or.reduce(list(twice.values()))).tolist() if twice else []
        guessed = 0
        order = [name for name in INSTANTS if name in plain]
        for row in rows:
            choices = [
                (int(plain[n][0][row]), int(plain[n][1][row])) if twice[n][row] else (int(plain[n][0][row]),)
                for n in order
            ]
            ran = ran_ms[int(row)].as_py() if ran_ms is not None else None
            fitting = [c for c in product(*choices) if _fits(dict(zip(order, c, strict=True)), known, row, ran)]
            guessed += len(fitting) != 1
            for name, value in zip(order, fitting[0] if fitting else [c[0] for c in choices], strict=True):
                out[name][row] = value
        self._notes.add(self._label, GUESSED, guessed, int(lines[rows[0]]) if guessed else None)
        return out


def _fits(times: Mapping[str, int], known: Mapping[str, NDArray[np.bool_]], row: int, ran_ms: int | None) -> bool:
    there = [times[name] for name in INSTANTS if name in times and known[name][row]]
    if any(later < earlier for earlier, later in pairwise(there)):
        return False
    if ran_ms is None or not all(name in times and known[name][row] for name in ("started", "ended")):
        return True
    return times["ended"] - times["started"] == ran_ms


def parse_elapsed_s(text: str | None) -> int | None:
    """Seconds of `1-02:03:04`, `02:03:04`, `03:04`, or of a plain number of seconds; None where it is none.

    >>> parse_elapsed_s("1-02:03:04"), parse_elapsed_s("00:00:09"), parse_elapsed_s("90"), parse_elapsed_s("Unknown")
    (93784, 9, 90, None)
    """
    days, dash, clock = (text or "").strip().rpartition("-")
    parts = clock.partition(".")[0].split(":")
    if not all(part.isdigit() for part in [*parts, *([days] if dash else [])]) or len(parts) > len(_CLOCK):
        return None
    seconds = sum(int(part) * unit for part, unit in zip(reversed(parts), _CLOCK, strict=False))
    return seconds + (int(days) * S_PER_DAY if dash else 0)


def find_repeated(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The keys that come more than once, in order."""
    ordered = np.sort(keys)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def number_single_runs(jobs: pa.Table, notes: Notes, label: str) -> pa.Table:
    """Jobs whose id comes once, with the column `attempt`: how often it was requeued, null where nobody says it."""
    restarts = jobs["restarts"].fill_null(0).to_numpy()
    if (missing := int((restarts > 0).sum())) > 0:
        notes.add(label, MISSING_RUNS, missing, jobs["line"][int((restarts > 0).argmax())].as_py())
    return jobs.append_column("attempt", jobs["restarts"].cast(pa.float64()))


def number_runs(jobs: pa.Table, notes: Notes, label: str) -> pa.Table:
    """Rows of ids that come more than once as the runs they are, with the column `attempt`; each run once.

    Of two rows of one run the one that knows its end counts. A run is an attempt of the same job where the one before it ended in a
    requeue, or was of the same user, account and name and ended within a day before; else it is another job with the same id, which
    is called `id@` and when it was submitted (or its cluster, where that differs).
    """
    rows: list[Row] = jobs.select(_COMPARED).to_pylist()
    for number, row in enumerate(rows):
        row["row"] = number
    for of_job in _group_by_id(rows):
        named = {row["cluster"] for row in of_job} - {None}
        for row in of_job:  # not every command says the cluster
            row["cluster"] = row["cluster"] if len(named) > 1 else None
    rows.sort(key=lambda r: (r["job_id"], r["cluster"] or "", *_when(r), r["row"]))
    kept: list[Row] = []
    for job_id, group in groupby(rows, key=lambda r: str(r["job_id"])):
        for number, runs in enumerate(_split_jobs(_drop_older_reports(list(group)))):
            _count_attempts(runs)
            name = job_id
            if number:
                cluster = runs[0]["cluster"] if runs[0]["cluster"] != kept[-1]["cluster"] else None
                name = f"{job_id}@{cluster or _write_start(runs[0]) or number + 1}"
            if runs[-1]["attempt"] >= len({r["attempt"] for r in runs}):
                notes.add(label, MISSING_RUNS, 1, jobs["line"][runs[-1]["row"]].as_py())
            for run in runs:
                run["job_id"] = name
            kept += runs
    out = jobs.take(pa.array([run["row"] for run in kept], pa.int64()))
    out = out.set_column(out.column_names.index("job_id"), "job_id", pa.array([r["job_id"] for r in kept], pa.string()))
    for name in _PLACES:
        out = out.set_column(out.column_names.index(name), name, pa.array([run[name] for run in kept], pa.string()))
    return out.append_column("attempt", pa.array([float(run["attempt"]) for run in kept], pa.float64()))


def _group_by_id(rows: list[Row]) -> Iterator[list[Row]]:
    by_id: dict[str, list[Row]] = {}
    for row in rows:
        by_id.setdefault(row["job_id"], []).append(row)
    yield from by_id.values()


def _when(row: Row) -> tuple[int, int, int]:
    """When a run was submitted, began and ended; never is later than any time."""
    begun = row["started"] if row["started"] is not None else _LATER
    submitted = row["submitted"] if row["submitted"] is not None else begun
    return submitted, begun, row["ended"] if row["ended"] is not None else _LATER


def _drop_older_reports(rows: list[Row]) -> list[Row]:
    """Each run once; one that is known from before it started counts only where no other is."""
    best: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = (row["cluster"], row["submitted"], row["started"])
        known = best.get(key)
        if known is None or known["state"] in OPEN_STATES or known["ended"] is None:
            best[key] = row
        if known is not None:
            best[key] |= {name: row[name] or known[name] for name in _PLACES}
    begun = {(r["cluster"], r["submitted"]) for r in best.values() if r["started"] is not None}
    return [r for r in best.values() if r["started"] is not None or (r["cluster"], r["submitted"]) not in begun]


def _split_jobs(runs: list[Row]) -> Iterator[list[Row]]:
    job: list[Row] = []
    for run in runs:
        if job and not _follows(job[-1], run):
            yield job
            job = []
        job.append(run)
    if job:
        yield job


def _follows(before: Row, run: Row) -> bool:
    if before["cluster"] != run["cluster"]:
        return False
    if before["submitted"] is not None and before["submitted"] == run["submitted"]:
        return True
    if before["restarts"] is not None and run["restarts"] is not None:
        return bool(run["restarts"] > before["restarts"])
    if before["state"] in REQUEUED_STATES:
        return True
    alike = all(before[name] == run[name] for name in ("user", "account", "job_name"))
    ended = before["ended"] if before["ended"] is not None else before["started"] or before["submitted"]
    return alike and ended is not None and _when(run)[0] - ended <= MS_PER_DAY


def _count_attempts(runs: list[Row]) -> None:
    """Put the number of each run of a job into it: what Slurm counted, else their order; a resized job goes on in the same one."""
    for number, run in enumerate(runs):
        before = runs[number - 1] if number else None
        if run["restarts"] is not None:
            run["attempt"] = run["restarts"]
        elif before is None:
            run["attempt"] = 0
        else:
            goes_on = before["submitted"] is not None and before["submitted"] == run["submitted"]
            run["attempt"] = before["attempt"] + (not goes_on)


def _write_start(run: Row) -> str | None:
    """When a job was submitted, or else started, as its id says it; None where neither is known."""
    if _when(run)[0] == _LATER:
        return None
    return f"{datetime.fromtimestamp(_when(run)[0] / MS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ}"
