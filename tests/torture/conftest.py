"""How many rounds the store is tortured; without rounds the test is left out."""

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.torture.bench import Bench

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "0"))
"""CI runs 5, `make torture` 200."""
ALL_ROUNDS = 200
"""With so many, all cases are gone through; with fewer, some of them."""
collect_ignore_glob = ["warm.py"] if ROUNDS else ["*.py"]


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> "Bench":
    """The store in its states."""
    from tests.torture.bench import Bench

    return Bench(tmp_path_factory.mktemp("torture"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case a round where a test goes in rounds."""
    if "round_" in metafunc.fixturenames:
        metafunc.parametrize("round_", range(ROUNDS))
