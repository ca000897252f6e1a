"""The clouds that the configuration names, as what is asked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from loadfactor.collect.cloud_monitoring import MonitoringMetrics, ProjectAccess
from loadfactor.collect.cloud_pull import CloudMetrics
from loadfactor.collect.cloudwatch import CloudWatchAccess, CloudWatchMetrics
from loadfactor.collect.discovery.cloud_check import Refused
from loadfactor.collect.ec2 import Ec2Instances, find_refused
from loadfactor.collect.gce import GceInstances
from loadfactor.collect.instance_watch import CloudInstances
from loadfactor.collect.s3_objects import S3Objects
from loadfactor.settings.clouds import CloudWatchAccount, MonitoredProject
from loadfactor.settings.config import Settings
from loadfactor.sources.clouds.cloudwatch import METRIC_STREAM


@dataclass(frozen=True)
class AskedCloud:
    """One account or project: what it is called, what is asked, and how often."""

    origin: str
    metrics: CloudMetrics
    every_s: float
    backfill_s: float


@dataclass(frozen=True)
class AskedStream:
    """One metric stream: what it is called, where its objects are, and how often they are looked for."""

    origin: str
    objects: S3Objects
    every_s: float
    backfill_s: float


@dataclass(frozen=True)
class AskedInstances:
    """The instances of one account or project: what they are called, what is asked, and how often."""

    origin: str
    instances: CloudInstances
    every_s: float


def make_clouds(settings: Settings) -> Iterator[AskedCloud]:
    """All of them, in the order of the configuration."""
    for account in settings.cloudwatch:
        if account.stream:
            continue
        metrics = CloudWatchMetrics(make_access(account))
        yield AskedCloud(f"cloudwatch {account.label}", metrics, account.every_s, account.backfill_s)
    for project in settings.gcp_monitoring:
        access = ProjectAccess(project.label, project.project, project.credentials_file, project.endpoint)
        origin = f"gcp-monitoring {project.label}"
        yield AskedCloud(origin, MonitoringMetrics(access), project.every_s, project.backfill_s)


def make_streams(settings: Settings) -> Iterator[AskedStream]:
    """The metric streams that are read from S3."""
    for account in settings.cloudwatch:
        if account.stream:
            objects = S3Objects(make_access(account), account.stream)
            yield AskedStream(f"{METRIC_STREAM} {account.label}", objects, account.every_s, account.backfill_s)


def make_instances(settings: Settings) -> Iterator[AskedInstances]:
    """The accounts and projects whose instances are asked for."""
    for account in settings.cloudwatch:
        if account.instances:
            yield AskedInstances(f"ec2 {account.label}", Ec2Instances(make_access(account)), account.every_s)
    for project in settings.gcp_monitoring:
        if project.instances:
            yield AskedInstances(f"gce {project.label}", _open_gce(project), project.every_s)


def list_questions(settings: Settings) -> dict[str, Callable[[], Refused]]:
    """What says which questions about instances may be asked, by account or project."""
    amazon = [one for one in settings.cloudwatch if one.instances]
    google = [one for one in settings.gcp_monitoring if one.instances]
    found: dict[str, Callable[[], Refused]] = {
        f"ec2 {one.label}": partial(find_refused, make_access(one)) for one in amazon
    }
    return found | {f"gce {one.label}": _open_gce(one).find_refused for one in google}


def _open_gce(project: MonitoredProject) -> GceInstances:
    return GceInstances(
        ProjectAccess(project.label, project.project, project.credentials_file, project.compute_endpoint)
    )


def make_access(account: CloudWatchAccount) -> CloudWatchAccess:
    """How an account is asked."""
    return CloudWatchAccess(
        name=account.label,
        region=account.region,
        profile=account.profile,
        role_arn=account.role_arn,
        endpoint_url=account.endpoint_url,
        namespaces=account.namespaces,
        period_s=account.period_s,
    )
