"""When scanning pays: loading the scanner takes a second, and compiling it, once on a machine, some; short logs are read sooner."""

import sys
from typing import Final

from loadfactor.base.units import BYTES_PER_KIB, BYTES_PER_MIB

FROM_BYTES: Final = (
    16 * BYTES_PER_MIB
)  # of an import, some 100,000 rows; from the first where the scanner is loaded already
PART_BYTES: Final = 32 * BYTES_PER_KIB  # a part as short as this is read as fast with care
SCANNER: Final = "loadfactor.sources.nvidia_smi.query_scanner"


class Scanning:
    """Counts the bytes of query logs that an import has read."""

    def __init__(self) -> None:
        self._read = 0

    def pays(self, data: bytes) -> bool:
        """True when this part of a log should be scanned."""
        self._read += len(data)
        return len(data) > PART_BYTES and (self._read > FROM_BYTES or SCANNER in sys.modules)
