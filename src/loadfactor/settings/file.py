"""Which file the settings of this process come from, and whether it is still what it was when they were taken."""

from pathlib import Path
from typing import Final

FILE: Final = "loadfactor.toml"
Signature = tuple[int, int] | None


class SettingsFile:
    """A file, and what it looked like when it was last looked at."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: Signature = None

    def look(self) -> Path:
        """Its path; changes count from now on."""
        self._seen = sign_file(self.path)
        return self.path

    def has_changed(self) -> bool:
        """True where it is another than when it was looked at."""
        return sign_file(self.path) != self._seen


CHOSEN: Final = SettingsFile(Path(FILE))
"""That of this process."""


def sign_file(path: Path) -> Signature:
    """What changes when a file does; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
