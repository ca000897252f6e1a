"""What `loadfactor.toml` says of who is told of alerts: the table [alerts] and its tables [[alerts.receiver]]."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from loadfactor.base.paths import read_path
from loadfactor.base.quantities import parse_duration_s
from loadfactor.base.units import S_PER_HOUR
from loadfactor.settings.table import SettingsTable

Severity = Literal["info", "warning", "critical"]
_URL = r"^https?://[^\s/]+\S*$"


class AlertReceiver(SettingsTable):
    """What all receivers have in common: which alerts they are told of, and how long it is tried."""

    name: str = Field(default="", max_length=100, description="What to call it. By default its kind.")
    rules: tuple[str, ...] = Field(default=(), description='Only these rules: ["gpu_*", "node_down"]. By default all.')
    teams: tuple[str, ...] = Field(default=(), description="Only alerts of these teams. By default all.")
    severities: tuple[Severity, ...] = Field(default=(), description="Only of these severities. By default all.")
    timeout: str = Field(default="10s", description="How long it may take to answer.")
    give_up_after: str = Field(default="1d", description="How long it is tried again, where it does not answer.")

    @field_validator("timeout", "give_up_after")
    @classmethod
    def _long(cls, text: str) -> str:
        parse_duration_s(text)
        return text

    @field_validator("password_file", "url_file", "bearer_token_file", "ca_file", mode="after", check_fields=False)
    @classmethod
    def _at_home(cls, path: Path | None) -> Path | None:
        return path and read_path(path)

    @property
    def label(self) -> str:
        """What to call it."""
        return self.name or str(getattr(self, "kind", ""))

    @property
    def timeout_s(self) -> float:
        """Seconds it may take to answer."""
        return parse_duration_s(self.timeout)

    @property
    def give_up_after_s(self) -> float:
        """Seconds for which it is tried again."""
        return parse_duration_s(self.give_up_after)


class HttpReceiver(AlertReceiver):
    """What receivers have in common that are asked over HTTP."""

    url: str = Field(default="", pattern=f"{_URL}|^$", description="Where it listens.")
    url_file: Path | None = Field(default=None, description="File with the address, where the address is a secret.")
    bearer_token_file: Path | None = Field(default=None, description="File with the token it asks for.")
    ca_file: Path | None = Field(default=None, description="File with the certificates that its own is checked by.")

    @model_validator(mode="after")
    def _found_one_way(self) -> Self:
        if bool(self.url) == (self.url_file is not None):
            raise ValueError("say where it listens: `url`, or `url_file` with a file that holds it; one of the two")
        return self


class AlertmanagerReceiver(HttpReceiver):
    """An Alertmanager; `url` is what comes before /api/v2."""

    kind: Literal["alertmanager"]
    resend: str = Field(default="1min", description="How often it hears again of what fires.")

    @field_validator("resend")
    @classmethod
    def _often(cls, text: str) -> str:
        if parse_duration_s(text) > S_PER_HOUR:
            raise ValueError(f"{text!r} is longer than an hour")
        return text

    @property
    def resend_s(self) -> float:
        """Seconds between two times it hears of what fires."""
        return parse_duration_s(self.resend)


class WebhookReceiver(HttpReceiver):
    """A server of yours that takes each transition as JSON."""

    kind: Literal["webhook"]


class SlackReceiver(HttpReceiver):
    """A Slack-compatible incoming webhook: Slack, Mattermost, Rocket.Chat, Discord's /slack."""

    kind: Literal["slack"]


class EmailReceiver(AlertReceiver):
    """Readers of e-mail, through an SMTP server."""

    kind: Literal["email"]
    host: str = Field(min_length=1, pattern=r"^\S+$", description="The SMTP server.")
    port: int = Field(default=587, ge=1, le=65_535, description="Its port.")
    tls: Literal["starttls", "tls", "none"] = Field(default="starttls", description="How the connection is encrypted.")
    ca_file: Path | None = Field(default=None, description="File with the certificates that its own is checked by.")
    user: str = Field(default="", description="The name to log in with, where the server asks for one.")
    password_file: Path | None = Field(
        default=None, description="File with the password. By default LOADFACTOR_SMTP_PASSWORD of the environment."
    )
    sender: str = Field(alias="from", pattern=r"^[^\s@]+@[^\s@]+$", description="The address it comes from.")
    to: tuple[str, ...] = Field(min_length=1, description="The addresses it goes to.")

    @field_validator("to")
    @classmethod
    def _addressed(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for address in addresses:
            if address.count("@") != 1 or any(c.isspace() or c in ",;<>" for c in address):
                raise ValueError(f"{address!r} is no address; write ops@example.com")
        return addresses

    @model_validator(mode="after")
    def _encrypted(self) -> Self:
        if self.user and self.tls == "none":
            raise ValueError('a password is not sent unencrypted; say tls = "starttls" or "tls", or leave `user` out')
        return self


Receiver = Annotated[
    AlertmanagerReceiver | WebhookReceiver | SlackReceiver | EmailReceiver, Field(discriminator="kind")
]


class AlertsTable(SettingsTable):
    """How alerts are judged live, and who is told of them: the table [alerts]."""

    judge_after: str = Field(
        default="90s", description="How long after a minute ended it is judged: late samples count."
    )
    link: str = Field(default="", pattern=f"{_URL}|^$", description="Address of this server, for links in messages.")
    runbooks: str = Field(
        default="", pattern=f"{_URL}|^$", description="Address of docs/alerts.md as your people read it, for links."
    )
    receiver: tuple[Receiver, ...] = Field(default=(), description="Who is told of alerts.")

    @field_validator("judge_after")
    @classmethod
    def _soon(cls, text: str) -> str:
        if parse_duration_s(text) > S_PER_HOUR:
            raise ValueError(f"{text!r} is longer than an hour")
        return text

    @field_validator("receiver")
    @classmethod
    def _told_apart(cls, receivers: tuple[Receiver, ...]) -> tuple[Receiver, ...]:
        for label, count in Counter(receiver.label for receiver in receivers).items():
            if count > 1:
                raise ValueError(f"{count} receivers are called {label!r}; give each a name")
        return receivers

    @property
    def judge_after_s(self) -> float:
        """Seconds after the end of a minute at which it is judged."""
        return parse_duration_s(self.judge_after)
