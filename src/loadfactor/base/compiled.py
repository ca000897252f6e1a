"""Compilation of simulation loops with Numba: without reference counting (nothing in them allocates) and cached on disk.

Counting references to the arrays takes four fifths of the time. `inner` functions are called by compiled code alone: they need no
wrapper for Python and are optimized and made machine code once, in the `entry` that calls them, which is the one Python calls and
the one that is cached. Each is compiled once for whole numbers, constants or not. Compiling takes the longer the more arrays are
handed on: a record of NumPy goes by reference, a tuple of arrays as 7 to 11 numbers an array. Numba renews a cached function when
its own file changes, but not when a function it calls does; so the cache lies in a folder named after the text of the file and of
all files of this package that it imports. It is the user's: environments and versions with the same text share what one compiled.
"""

import ast
import os
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeVar, cast

import numba as nb
from numba.core.caching import InTreeCacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.types import unliteral  # type: ignore[attr-defined]

from loadfactor.base.paths import cache_folder

F = TypeVar("F", bound=Callable[..., Any])
_PACKAGE = Path(__file__).parents[1]
MOST_KEPT = 100
"""Folders, one a file that was compiled."""


def inner(function: F) -> F:
    """Compile a function that only compiled code calls."""
    return _compile(function, pipeline_class=_InnerCompiler, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inline(function: F) -> F:
    """Compile a function into its caller: for one called at one place, whose arguments cost more to hand over than its work."""
    return _compile(function, inline="always")


def entry(function: F) -> F:
    """Compile a function that Python calls."""
    usual = nb.config.CACHE_LOCATOR_CLASSES
    nb.config.CACHE_LOCATOR_CLASSES = f"{__name__}.{SharedCache.__name__},{InTreeCacheLocator.__name__}"
    try:
        return _compile(function, cache=True)
    finally:
        nb.config.CACHE_LOCATOR_CLASSES = usual


def _compile(function: F, **options: Any) -> F:
    compiled = nb.njit(_nrt=False, **options)(function)
    resolve = compiled.get_call_template
    compiled.get_call_template = lambda kinds, names: resolve([unliteral(kind) for kind in kinds], names)
    return cast(F, compiled)


class _InnerCode(JITCodeLibrary):  # type: ignore[misc]
    """Code of an `inner` function, as it is linked into its callers."""

    def _optimize_final_module(self) -> None:
        """Leave it to the caller."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class _InnerCompiler(Compiler):  # type: ignore[misc]
    def define_pipelines(self) -> Any:
        context = self.state.targetctx
        self.state.library = _InnerCode(context.codegen(), self.state.func_id.func_qualname)
        context.get_executable = lambda *_: (
            [].append
        )  # a function of its own that nobody calls: by it callers find the code
        return super().define_pipelines()


class SharedCache(InTreeCacheLocator):  # type: ignore[misc]
    """Where what is compiled of a file is kept: by its text, wherever it lies. A folder that cannot be written is not taken."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        super().__init__(function, file)
        self._digest = _digest(Path(file))
        self._cache_path = str(Path(nb.config.CACHE_DIR or cache_folder()) / f"compiled-{self._digest}")

    def get_source_stamp(self) -> str:
        return self._digest

    def ensure_cache_path(self) -> None:
        """Make the folder; of too many the oldest go."""
        is_new = not os.path.isdir(self._cache_path)
        super().ensure_cache_path()
        if is_new:
            kept = sorted(Path(self._cache_path).parent.glob("compiled-*"), key=lambda path: path.stat().st_mtime)
            for old in kept[:-MOST_KEPT]:
                rmtree(old, ignore_errors=True)


@cache
def _digest(file: Path) -> str:
    texts: dict[Path, bytes] = {}
    pending = [file]
    while pending:
        file = pending.pop()
        if file not in texts:
            texts[file] = file.read_bytes()
            pending += _imported_files(texts[file])
    return sha256(b"".join(texts[file] for file in sorted(texts))).hexdigest()[:16]


def _imported_files(text: bytes) -> list[Path]:
    names = [
        name
        for statement in ast.parse(text).body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for name in (statement.module, *(f"{statement.module}.{alias.name}" for alias in statement.names))
        if name.startswith(f"{_PACKAGE.name}.")
    ]
    files = [_PACKAGE.parent.joinpath(*name.split(".")) for name in names]
    return [path for file in files for path in (file.with_suffix(".py"), file / "__init__.py") if path.is_file()]
