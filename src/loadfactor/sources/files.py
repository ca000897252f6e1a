"""The reader of files: finds the files that the user named, and hands their bytes to decoders."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Decoder, FindFiles, Gap, Input, ReadFiles, ReadOptions, Rows
from loadfactor.sources.file_chunks import FileChunks, check_plain, note_growth
from loadfactor.sources.parsing.file_names import strip_rotation

_CSV: Final = (".csv", ".csv.gz")


def open_input(path: Path) -> Input:
    """A file as the input of a decoder; see `FileChunks`."""
    return FileChunks(path).as_input()


def read_with(decode: Decoder) -> ReadFiles:
    """A reader that hands every file to this decoder, in the order they were found."""

    def read(paths: tuple[Path, ...], options: ReadOptions) -> Iterator[Rows | Gap]:
        files = [FileChunks(path) for path in paths]
        yield from decode([file.as_input() for file in files], options)
        yield from note_growth(files)

    return read


def find_with(
    endings: tuple[str, ...],
    what: str,
    rotated: bool = False,
    deep: bool = False,
    without_ending: re.Pattern[str] | None = None,
) -> FindFiles:
    """A finder of files as named, and in folders of those that end in one of `endings` (or the same with .gz), sorted.

    With `rotated` also those to whose name rotation added a number or a date; those in whose name `without_ending` is found; with
    `deep` also those in folders of a folder. The finder raises SourceError when a path does not exist or a folder holds none.
    """

    def is_one(path: Path) -> bool:
        named = without_ending is not None and without_ending.search(path.name) is not None
        return path.is_file() and (named or _plain_name(path, rotated).endswith(endings))

    def find(paths: tuple[Path, ...]) -> tuple[Path, ...]:
        found: list[Path] = []
        for path in paths:
            inside = [path]
            if path.is_dir():
                inside = sorted(filter(is_one, path.rglob("*") if deep else path.iterdir()))
                if not inside:
                    raise SourceError(f"{path} holds no {what} ({', '.join(endings)}); name the files themselves")
            elif not path.exists():
                raise SourceError(f"{path} does not exist; check the name")
            else:
                check_plain(path)
            found += inside
        return tuple(found)

    return find


def find_csvs_with(parts: Mapping[str, bool], trace: str) -> FindFiles:
    """A finder of the CSVs, in folders or named themselves, whose names contain one of `parts` (True: there must be one).

    The finder raises SourceError naming the part that is missing.
    """

    def find(paths: tuple[Path, ...]) -> tuple[Path, ...]:
        found: list[Path] = []
        for path in paths:
            if not path.exists():
                raise SourceError(f"{path} does not exist; check the name")
            if not path.is_dir():
                check_plain(path)
            files = sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
            found += [f for f in files if f.name.endswith(_CSV) and any(part in f.name for part in parts)]
        for part, needed in parts.items():
            if needed and not any(part in f.name for f in found):
                raise SourceError(
                    f"{paths[0]} holds no *{part}*.csv or .csv.gz of {trace}; name the folder the trace lies in"
                )
        return tuple(dict.fromkeys(found))

    return find


def _plain_name(path: Path, rotated: bool) -> str:
    return strip_rotation(path.name) if rotated else path.name.removesuffix(".gz")
