"""What a running server takes of a changed configuration when it is told to reload, and what only its next start takes."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from pydantic import BaseModel

from loadfactor.settings.config import Settings

AT_START: Final = frozenset(
    {"store", "currency", "idle_below", "memory", "local_folder", "server.tls_cert", "server.tls_key"}
)
"""Settings that only a start takes. The files of the certificate are read again all the same."""


@dataclass(frozen=True)
class Changes:
    """Names of settings that differ: those that a reload takes, and those that wait for the next start."""

    taken: tuple[str, ...] = ()
    at_start: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """In a sentence.

        >>> Changes(("slurm",), ("currency",)).words, Changes().words
        ('a reload takes slurm; currency is taken at the next start', 'nothing differs')
        """
        parts = [f"a reload takes {', '.join(self.taken)}"] if self.taken else []
        if self.at_start:
            verb = "is" if len(self.at_start) == 1 else "are"
            parts.append(f"{', '.join(self.at_start)} {verb} taken at the next start")
        return "; ".join(parts) or "nothing differs"


def digest_settings(settings: Settings) -> dict[str, str]:
    """A digest of each setting by name, those of [server] one by one: what is compared, and holds no secret."""
    values = {name: getattr(settings, name) for name in type(settings).model_fields}
    server: BaseModel = values.pop("server")
    values |= {f"server.{name}": getattr(server, name) for name in type(server).model_fields}
    return {name: sha256(repr(value).encode()).hexdigest() for name, value in values.items()}


def compare(before: dict[str, str], now: dict[str, str]) -> Changes:
    """What differs between digests of settings; of a name that one of them lacks nothing is known."""
    names = sorted(name for name in before.keys() & now.keys() if before[name] != now[name])
    return Changes(
        tuple(name for name in names if name not in AT_START), tuple(name for name in names if name in AT_START)
    )
