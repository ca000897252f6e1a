"""Skips the tests with real components where these are not installed; with LOADFACTOR_REQUIRE_REAL=1 that is a failure."""

import os
from pathlib import Path

import pytest
from tests.real.components import list_missing

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests in this folder."""
    missing = list_missing()
    if not missing or os.environ.get("LOADFACTOR_REQUIRE_REAL") == "1":
        return
    skip = pytest.mark.skip(reason=f"not installed: {', '.join(missing)} (Debian packages)")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _installed() -> None:
    missing = list_missing()
    assert not missing, f"install the Debian packages {' '.join(missing)}: LOADFACTOR_REQUIRE_REAL asks for them"
