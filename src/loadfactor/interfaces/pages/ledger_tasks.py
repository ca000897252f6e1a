"""Pages of `loadfactor ledger`: which days are to be booked, what booked them, and what was published; and of `rebuild`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from shlex import quote
from typing import Any

from loadfactor.base.errors import InputError
from loadfactor.base.paths import name_store
from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.books.day_tasks import (
    FOLDER,
    DayTask,
    Publication,
    TaskList,
    name_output,
    publish_tasks,
    remove_outputs,
)
from loadfactor.books.dropped_days import STAYS, say_days
from loadfactor.interfaces.document import Document, Section, Suggestion
from loadfactor.interfaces.engines.cluster_jobs import make_kubernetes_job, run_slurm
from loadfactor.interfaces.engines.local import run_local
from loadfactor.interfaces.engines.worker import book_task, name_books
from loadfactor.interfaces.progress import ProgressBar
from loadfactor.interfaces.requests import (
    BookTasksRequest,
    LedgerPlanRequest,
    RebuildRequest,
    StoreRequest,
    find_store,
)
from loadfactor.interfaces.tables import col, table
from loadfactor.tables.schema import ALWAYS, Span

ENGINES = "local:N, spark, ray, slurm or kubernetes"
MOST_ROUNDS = 3
"""Booking may change the load of owned GPUs, and with it the prices of hours that were booked."""


@dataclass(frozen=True)
class PlannedTask:
    """A day to book: the task's name, the store, its hours (ms since 1970, UTC), samples, and whether its output waits."""

    task: str
    store: str
    day: date
    hours: Sequence[Span]
    samples: int
    is_booked: bool

    @property
    def hour_count(self) -> int:
        """How many hours are to be booked."""
        return sum(end - start for start, end in self.hours) // MS_PER_HOUR


@dataclass(frozen=True)
class LedgerPlan:
    """What is to be booked."""

    tasks: Sequence[PlannedTask]


@dataclass(frozen=True)
class BookedTasks:
    """What was booked: the engine, and the names of tasks whose output waits for `publish`."""

    engine: str
    tasks: Sequence[str]


def build_plan(request: LedgerPlanRequest) -> Document:
    """List the days that are stale, or all, as tasks."""
    store = find_store(request.store)
    planned = list_planned(request.books, request.all)
    if not planned:
        every = Suggestion(f"loadfactor ledger plan --all --store {quote(name_store(store))}", "every day as a task")
        return Document(
            "Nothing is stale: every hour is booked.", (Section(suggestions=(every,)),), data=LedgerPlan(())
        )
    days = table(
        planned,
        col("task", "task"),
        col("hours", "hour_count", "number"),
        col("samples", "samples", "number"),
        col("is booked", lambda task: "yes, and waits" if task.is_booked else "no"),
    )
    words = f"--store {quote(name_store(store))}"
    of_all = " --all" if request.all else ""
    next_steps = (
        Suggestion(f"loadfactor ledger book{of_all} --engine local:4 {words}", "book them in four processes"),
        Suggestion(f"loadfactor ledger publish {words}", "take what was booked into the ledger"),
    )
    what = "days as tasks" if request.all else "days to book"
    return Document(
        f"{len(planned):,} {what}.",
        (Section(tables=(days,), suggestions=next_steps),),
        notes=_say_frozen(request.books) if request.all else (),
        data=LedgerPlan(planned),
    )


def build_booking(request: BookTasksRequest) -> Document:
    """Book tasks on an engine; their outputs wait for `publish`."""
    store, books = find_store(request.store), request.books
    if request.task:
        if request.all or request.engine:
            raise InputError("--task books in this process: leave --all and --engine out")
        for name in request.task:
            book_task(name_books(store), name)
        return _say_booked(store, "local:1", request.task)
    names = [task.task for task in list_planned(books, request.all) if not task.is_booked]
    engine = request.engine or "local:1"
    if engine == "kubernetes":
        return _write_job(names, request)
    if names:
        with ProgressBar() as bar:
            _run(engine, books, store, names, request.master, bar)
    return _say_booked(store, engine, names)


def build_publication(request: StoreRequest) -> Document:
    """Take what tasks booked into the ledger."""
    found = publish(request.books)
    dropped = f" {found.dropped:,} were booked of what has changed since, and are dropped." if found.dropped else ""
    left = (
        f" {found.stale_hours:,} hours are stale still: `loadfactor ledger plan` lists them."
        if found.stale_hours
        else ""
    )
    tasks = "1 task is" if found.tasks == 1 else f"{found.tasks:,} tasks are"
    return Document(f"{tasks} in the ledger.{dropped}{left}", data=found)


def build_rebuild(request: RebuildRequest) -> Document:
    """Book every day again, on an engine, and publish it."""
    store, books = find_store(request.store), request.books
    engine = request.engine or "local:1"
    if engine == "kubernetes":
        raise InputError(
            "a Job is made by `loadfactor ledger book --all --engine kubernetes`; publish once it is complete"
        )
    total = 0
    for first in (True, *[False] * (MOST_ROUNDS - 1)):
        names = [task.task for task in list_planned(books, first) if not task.is_booked]
        if names:
            with ProgressBar() as bar:
                _run(engine, books, store, names, request.master, bar)
        found = publish(books)
        total += found.tasks
        if not found.stale_hours:
            break
    left = f"; {found.stale_hours:,} hours came in meanwhile and are stale" if found.stale_hours else ""
    headline = f"{total:,} day{'s are' if total != 1 else ' is'} booked anew{left}."
    return Document(headline, notes=_say_frozen(books), data=found)


def _say_frozen(books: Books) -> tuple[str, ...]:
    """That days without samples are not booked again."""
    days = say_days(books.store.manifest.dropped.frozen, ALWAYS)
    return (f"Samples of {days} were dropped ([retention] samples): {STAYS}.",) if days else ()


def list_planned(books: Books, is_all: bool) -> list[PlannedTask]:
    """The tasks of the books as they are."""
    with books.store.read() as session:
        files = session.beside()
        try:
            tasks = TaskList(files, books.idle_below)
            there = set(books.store.place.list_within(FOLDER))
            return [_describe(task, books.store.name, there) for task in tasks.list(is_all)]
        finally:
            files.close()


def publish(books: Books) -> Publication:
    """Take outputs into the ledger, and remove them."""
    with ProgressBar() as bar:
        found = books.store.change(lambda writer: publish_tasks(writer, books.idle_below, bar))
    remove_outputs(books.store.place)
    return found


def _describe(task: DayTask, store: str, there: Collection[str]) -> PlannedTask:
    return PlannedTask(task.name, store, task.day, task.hours, task.samples, name_output(task.name) in there)


def _run(engine: str, books: Books, store: Path, names: Sequence[str], master: str | None, bar: ProgressBar) -> None:
    """Run tasks on the engine named. Raises InputError where there is none of this name."""
    name, _, workers = engine.partition(":")
    place, of = books.store.place, name_books(store)
    if name == "local":
        if not (workers or "1").isdecimal() or workers == "0":
            raise InputError(f"--engine local:N takes a whole number of processes, got {workers!r}")
        run_local(of, names, int(workers or 1), bar)
    elif engine == "slurm":
        outputs = {name_output(name) for name in names}
        run_slurm(store, names, lambda: len(outputs.intersection(place.list_within(FOLDER))), bar)
    elif engine == "spark":
        from loadfactor.interfaces.engines.spark import run_spark

        run_spark(of, names, master, bar)
    elif engine == "ray":
        from loadfactor.interfaces.engines.ray import run_ray

        run_ray(of, names, master, bar)
    else:
        raise InputError(f"--engine {engine!r} is none; take {ENGINES}")


def _say_booked(store: Path, engine: str, names: Sequence[str]) -> Document:
    step = Suggestion(f"loadfactor ledger publish --store {quote(name_store(store))}", "take them into the ledger")
    done = "is booked and waits" if len(names) == 1 else "are booked and wait"
    headline = f"{len(names):,} day{'s' * (len(names) != 1)} {done} to be published."
    return Document(headline, (Section(suggestions=(step,)),), data=BookedTasks(engine, tuple(names)))


def _write_job(names: Sequence[str], request: BookTasksRequest) -> Document:
    if not names:
        return Document("Nothing is stale: there is nothing for a Job to do.", data={})
    job: dict[str, Any] = make_kubernetes_job(names, request.image, request.claim, find_store(request.store))
    command = "loadfactor ledger book --engine kubernetes --json | kubectl create -f -"
    return Document(
        f"An indexed Job with {len(names):,} tasks; --json prints it.",
        (Section(suggestions=(Suggestion(command, "begin it; when it is complete, publish"),)),),
        data=job,
    )
