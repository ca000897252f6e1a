"""One store, in a folder or a bucket: who reads it gets a session on a generation, who writes it a writer."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import duckdb

from loadfactor.base.errors import InputError, StoreError, say_why
from loadfactor.base.paths import read_url
from loadfactor.store.folder import Folder
from loadfactor.store.live_copy import LogMark, has_live, is_as_read
from loadfactor.store.manifest import Manifest, StoredFile
from loadfactor.store.overlay import Overlay
from loadfactor.store.place import CACHE_GB, ConflictError, Generation, Place
from loadfactor.store.session import MEMORY, Entry, NotEnoughMemory, Session, connect_reader, connect_writer
from loadfactor.tables.schema import DEFAULT_CURRENCY, Span

if TYPE_CHECKING:  # what writes takes longer to import than most answers
    from loadfactor.store.live_database import Numbered
    from loadfactor.store.writer import Writer

Found = TypeVar("Found")
MOST_TRIES: Final = 10
"""So often a change is made again where other writers were quicker."""


def find_place(store: Path, local: Path | None = None, cache_gb: float = CACHE_GB) -> Place:
    """Where a store lies: a folder, or the bucket that a URL names; of that `local` is the folder beside it."""
    url = read_url(store)
    if url is None:
        return Folder(store)
    from loadfactor.store.bucket import Bucket  # its client is only there where it was installed for that

    return Bucket(url, local, cache_gb)


def _read_published(place: Place, start: Callable[[Place], Manifest], begun: Manifest) -> Manifest:
    """The newest manifest. Where there is none of today yet, because `start` is what makes it, that which was begun with."""
    try:
        return place.read_newest()
    except StoreError:
        if start is Place.read_newest:
            raise
        return begun


class _Laid(NamedTuple):
    """An overlay, and what it was made of: a generation, rules for rows that enter, and live batches through the `last`.

    `mark`: how far the database of these was read.
    """

    process: int
    manifest: Manifest
    entry: Entry
    last: int
    mark: LogMark | None
    overlay: Overlay


class Store:
    """Parquet files under a manifest. Any number of sessions read them while one writer writes."""

    def __init__(
        self,
        store: Path,
        currency: str | None = None,
        memory: str = MEMORY,
        entry: Callable[[], Entry] = Entry,
        local: Path | None = None,
        cache_gb: float = CACHE_GB,
    ) -> None:
        """`currency`: that of new books, and of these where they have another an error; `memory`: as DuckDB writes it.

        `entry` says what becomes of rows that enter; it is requested whenever some may. `local` and `cache_gb` are of a bucket:
        the folder beside it, and the size of the cache.
        """
        self.place = self._find_place(store, local, cache_gb)
        self.name, self.folder = self.place.name, self.place.folder
        self.memory = memory
        self._currency = currency
        self._entry = entry
        self._laid: _Laid | None = None
        self._laying = Lock()

    def _find_place(self, store: Path, local: Path | None, cache_gb: float) -> Place:
        return find_place(store, local, cache_gb)

    @property
    def entry(self) -> Entry:
        """Changes to rows that enter now, by the settings as they are."""
        return self._entry()

    @property
    def manifest(self) -> Manifest:
        """The newest manifest. Its files may go as soon as there is a newer one: to read them, `read`."""
        return self.place.read_newest()

    @property
    def currency(self) -> str:
        """The currency of the books, or the one new books would be kept in."""
        return self.currency_of(self.manifest)

    def span(self) -> Span:
        """From the first to the last instant the books know of; (0, 0) when they are empty."""
        with self.read() as session:
            return session.span()

    def currency_of(self, manifest: Manifest) -> str:
        """The currency of the books. Raises InputError when it is another than the one requested."""
        if manifest.currency and self._currency not in (None, manifest.currency):
            raise InputError(
                f"the books in {self.name} are kept in {manifest.currency}, not in {self._currency}; leave `currency` in"
                " loadfactor.toml (LOADFACTOR_CURRENCY) out, or use another store"
            )
        return manifest.currency or self._currency or DEFAULT_CURRENCY

    @contextmanager
    def read(self, has_schema: bool = False) -> Iterator[Session]:
        """A session on the newest generation: it stays as it is until the end. Nothing on the disk changes.

        `has_schema`: see `Session`.
        """
        generation, overlay = self._open_newest()
        try:
            currency = self.currency_of(generation.manifest)
            with closing(Session(self.place, generation.manifest, overlay.connect(), currency, has_schema)) as session:
                session.show(overlay)
                del overlay  # it goes with the last session that shows it
                with self._explaining(session.manifest.files):
                    yield session
        finally:
            generation.close()

    def _open_newest(self) -> tuple[Generation, Overlay]:
        while True:
            generation = self.place.open_newest()
            try:
                with self._laying:
                    laid = self._lay(generation.manifest)
            except BaseException:
                generation.close()
                raise
            if laid is not None:
                return generation, laid.overlay
            generation.close()

    def _lay(self, manifest: Manifest) -> "_Laid | None":
        """The overlay over a generation, of its live rows where it has some; None where a flush made files of them meanwhile."""
        laid, is_at_rest = self._laid, not has_live(self.folder)
        entry = Entry() if is_at_rest else self._entry()  # what no live row passes is not made: it may want a key
        if laid is not None and (laid.process, laid.manifest, laid.entry) != (os.getpid(), manifest, entry):
            laid = None
        if laid is not None and (laid.mark is None if is_at_rest else is_as_read(self.folder, laid.mark)):
            return laid
        if is_at_rest:
            overlay = Overlay(connect_reader(self.memory))
            self._laid = laid = _Laid(os.getpid(), manifest, entry, manifest.live_through, None, overlay)
            return laid
        from loadfactor.store.live_database import read_live_beside

        batches, mark = read_live_beside(self.folder, manifest.live_through, None if laid is None else laid.last)
        if self.place.read_newest().live_through != manifest.live_through:
            return None  # it may have discarded some
        if laid is not None and batches is None:
            self._laid = laid._replace(mark=mark)
        else:
            self._laid = laid = None  # the one of before makes room
            last = batches[-1][0] if batches else manifest.live_through
            self._laid = _Laid(
                os.getpid(), manifest, entry, last, mark, self._make_overlay(manifest, entry, batches or [])
            )
        return self._laid

    def _make_overlay(self, manifest: Manifest, entry: Entry, batches: "Sequence[Numbered]") -> Overlay:
        overlay = Overlay(connect_reader(self.memory))
        if batches:
            from loadfactor.store.live_rows import show_live

            with (
                closing(Session(self.place, manifest, overlay.connect(), self.currency_of(manifest))) as session,
                self._explaining(manifest.files),
            ):
                session.entry = entry
                show_live(session, overlay, batches)
        return overlay

    def change(
        self,
        work: "Callable[[Writer], Found]",
        start: Callable[[Place], Manifest] = Place.read_newest,
        is_repeatable: bool = True,
    ) -> Found:
        """What `work` gives of a writer, published; done again from the newest books where another writer was quicker.

        `is_repeatable`: False where it can be done only once. Raises ConflictError where that does not do, and as `write`.
        """
        for tries in range(MOST_TRIES):
            began_s = time.monotonic()
            try:
                with self.write(start) as writer:
                    return work(writer)
            except ConflictError:
                if not is_repeatable or tries + 1 == MOST_TRIES:
                    raise
                self.place.take_turn(time.monotonic() - began_s)
        raise AssertionError

    @contextmanager
    def write(self, start: Callable[[Place], Manifest] = Place.read_newest) -> "Iterator[Writer]":
        """A writer; what it changed is published at the end, or nothing of it.

        `start` gives the manifest to begin with. Raises ConflictError where others published meanwhile, StoreError.
        """
        from loadfactor.store.writer import Writer

        place = self.place
        with place.writing(), self._whole_or_nothing():
            manifest = start(place)
            currency = self.currency_of(manifest)
            place.refuse_older(manifest)
            place.remove_leftovers(manifest)
            writer = Writer(place, manifest, connect_writer(self.memory), currency)
            writer.entry = self._entry()
            try:
                with self._explaining():
                    yield writer
                if writer.has_changes:
                    writer.publish()
            except BaseException:
                with suppress(OSError, StoreError):  # what had left the staging folder already, too
                    place.take_back(writer.work, _read_published(place, start, manifest))
                raise
            finally:
                writer.close()
                place.end(writer.work)
            place.remove_unread(writer.manifest)

    @contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        """Say a failing disk in one line."""
        try:
            yield
        except (OSError, duckdb.IOException) as error:
            why = say_why(error)
            raise StoreError(f"writing to {self.name} failed ({why}); the books are as before") from error

    @contextmanager
    def _explaining(self, read: Sequence[StoredFile] = ()) -> Iterator[None]:
        """Where the engine fails, say what it was: no memory, or one of the files that were `read` is damaged."""
        try:
            yield
        except NotEnoughMemory as error:
            raise StoreError(
                f"{self.memory} of memory is not enough for this; give it more with LOADFACTOR_MEMORY (4GB), or ask for less"
            ) from error
        except duckdb.Error:
            self.place.locate(read, again=True)
            raise
