"""What the tests of the distributions may use: the fixtures of the main package's tests."""

from tests.conftest import own_settings, shared

__all__ = ["own_settings", "shared"]
