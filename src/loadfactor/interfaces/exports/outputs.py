"""Where an export goes: a folder, or a prefix of a bucket; and the note in it of what was written."""

from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from loadfactor.base.errors import InputError
from loadfactor.base.paths import read_path, read_url
from loadfactor.interfaces.exports.day_tables import DayTable, FolderTable, ObjectsTable, TableFormat
from loadfactor.store import disk

STATE: Final = "_loadfactor.json"
"""What was written; readers of folders skip what begins with a stroke."""


class Output(ABC):
    """A folder or a bucket with tables: that of the ledger lies in it itself, the others each in a folder of its own."""

    name: str

    @abstractmethod
    def is_taken(self) -> bool:
        """True where something is there that is no export."""

    @abstractmethod
    def read_state(self) -> bytes | None:
        """The note of what was written; None where nothing was."""

    @abstractmethod
    def write_state(self, content: bytes) -> None:
        """Put a note in place of the one there is, in one step."""

    @abstractmethod
    def open_table(self, name: str, kind: TableFormat) -> DayTable:
        """The table of this name."""


class FolderOutput(Output):
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.name = folder, str(folder)

    def is_taken(self) -> bool:
        return self._folder.is_dir() and any(self._folder.iterdir()) and self.read_state() is None

    def read_state(self) -> bytes | None:
        with suppress(FileNotFoundError):
            return (self._folder / STATE).read_bytes()
        return None

    def write_state(self, content: bytes) -> None:
        disk.make_folder(self._folder)
        beside = self._folder / f"{STATE}.{uuid4().hex}.tmp"
        disk.write_file(beside, content)
        disk.rename(beside, self._folder / STATE)
        disk.sync_folder(self._folder)

    def open_table(self, name: str, kind: TableFormat) -> DayTable:
        return FolderTable(self._folder if name == "ledger" else self._folder / name, kind)


class BucketOutput(Output):
    """A prefix of a bucket."""

    def __init__(self, url: str) -> None:
        from loadfactor.store.objects import Objects  # its client is only there where it was installed for that

        self.name = url
        self._objects: Objects = Objects(url)

    def is_taken(self) -> bool:
        return self.read_state() is None and any(True for _ in self._objects.list())

    def read_state(self) -> bytes | None:
        return self._objects.get(STATE)

    def write_state(self, content: bytes) -> None:
        self._objects.put(STATE, content)

    def open_table(self, name: str, kind: TableFormat) -> DayTable:
        return ObjectsTable(self._objects, "" if name == "ledger" else f"{name}/", kind)


def find_output(text: str) -> Output:
    """Where `--output` says. Raises InputError for a kind of URL that is not written."""
    if (url := read_url(text)) is not None:
        return BucketOutput(url)
    if "://" in text:
        raise InputError(f"--output {text}: folders, s3://, gs:// and az:// are written")
    return FolderOutput(read_path(text).absolute())
