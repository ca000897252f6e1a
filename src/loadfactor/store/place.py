"""Where the files of a store lie, and the steps in which a writer commits: the same in a folder and in a bucket.

1. `announce`: the names of new files, durable before any of them is there, so that those of a writer that died are found again.
2. `put`: the files, each under a name that nobody else gives.
3. `swap`: the manifest in place of the one it follows, which goes on under a second name, `manifest-<generation>.json`.
4. `remove_unread`: what only earlier generations name, once nobody reads them.

In a folder a lock keeps writers apart, and a lock on its manifest says that a generation is read. In a bucket the swap is refused
where another writer was quicker (`ConflictError`), and generations are kept for a while.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from loadfactor.base.errors import StoreError
from loadfactor.store import disk
from loadfactor.store.manifest import Manifest, StoredFile

CACHE_GB: Final = 20.0
"""Of copies of files in a bucket, unless something else is set."""
MOVED: Final = "moved"
"""The file that names what is about to leave a staging folder."""


class ConflictError(StoreError):
    """Another writer published first: the manifest that a change began with is not the newest any more."""


class UnsureError(StoreError):
    """Nobody answered whether a change was published."""


class Generation:
    """A manifest that is read. Its files stay where they are until `close`, or the end of the process."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def close(self) -> None:
        """Let go of it: a writer may remove what only it names."""


class Place(ABC):
    """A folder or a bucket with the files of a store."""

    name: str
    """As it is written behind --store."""
    folder: Path
    """On a local disk: what lies beside the books, as live rows, tokens, the outbox of alerts and the log of what was done."""
    files: Path
    """The local folder in which files of the books are read, and new ones are written."""

    @property
    def beside(self) -> Path:
        """Where tokens and what digests sent are kept: of several stores, a folder that somebody named."""
        return self.folder

    # -- reading -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def open_newest(self) -> Generation:
        """The newest generation; an empty one where there are no books. Raises DamageError and StoreError."""

    def read_newest(self) -> Manifest:
        """The newest manifest. Its files may go as soon as there is a newer one."""
        generation = self.open_newest()
        generation.close()
        return generation.manifest

    @abstractmethod
    def read_mark(self) -> object:
        """What changes with every change of the manifest; None where there is none."""

    @abstractmethod
    def has_books(self) -> bool:
        """True where an import has left books, or rows were taken live."""

    @abstractmethod
    def locate(self, files: Iterable[StoredFile], again: bool = False) -> list[Path]:
        """Where files of the books can be read. DamageError when one is not what was written.

        Unless `again`, that is looked at once a process.
        """

    # -- writing -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def writing(self) -> AbstractContextManager[None]:
        """What a writer holds while it works. Raises StoreError, also where writing fails, which says that nothing has changed."""

    def refuse_older(self, manifest: Manifest) -> None:  # noqa: B027 (in a bucket nobody puts back single files by accident)
        """Raise DamageError if there is something newer than the manifest, which is put in its place: nobody may write over it."""

    @abstractmethod
    def remove_leftovers(self, manifest: Manifest) -> None:
        """Remove what writers left that died; `manifest` is the newest one."""

    def commit(self, work: Path, names: Sequence[str], old: Manifest, new: Manifest) -> Manifest:
        """Publish files of a staging folder and the manifest that names them; the manifest as published.

        Raises ConflictError where `old` is not the newest one, UnsureError where nobody knows, StoreError.
        """
        if names:
            if not old.files and self.read_mark() is None:
                # files without a manifest would be damaged books: the first import begins with empty ones
                old = self.swap(old, Manifest(currency=new.currency))
            disk.write_file(work / MOVED, "\n".join(names).encode())
            self.announce(work)
            self.put(work, names)
        try:
            return self.swap(old, new)
        except UnsureError:
            disk.remove(work / MOVED)  # nothing is taken back: it may count
            raise

    @abstractmethod
    def announce(self, work: Path) -> None:
        """Make durable what the staging folder's list says is about to arrive."""

    @abstractmethod
    def put(self, work: Path, names: Sequence[str]) -> None:
        """Move files from the staging folder to where readers find them, durably."""

    @abstractmethod
    def swap(self, old: Manifest, new: Manifest) -> Manifest:
        """Put a manifest in place of the one it follows, as the next generation, durably."""

    @abstractmethod
    def take_back(self, work: Path, newest: Manifest) -> None:
        """Remove what left the staging folder and was not published."""

    @abstractmethod
    def end(self, work: Path) -> None:
        """Remove the staging folder and its announcement."""

    @abstractmethod
    def remove_unread(self, current: Manifest) -> None:
        """Remove earlier generations that nobody reads, with the files only they name."""

    def take_turn(self, took_s: float) -> None:  # noqa: B027 (in a folder, the lock does it)
        """After a conflict: let others wait for a change that takes about so long."""

    # -- outputs of tasks, which lie beside the files -----------------------------------------------------------------

    @abstractmethod
    def has(self, name: str) -> bool:
        """True where something of this name is there."""

    @abstractmethod
    def put_new(self, path: Path, name: str) -> None:
        """Put a synced file there under a name, unless that is taken: who was quicker put the same."""

    @abstractmethod
    def list_within(self, folder: str) -> list[str]:
        """The names in a folder, with it: tasks/a.parquet."""

    @abstractmethod
    def fetch(self, name: str) -> Path:
        """Where a file that was put there can be read."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove it; nothing happens where there is none."""

    def claim_live(self) -> None:  # noqa: B027 (a folder has its live rows in it)
        """Say that the live rows of these books are kept here. Raises StoreError where they are kept elsewhere."""
