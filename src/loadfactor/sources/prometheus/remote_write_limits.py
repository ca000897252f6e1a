"""Bounds on what one remote_write request may hold, and the error where one is passed."""

from dataclasses import dataclass
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB

MOST_NAMES: Final = 1000
"""So many names of metrics that are not understood are counted one by one; the rest together."""


class BodyTooLarge(SourceError):  # noqa: N818 - what is wrong, as the HTTP status says it
    """A request holds more than the limits let in; a smaller one would be taken."""


@dataclass(frozen=True)
class WriteLimits:
    """What one request may hold, and how many series the scanner remembers.

    Senders put 500 to 10,000 samples into a request. Where the remembered series or their bytes would pass their limit, all are
    forgotten, and remembered again as they come.
    """

    packed_bytes: int = 32 * BYTES_PER_MIB
    unpacked_bytes: int = 128 * BYTES_PER_MIB
    series: int = 200_000
    samples: int = 1_000_000
    labels: int = 64
    label_bytes: int = 2048  # of a name, and of a value
    known_series: int = 500_000
    known_bytes: int = 256 * BYTES_PER_MIB  # of the labels of all known series

    @property
    def labels_bytes(self) -> int:
        """The bytes that the labels of one series may take at most: two lengths and tags of up to six bytes beside the text."""
        return self.labels * 2 * (self.label_bytes + 12)

    def __post_init__(self) -> None:
        """One series fits into what is remembered."""
        assert self.known_series >= 1
        assert self.known_bytes >= self.labels_bytes
