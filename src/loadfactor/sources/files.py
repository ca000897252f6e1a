"""The reader of files: finds the files that the user named, and hands their bytes to decoders."""

import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from loadfactor.base.errors import SourceError, say_why
from loadfactor.base.limits import MOST_UNPACKED_TIMES, UNPACKED_FREELY_BYTES
from loadfactor.base.spelling import spell_out_bytes
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Decoder, FindFiles, Gap, Input, ReadFiles, ReadOptions, Rows
from loadfactor.sources.parsing.text_blocks import join_pieces, strip_rotation

PIECE_BYTES: Final = BYTES_PER_MIB
_GZIP: Final = b"\x1f\x8b"
_OTHER_KINDS: Final = (
    (stat.S_ISDIR, "a folder; name the files in it"),
    (stat.S_ISFIFO, "a pipe; save what comes out of it in a file first"),
    (stat.S_ISSOCK, "a socket; save what comes out of it in a file first"),
    (lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode), "a device; name a file"),
)


def check_plain(path: Path) -> None:
    """SourceError when the path is no plain file (or a link to one), so that opening or reading it might never end."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise SourceError(f"{path} does not exist; check the name") from None
    except OSError as e:
        raise SourceError(f"{path} cannot be read: {say_why(e)}") from None
    if not stat.S_ISREG(mode):
        what = next((what for matches, what in _OTHER_KINDS if matches(mode)), "no plain file; name a file")
        raise SourceError(f"{path} is {what}")


@dataclass
class FileChunks:
    """The bytes of a file in pieces of at most 1 MiB, gzip unpacked; opened anew each time it is gone through.

    Only what it held when it was first opened is read, and the rest of a line that was being written then.
    Raises SourceError naming the file: it is no plain file, cannot be opened, became shorter, is truncated or corrupt gzip, or
    unpacks to 250 times its size.
    """

    path: Path
    size: int | None = field(default=None, init=False)  # as first opened, packed

    def __iter__(self) -> Iterator[bytes]:
        check_plain(self.path)
        try:
            with self.path.open("rb") as raw:
                self.size = self.size if self.size is not None else _measure(raw)
                packed = raw.read(len(_GZIP)) == _GZIP
                raw.seek(0)
                yield from self._unpack(raw, self.size) if packed else self._read(raw, self.size)
        except EOFError:
            raise SourceError(f"{self.path} is a truncated gzip file; copy it again") from None
        except (zlib.error, gzip.BadGzipFile) as e:
            raise SourceError(f"{self.path} is a corrupt gzip file ({e}); copy it again") from None
        except OSError as e:
            raise SourceError(f"{self.path} cannot be read: {say_why(e)}") from None

    def as_input(self) -> Input:
        """These bytes, called like their file. Nothing is opened before they are read."""
        return Input(spell_out_bytes(str(self.path)), self, spell_out_bytes(self.path.name))

    def note_growth(self) -> Iterator[Gap]:
        """A gap when something was added to the file since it was opened."""
        try:
            if self.size is not None and self.path.stat().st_size > self.size:
                yield Gap(str(self.path), "grew while it was read; what was added then is not in, import it again")
        except OSError:
            pass  # moved away since; what it held was read

    def _read(self, raw: IO[bytes], size: int) -> Iterator[bytes]:
        opened, piece = _FirstBytes(raw, size, self.path), b""
        while data := opened.read(PIECE_BYTES):
            piece = data
            yield piece
        if piece and not piece.endswith(b"\n") and _measure(raw) > size and (rest := raw.readline(PIECE_BYTES)):
            self.size = size + len(rest)
            yield rest

    def _unpack(self, raw: IO[bytes], size: int) -> Iterator[bytes]:
        opened = _FirstBytes(raw, size, self.path)
        unpacked = 0
        file = gzip.GzipFile(fileobj=opened)  # type: ignore[call-overload]
        while piece := file.read(PIECE_BYTES):
            unpacked += len(piece)
            check_unpacked(self.path, size - opened.left, unpacked)
            yield piece


def check_unpacked(path: Path, packed_bytes: int, unpacked_bytes: int) -> None:
    """Raise SourceError if so much of a packed file unpacked to more than any honest one does."""
    if unpacked_bytes > max(UNPACKED_FREELY_BYTES, MOST_UNPACKED_TIMES * packed_bytes):
        raise SourceError(
            f"{path} unpacks to more than {MOST_UNPACKED_TIMES} times its size, which no log does; check that it is the right file"
        )


def note_growth(files: Iterable[FileChunks]) -> Iterator[Gap]:
    """A gap for each of these files to which something was added while it was read."""
    for file in files:
        yield from file.note_growth()


def read_file(path: Path, limit_bytes: int) -> bytes:
    """All bytes of a file, unpacked. SourceError as `FileChunks`, and when there are more than `limit_bytes`."""
    return join_pieces(str(path), FileChunks(path), limit_bytes, "check that it is the right file")


class _FirstBytes:
    """The first `size` bytes of an open file; SourceError when it does not hold so many any more."""

    def __init__(self, raw: IO[bytes], size: int, path: Path) -> None:
        self._raw, self.left, self._path = raw, size, path

    def read(self, count: int) -> bytes:
        data = self._raw.read(min(count, self.left))
        if not data and self.left and count:
            raise SourceError(f"{self._path} became shorter while it was read; import it when nothing rewrites it")
        self.left -= len(data)
        return data


def _measure(raw: IO[bytes]) -> int:
    return os.fstat(raw.fileno()).st_size


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
        return path.is_file() and (
            named or (strip_rotation(path.name) if rotated else path.name.removesuffix(".gz")).endswith(endings)
        )

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
