"""Pseudonyms: names encrypted so that one name always becomes the same text, which only the key turns back (AES-SIV, RFC 5297)."""

import base64
import binascii
import re
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from loadfactor.base.errors import InputError
from loadfactor.base.privacy import PREFIX

PSEUDONYM: Final = re.compile(rf"(?<![\w-]){PREFIX}[a-z2-7]{{26,}}(?![\w-])")
"""How a pseudonym looks inside a text: 16 bytes that prove it and the name itself, in base32."""
KEY_BITS: Final = 512
_NAMES: Final = [b"loadfactor user"]
_BYTES: Final = [b"loadfactor bytes"]
_SEALED: Final = b"lf-sealed-1\0"
_KEPT: Final = 100_000


class Pseudonyms:
    """Masks names and reveals them with one key."""

    def __init__(self, key: bytes) -> None:
        """`key`: 64 bytes. Raises InputError where it is none."""
        try:
            self._cipher = AESSIV(key)
        except ValueError as error:
            raise InputError("this is no key of pseudonyms; `loadfactor pseudonym make-key FILE` makes one") from error
        self.mask = lru_cache(_KEPT)(self._mask)
        """The pseudonym of a name; of a pseudonym itself."""
        self.reveal = lru_cache(_KEPT)(self._reveal)
        """The name behind a pseudonym of this key; None where it is none."""

    def _mask(self, name: str) -> str:
        if not name or self.reveal(name) is not None:
            return name
        sealed = base64.b32encode(self._cipher.encrypt(name.encode(errors="surrogatepass"), _NAMES))
        return PREFIX + sealed.decode().rstrip("=").lower()

    def _reveal(self, text: str) -> str | None:
        if not PSEUDONYM.fullmatch(text):
            return None
        letters = text.removeprefix(PREFIX).upper()
        try:
            sealed = base64.b32decode(letters + "=" * (-len(letters) % 8))
            return self._cipher.decrypt(sealed, _NAMES).decode(errors="surrogatepass")
        except (binascii.Error, InvalidTag, ValueError):
            return None

    def reveal_all(self, text: str) -> str:
        """A text with every pseudonym of this key in it turned back."""
        return PSEUDONYM.sub(lambda found: self.reveal(found[0]) or found[0], text) if PREFIX in text else text

    def seal(self, content: bytes) -> bytes:
        """Bytes that only this key opens."""
        return _SEALED + self._cipher.encrypt(content, _BYTES) if content else content

    def open(self, content: bytes) -> bytes:
        """What was sealed; other bytes as they are. Raises InputError where another key sealed them."""
        if not content.startswith(_SEALED):
            return content
        try:
            return self._cipher.decrypt(content.removeprefix(_SEALED), _BYTES)
        except InvalidTag as error:
            raise InputError(
                "what waits in the live log was sealed with another key; name that one as key_file under [privacy]"
            ) from error
