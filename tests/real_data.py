"""Real data beside the checkout, which may not be redistributed with it."""

import os
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


def find_shared(name: str = "") -> Path:
    """Find a file or folder of real data; the test that needs it skips if there is none.

    With LOADFACTOR_REQUIRE_SHARED=1 it fails.
    """
    path = SHARED / name
    if not path.exists():
        message = f"no real data beside the checkout at ../{path.relative_to(SHARED.parent)}"
        if os.environ.get("LOADFACTOR_REQUIRE_SHARED") == "1":
            pytest.fail(f"{message}: LOADFACTOR_REQUIRE_SHARED asks for it", pytrace=False)
        pytest.skip(message, allow_module_level=True)
    return path
