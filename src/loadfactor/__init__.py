"""The public names: `open` for the books of a fleet, `track` for a training loop, `diagnose` and `savings`, and plans.

ARCHITECTURE.md is the map of the packages.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from loadfactor.books.books import Books
    from loadfactor.interfaces.digests.page import digest
    from loadfactor.interfaces.insights import diagnose, savings
    from loadfactor.interfaces.pages.compare import compare
    from loadfactor.interfaces.pages.statement import statement
    from loadfactor.interfaces.pages.users import users
    from loadfactor.interfaces.pages.why_changed import why_changed
    from loadfactor.interfaces.plans.breakeven import plan_breakeven
    from loadfactor.interfaces.plans.forecast import forecast
    from loadfactor.interfaces.plans.own import plan_ownership
    from loadfactor.interfaces.plans.rl import plan_reinforcement
    from loadfactor.interfaces.plans.serve import plan_serving
    from loadfactor.interfaces.plans.size import plan_size
    from loadfactor.interfaces.plans.train import plan_training
    from loadfactor.interfaces.reports.seff import seff
    from loadfactor_track import run as track

__all__ = [
    "Books",
    "compare",
    "diagnose",
    "digest",
    "forecast",
    "open",
    "plan_breakeven",
    "plan_ownership",
    "plan_reinforcement",
    "plan_serving",
    "plan_size",
    "plan_training",
    "savings",
    "seff",
    "statement",
    "track",
    "users",
    "why_changed",
]
__version__ = "0.1.0"

_LAZY: dict[str, str] = {
    "track": "loadfactor_track",
    "Books": "loadfactor.books.books",
    "compare": "loadfactor.interfaces.pages.compare",
    "why_changed": "loadfactor.interfaces.pages.why_changed",
    "diagnose": "loadfactor.interfaces.insights",
    "digest": "loadfactor.interfaces.digests.page",
    "forecast": "loadfactor.interfaces.plans.forecast",
    "savings": "loadfactor.interfaces.insights",
    "seff": "loadfactor.interfaces.reports.seff",
    "statement": "loadfactor.interfaces.pages.statement",
    "users": "loadfactor.interfaces.pages.users",
    "plan_training": "loadfactor.interfaces.plans.train",
    "plan_reinforcement": "loadfactor.interfaces.plans.rl",
    "plan_serving": "loadfactor.interfaces.plans.serve",
    "plan_size": "loadfactor.interfaces.plans.size",
    "plan_ownership": "loadfactor.interfaces.plans.own",
    "plan_breakeven": "loadfactor.interfaces.plans.breakeven",
}
"""Public names and the modules that define them, imported when they are first used."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'loadfactor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


def open(folder: "str | Path", create: bool = False) -> "Books":
    """The books kept in a folder. Raises InputError saying how to begin where there are none, unless `create` is true."""
    from loadfactor.base.paths import read_store
    from loadfactor.books.books import Books

    return Books.open(read_store(folder), create)
