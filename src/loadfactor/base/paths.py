"""Paths as people write them: ~ is the home folder, a link to the folder of a store is that folder, and a store may be a URL."""

import os
import re
from hashlib import sha256
from pathlib import Path

from loadfactor.base.errors import InputError


def read_path(text: str | Path) -> Path:
    """The path meant by what was typed or set, its ~ replaced. Raises InputError where there is no such home folder."""
    try:
        if "\0" in str(text):
            raise InputError(f"{str(text)!r} is no path; leave the NUL out")
        return Path(text).expanduser()
    except RuntimeError as error:  # ~name of nobody, or no home
        raise InputError(f"{text}: there is no such home folder; write the path in full") from error


def read_store(text: str | Path) -> Path:
    """The folder of a store, as written where no symbolic link is on the way, else the folder that is linked to; a URL as it is."""
    path = read_path(text)
    if read_url(path) is not None:
        return path
    real = Path(os.path.realpath(path))
    return path if real == Path(os.path.abspath(path)) else real


def check_names_one_store(*paths: str | Path) -> None:
    """Raise InputError if these are several stores, or one path names several: with commas, or * or ?."""
    several = [path for path in paths if re.search("[,*?]", str(path)) and not Path(path).exists()]
    if several or len(paths) > 1:
        from loadfactor.base.removed import refuse_removed

        raise refuse_removed("usages", "reading several stores as one")


def cache_folder() -> Path:
    """Where what can be worked out again is kept between runs: of this user, outside every store."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "loadfactor"


def state_folder() -> Path:
    """Where what cannot be worked out again is kept, of this user, where no folder was named."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()) / "loadfactor"


def folder_beside(url: str) -> Path:
    """The folder of this user that goes with the URL of a store."""
    digest = sha256(url.encode()).hexdigest()[:8]
    return state_folder() / f"{re.sub('[^a-z0-9]+', '-', url.lower())}-{digest}"


_BUCKET = re.compile(r"(s3|gs|az):/+([^/].*)")


def read_url(text: str | Path) -> str | None:
    """The bucket and prefix that were meant: s3://bucket/prefix, gs://… or az://…; None for a folder.

    Of the two slashes of a URL a path keeps one.

    >>> read_url(Path("s3://gpus/books/")), read_url("books")
    ('s3://gpus/books', None)
    """
    found = _BUCKET.fullmatch(str(text))
    return None if found is None else f"{found[1]}://{found[2].rstrip('/')}"


def name_store(path: str | Path) -> str:
    """A store as it is written behind --store."""
    return read_url(path) or str(path)
