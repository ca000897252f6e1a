"""Paths as people write them, and names of files for owners.

~ is the home folder, a link to the folder of a store is that folder, and a store may be a URL.
"""

import os
import re
import unicodedata
from collections.abc import Iterable
from glob import escape, glob
from hashlib import sha256
from pathlib import Path
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.spelling import spell_out_bytes

BETWEEN: Final = ","
"""Between the folders of several stores that are read as one, where they are written as one text."""


def read_path(text: str | Path) -> Path:
    """The path meant by what was typed or set, its ~ replaced. Raises InputError where there is no such home folder."""
    try:
        if "\0" in str(text):
            raise InputError(f"{str(text)!r} is no path; leave the NUL out")
        return Path(text).expanduser()
    except RuntimeError as error:  # ~name of nobody, or no home
        raise InputError(f"{text}: there is no such home folder; write the path in full") from error


def read_store(text: str | Path) -> Path:
    """The folder of a store, as written where no symbolic link is on the way, else the folder that is linked to; a URL as it is.

    Of several, with commas between, each; patterns stay as they are (`list_stores`).

    >>> read_store("stores/eu,stores/us"), read_store("stores/*")
    (PosixPath('stores/eu,stores/us'), PosixPath('stores/*'))
    """
    path = read_path(text)
    if spell_out_bytes(str(path)) != str(path):  # the query engine opens no other
        raise InputError(f"{path} is not UTF-8; a store needs a folder whose name is, choose one with --store")
    if is_joint(path):
        return join_stores(map(read_store, str(path).split(BETWEEN))) if BETWEEN in str(path) else path
    if read_url(path) is not None:
        return path
    real = Path(os.path.realpath(path))
    return path if real == Path(os.path.abspath(path)) else real


def join_stores(given: Iterable[str | Path]) -> Path:
    """Several folders, or patterns of folders, as the one path that names them all."""
    return Path(BETWEEN.join(str(path) for path in given))


def is_joint(path: Path) -> bool:
    """True where a path may name several stores: it has a comma or is a pattern, and no folder is called so."""
    return (BETWEEN in str(path) or _is_pattern(str(path))) and not path.exists()


def _is_pattern(text: str) -> bool:
    """Whether a name has * or ? in it: brackets are part of names."""
    return "*" in text or "?" in text


def list_stores(path: Path) -> tuple[Path, ...]:
    """The folders of stores that a path names: one, or several with commas between; a pattern is every folder that fits.

    Raises InputError where none does.
    """
    if not is_joint(path):
        return (path,)
    found: list[Path] = []
    for text in str(path).split(BETWEEN):
        if not _is_pattern(text):
            found.append(read_path(text))
            continue
        fitting = sorted(Path(name) for name in glob(text.replace("[", escape("["))) if Path(name).is_dir())
        if not fitting:
            raise InputError(f"no folder fits {text}; name the folders of the books with --store")
        found += fitting
    return tuple(found)


def say_read_only(path: Path) -> str:
    """Tell that several stores cannot be written to."""
    return f"{path} names several stores, which are read as one and not written to; name one of them with --store"


def cache_folder() -> Path:
    """Where what can be worked out again is kept between runs: of this user, outside every store."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "loadfactor"


def state_folder() -> Path:
    """Where what cannot be worked out again is kept, of this user, where no folder was named."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()) / "loadfactor"


def list_folders(path: Path) -> tuple[Path, ...]:
    """The folder of each store that a path names: itself, or beside a bucket that of this user which goes with its URL."""
    return tuple(of if (url := read_url(of)) is None else folder_beside(url) for of in list_stores(path))


def folder_beside(url: str) -> Path:
    """The folder of this user that goes with the URL of a store."""
    return state_folder() / name_file(url)


# Lower case only: many file systems hold Vision and vision for one name.
_PLAIN_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._@+-]{0,78}[a-z0-9_@+-])?", re.ASCII)
# Windows opens a device under these names, whatever follows a point; "all" is the page of all owners.
_RESERVED_NAME: Final = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?|all")
_UNREADABLE: Final = re.compile(r"[^\w@+-]+")
MAX_READABLE_BYTES: Final = 48
DIGEST_DIGITS: Final = 16


def name_file(owner: str) -> str:
    """Build the name of the file or folder of an owner, such as a team.

    Two owners never share one, also where file systems ignore case or compose letters. A plain name stays as it is; of any other
    the readable letters are followed by ~ and a digest. The result has no space and no ending, and at most 80 bytes.

    >>> name_file("vision"), name_file("vision/a"), name_file("Vision_a")
    ('vision', 'vision_a~0558815be4bc0ef4', 'Vision_a~4b06dc4019f15ffa')
    """
    if _PLAIN_NAME.fullmatch(owner) and not _RESERVED_NAME.fullmatch(owner):
        return owner
    letters = _UNREADABLE.sub("_", unicodedata.normalize("NFC", owner)).lstrip("-")
    readable = letters.encode()[:MAX_READABLE_BYTES].decode(errors="ignore") or "_"
    # A name from data may have half of a pair of surrogates, which UTF-8 refuses.
    digest = sha256(owner.encode(errors="surrogatepass")).hexdigest()[:DIGEST_DIGITS]
    return f"{readable}~{digest}"


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
    """A store, or several, as they are written behind --store."""
    if is_joint(Path(path)):
        return BETWEEN.join(read_url(of) or of for of in str(path).split(BETWEEN))
    return read_url(path) or str(path)
