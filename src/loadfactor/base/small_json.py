"""Reading of the small JSON files that a store keeps: whatever is in them, the only error is one ValueError.

What users hand over (logs, traces, bills) has budgets of its own, in `sources`.
"""

import json
from pathlib import Path
from typing import Any, Final

from loadfactor.base.units import BYTES_PER_MIB

MAX_JSON_BYTES: Final = 256 * BYTES_PER_MIB
"""About 250,000 files in one manifest; more is not what was written."""


def parse_json(content: bytes | str) -> Any:
    """Parse the content of a small file. Raises ValueError with a reason of one line.

    >>> parse_json(b"[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    """
    if len(content) > MAX_JSON_BYTES:
        raise ValueError(f"it has {len(content):,} bytes, at most {MAX_JSON_BYTES:,} are read")
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError as error:
        raise ValueError(" ".join(str(error).split())) from error


def read_json(path: Path) -> Any:
    """Read a small file of JSON. Raises OSError, and ValueError as `parse_json`."""
    return parse_json(read_small(path))


def read_small(path: Path) -> bytes:
    """Read a file that is small, or is not what was written. Raises OSError, and ValueError if it is too large to read."""
    with path.open("rb") as file:
        # One byte more than the most tells a file that is too large without its size, which may grow meanwhile.
        content = file.read(MAX_JSON_BYTES + 1)
    if len(content) > MAX_JSON_BYTES:
        raise ValueError(f"it has more than {MAX_JSON_BYTES:,} bytes")
    return content
