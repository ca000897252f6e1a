"""Skips the tests with real training where no `make training` was; with LOADFACTOR_REQUIRE_REAL=1 that is a failure."""

import os
from pathlib import Path

import pytest
from tests.training.processes import PYTHON

HERE = Path(__file__).parent
collect_ignore_glob = ["loops/*.py"]  # scripts of that environment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests in this folder."""
    if PYTHON.is_file() or os.environ.get("LOADFACTOR_REQUIRE_REAL") == "1":
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="no .training-env: run make training"))


@pytest.fixture(autouse=True, scope="session")
def _installed() -> None:
    assert PYTHON.is_file(), "run make training: LOADFACTOR_REQUIRE_REAL asks for real training"
