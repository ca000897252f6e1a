"""The sources that `loadfactor up` collects from: Prometheus servers, exporters, serving engines, clusters and clouds."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from loadfactor.base.units import S_PER_HOUR, S_PER_MIN
from loadfactor.settings.table import URL, Duration, HomePath, SettingsTable, unique

SCRAPED_EVERY_S = (1.0, 600.0)
"""Bounds of the time between two scrapes."""
LONGEST_SCRAPE_S = 10.0


class ScheduledSource(SettingsTable):
    """A source that is queried on a schedule: what servers, clouds and clusters have in common."""

    name: str = Field(default="", max_length=100, description="Its name in answers, where several are configured.")
    every: Duration = Field(default=Duration("60s"), description="How often it is queried: 30s, 5min.")
    backfill: Duration = Field(default=Duration("1h"), description="How far back to begin the first time: 14d.")


def name_server(url: str) -> str:
    """The name of a server: its host and port, without what an address may hold of passwords.

    >>> name_server("https://user:secret@prometheus.example:9090/path")
    'prometheus.example:9090'
    """
    return url.split("://", 1)[1].split("/", 1)[0].rsplit("@", 1)[-1]


class PrometheusSettings(ScheduledSource):
    """A Prometheus-compatible server that is queried for samples: a table [[prometheus]]."""

    name: str = Field(default="", max_length=100, description="Its name in answers. By default its host and port.")
    url: str = Field(pattern=URL, description="Address of the server: what comes before /api/v1/query.")
    match: str = Field(default="", description='Which series: {cluster="a"}. By default, all that are understood.')
    bearer_token_file: HomePath | None = Field(
        default=None, description="File with the token that the server asks for."
    )
    serving: bool | None = Field(
        default=None,
        description="Whether to ask for series of serving engines, too. By default where there is no [[serving]].",
    )

    @property
    def label(self) -> str:
        """Its name, without what an address may hold of passwords."""
        return self.name or name_server(self.url)


class ExporterGroup(SettingsTable):
    """Exporters that are scraped, of any kind that is understood: a table [[scrape]].

    They are listed, or behind a name in DNS, or in files in the format of Prometheus' file_sd.
    """

    kind: ClassVar[str] = "scrape"
    default_port: ClassVar[int] = 0

    name: str = Field(default="", max_length=100, description="Name of the group; the job of its rows.")
    targets: tuple[str, ...] = Field(default=(), description='The exporters: ["node-1:9400", "node-2:9400"].')
    dns: str = Field(
        default="", description="A name whose every address is an exporter, with the port; or of SRV records."
    )
    file_sd: tuple[str, ...] = Field(
        default=(), description='Files that list them, as Prometheus does: ["targets/*.json"].'
    )
    every: Duration = Field(default=Duration("15s"), description="How often each is scraped: 15s, 1min.")
    path: str = Field(default="/metrics", pattern=r"^/\S*$", description="Path of the page of metrics.")
    scheme: Literal["http", "https"] = Field(
        default="http", description="Whether they are queried with TLS: http or https."
    )
    ca_file: HomePath | None = Field(
        default=None, description="File with the certificates that theirs are checked against."
    )
    bearer_token_file: HomePath | None = Field(
        default=None, description="File with the token that the exporters ask for."
    )

    @field_validator("every")
    @classmethod
    def _within_bounds(cls, every: Duration) -> Duration:
        shortest, longest = SCRAPED_EVERY_S
        if not shortest <= every.s <= longest:
            raise ValueError(f"{str(every)!r} is not between {shortest:g} s and {longest / S_PER_MIN:g} min")
        return every

    @field_validator("file_sd")
    @classmethod
    def _readable(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if not pattern.endswith((".json", ".yml", ".yaml")):
                raise ValueError(f"{pattern!r} must end in .json, .yml or .yaml")
        return patterns

    @model_validator(mode="after")
    def _found_one_way(self) -> Self:
        if sum(map(bool, (self.targets, self.dns, self.file_sd))) != 1:
            raise ValueError("a group of exporters has either targets or dns or file_sd")
        return self

    @property
    def label(self) -> str:
        """Its name with that of its table in front, which is the id of its stream."""
        return f"{self.kind} {self.name or self.dns or (*self.file_sd, *self.targets)[0]}"

    @property
    def timeout_s(self) -> float:
        """Seconds that a scrape may take: never more than until the next one."""
        return min(LONGEST_SCRAPE_S, self.every.s)


class DcgmExporters(ExporterGroup):
    """A group of dcgm-exporters, which listen on port 9400 where no other is given: a table [[dcgm]]."""

    kind: ClassVar[str] = "dcgm"
    default_port: ClassVar[int] = 9400


class ServingEngines(ExporterGroup):
    """A group of serving engines, the replicas of a job: a table [[serving]]."""

    kind: ClassVar[str] = "serving"

    job: str = Field(
        default="", max_length=200, description="The job they serve. By default that of a target's labels."
    )


class KubernetesCluster(SettingsTable):
    """A Kubernetes cluster that is watched: a table [[kubernetes]]. By default the one that the server is a pod of."""

    name: str = Field(
        default="", max_length=100, description="Name of the cluster in answers, where there are several."
    )
    kubeconfig: HomePath | None = Field(
        default=None, description="File that says how to reach it, as kubectl reads it."
    )
    context: str = Field(default="", description="Which context of that file. By default, its current one.")
    namespace: str = Field(default="", description="Only this namespace. By default, all.")
    labels: str = Field(default="", description="Only pods with these labels: team=vision,tier!=test.")

    @property
    def stream_id(self) -> str:
        """The id of its stream."""
        return f"kubernetes {self.name}".strip()


class SlurmCluster(ScheduledSource):
    """A Slurm cluster that is queried for jobs and nodes: a table [[slurm]]. By default with the commands in PATH."""

    backfill: Duration = Field(
        default=Duration("1d"), description="How far back in accounting to begin the first time: 30d."
    )
    command: tuple[str, ...] = Field(default=(), description='What comes before each command: ["ssh", "login"].')
    bin: str = Field(default="", description="Folder of the commands: /opt/slurm/bin. By default, PATH.")
    url: str = Field(
        default="",
        pattern=r"^(|https?://[^\s/]+\S*|unix:/\S+)$",
        description="Where slurmrestd listens, queried in place of the commands: http://slurm:6820 or unix:/run/slurmrestd.sock.",
    )
    token_file: HomePath | None = Field(default=None, description="File with the token that slurmrestd asks for.")
    user: str = Field(default="", description="The user whose token that is.")
    timeout: Duration = Field(default=Duration("60s"), description="How long an answer may take.")

    @model_validator(mode="after")
    def _has_one_way(self) -> Self:
        if self.url and (self.command or self.bin):
            raise ValueError("a cluster of Slurm has either url or command and bin")
        return self

    @property
    def stream_id(self) -> str:
        """The id of its stream."""
        return f"slurm {self.name}".strip()


class CloudSource(ScheduledSource):
    """A cloud that is queried for what it keeps of GPUs: what all clouds have in common."""

    instances: bool = Field(
        default=True, description="Whether it is queried for instances as well, where that is permitted."
    )

    @property
    def label(self) -> str:
        """Its name in answers."""
        return self.name


class CloudWatchAccount(CloudSource):
    """An account in a region whose CloudWatch is queried: a table [[cloudwatch]]. Credentials are found as Amazon's tools do."""

    region: str = Field(default="", description="The region. By default, that of the profile or the environment.")
    profile: str = Field(default="", description="A profile of ~/.aws. By default, whatever Amazon's client finds.")
    role_arn: str = Field(default="", description="A role to take on, for another account.")
    namespaces: tuple[str, ...] = Field(
        default=("CWAgent", "ContainerInsights"), min_length=1, description="Where to look for metrics of GPUs."
    )
    period: Duration = Field(
        default=Duration("60s"), description="The period of values: a multiple of 60 s, at most an hour."
    )
    endpoint_url: str = Field(default="", description="Address of a private endpoint of CloudWatch.")
    stream: str = Field(
        default="",
        pattern=r"^(s3://[a-z0-9][a-z0-9.-]+(/\S*)?)?$",
        description="Where a metric stream is delivered, s3://bucket/prefix: then that is read, and no metric is queried.",
    )

    @field_validator("period")
    @classmethod
    def _whole_minutes(cls, period: Duration) -> Duration:
        if period.s % S_PER_MIN or not S_PER_MIN <= period.s <= S_PER_HOUR:
            raise ValueError(f"{str(period)!r} is no whole number of minutes up to an hour")
        return period

    @property
    def label(self) -> str:
        """Its name in answers: by default its profile and region."""
        return self.name or "-".join(part for part in (self.profile, self.region) if part) or "default"


class GcpProject(CloudSource):
    """A project whose Cloud Monitoring is queried: a table [[gcp-monitoring]]. Credentials are found as Google's tools do."""

    project: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:_-]*$", description="The id or number of the project.")
    credentials_file: HomePath | None = Field(default=None, description="File of a service account. By default, none.")
    endpoint: str = Field(
        default="", description="Another address of Cloud Monitoring; http:// is without TLS and credentials."
    )
    compute_endpoint: str = Field(default="", description="Another address of Compute Engine, which lists instances.")

    @property
    def label(self) -> str:
        """Its name in answers: by default that of the project."""
        return self.name or self.project


_GROUPS = unique("2 groups are called {item.label!r}; give each a name", "label")
_CLOUDS = unique("2 sources of this cloud are called {item.label!r}; give each a name", "label")
Scraped = Annotated[tuple[ExporterGroup, ...], _GROUPS]
ScrapedDcgm = Annotated[tuple[DcgmExporters, ...], _GROUPS]
ScrapedEngines = Annotated[tuple[ServingEngines, ...], _GROUPS]
CloudWatchAccounts = Annotated[tuple[CloudWatchAccount, ...], _CLOUDS]
GcpProjects = Annotated[tuple[GcpProject, ...], _CLOUDS]
KubernetesClusters = Annotated[
    tuple[KubernetesCluster, ...], unique("two clusters of Kubernetes have one name; give each its own", "name")
]
SlurmClusters = Annotated[
    tuple[SlurmCluster, ...], unique("two clusters of Slurm have one name; give each its own", "name")
]
