"""The public names: `open` for the books of a fleet, `track` for a training loop, `diagnose` and `savings`, and plans.

ARCHITECTURE.md is the map of the packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from loadfactor.books.books import Books
    from loadfactor.faces.cli.diagnose import diagnose
    from loadfactor.faces.cli.savings import savings
    from loadfactor.faces.plans.breakeven import plan_breakeven
    from loadfactor.faces.plans.own import plan_ownership
    from loadfactor.faces.plans.serve import plan_serving
    from loadfactor.faces.plans.size import plan_size
    from loadfactor.faces.plans.train import plan_training
    from loadfactor.tracking import track

__all__ = [
    "Books",
    "diagnose",
    "open",
    "plan_breakeven",
    "plan_ownership",
    "plan_serving",
    "plan_size",
    "plan_training",
    "savings",
    "track",
]
__version__ = "0.1.0"

_LAZY: dict[str, str] = {
    "Books": "loadfactor.books.books",
    "diagnose": "loadfactor.faces.cli.diagnose",
    "savings": "loadfactor.faces.cli.savings",
    "plan_training": "loadfactor.faces.plans.train",
    "plan_serving": "loadfactor.faces.plans.serve",
    "plan_size": "loadfactor.faces.plans.size",
    "plan_ownership": "loadfactor.faces.plans.own",
    "plan_breakeven": "loadfactor.faces.plans.breakeven",
}
"""Public names and the modules that define them, imported when they are first used."""


def __getattr__(name: str) -> Any:
    if name == "track":
        return _find_track()
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'loadfactor' has no attribute {name!r}")


def _find_track() -> Any:
    """The tracker; that of the distribution `loadfactor-track` where it is installed beside this one, so that there is one."""
    try:
        return import_module("loadfactor_track").track
    except ImportError:
        return import_module("loadfactor.tracking").track


def __dir__() -> list[str]:
    return __all__


def open(folder: "str | Path", create: bool = False) -> "Books":
    """The books kept in a folder. Raises InputError saying how to begin where there are none, unless `create` is true."""
    from loadfactor.books.books import Books
    from loadfactor.paths import read_store

    return Books.open(read_store(folder), create)
