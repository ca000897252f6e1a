"""Skips the tests with real components where these are not installed; with LOADFACTOR_REQUIRE_REAL=1 that is a failure."""

import os
import shutil
from pathlib import Path

import pytest
from tests.real import components, slurm_cluster

HERE = Path(__file__).parent


def list_missing(test: Path) -> list[str]:
    """What the tests of a file lack."""
    if "clock" in test.name:
        return [] if shutil.which("faketime") else ["faketime"]
    return slurm_cluster.list_missing() if "slurm" in test.name else components.list_missing()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests in this folder."""
    if os.environ.get("LOADFACTOR_REQUIRE_REAL") == "1":
        return
    for item in items:
        if HERE in item.path.parents and (missing := list_missing(item.path)):
            item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(missing)} (Debian packages)"))


@pytest.fixture(autouse=True, scope="module")
def _installed(request: pytest.FixtureRequest) -> None:
    missing = list_missing(request.path)
    assert not missing, f"install the Debian packages {' '.join(missing)}: LOADFACTOR_REQUIRE_REAL asks for them"
