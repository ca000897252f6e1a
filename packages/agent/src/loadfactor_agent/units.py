"""The conversion factors of the agent, and nothing else does."""

from typing import Final

MS_PER_S: Final = 1000
US_PER_S: Final = 1_000_000
MW_PER_W: Final = 1000
PERCENT: Final = 100
BYTES_PER_KIB: Final = 1024
BYTES_PER_MIB: Final = 1024**2
BYTES_PER_SECTOR: Final = 512
"""A sector of /proc/diskstats, whatever those of the disk are."""
