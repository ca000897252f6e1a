"""What a server says of its requests: a line of JSON on stderr, with no secret in it."""

import json
import sys
from datetime import UTC, datetime
from typing import Any

from loadfactor.store.tokens import PREFIX, SECRET


def write_line(**facts: Any) -> None:
    """Write one line, with the time first."""
    line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts}
    sys.stderr.write(hide_secrets(json.dumps(line, ensure_ascii=True, default=str)) + "\n")


def hide_secrets(text: str) -> str:
    """The text without tokens.

    >>> hide_secrets("no metric called 'lf_AbcdefghijklmnopqrstuvwxyZ0123456789-_xyz'")
    "no metric called 'lf_…'"
    """
    return SECRET.sub(f"{PREFIX}…", text)
