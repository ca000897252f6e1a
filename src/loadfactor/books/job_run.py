"""Time of a training job of the books while it held GPUs: steps, sections, and neither."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S, S_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.books.job_flops import GIVEN, PACKED
from loadfactor.books.snapshot import Snapshot
from loadfactor.ledger.labels import drop_repeats
from loadfactor.ledger.waits import list_jobs
from loadfactor.metrics.work import TRAIN_SAMPLE, TRAIN_TOKEN
from loadfactor.planner.training.training_plan import JobRun
from loadfactor.settings.config import settings
from loadfactor.tables.schema import Span
from loadfactor.tables.tagging import give_texts
from loadfactor.tables.work import SECTION_KINDS

STEP: Final = "step"


def find_job_run(books: Snapshot, job: str) -> JobRun:
    """Raises InputError where the books do not know the job, its GPUs, its steps or its tokens."""
    hours = books.show("allocated_gpu_hours", "accelerator", where={"job": job})
    known = zip(hours.keys, hours.column("allocated_gpu_hours"), strict=True)
    held = {key[0]: value for key, value in known if isinstance(value, float) and value}
    if len(held) != 1 or None in held:
        of = f"GPUs of {len(held)} accelerators" if held else "no GPUs that the books know"
        raise InputError(f"job {job!r} held {of}; a plan is for GPUs of one known accelerator")
    ((accelerator, gpu_hours),) = held.items()
    first, last = (int(at.timestamp() * MS_PER_S) for at in books.span)
    wall = merge(
        (first if row["from_utc"] is None else row["from_utc"], last if row["to_utc"] is None else row["to_utc"])
        for row in _read(books, "allocations", job)
    )
    rows = [row for row in _read(books, "progress", job) if row["unit"] in (STEP, TRAIN_TOKEN)]
    steps = [row for row in rows if row["unit"] == STEP]
    made = {unit: sum(row["amount"] for row in rows if row["unit"] == unit) for unit in (STEP, TRAIN_TOKEN)}
    if not made[TRAIN_TOKEN]:
        made[TRAIN_TOKEN] = _count_packed(books, job)
    if not made[STEP] or not made[TRAIN_TOKEN]:
        missing = "steps" if not made[STEP] else "tokens"
        raise InputError(
            f"the books know no {missing} of job {job!r}; track it, or import its log with `loadfactor import training-log`"
        )
    stepping = _inside(merge(_span(row) for row in steps), wall)
    sections: dict[str, list[Span]] = {}
    free = wall
    for kind in SECTION_KINDS:
        of_kind = merge(_span(row) for row in _read(books, "job_sections", job) if row["kind"] == kind)
        sections[kind] = _inside(of_kind, free)
        free = subtract(free, sections[kind])
    stepping = _inside(stepping, free)
    before, between, after = _divide(subtract(free, stepping), wall, stepping)
    lost = sum(row["amount"] for row in steps if row["kept"] is False)
    wall_s = _seconds(wall)
    return JobRun(
        job=job,
        gpus=max(1, round(gpu_hours * S_PER_HOUR / wall_s)),
        accelerator=str(accelerator),
        wall_s=wall_s,
        stepping_s=_seconds(stepping),
        sections_s={kind: _seconds(spans) for kind, spans in sections.items() if spans},
        before_s=before,
        between_s=between,
        after_s=after,
        steps=made[STEP],
        lost_share=lost / made[STEP],
        tokens=made[TRAIN_TOKEN],
    )


def _count_packed(books: Snapshot, job: str) -> float:
    """Tokens of samples that [[network]] says are packed; 0 where it does not."""
    reported = find_reported_network(books, job)
    if reported["packed"] != PACKED or not reported["sequence_length"]:
        return 0.0
    samples = sum(row["amount"] for row in _read(books, "progress", job) if row["unit"] == TRAIN_SAMPLE)
    return float(samples * int(reported["sequence_length"]))


def find_reported_network(books: Snapshot, job: str) -> dict[str, str | None]:
    """Network of a job by the tables [[network]] of the configuration: model, sequence_length, datatype, recompute, packed."""
    rows = books.view("allocations")
    last = books.fetch(rows.filter(rows.job_id == job).order_by([rows.from_utc.desc(), rows.attempt.desc()]).limit(1))
    given = give_texts([network.rule for network in settings().network], last, GIVEN)
    return {name: str(texts[0]) if len(texts) and texts[0] is not None else None for name, texts in given.items()}


def merge(spans: Iterable[Span]) -> list[Span]:
    """Spans as disjoint ones in order.

    >>> merge([(5, 9), (0, 3), (2, 4)])
    [(0, 4), (5, 9)]
    """
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        elif end > start:
            out.append((start, end))
    return out


def subtract(spans: Sequence[Span], holes: Sequence[Span]) -> list[Span]:
    """Remove holes from disjoint spans in order.

    >>> subtract([(0, 10), (20, 30)], [(2, 4), (8, 25)])
    [(0, 2), (4, 8), (25, 30)]
    """
    out: list[Span] = []
    place = 0
    for start, end in spans:
        while place < len(holes) and holes[place][1] <= start:
            place += 1
        at, number = start, place
        while number < len(holes) and holes[number][0] < end:
            if holes[number][0] > at:
                out.append((at, holes[number][0]))
            at = max(at, holes[number][1])
            number += 1
        if at < end:
            out.append((at, end))
    return out


def _inside(spans: Sequence[Span], limits: Sequence[Span]) -> list[Span]:
    return subtract(spans, subtract(spans, limits))


def _divide(free: Sequence[Span], wall: Sequence[Span], stepping: Sequence[Span]) -> tuple[float, float, float]:
    """Seconds before the first step of each interval of `wall`, between steps, and after the last."""
    before = between = after = 0
    for interval in wall:
        inside = _inside(stepping, [interval])
        first, last = (inside[0][0], inside[-1][1]) if inside else (interval[1], interval[1])
        for start, end in _inside(free, [interval]):
            if end <= first:
                before += end - start
            elif start >= last:
                after += end - start
            else:
                between += end - start
    return before / MS_PER_S, between / MS_PER_S, after / MS_PER_S


def _seconds(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans) / MS_PER_S


def _span(row: dict[str, Any]) -> Span:
    return row["from_utc"], row["to_utc"]


def _read(books: Snapshot, table: str, job: str) -> list[dict[str, Any]]:
    rows = books.view(table)
    found: list[dict[str, Any]] = books.fetch(rows.filter(rows.job_id == job)).to_pylist()
    return found


@dataclass(frozen=True)
class JobHistory:
    """Jobs that ended, in order of submission. Arrays of the same length; `team` is empty where it is not known.

    `installed_gpus` is how many the books list at their end, None where they list none.
    """

    submit_s: Any
    gpus: Any
    duration_s: Any
    team: Any
    installed_gpus: int | None
    still_held: int
    not_waited: int


def job_history(books: Books) -> JobHistory:
    """The jobs of the books that ended. Jobs still held are counted and left out; raises InputError where none ended."""
    frame = list_jobs(drop_repeats(books.table("allocations"))).to_pandas()
    ended = frame[frame.to_ms.notna() & (frame.to_ms > frame.from_ms)]
    ended = ended.sort_values(["submitted_ms", "from_ms", "to_ms", "gpus", "team"])
    if len(ended) < 2:
        raise InputError(
            f"the books in {books.store.name} hold too few jobs that ended ({len(ended)}); "
            "import a scheduler's accounting, or give a CSV"
        )
    devices = books.table("devices")
    standing = devices.filter(devices.to_utc.isnull() | (devices.to_utc >= books.store.span()[1]))
    installed = int(standing.device_id.nunique().execute())
    return JobHistory(
        submit_s=ended.submitted_ms.to_numpy(float) / MS_PER_S,
        gpus=ended.gpus.to_numpy(float),
        duration_s=(ended.to_ms - ended.from_ms).to_numpy(float) / MS_PER_S,
        team=ended.team.to_numpy(str),
        installed_gpus=installed or None,
        still_held=int(frame.to_ms.isna().sum()),
        not_waited=int((~ended.requested).sum()),
    )
