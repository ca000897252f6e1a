"""Conversion factors: the tracker stands alone, so it has its own."""

from typing import Final

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
MS_PER_S: Final = 1_000
BYTES_PER_MIB: Final = 1_048_576
