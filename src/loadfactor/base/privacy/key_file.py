"""The file with the key of pseudonyms: made once, readable by its owner alone, and never replaced."""

import base64
import binascii
import os
import stat
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from loadfactor.base.errors import InputError
from loadfactor.base.privacy.pseudonyms import KEY_BITS, Pseudonyms

_BEGINS: Final = "loadfactor-key-1 "
_MAKE: Final = "`loadfactor pseudonym make-key FILE` makes one"


def make_key(path: Path) -> None:
    """Write a new key into a file that is not there yet. Raises InputError where it is, or cannot be written."""
    text = _BEGINS + base64.b64encode(AESSIV.generate_key(KEY_BITS)).decode() + "\n"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise InputError(f"{path} is there already; with another key the same users get other pseudonyms") from error
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror})") from error


def read_key(path: Path | None) -> Pseudonyms:
    """The pseudonyms of a key file. Raises InputError where there is none, it is no key, or others may read it."""
    if path is None:
        raise InputError(f"pseudonyms need a key: name its file as key_file under [privacy]; {_MAKE}")
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise InputError(f"the key of pseudonyms {path} cannot be read ({why}); {_MAKE}") from error
    if stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"{path} may be read by others than its owner; run `chmod 600 {path}`")
    try:
        return Pseudonyms(base64.b64decode(text.removeprefix(_BEGINS).strip(), validate=True))
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{path} is no key of pseudonyms; {_MAKE}") from error
