"""Compilation of simulation loops with Numba: without reference counting (nothing in them allocates) and cached on disk.

Counting references to the arrays takes four fifths of the time. `inner` functions are called by compiled code alone and need no
wrapper for Python, which halves the time to compile; `entry` is the one Python calls. Numba renews a cached function when its own
file changes, but not when a function it calls does; so the cache lies in a folder named after the text of all files beside it.
"""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import numba as nb

F = TypeVar("F", bound=Callable[..., Any])


def inner(function: F) -> F:
    """Compile a function that only compiled code calls."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inline(function: F) -> F:
    """Compile a function into its caller: for one called at one place, whose arguments cost more to hand over than its work."""
    return _compile(function, inline="always")


def entry(function: F) -> F:
    """Compile a function that Python calls."""
    return _compile(function)


def _compile(function: F, **options: bool | str) -> F:
    wanted = nb.config.CACHE_DIR
    folder = Path(function.__code__.co_filename).parent
    nb.config.CACHE_DIR = str((Path(wanted) if wanted else folder / "__pycache__") / f"compiled-{_digest(folder)}")
    try:  # where that folder cannot be written Numba takes the user's cache
        return cast(F, nb.njit(cache=True, _nrt=False, **options)(function))
    finally:
        nb.config.CACHE_DIR = wanted


@cache
def _digest(folder: Path) -> str:
    """What identifies the text of all files of a folder."""
    return sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.py")))).hexdigest()[:16]
