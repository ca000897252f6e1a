"""What a repair could take, and what the books would answer after it; nothing in the store changes."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from loadfactor.base.errors import InputError
from loadfactor.books.known_span import find_span
from loadfactor.books.rebuild import refresh
from loadfactor.books.snapshot import Snapshot
from loadfactor.store.generations import Choice, choose
from loadfactor.store.importing import Progress
from loadfactor.store.manifest import NAME, write_down
from loadfactor.store.repair import find_choices, repair_store
from loadfactor.store.store import Store
from loadfactor.store.writer import Writer


@dataclass(frozen=True)
class RepairChoice:
    """A generation of the books that `repair` can take, with what is kept if it does.

    `rows` as they were imported, of files that are whole; `complete`: every file is. None: the books answer nothing of it.
    """

    generation: int
    rows: int
    paid_gpu_hours: float | None
    from_utc: datetime | None
    to_utc: datetime | None
    complete: bool


@dataclass(frozen=True)
class RepairPlan:
    """The generations of the books that are there, the newest first, and the one that `repair` takes; None if there is none."""

    choices: tuple[RepairChoice, ...]
    takes: int | None


def plan_repair(store: Store, idle_below: float, progress: Progress) -> RepairPlan:
    """As `Books.plan_repair`."""
    choices = find_choices(store.place)
    weighed = []
    for index, choice in enumerate(choices):
        progress(f"weighing generation {choice.manifest.generation}", index / len(choices))
        weighed.append(_weigh(store, idle_below, choice))
    return RepairPlan(tuple(weighed), choose(choices).manifest.generation if choices else None)


def _weigh(store: Store, idle_below: float, choice: Choice) -> RepairChoice:
    """What the books would answer after a repair: tried on links to the files, in a folder that goes afterwards."""
    with TemporaryDirectory(prefix="loadfactor-repair-") as folder:
        trial = Path(folder) / "books"
        trial.mkdir()
        names = [*(file.name for file in choice.manifest.files), *choice.unreadable]
        for path in (store.folder.absolute() / name for name in names):
            if path.exists():
                (trial / path.name).symlink_to(path)
        (trial / NAME).write_bytes(write_down(choice.manifest))
        tried = Store(trial, memory=store.memory)

        def work(writer: Writer) -> None:
            repair_store(writer)
            refresh(writer, _be_quiet, idle_below)

        if choice.is_rebuilt or not choice.is_complete:
            tried.change(work)
        paid_gpu_hours = from_utc = to_utc = None
        with tried.read() as session, suppress(InputError):  # they know of no time, or of no GPU
            from_utc, to_utc = find_span(session)
            (reading,) = Snapshot(session, idle_below).show("paid_gpu_hours")
            paid_gpu_hours = None if isinstance(reading.value, list) else reading.value
        return RepairChoice(
            choice.manifest.generation, choice.rows, paid_gpu_hours, from_utc, to_utc, choice.is_complete
        )


def _be_quiet(_what: str, _share: float) -> None:
    """Report no progress of a trial."""
