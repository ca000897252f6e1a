"""Compilation of the functions of the loop: without reference counting (nothing in them allocates) and cached on disk.

Counting references to the arrays took four fifths of the time. `inner` functions are called by compiled code alone and need no
wrapper for Python, which halves the time to compile; `entry` is the one Python calls.

Numba renews a cached function when its own file changes, but not when a function it calls does; so the cache lies in a folder named
after the text of all files of this room.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba as nb

F = TypeVar("F", bound=Callable[..., Any])
ROOM = Path(__file__).parent
TEXT = sha256(b"".join(file.read_bytes() for file in sorted(ROOM.glob("*.py")))).hexdigest()[:16]


def inner(function: F) -> F:
    """Compile a function that only compiled code calls."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def entry(function: F) -> F:
    """Compile a function that Python calls."""
    return _compiled(function)


def _compiled(function: F, **options: bool) -> F:
    wanted = nb.config.CACHE_DIR
    nb.config.CACHE_DIR = str((Path(wanted) if wanted else ROOM / "__pycache__") / f"compiled-{TEXT}")
    try:  # where that folder cannot be written Numba takes the user's cache
        return cast(F, nb.njit(cache=True, _nrt=False, **options)(function))
    finally:
        nb.config.CACHE_DIR = wanted
