"""Names of log files without what rotation and compression added to them."""

import re
from typing import Final

_ENDINGS: Final = (".csv", ".log", ".txt", ".xml", ".prom", ".metrics", ".om", ".dmon", ".out")
_ROTATED: Final = re.compile(
    rf"(.+(?:{'|'.join(map(re.escape, _ENDINGS))}))[.-]\d[\d-]*"
)  # gpu.csv.1, gpu.csv-20240131


def strip_rotation(name: str) -> str:
    """The name as it was before the file was rotated away and compressed.

    >>> strip_rotation("node-7.log.2.gz")
    'node-7.log'
    """
    name = name.removesuffix(".gz")
    rotated = _ROTATED.fullmatch(name)
    return rotated[1] if rotated else name


def strip_endings(name: str) -> str:
    """The name without the endings of logs, of rotation and of compression: the node, when nothing else names it.

    >>> strip_endings("node-7.example.csv.gz"), strip_endings("node-7.log.2.gz"), strip_endings("node-7.csv-20240131")
    ('node-7.example', 'node-7', 'node-7')
    """
    plain = strip_rotation(name)
    for ending in _ENDINGS:
        plain = plain.removesuffix(ending)
    return plain or name
