"""The generations of the books that a folder holds, for `repair` to choose from, by manifests and by what files say.

The newest manifest lies there twice, and earlier ones while they are read. If a manifest newer than these is lost, newer files tell
of it: each says which generation it was written for, and what it replaces.

The newest generation of which nothing is lost is taken, unless a newer one that has losses still keeps as many rows.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loadfactor.base.errors import DamageError, InputError, StoreError, say_why
from loadfactor.base.small_json import read_small
from loadfactor.store import disk
from loadfactor.store.folder import (
    STAGING,
    check_file,
    list_names,
    list_numbered,
    list_unfinished,
    name_numbered,
    read_moved,
)
from loadfactor.store.live_database import QUARANTINE
from loadfactor.store.manifest import (
    NAME,
    OWN_NAME,
    Manifest,
    StoredFile,
    checksum_file,
    intersect,
    is_booked,
    merge,
    read_file,
    understand,
)
from loadfactor.store.session import LEDGER
from loadfactor.store.writer import count_rows, read_footer
from loadfactor.tables.schema import TABLES


@dataclass(frozen=True)
class Choice:
    """A generation that `repair` can take, with the files of it that are damaged.

    `is_rebuilt`: its manifest is lost, and made of what files say of themselves; `unreadable` are those that say nothing.
    """

    manifest: Manifest
    damaged_files: tuple[StoredFile, ...] = ()
    unreadable: tuple[str, ...] = ()
    is_rebuilt: bool = False

    @property
    def is_complete(self) -> bool:
        """True if all its files are present and whole."""
        return not (self.damaged_files or self.unreadable)

    @property
    def is_lossless(self) -> bool:
        """True if whatever is damaged can be made anew from the other files."""
        return not self.unreadable and not any(map(self._is_lost, self.damaged_files))

    @property
    def rows(self) -> int:
        """Rows that it keeps, as they were imported; the ledger and its sums are none."""
        return sum(self._count_rows(table.name) for table in TABLES)

    def _is_lost(self, file: StoredFile) -> bool:
        if is_booked(file.table):
            return self.manifest.dropped.has_booked(file)
        # A table is folded from its logs, and a log can be written anew from its table.
        of_table, logs = self.manifest.of(file.table), self.manifest.logs_of(file.table)
        sources = of_table if file.is_log else logs
        return not sources or any(source in self.damaged_files for source in sources)

    def _count_rows(self, table: str) -> int:
        of_table, logs = self.manifest.of(table), self.manifest.logs_of(table)
        if not logs or (self._has_damaged(logs) and of_table and not self._has_damaged(of_table)):
            logs = of_table  # samples and charges have no logs
        return sum(file.rows for file in logs if file not in self.damaged_files)

    def _has_damaged(self, files: Iterable[StoredFile]) -> bool:
        return any(file in self.damaged_files for file in files)


def list_choices(folder: Path) -> tuple[Choice, ...]:
    """The generations in a folder, the newest first. Raises StoreError if one is of a newer version or cannot be read."""
    manifests = _read_manifests(folder)
    newest = manifests[max(manifests)] if manifests else Manifest()
    choices = [_examine(folder, manifest) for manifest in manifests.values()]
    if not manifests or _find_newer_files(folder, newest):
        rebuilt = _rebuild(folder, newest)
        choices += [rebuilt] if rebuilt.manifest.files or rebuilt.unreadable else []
    return tuple(sorted(choices, key=lambda choice: -choice.manifest.generation))


def choose(choices: tuple[Choice, ...], take: int | None = None) -> Choice:
    """The generation that was asked for, else the one that keeps most; `choices` are the newest first. Raises InputError."""
    if take is not None:
        for choice in choices:
            if choice.manifest.generation == take:
                return choice
        generations = ", ".join(str(choice.manifest.generation) for choice in choices)
        raise InputError(f"--take must be one of the generations {generations}, got {take}")
    lossless = [choice.manifest.generation for choice in choices if choice.is_lossless]
    # What was imported, forgotten or dropped since an older one counts: those older than a lossless one are out.
    candidates = [choice for choice in choices if choice.manifest.generation >= max(lossless, default=0)]
    return max(candidates, key=lambda choice: (choice.rows, choice.manifest.generation))


def find_newer(folder: Path, manifest: Manifest) -> list[str]:
    """The names of manifests and files that are of a newer generation; none of a writer that died before it published."""
    numbered = [path.name for generation, path in list_numbered(folder).items() if generation > manifest.generation]
    return numbered or _find_newer_files(folder, manifest)


def start_from(folder: Path, choice: Choice, choices: tuple[Choice, ...]) -> Manifest:
    """The manifest of a choice, as newer than all others; what only these name is in quarantine from now on.

    Files that a manifest in the folder names stay there as well, until nobody reads them.
    """
    named = {f.name for other in choices if not other.is_rebuilt for f in other.manifest.files}
    kept = {f.name for f in choice.manifest.files}
    unpublished = _list_moved(folder) - named
    for name in sorted(_list_own(folder) - kept - unpublished):
        if name in named:
            _link_aside(folder / name, name)
        elif not choice.is_rebuilt or read_footer(folder / name) is not None:
            set_aside(folder, name)  # `repair_store` says of the others what is lost
    numbered = list_numbered(folder)
    for path in [folder / NAME, *numbered.values()]:
        manifest = _read_manifest(path)
        if manifest is None and path.exists():
            set_aside(folder, path.name)
        elif manifest is not None and manifest.generation != choice.manifest.generation:
            _link_aside(path, name_numbered(manifest.generation))
    if (folder / QUARANTINE).exists():
        disk.sync_folder(folder / QUARANTINE)
    generations = [*numbered, *(other.manifest.generation for other in choices)]
    return replace(choice.manifest, generation=max(generations) + 1)


def set_aside(folder: Path, name: str) -> None:
    """Move a file of the store into quarantine."""
    (folder / QUARANTINE).mkdir(exist_ok=True)
    disk.move_aside(folder / name, folder / QUARANTINE)


def _link_aside(path: Path, name: str) -> None:
    (path.parent / QUARANTINE).mkdir(exist_ok=True)
    with suppress(FileExistsError):  # of a repair that was killed
        disk.link(path, path.parent / QUARANTINE / name)


def _read_manifests(folder: Path) -> dict[int, Manifest]:
    manifests: dict[int, Manifest] = {}
    for path in [folder / NAME, *list_numbered(folder).values()]:
        manifest = _read_manifest(path)
        if manifest is not None:
            manifests.setdefault(manifest.generation, manifest)
    return manifests


def _read_manifest(path: Path) -> Manifest | None:
    try:
        return understand(read_small(path), path)
    except (FileNotFoundError, DamageError, ValueError):
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({say_why(error)}); check its permissions") from error


def _examine(folder: Path, manifest: Manifest) -> Choice:
    return Choice(manifest, tuple(file for file in manifest.files if not is_whole(folder, file, again=True)))


def is_whole(folder: Path, file: StoredFile, again: bool = False) -> bool:
    """True if a file is what was written; looked at once a process, unless `again`."""
    try:
        check_file(folder, file, again)
    except DamageError:
        return False
    return True


def _find_newer_files(folder: Path, manifest: Manifest) -> list[str]:
    unnamed = _list_own(folder) - {f.name for f in manifest.files}
    if not unnamed:
        return []
    unnamed -= _list_moved(folder)
    for path in list_numbered(folder).values():
        with suppress(OSError, ValueError):
            unnamed -= list_names(read_small(path))
    return sorted(name for name in unnamed if _is_newer(read_footer(folder / name), manifest))


def _is_newer(footer: dict[str, Any] | None, manifest: Manifest) -> bool:
    if footer is None:
        return False
    generation = footer.get("generation")
    if isinstance(generation, int):
        return generation > manifest.generation
    # Written before files said their generation: known by the number of its last import.
    last_import = max(footer.get("imports") or (0,))
    return bool(last_import > manifest.last_import > 0)


def _list_own(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if OWN_NAME.fullmatch(path.name)}


def _list_moved(folder: Path) -> set[str]:
    """The names of what left staging folders that are still there, of writers that died."""
    return {
        name for path in folder.iterdir() if STAGING.fullmatch(path.name) and path.is_dir() for name in read_moved(path)
    }


def _rebuild(folder: Path, base: Manifest) -> Choice:
    """A generation of the files that say what they are, without those that were never published or that others replaced.

    `base`: the newest manifest that can be read, which knows what the books dropped and lost until then.
    """
    footers: dict[str, dict[str, Any]] = {}
    unreadable = []
    for name in sorted(_list_own(folder) - list_unfinished(folder)):
        footer = read_footer(folder / name)
        if footer is not None:
            footers[name] = footer
        elif not is_booked(name.partition("-")[0]):
            unreadable.append(name)
    currency = base.currency
    generations = [1, base.generation + 1 if base.generation else 1, *list_numbered(folder)]
    replaced: set[str] = set()
    flushed: dict[str, int] = {}
    for name, footer in footers.items():
        replaced.update(footer.pop("replaces"))
        currency = footer.pop("currency") or currency
        flushed[name] = footer.pop("live_through", 0)
        generations.append(footer.pop("generation", 0))
    found = []
    for name in sorted(footers.keys() - replaced, key=lambda name: (flushed[name], name)):
        # As they were written, where one import has several.
        path = folder / name
        file = read_file(footers[name])
        found.append(replace(file, rows=count_rows(path), bytes=path.stat().st_size, crc32=checksum_file(path)))
    # A file of the ledger that says what it is is of a day without samples.
    frozen = merge([span for f in found if f.table == LEDGER for span in f.booked])
    dropped = replace(
        base.dropped,
        frozen=frozen,
        changed=intersect(base.dropped.changed, frozen),
        redefined=intersect(base.dropped.redefined, frozen),
    )
    last_imports = [f.imports[1] for f in found if f.imports is not None]
    manifest = Manifest(
        max(generations),
        currency,
        tuple(found),
        max([base.last_import, *last_imports]),
        live_through=max([base.live_through, *flushed.values()]),
        losses=base.losses,
        dropped=dropped,
    )
    return Choice(manifest, unreadable=tuple(unreadable), is_rebuilt=True)
