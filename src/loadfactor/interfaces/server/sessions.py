"""People who ask with a browser: sessions that a token begins, and users that a trusted proxy names."""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from loadfactor.base.units import S_PER_HOUR
from loadfactor.settings.server import TEAM_ROLE
from loadfactor.store.tokens import TokenFile, TokenRecord

LONGEST_SESSION_S: Final = 12 * S_PER_HOUR
MOST_SESSIONS: Final = 10_000
RANDOM_BYTES: Final = 32
RIGHTS: Final = {"everything": "open", "read": "read"}
"""The rights of roles; a role of a team is `team:NAME`."""


@dataclass(frozen=True)
class ProxyUsers:
    """The headers in which trusted proxies name who asks, and the role of each group, the widest first where they differ."""

    user_header: str
    groups_header: str
    roles: Mapping[str, str]

    def find_role(self, headers: Sequence[str]) -> tuple[str, str | None] | None:
        """The right and the team of somebody in these groups, separated by commas; None where no role is of them.

        Who is in groups of several teams reads the one that the configuration names first.

        >>> users = ProxyUsers("X-User", "X-Groups", {"vision": "team:vision", "finance": "read"})
        >>> users.find_role(["vision,finance"]), users.find_role(["vision"]), users.find_role(["visions"])
        (('read', None), ('read-team', 'vision'), None)
        """
        groups = {name.strip() for header in headers for name in header.split(",")}
        found = [role for group, role in self.roles.items() if group in groups]
        for role, right in RIGHTS.items():
            if role in found:
                return right, None
        return ("read-team", found[0].removeprefix(TEAM_ROLE)) if found else None


class Sessions:
    """The sessions of this process; one ends with its token, by signing out, after `LONGEST_SESSION_S`, or with the process."""

    def __init__(self, tokens: TokenFile, clock_s: Callable[[], float]) -> None:
        self._tokens, self._clock_s = tokens, clock_s
        self._key = secrets.token_bytes(RANDOM_BYTES)
        self._begun: OrderedDict[str, tuple[str, float]] = (
            OrderedDict()
        )  # by the hash of its secret: the token's id, its end

    def begin(self, record: TokenRecord) -> str:
        """Begin a session of a token; its secret, which the browser keeps. The oldest goes where there are too many."""
        secret = secrets.token_urlsafe(RANDOM_BYTES)
        self._begun[_hash(secret)] = (record.id, self._clock_s() + LONGEST_SESSION_S)
        if len(self._begun) > MOST_SESSIONS:
            self._begun.popitem(last=False)
        return secret

    def find(self, secret: str) -> TokenRecord | None:
        """The token of a session, as it is now; None where the session is over or the token was revoked."""
        token_id, end_s = self._begun.get(_hash(secret), ("", 0.0))
        if end_s <= self._clock_s():
            return None
        return next((r for r in self._tokens.list() if r.id == token_id and r.revoked_ms is None), None)

    def end(self, secret: str) -> None:
        """End it."""
        self._begun.pop(_hash(secret), None)

    def sign(self, identity: str) -> str:
        """The key of forms of somebody, which another page cannot know."""
        return hmac.new(self._key, identity.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
