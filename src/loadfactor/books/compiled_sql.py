"""Compiled SQL, kept between runs: Ibis compiles a definition once, and importing it takes longer than most answers.

One file an entry in the user's cache folder, named by a digest of the shape and of the program that wrote the SQL: the text of
its modules, and the versions of the program and of its compilers. A file that is damaged, or a folder that cannot be written,
costs the time to compile and nothing else.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from uuid import uuid4

import loadfactor
from loadfactor.base.paths import cache_folder

Queries = dict[str, str]
"""SQL by name."""
WRITERS = ("base", "books", "interfaces/exports", "ledger", "metrics", "tables")
"""Packages whose text decides what SQL says: those that call `recall`, and all that the definitions import."""
COMPILERS = ("ibis-framework", "sqlglot", "duckdb")
MOST_KEPT = 1_000
_known: dict[str, Queries] = {}


def expressions() -> ModuleType:
    """The definitions of what questions read, imported when one is compiled: Ibis takes longer to import than most answers."""
    from loadfactor.books import expressions

    return expressions


def ledger_steps() -> ModuleType:
    """The definitions of the ledger, imported when one is compiled."""
    from loadfactor.ledger import steps

    return steps


def recall(shape: str, compile: Callable[[], Queries]) -> Queries:
    """The SQL of this shape: compiled before, else now."""
    if shape not in _known:
        found = _read(_find_path(shape))
        if found is None:
            found = compile()
            keep(shape, found)
        _known[shape] = found
    return _known[shape]


def keep(shape: str, queries: Queries) -> None:
    """Keep the SQL of this shape for the runs to come."""
    _write(_find_path(shape), queries)


def _find_path(shape: str) -> Path:
    return cache_folder() / f"sql-{_digest(digest_program() + shape)}.json"


def _read(path: Path) -> Queries | None:
    """An entry as it was written; None where there is none, or it is damaged."""
    try:
        digest, _, text = path.read_text(encoding="utf-8").partition("\n")
        with suppress(OSError):
            os.utime(path)  # of too many, those go that nobody needs
        return dict(json.loads(text)) if digest == _digest(text) else None
    except (OSError, ValueError):
        return None


def _write(path: Path, queries: Queries) -> None:
    """Keep an entry, written beside and renamed; of too many those go that were needed longest ago."""
    text = json.dumps(queries)
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = path.with_suffix(f".{uuid4().hex}")
        beside.write_text(f"{_digest(text)}\n{text}", encoding="utf-8")
        os.replace(beside, path)
        kept = sorted(path.parent.glob("sql-*"), key=lambda p: p.stat().st_mtime)
        for old in kept[:-MOST_KEPT]:
            old.unlink(missing_ok=True)


@cache
def digest_program(root: Path = Path(loadfactor.__file__).parent) -> str:
    """Compute a digest of everything but the request that decides what compiled SQL says.

    `root` is the folder of the package.
    """
    digest = sha256(" ".join((loadfactor.__version__, *map(version, COMPILERS))).encode())
    # All files are read at every start, in about 4 ms: a size and a time may stay as they were though the text changed.
    for path in list_writers(root):
        digest.update(f"\0{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def list_writers(root: Path) -> list[Path]:
    """List the modules whose text decides what compiled SQL says."""
    return [path for name in WRITERS for path in sorted((root / name).rglob("*.py"))]


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]
