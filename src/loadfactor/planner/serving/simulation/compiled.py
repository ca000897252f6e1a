"""How are the functions of the loop compiled? Without reference counting (nothing in them allocates) and cached on disk.

Counting references to the arrays took four fifths of the time. `inner` functions are called by compiled code alone and need no
wrapper for Python, which halves the time to compile; `entry` is the one Python calls.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba as nb

F = TypeVar("F", bound=Callable[..., Any])


def inner(function: F) -> F:
    """Compile a function that only compiled code calls."""
    return cast(F, nb.njit(cache=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function))


def entry(function: F) -> F:
    """Compile a function that Python calls."""
    return cast(F, nb.njit(cache=True, _nrt=False)(function))
