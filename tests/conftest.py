"""What every test may use."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and published measurements beside the checkout; a test that needs it skips without it."""
    if not SHARED.is_dir():
        pytest.skip(f"no real data beside the checkout at ../{SHARED.name}")
    return SHARED
