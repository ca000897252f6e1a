"""Paths as people write them: ~ is the home folder, and a link to the folder of a store is that folder."""

import os
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
    """The folder of a store, as it was written where no symbolic link is on the way, else the folder that is linked to."""
    path = read_path(text)
    real = Path(os.path.realpath(path))
    return path if real == Path(os.path.abspath(path)) else real


def cache_folder() -> Path:
    """Where what can be worked out again is kept between runs: of this user, outside every store."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "loadfactor"
