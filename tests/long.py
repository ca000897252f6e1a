"""Cases for `make test-long`: the first of many is quick, the others carry the marker `long`."""

from collections.abc import Iterable
from typing import Any

import pytest


def rest_long(cases: Iterable[Any], quick: int = 1) -> list[Any]:
    """Arguments of `parametrize`, of which `make test` runs the first `quick`; a case of several values is a tuple."""
    return [case if n < quick else mark_long(case) for n, case in enumerate(cases)]


def mark_long(case: Any) -> Any:
    """A case that only `make test-long` runs."""
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.long)
