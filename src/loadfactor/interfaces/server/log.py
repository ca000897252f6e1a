"""The log of a server: a line an event and a line a request, as JSON or as text, without tokens, from a level on."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from loadfactor.base.errors import no_such
from loadfactor.store.tokens import PREFIX, SECRET

FORMATS: Final = ("json", "text")
LEVELS: Final = ("info", "warning", "error")


@dataclass
class LogStyle:
    """How lines of this process are written, and from which level on."""

    format: str = "json"
    level: str = "info"

    def choose(self, form: str, level: str) -> None:
        """Write so from now on. Raises InputError for a name that is none."""
        for what, given, known in (("log format", form, FORMATS), ("log level", level, LEVELS)):
            if given not in known:
                raise no_such(what, given, known)
        self.format, self.level = form, level

    def shows(self, level: str) -> bool:
        """Whether lines of a level are written; those of libraries' own levels are as serious as errors or as nothing."""
        rank = {**{name: i for i, name in enumerate(LEVELS)}, "debug": -1, "critical": len(LEVELS)}
        return rank.get(level, 0) >= rank[self.level]


STYLE: Final = LogStyle()
"""That of this process."""


def write_line(level: str = "info", **facts: Any) -> None:
    """Write one line, with the time first."""
    if STYLE.shows(level):
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, **facts}
        text = json.dumps(line, ensure_ascii=True, default=str) if STYLE.format == "json" else write_text(line)
        sys.stderr.write(hide_secrets(text) + "\n")


def write_text(line: Mapping[str, Any]) -> str:
    """A line as words for people: the time, the level, and each fact by name, quoted where it holds spaces.

    >>> write_text({"at": "2026-11-26T12:00:00.000+00:00", "level": "info", "event": "own GPUs", "gpus": 8})
    '2026-11-26T12:00:00.000+00:00 INFO event="own GPUs" gpus=8'
    """
    facts = [f"{name}={_quote(value)}" for name, value in line.items() if name not in ("at", "level")]
    return " ".join([line["at"], line["level"].upper(), *facts])


def _quote(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=True, default=str)
    return json.dumps(text) if not text or any(c.isspace() or not c.isprintable() or c == '"' for c in text) else text


def hide_secrets(text: str) -> str:
    """The text without tokens.

    >>> hide_secrets("no metric called 'lf_AbcdefghijklmnopqrstuvwxyZ0123456789-_xyz'")
    "no metric called 'lf_…'"
    """
    return SECRET.sub(f"{PREFIX}…", text)
