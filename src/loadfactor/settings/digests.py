"""What is sent to whom each day, week or month, and through which mail server: the tables [mail] and [[digest]]."""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from loadfactor.settings.table import URL, Duration, HomePath, SettingsTable, unique

DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_AT: Final = re.compile(r"(?:([a-z]+|\d{1,2}) )?([01]?\d|2[0-3]):([0-5]\d)")
_LAST_DAY: Final = 28
FileKind = Literal["html", "pdf", "md", "json", "txt", "xlsx"]


class MailServer(SettingsTable):
    """A server that takes mail: the table [mail], and what a receiver of alerts has."""

    host: str = Field(min_length=1, pattern=r"^\S+$", description="Host name of the SMTP server.")
    port: int = Field(default=587, ge=1, le=65_535, description="Port of the SMTP server: 587, or 465 with tls.")
    tls: Literal["starttls", "tls", "none"] = Field(default="starttls", description="How the connection is encrypted.")
    ca_file: HomePath | None = Field(default=None, description="File with the certificates that its own is checked by.")
    user: str = Field(default="", description="The name to log in with, where the server asks for one.")
    password_file: HomePath | None = Field(
        default=None, description="File with the password. By default LOADFACTOR_SMTP_PASSWORD of the environment."
    )
    sender: str = Field(alias="from", pattern=r"^[^\s@]+@[^\s@]+$", description="The address it comes from.")
    timeout: Duration = Field(default=Duration("10s"), description="How long it may take to answer.")

    @model_validator(mode="after")
    def _encrypted(self) -> Self:
        if self.user and self.tls == "none":
            raise ValueError('a password is not sent unencrypted; say tls = "starttls" or "tls", or leave `user` out')
        return self


def is_address(text: str) -> bool:
    """Whether a text is one address of e-mail.

    >>> is_address("ops@example.com"), is_address("ops"), is_address("a@b, c@d")
    (True, False, False)
    """
    name, at, domain = text.partition("@")
    return bool(name and at and domain) and "@" not in domain and not any(c.isspace() or c in ',;<>"' for c in text)


class DigestTable(SettingsTable):
    """A digest that `loadfactor up` sends: of which period, when, of whose GPUs, to whom."""

    name: str = Field(min_length=1, max_length=80, description="Name of the digest.")
    every: Literal["day", "week", "month"] = Field(default="week", description="The period that it is of.")
    at: str = Field(
        default="", description="When it is sent after the period: Monday 08:00, of a month 1 08:00, of a day 08:00."
    )
    timezone: str = Field(default="", description="Zone of its days and times. By default that of the settings.")
    team: str | None = Field(default=None, min_length=1, description="Of this team; with * and ?, a digest for each.")
    user: str | None = Field(default=None, min_length=1, description="Of this user; with * and ?, a digest for each.")
    to: tuple[str, ...] = Field(
        default=(), description="Addresses of e-mail; {team} or {user} stands for the name: {user}@example.com."
    )
    addresses: dict[str, str] = Field(
        default={}, description="Addresses of teams or users by name, in place of what `to` makes of these."
    )
    webhook: str = Field(default="", pattern=f"{URL}|^$", description="Address of the webhook of a chat.")
    webhook_file: HomePath | None = Field(default=None, description="File with that address, where it is a secret.")
    chat: Literal["slack", "teams"] = Field(
        default="slack",
        description="What listens there: Slack and what takes the same, or a Workflow of Teams, which gets a card.",
    )
    folder: HomePath | None = Field(default=None, description="Folder into which it is written as a file.")
    files: tuple[FileKind, ...] = Field(default=("html",), description="Kinds of files in the folder.")
    give_up_after: Duration = Field(
        default=Duration("1d"), description="How long it is tried again, where a receiver does not answer."
    )

    @property
    def due(self) -> tuple[int, int, int]:
        """Days after the end of the period, hour and minute at which it is sent. Raises ValueError where `at` is none."""
        text = " ".join(self.at.lower().split()) or "08:00"
        found = _AT.fullmatch(text)
        if found is None:
            raise ValueError(f"at = {self.at!r} is no time; write Monday 08:00, for a month 1 08:00, for a day 08:00")
        day, after = found[1], 0
        if day is not None:
            if self.every == "week" and day in DAYS:
                after = DAYS.index(day)
            elif self.every == "month" and day.isdigit() and 1 <= int(day) <= _LAST_DAY:
                after = int(day) - 1
            else:
                kinds = {
                    "day": "a time alone: 08:00",
                    "week": "a weekday: Monday 08:00",
                    "month": "a day up to 28: 1 08:00",
                }
                raise ValueError(f"at = {self.at!r}: a digest of a {self.every} is sent at {kinds[self.every]}")
        return after, int(found[2]), int(found[3])

    @field_validator("to")
    @classmethod
    def _addressed(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for address in addresses:
            if not is_address(address.replace("{team}", "x").replace("{user}", "x")):
                raise ValueError(f"{address!r} is no address; write ops@example.com")
        return addresses

    @field_validator("addresses")
    @classmethod
    def _are_addresses(cls, addresses: dict[str, str]) -> dict[str, str]:
        for name, address in addresses.items():
            if not is_address(address):
                raise ValueError(f"{name}: {address!r} is no address; write ops@example.com")
        return addresses

    @model_validator(mode="after")
    def _reaches_somebody(self) -> Self:
        _ = self.due  # raises
        if self.team is not None and self.user is not None:
            raise ValueError(f"the digest {self.name!r} is of a team or of a user; say `team` or `user`")
        if self.webhook and self.webhook_file is not None:
            raise ValueError("say `webhook`, or `webhook_file` with a file that holds it; one of the two")
        if not (self.to or self.addresses or self.webhook or self.webhook_file or self.folder):
            raise ValueError(f"the digest {self.name!r} reaches nobody; say `to`, `webhook` or `folder`")
        return self


Digests = Annotated[tuple[DigestTable, ...], unique("two digests are called {item.name!r}; keep one", "name")]
"""Tables [[digest]], each of another name."""
