"""The pages of `loadfactor compact`, `repair` and `backup`: what became of the files of the books."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote as quote_word
from typing import TYPE_CHECKING

from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.interfaces.document import DataTable, Document, Section, Suggestion, TableColumn

if TYPE_CHECKING:
    from loadfactor.store.manifest import Loss, Manifest

COLUMNS = (TableColumn("in quarantine"), TableColumn("what was in it"))


@dataclass(frozen=True)
class Compaction:
    """Files and their bytes before and after."""

    files_before: int
    files: int
    bytes_before: int
    bytes: int


@dataclass(frozen=True)
class RepairResult:
    """What is lost, in which files."""

    losses: tuple["Loss", ...]


@dataclass(frozen=True)
class Backup:
    """What was copied where."""

    folder: str
    files: int
    bytes: int


def build_backup(copied: "Manifest", folder: Path) -> Document:
    """How much was copied, and how to ask it."""
    data = Backup(str(folder), len(copied.files), sum(f.bytes for f in copied.files))
    check = Suggestion(f"loadfactor doctor --store {quote_word(str(folder))}", "Reads every file of the copy.")
    return Document(
        f"{data.files:,} files of the books, {data.bytes / BYTES_PER_MIB:,.1f} MiB, and what was live are copied to {folder}.",
        (Section("Next", suggestions=(check,)),),
        data=data,
    )


def build_compaction(before: "Manifest", after: "Manifest") -> Document:
    """How many files there were and are."""
    sizes = [sum(f.bytes for f in manifest.files) for manifest in (before, after)]
    data = Compaction(len(before.files), len(after.files), *sizes)
    if before.generation == after.generation:
        return Document(f"Nothing to merge: {data.files:,} files.", data=data)
    return Document(f"{data.files_before:,} files became {data.files:,}. No answer changes.", data=data)


def build_repair(losses: tuple["Loss", ...]) -> Document:
    """What is lost, and how to bring it again."""
    data = RepairResult(losses)
    if not losses:
        return Document("Nothing is lost: every file of the books is whole.", data=data)
    rows = [(loss.name, loss.what) for loss in losses]
    section = Section(
        "Lost",
        lead="The rest of the books stands. Import again what these rows came from: `loadfactor imports` names the files.",
        tables=(DataTable(COLUMNS, rows),),
    )
    return Document(
        f"{len(losses)} damaged files are in quarantine; what was in them is lost.", (section,), data=data, is_no=True
    )
