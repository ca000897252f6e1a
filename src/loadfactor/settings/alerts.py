"""Rules of alerts, how they are judged, and who is notified: the tables [[alert]], [alerts] and [[alerts.receiver]]."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from loadfactor.base.units import S_PER_HOUR
from loadfactor.settings.digests import MailServer, is_address
from loadfactor.settings.table import URL, Duration, DurationOrZero, HomePath, SettingsTable, unique

Threshold = float | str
"""A number in the unit of what it limits, or a text with its unit, "85 °C" or "40 %"."""
Severity = Literal["info", "warning", "critical"]
_URL_OR_NONE = f"{URL}|^$"
_KIND = "Its kind: alertmanager, webhook, slack, teams or email."


def _check_hour(duration: Duration) -> Duration:
    if duration.s > S_PER_HOUR:
        raise ValueError(f"{str(duration)!r} is longer than an hour")
    return duration


UpToAnHour = Annotated[Duration, AfterValidator(_check_hour)]


class AlertTable(SettingsTable):
    """A rule of alerts as it is changed (`rule`), or a new one (`name` and `metric`). What is left out stays as it is."""

    rule: str | None = Field(default=None, min_length=1, description="Name of the shipped rule that it changes.")
    name: str | None = Field(default=None, min_length=1, max_length=80, description="Name of a rule that it adds.")
    enabled: bool = Field(default=True, description="false: the rule is not judged.")
    metric: str | None = Field(default=None, description="Metric that a new rule watches.")
    by: tuple[str, ...] | None = Field(default=None, description="Dimensions it is split by; none for the fleet.")
    below: Threshold | None = Field(default=None, description="It fires while the metric lies below this.")
    above: Threshold | None = Field(default=None, description="It fires while the metric lies above this.")
    clears_at: Threshold | None = Field(default=None, description="It is resolved when the metric is back here.")
    limits: dict[str, Threshold] = Field(default={}, description="Thresholds of a shipped rule, by name.")
    window: Duration | None = Field(default=None, description="Over how long the metric is worked out: 30min.")
    hold: DurationOrZero | None = Field(
        default=None, alias="for", description="How long the condition holds before it fires: 1h, or 0s."
    )
    least_coverage: float | None = Field(
        default=None, gt=0, le=1, description="Share of its data that must be known for it to be judged."
    )
    severity: Severity | None = Field(default=None, description="How severe its alerts are.")
    cause: str | None = Field(
        default=None, description="Its class, one of seven: I/O, hardware, user error and others."
    )
    meaning: str = Field(default="", max_length=500, description="One sentence that says what it means.")
    ask_first: str = Field(default="", max_length=500, description="The question to ask first.")
    look_next: str = Field(default="", max_length=500, description="What to look at after that question is answered.")

    @property
    def label(self) -> str:
        """The name of the rule."""
        return self.rule or self.name or ""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.rule is None) == (self.name is None):
            raise ValueError("say `rule`, a shipped rule that it changes, or `name`, a new one; one of the two")
        if self.name is not None and (self.metric is None or (self.below is None) == (self.above is None)):
            raise ValueError(f"the new rule {self.name!r} needs `metric` and one of `below` and `above`")
        if self.below is not None and self.above is not None:
            raise ValueError("a rule has one threshold: say `below` or `above`")
        if self.rule is not None and self.metric is not None:
            raise ValueError("the metric of a shipped rule stays; give a rule on another one a `name` of its own")
        return self


AlertTables = Annotated[
    tuple[AlertTable, ...], unique("two tables speak of the rule {item.label!r}; keep one", "label")
]
"""Tables [[alert]], each of another rule."""


class AlertReceiver(SettingsTable):
    """A receiver of any kind: which alerts it is sent, and how long it is tried."""

    name: str = Field(default="", max_length=100, description="Name of the receiver. By default its kind.")
    rules: tuple[str, ...] = Field(default=(), description='Only these rules: ["gpu_*", "node_down"]. By default all.')
    teams: tuple[str, ...] = Field(default=(), description="Only alerts of these teams. By default all.")
    severities: tuple[Severity, ...] = Field(default=(), description="Only of these severities. By default all.")
    timeout: Duration = Field(default=Duration("10s"), description="How long it may take to answer.")
    give_up_after: Duration = Field(
        default=Duration("1d"), description="How long it is tried again, where it does not answer."
    )

    @property
    def label(self) -> str:
        """Its name; by default its kind."""
        return self.name or str(getattr(self, "kind", ""))


class HttpReceiver(AlertReceiver):
    """A receiver that is reached over HTTP."""

    url: str = Field(default="", pattern=_URL_OR_NONE, description="Address at which the receiver listens.")
    url_file: HomePath | None = Field(default=None, description="File with the address, where the address is a secret.")
    bearer_token_file: HomePath | None = Field(
        default=None, description="File with the token that the receiver asks for."
    )
    ca_file: HomePath | None = Field(default=None, description="File with the certificates that its own is checked by.")
    allow_local: bool = Field(
        default=False,
        description="Whether a name may lead to this machine or its link (loopback, link-local, metadata).",
    )

    @model_validator(mode="after")
    def _found_one_way(self) -> Self:
        if bool(self.url) == (self.url_file is not None):
            raise ValueError("say where it listens: `url`, or `url_file` with a file that holds it; one of the two")
        return self


class AlertmanagerReceiver(HttpReceiver):
    """An Alertmanager; `url` is what comes before /api/v2."""

    kind: Literal["alertmanager"] = Field(description=_KIND)
    resend: UpToAnHour = Field(default=Duration("1min"), description="How often it hears again of what fires.")


class WebhookReceiver(HttpReceiver):
    """A server of yours that takes each transition as JSON."""

    kind: Literal["webhook"] = Field(description=_KIND)


class SlackReceiver(HttpReceiver):
    """A Slack-compatible incoming webhook: Slack, Mattermost, Rocket.Chat, Discord's /slack."""

    kind: Literal["slack"] = Field(description=_KIND)


class TeamsReceiver(HttpReceiver):
    """A Workflow of Microsoft Teams that posts what a webhook gets: the message is an adaptive card."""

    kind: Literal["teams"] = Field(description=_KIND)


class EmailReceiver(AlertReceiver, MailServer):
    """Readers of e-mail, through an SMTP server."""

    kind: Literal["email"] = Field(description=_KIND)
    to: tuple[str, ...] = Field(min_length=1, description="The addresses it goes to.")

    @field_validator("to")
    @classmethod
    def _addressed(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for address in addresses:
            if not is_address(address):
                raise ValueError(f"{address!r} is no address; write ops@example.com")
        return addresses


Receiver = Annotated[
    AlertmanagerReceiver | WebhookReceiver | SlackReceiver | TeamsReceiver | EmailReceiver, Field(discriminator="kind")
]


class AlertsTable(SettingsTable):
    """How alerts are judged live, and who is notified: the table [alerts]."""

    judge_after: UpToAnHour = Field(
        default=Duration("90s"), description="How long after a minute ended it is judged: late samples count."
    )
    link: str = Field(default="", pattern=_URL_OR_NONE, description="Address of this server, for links in messages.")
    runbooks: str = Field(
        default="", pattern=_URL_OR_NONE, description="Address of docs/alerts.md as your people read it, for links."
    )
    receiver: Annotated[
        tuple[Receiver, ...], unique("2 receivers are called {item.label!r}; give each a name", "label")
    ] = Field(default=(), description="Who is notified of alerts.")
