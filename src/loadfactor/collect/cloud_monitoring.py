"""Cloud Monitoring through Google's own client: which metrics of GPUs a project has, and their points."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S, NS_PER_MS, S_PER_MIN
from loadfactor.collect.fetch_errors import FetchError
from loadfactor.sources.clouds.cloud_series import CloudSeries
from loadfactor.sources.clouds.monitoring import ASKED, is_kept, read_time_series

LIST_EVERY_S: Final = 10.0 * S_PER_MIN
SETTLED_S: Final = 4.0 * S_PER_MIN
"""Google says that values can be read so long after they were taken."""
FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 120.0
"""Of one page, where a quota is used up or the service is away; the client waits longer each time."""
ANSWER_S: Final = 60.0
LOCAL: Final = "http://"
"""Where an endpoint begins so, it is spoken to without TLS and credentials: an emulator, or a proxy on this machine."""


@dataclass(frozen=True)
class ProjectAccess:
    """A project. Credentials are found as Google's client finds them, unless a file has some."""

    name: str
    project: str
    credentials_file: Path | None = None
    endpoint: str = ""


class MonitoringMetrics:
    """The metrics of GPUs of one project."""

    def __init__(self, access: ProjectAccess) -> None:
        self.settled_s = SETTLED_S
        self.step_ms = S_PER_MIN * MS_PER_S
        self._access = access
        self._client: Any = None
        self._listed_s = -LIST_EVERY_S
        self._types: list[str] = []

    @property
    def lacking(self) -> str:
        """That no type is listed which is understood: agents may not run, or name their metrics otherwise."""
        project = self._access.project
        return (
            ""
            if self._types
            else f"no metric of a GPU that is understood is listed in {project}; docs/connect-clouds.md"
        )

    def read(self, from_ms: int, to_ms: int) -> list[CloudSeries]:
        """The series of this time; types of metrics are listed anew every `LIST_EVERY_S`. Raises FetchError in Google's words."""
        try:
            from google.api_core.exceptions import GoogleAPIError
            from google.auth.exceptions import GoogleAuthError
        except ImportError as error:
            raise InputError("google-cloud-monitoring is not installed: `pip install 'loadfactor[gcp]'`") from error
        try:
            if self._client is None:
                self._client = _open_client(self._access)
            if time.monotonic() - self._listed_s >= LIST_EVERY_S:
                self._types = self._list_types()
                self._listed_s = time.monotonic()
            return [one for metric_type in self._types for one in self._read_type(metric_type, from_ms, to_ms)]
        except (GoogleAPIError, GoogleAuthError, OSError, ValueError) as error:
            raise FetchError(describe_error(error)) from error

    def _list_types(self) -> list[str]:
        found: set[str] = set()
        for begin in ASKED:
            asked = {"name": f"projects/{self._access.project}", "filter": f'metric.type = starts_with("{begin}")'}
            for one in self._client.list_metric_descriptors(request=asked, retry=_retry(), timeout=ANSWER_S):
                found.add(one.type)
        return sorted(filter(is_kept, found))

    def _read_type(self, metric_type: str, from_ms: int, to_ms: int) -> list[CloudSeries]:
        from google.cloud import monitoring_v3

        asked = monitoring_v3.ListTimeSeriesRequest(
            name=f"projects/{self._access.project}",
            filter=f'metric.type = "{metric_type}"',
            interval={"start_time": _instant(from_ms), "end_time": _instant(to_ms)},
            view=monitoring_v3.ListTimeSeriesRequest.TimeSeriesView.FULL,
        )
        pages = self._client.list_time_series(request=asked, retry=_retry(), timeout=ANSWER_S)
        found = (_as_json(one) for one in pages)  # page after page
        some = read_time_series(found, self._access.name, metric_type, _leave_out)
        in_time = ((one, [p for p in one.points if from_ms < p[0] <= to_ms]) for one in some)
        return [CloudSeries(one.labels, points) for one, points in in_time if points]


def _open_client(access: ProjectAccess) -> Any:
    from google.cloud import monitoring_v3
    from google.cloud.monitoring_v3.services.metric_service.transports import MetricServiceGrpcTransport

    if access.endpoint.startswith(LOCAL):
        import grpc

        channel = grpc.insecure_channel(access.endpoint.removeprefix(LOCAL))
        return monitoring_v3.MetricServiceClient(transport=MetricServiceGrpcTransport(channel=channel))
    options = {"api_endpoint": access.endpoint} if access.endpoint else None
    if access.credentials_file is not None:
        return monitoring_v3.MetricServiceClient.from_service_account_file(
            str(access.credentials_file), client_options=options
        )
    return monitoring_v3.MetricServiceClient(client_options=options)


def _retry() -> Any:
    """What is tried again: a quota that is used up for now, a service that is away."""
    from google.api_core import exceptions
    from google.api_core.retry import Retry, if_exception_type

    later = if_exception_type(exceptions.ResourceExhausted, exceptions.ServiceUnavailable, exceptions.DeadlineExceeded)
    return Retry(predicate=later, initial=FIRST_RETRY_S, maximum=30.0, multiplier=2.0, timeout=LONGEST_RETRY_S)


def _as_json(series: Any) -> dict[str, Any]:
    """A time series as the JSON of the API writes it."""
    from google.protobuf.json_format import MessageToDict

    said: dict[str, Any] = MessageToDict(type(series).pb(series))
    return said


def _instant(at_ms: int) -> dict[str, int]:
    return {"seconds": at_ms // MS_PER_S, "nanos": at_ms % MS_PER_S * NS_PER_MS}


def _leave_out(_what: str) -> None:
    """What a project has besides is not counted live."""


def describe_error(error: Exception) -> str:
    """What Google says, in one line; of a request that was tried again, what it said last."""
    error = getattr(error, "cause", None) or error
    code = getattr(getattr(error, "grpc_status_code", None), "name", None) or type(error).__name__
    return " ".join(f"{code}: {getattr(error, 'message', None) or error}".split())[:300]
