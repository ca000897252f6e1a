"""How `loadfactor up` and `loadfactor serve` listen, and who may ask: the table [server].

Copies of the books that a server makes: [backup].
"""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from loadfactor.settings.table import Duration, HomePath, SettingsTable

TEAM_ROLE: Final = "team:"
HostName = Annotated[str, Field(pattern=r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])$")]
"""A name or an address, an address of IPv6 in brackets."""


class ServerSettings(SettingsTable):
    """How `loadfactor up` listens, and how a proxy in front of it says who asks: the table [server]."""

    tls_cert: HomePath | None = Field(default=None, description="File with the certificate of the server.")
    tls_key: HomePath | None = Field(default=None, description="File with the key of the certificate.")
    flush_every: Duration = Field(default=Duration("5min"), description="How often live rows become files.")
    exit_after: Duration = Field(
        default=Duration("10min"),
        description="After so long in which the books cannot be written it ends with exit code 1, for its supervisor to act.",
    )
    trusted_proxies: tuple[str, ...] = Field(
        default=(), description="Addresses of proxies that check who asks, and are believed."
    )
    allowed_hosts: tuple[HostName, ...] = Field(
        default=(),
        description="Names, without a port, that requests may call it by (Host, and X-Forwarded-Host of trusted proxies) "
        "besides localhost and the address it listens on; with a token any name will do.",
    )
    user_header: str = Field(
        default="", description="Header in which trusted proxies name the user: X-Auth-Request-User of oauth2-proxy."
    )
    groups_header: str = Field(
        default="", description="Header in which they name the groups of the user, separated by commas."
    )
    groups: dict[str, str] = Field(
        default={},
        description="Role of each group: everything (reads and writes), read, or team:NAME, which reads one team.",
    )

    @field_validator("groups")
    @classmethod
    def _known(cls, groups: dict[str, str]) -> dict[str, str]:
        for group, role in groups.items():
            if role not in ("everything", "read") and not role.removeprefix(TEAM_ROLE) != role != TEAM_ROLE:
                raise ValueError(f"{group}: {role!r} is no role; write everything, read or team:NAME")
        return groups

    @model_validator(mode="after")
    def _complete(self) -> Self:
        given = (bool(self.user_header), bool(self.groups_header), bool(self.groups))
        if any(given) and not (all(given) and self.trusted_proxies):
            raise ValueError(
                "user_header, groups_header, groups and trusted_proxies are one: a proxy that is not trusted names nobody, "
                "and a user without a group may see nothing; write all four"
            )
        return self


class BackupSettings(SettingsTable):
    """Copies of the books that `loadfactor up` makes on a schedule: the table [backup]."""

    to: str = Field(
        default="", description="Folder, or s3://, gs:// or az://, that they lie in. Without it none are made."
    )
    schedule: Literal["hourly", "daily", "weekly"] = Field(
        default="daily", description="One in each hour, day or week of UTC, as soon as it has begun."
    )
    keep: int = Field(default=14, ge=1, description="So many are kept; older ones are removed.")
