"""CloudWatch through Amazon's own client: which metrics of GPUs an account has in a region, and their values."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S, S_PER_MIN
from loadfactor.collect.fetch_errors import FetchError
from loadfactor.sources.clouds.cloud_series import CloudSeries
from loadfactor.sources.clouds.cloudwatch import (
    NAMES,
    CloudWatchMetric,
    choose_metrics,
    end_points,
    read_metric,
)

SERVICE: Final = "cloudwatch"
MOST_QUERIES: Final = 500
"""Of one request."""
MOST_POINTS: Final = 100_800
"""Of one answer; further ones are on further pages."""
LIST_EVERY_S: Final = 10.0 * S_PER_MIN
SETTLED_S: Final = 3.0 * S_PER_MIN
TRIES: Final = 8
"""Of one request where CloudWatch throttles; the client waits longer each time."""
CONNECT_S: Final = 10.0
ANSWER_S: Final = 60.0


@dataclass(frozen=True)
class CloudWatchAccess:
    """An account in a region. Credentials are found as Amazon's client finds them, unless `profile` names some; `role_arn` is a
    role to take on with them.
    """

    name: str
    region: str = ""
    profile: str = ""
    role_arn: str = ""
    endpoint_url: str = ""
    namespaces: Sequence[str] = ()
    period_s: int = S_PER_MIN


class CloudWatchMetrics:
    """The metrics of GPUs of one account in one region."""

    def __init__(self, access: CloudWatchAccess) -> None:
        self.settled_s = SETTLED_S
        self.step_ms = access.period_s * MS_PER_S
        self._access = access
        self._client: Any = None
        self._listed_s = -LIST_EVERY_S
        self._chosen: dict[CloudWatchMetric, dict[str, str]] = {}

    @property
    def lacking(self) -> str:
        """That nothing is listed which is understood: agents may not run, or name their metrics otherwise."""
        of = ", ".join(self._access.namespaces)
        return (
            "" if self._chosen else f"no metric of a GPU that is understood is listed in {of}; docs/connect-clouds.md"
        )

    def read(self, from_ms: int, to_ms: int) -> list[CloudSeries]:
        """The series of this time; metrics are listed anew every `LIST_EVERY_S`. Raises FetchError in CloudWatch's words."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            if self._client is None or time.monotonic() - self._listed_s >= LIST_EVERY_S:
                self._client = open_client(self._access, SERVICE)  # anew: a role's credentials run out
                self._chosen = choose_metrics(self._list_metrics(), self._access.name)
                self._listed_s = time.monotonic()
            metrics = list(self._chosen)
            found: list[CloudSeries] = []
            for i in range(0, len(metrics), MOST_QUERIES):
                found += self._read_some(metrics[i : i + MOST_QUERIES], from_ms, to_ms)
            return found
        except (ClientError, BotoCoreError) as error:
            self._client = None  # credentials may be others by the next time
            raise FetchError(describe_error(error)) from error

    def _list_metrics(self) -> Iterator[CloudWatchMetric]:
        for namespace in self._access.namespaces:
            for page in self._client.get_paginator("list_metrics").paginate(Namespace=namespace):
                for said in page["Metrics"]:
                    if said.get("MetricName") in NAMES and (metric := read_metric(said)) is not None:
                        yield metric

    def _read_some(self, metrics: Sequence[CloudWatchMetric], from_ms: int, to_ms: int) -> Iterator[CloudSeries]:
        stat = {"Period": self._access.period_s, "Stat": "Average"}
        queries = [
            {"Id": f"m{i}", "MetricStat": {**stat, "Metric": metric.query()}, "ReturnData": True}
            for i, metric in enumerate(metrics)
        ]
        pages = self._client.get_paginator("get_metric_data").paginate(
            MetricDataQueries=queries,
            StartTime=_instant(from_ms),  # the end of a period is ours, its beginning theirs
            EndTime=_instant(to_ms),
            ScanBy="TimestampAscending",
            MaxDatapoints=MOST_POINTS,
        )
        points: dict[str, list[tuple[int, float]]] = {}
        for page in pages:
            for result in page["MetricDataResults"]:
                if result.get("StatusCode") in ("Forbidden", "InternalError"):
                    raise FetchError(f"CloudWatch answers {result['StatusCode']} for {result.get('Label', 'a metric')}")
                began = [round(at.timestamp() * MS_PER_S) for at in result["Timestamps"]]
                points.setdefault(result["Id"], []).extend(end_points(began, result["Values"], self.step_ms))
        for i, metric in enumerate(metrics):
            some = [point for point in points.get(f"m{i}", ()) if from_ms < point[0] <= to_ms]
            if some:
                yield CloudSeries(self._chosen[metric], some)


def open_client(access: CloudWatchAccess, service: str) -> Any:
    """A client of Amazon's that waits where it is throttled. Raises InputError where it is not installed."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise InputError("boto3 is not installed: `pip install 'loadfactor[aws]'`") from error
    config = Config(
        retries={"mode": "standard", "total_max_attempts": TRIES},
        connect_timeout=CONNECT_S,
        read_timeout=ANSWER_S,
        user_agent_extra="loadfactor",
    )
    region = access.region or None
    endpoint = access.endpoint_url or None if service == SERVICE else None  # of CloudWatch alone
    session = boto3.Session(profile_name=access.profile or None, region_name=region)
    if access.role_arn:
        session = _take_role(session, access, config)
    return session.client(service, config=config, endpoint_url=endpoint)


def _take_role(session: Any, access: CloudWatchAccess, config: Any) -> Any:
    """A session with the role; its client is opened anew when its credentials have run out."""
    import boto3

    sts = session.client("sts", config=config)
    said = sts.assume_role(RoleArn=access.role_arn, RoleSessionName="loadfactor")["Credentials"]
    return boto3.Session(
        aws_access_key_id=said["AccessKeyId"],
        aws_secret_access_key=said["SecretAccessKey"],
        aws_session_token=said["SessionToken"],
        region_name=session.region_name,
    )


def describe_error(error: Exception) -> str:
    """What Amazon says, in one line and without what it repeats of the request."""
    response = getattr(error, "response", None)
    said = response.get("Error", {}) if isinstance(response, dict) else {}
    text = f"{said.get('Code')}: {said.get('Message')}" if said.get("Code") else str(error)
    return " ".join(text.split())[:300]


def _instant(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / MS_PER_S, UTC)
