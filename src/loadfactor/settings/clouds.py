"""What `loadfactor.toml` says of the clouds that `loadfactor up` asks: the tables [[cloudwatch]] and [[gcp-monitoring]]."""

from pathlib import Path

from pydantic import Field, field_validator

from loadfactor.base.paths import read_path
from loadfactor.base.quantities import parse_duration_s
from loadfactor.base.units import S_PER_HOUR, S_PER_MIN
from loadfactor.settings.asked_source import AskedSource


class CloudSource(AskedSource):
    """What a cloud keeps of GPUs, which `loadfactor up` asks for: what all clouds have."""

    instances: bool = Field(
        default=True, description="Whether it is asked for instances as well, where that is permitted."
    )

    @property
    def label(self) -> str:
        """What to call it."""
        return self.name


class CloudWatchAccount(CloudSource):
    """An account in a region whose CloudWatch is asked: a table [[cloudwatch]]. Credentials are found as Amazon's tools do."""

    region: str = Field(default="", description="The region. By default, that of the profile or the environment.")
    profile: str = Field(default="", description="A profile of ~/.aws. By default, whatever Amazon's client finds.")
    role_arn: str = Field(default="", description="A role to take on, for another account.")
    namespaces: tuple[str, ...] = Field(
        default=("CWAgent", "ContainerInsights"), min_length=1, description="Where to look for metrics of GPUs."
    )
    period: str = Field(default="60s", description="The period of values: a multiple of 60 s, at most an hour.")
    endpoint_url: str = Field(default="", description="Where CloudWatch is asked, of a private endpoint.")
    stream: str = Field(
        default="",
        pattern=r"^(s3://[a-z0-9][a-z0-9.-]+(/\S*)?)?$",
        description="Where a metric stream is delivered, s3://bucket/prefix: then that is read, and no metric is asked for.",
    )

    @field_validator("period")
    @classmethod
    def _whole_minutes(cls, text: str) -> str:
        if parse_duration_s(text) % S_PER_MIN or not S_PER_MIN <= parse_duration_s(text) <= S_PER_HOUR:
            raise ValueError(f"{text!r} is no whole number of minutes up to an hour")
        return text

    @property
    def label(self) -> str:
        """What to call it."""
        return self.name or "-".join(part for part in (self.profile, self.region) if part) or "default"

    @property
    def period_s(self) -> int:
        """Seconds that one value is the mean of."""
        return round(parse_duration_s(self.period))


class MonitoredProject(CloudSource):
    """A project whose Cloud Monitoring is asked: a table [[gcp-monitoring]]. Credentials are found as Google's tools do."""

    project: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:_-]*$", description="The id or number of the project.")
    credentials_file: Path | None = Field(default=None, description="File of a service account. By default, none.")
    endpoint: str = Field(default="", description="Where it is asked instead; http:// is without TLS and credentials.")
    compute_endpoint: str = Field(default="", description="Where Compute Engine is asked for instances instead.")

    @field_validator("credentials_file")
    @classmethod
    def _at_home(cls, path: Path | None) -> Path | None:
        return path and read_path(path)

    @property
    def label(self) -> str:
        """What to call it."""
        return self.name or self.project
