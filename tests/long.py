"""Cases for `make test-long`: the first of many is quick, the others carry the marker `long`."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

SEEDS = int(os.environ.get("SEEDS") or os.environ.get("TORTURE_ROUNDS") or 4)
"""So many of a range of seeds are run: `make test-long SEEDS=100` runs more, up to those that a test names."""


def rest_long(cases: Iterable[Any], quick: int = 1) -> list[Any]:
    """Arguments of `parametrize`, of which `make test` runs the first `quick`; a case of several values is a tuple."""
    selected = cases[:SEEDS] if isinstance(cases, range) else cases
    return [case if n < quick else mark_long(case) for n, case in enumerate(selected)]


def mark_long(case: Any) -> Any:
    """A case that only `make test-long` runs."""
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.long)
