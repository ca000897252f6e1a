"""The audit log of a store, `audit.log` in its folder: a line of JSON for every token, upload and forgotten import."""

import getpass
import json
import os
from pathlib import Path
from time import time
from typing import Any, Final

from loadfactor.base.errors import StoreError
from loadfactor.base.units import MS_PER_S
from loadfactor.store import disk

NAME: Final = "audit.log"


def append_audit(folder: Path, action: str, by: str = "", **facts: Any) -> None:
    """Add a line that outlasts a power loss. `by` is who did it: the user of this process where nobody is named.

    Raises StoreError where it cannot be written.
    """
    line = {"at_ms": int(time() * MS_PER_S), "action": action, "by": by or f"user {_name_user()}", **facts}
    path = folder / NAME
    try:
        is_new = not path.exists()
        handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        try:
            os.write(handle, json.dumps(line, ensure_ascii=True).encode() + b"\n")
        finally:
            os.close(handle)
        disk.sync_file(path)
        if is_new:
            disk.sync_folder(folder)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror}); what it should say was done: {action}"
        ) from error


def _name_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, in a container
        return str(os.getuid())
