"""Arrow without pandas, which it looks for when it makes its first array: a third of a second that no command needs."""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

ARROW, PANDAS = "pyarrow", "pandas"


def leave_pandas_out() -> None:
    """Have Arrow find no pandas when it is imported. What asks it for a data frame later gets one: it looks again."""
    waits = any(isinstance(finder, _ArrowFinder) for finder in sys.meta_path)
    if not waits and not {ARROW, PANDAS} & sys.modules.keys():
        sys.meta_path.insert(0, _ArrowFinder())


class _ArrowFinder:
    """Finds Arrow once, and no pandas while Arrow makes its first array."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of Arrow; None for what others find. Raises ModuleNotFoundError for pandas before Arrow is there."""
        if name == PANDAS and ARROW in sys.modules:
            raise ModuleNotFoundError("left out until Arrow is loaded", name=name)
        spec = PathFinder.find_spec(name, path, target) if name == ARROW else None
        if spec and spec.loader:
            load = spec.loader.exec_module
            spec.loader.exec_module = lambda module: self._load(load, module)  # type: ignore[method-assign]
        return spec

    def _load(self, load: Any, arrow: ModuleType) -> None:
        try:
            load(arrow)
            if PANDAS not in sys.modules:  # what imports pandas first, gets both
                arrow.array([])
        finally:
            sys.meta_path.remove(self)
