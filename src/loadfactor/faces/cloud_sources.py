"""The clouds that the configuration names, as what is asked."""

from collections.abc import Iterator
from dataclasses import dataclass

from loadfactor.cloud_settings import CloudWatchAccount
from loadfactor.collect.cloud_monitoring import MonitoringMetrics, ProjectAccess
from loadfactor.collect.cloud_pull import CloudMetrics
from loadfactor.collect.cloudwatch import CloudWatchAccess, CloudWatchMetrics
from loadfactor.config import Settings


@dataclass(frozen=True)
class AskedCloud:
    """One account or project: what it is called, what is asked, and how often."""

    origin: str
    metrics: CloudMetrics
    every_s: float
    backfill_s: float


def make_clouds(settings: Settings) -> Iterator[AskedCloud]:
    """All of them, in the order of the configuration."""
    for account in settings.cloudwatch:
        metrics = CloudWatchMetrics(make_access(account))
        yield AskedCloud(f"cloudwatch {account.label}", metrics, account.every_s, account.backfill_s)
    for project in settings.gcp_monitoring:
        access = ProjectAccess(project.label, project.project, project.credentials_file, project.endpoint)
        origin = f"gcp-monitoring {project.label}"
        yield AskedCloud(origin, MonitoringMetrics(access), project.every_s, project.backfill_s)


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
