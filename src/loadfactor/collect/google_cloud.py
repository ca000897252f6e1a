"""Google Cloud through its own clients: metrics of GPUs in Cloud Monitoring, and instances with GPUs of Compute Engine."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S, NS_PER_MS, S_PER_MIN
from loadfactor.collect.http_fetch import FetchError
from loadfactor.collect.polling import Item, NotPermittedError
from loadfactor.settings.sources import GcpProject
from loadfactor.sources.clouds.cloud_series import CloudSeries
from loadfactor.sources.clouds.gce import PREEMPTED_BY, PREEMPTIONS, read_instance
from loadfactor.sources.clouds.live_instances import INSTANCES
from loadfactor.sources.clouds.monitoring import ASKED, is_kept, read_time_series
from loadfactor.sources.kubernetes.fields import choose_texts

LIST_EVERY_S: Final = 10.0 * S_PER_MIN
SETTLED_S: Final = 4.0 * S_PER_MIN
"""Google says that values can be read so long after they were taken."""
FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 120.0
"""Of one page, where a quota is used up or the service is away; the client waits longer each time."""
ANSWER_S: Final = 60.0
LOCAL: Final = "http://"
"""Where an endpoint begins so, it is spoken to without TLS and credentials: an emulator, or a proxy on this machine."""
INSTANCES_PAGE: Final = 500
"""Instances or operations of a page: the most there may be."""
PERMISSIONS: Final = {INSTANCES: "compute.instances.list", PREEMPTIONS: "compute.globalOperations.list"}
"""The permission that each question takes; the role Compute Viewer has both."""
_KEPT: Final = (
    "id", "name", "zone", "selfLink", "status", "machineType", "guestAccelerators", "creationTimestamp", "lastStartTimestamp",
    "lastStopTimestamp", "lastSuspendedTimestamp",
)  # fmt: skip
_KEPT_OF_OPERATION: Final = ("operationType", "targetId", "insertTime")
_NOTHING_THERE: Final = "NO_RESULTS_ON_PAGE"


class MonitoringMetrics:
    """The metrics of GPUs of one project."""

    def __init__(self, project: GcpProject) -> None:
        self.settled_s = SETTLED_S
        self.step_ms = S_PER_MIN * MS_PER_S
        self._project = project
        self._client: Any = None
        self._listed_s = -LIST_EVERY_S
        self._types: list[str] = []

    @property
    def lacking(self) -> str:
        """That no type is listed which is understood: agents may not run, or name their metrics otherwise."""
        where = self._project.project
        problem = f"no metric of a GPU that is understood is listed in {where}; docs/connect-clouds.md"
        return "" if self._types else problem

    def read(self, from_ms: int, to_ms: int) -> list[CloudSeries]:
        """The series of this time; types of metrics are listed anew every `LIST_EVERY_S`. Raises FetchError in Google's words."""
        try:
            from google.api_core.exceptions import GoogleAPIError
            from google.auth.exceptions import GoogleAuthError
        except ImportError as error:
            raise InputError("google-cloud-monitoring is not installed: `pip install 'loadfactor[gcp]'`") from error
        try:
            if self._client is None:
                self._client = _open_client(self._project)
            if time.monotonic() - self._listed_s >= LIST_EVERY_S:
                self._types = self._list_types()
                self._listed_s = time.monotonic()
            return [series for metric_type in self._types for series in self._read_type(metric_type, from_ms, to_ms)]
        except (GoogleAPIError, GoogleAuthError, OSError, ValueError) as error:
            raise FetchError(describe_error(error)) from error

    def _list_types(self) -> list[str]:
        found: set[str] = set()
        for begin in ASKED:
            request = {"name": f"projects/{self._project.project}", "filter": f'metric.type = starts_with("{begin}")'}
            descriptors = self._client.list_metric_descriptors(request=request, retry=_retry(), timeout=ANSWER_S)
            found.update(descriptor.type for descriptor in descriptors)
        return sorted(filter(is_kept, found))

    def _read_type(self, metric_type: str, from_ms: int, to_ms: int) -> list[CloudSeries]:
        from google.cloud import monitoring_v3

        request = monitoring_v3.ListTimeSeriesRequest(
            name=f"projects/{self._project.project}",
            filter=f'metric.type = "{metric_type}"',
            interval={"start_time": _instant(from_ms), "end_time": _instant(to_ms)},
            view=monitoring_v3.ListTimeSeriesRequest.TimeSeriesView.FULL,
        )
        pages = self._client.list_time_series(request=request, retry=_retry(), timeout=ANSWER_S)
        found = map(_as_json, pages)  # page after page; what a project has besides is not counted live
        all_series = read_time_series(found, self._project.label, metric_type, lambda _what: None)
        in_time = ((series, [p for p in series.points if from_ms < p[0] <= to_ms]) for series in all_series)
        return [CloudSeries(series.labels, points) for series, points in in_time if points]


def _open_client(project: GcpProject) -> Any:
    from google.cloud import monitoring_v3
    from google.cloud.monitoring_v3.services.metric_service.transports import MetricServiceGrpcTransport

    if project.endpoint.startswith(LOCAL):
        import grpc

        channel = grpc.insecure_channel(project.endpoint.removeprefix(LOCAL))
        return monitoring_v3.MetricServiceClient(transport=MetricServiceGrpcTransport(channel=channel))
    options = {"api_endpoint": project.endpoint} if project.endpoint else None
    if project.credentials_file is not None:
        return monitoring_v3.MetricServiceClient.from_service_account_file(
            str(project.credentials_file), client_options=options
        )
    return monitoring_v3.MetricServiceClient(client_options=options)


def _retry() -> Any:
    from google.api_core import exceptions
    from google.api_core.retry import Retry, if_exception_type

    later = if_exception_type(  # of gRPC, then of HTTP
        exceptions.ResourceExhausted,
        exceptions.DeadlineExceeded,
        exceptions.TooManyRequests,
        exceptions.GatewayTimeout,
        exceptions.ServiceUnavailable,
    )
    return Retry(predicate=later, initial=FIRST_RETRY_S, maximum=30.0, multiplier=2.0, timeout=LONGEST_RETRY_S)


def _as_json(message: Any) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    content: dict[str, Any] = MessageToDict(type(message).pb(message))
    return content


def _instant(at_ms: int) -> dict[str, int]:
    return {"seconds": at_ms // MS_PER_S, "nanos": at_ms % MS_PER_S * NS_PER_MS}


def describe_error(error: Exception) -> str:
    """The message of an error of Google, in one line; of a request that was tried again, the last one."""
    error = getattr(error, "cause", None) or error
    code = getattr(getattr(error, "grpc_status_code", None), "name", None) or type(error).__name__
    return " ".join(f"{code}: {getattr(error, 'message', None) or error}".split())[:300]


class GceInstances:
    """The instances with GPUs of one project."""

    parts = tuple(PERMISSIONS)

    def __init__(self, project: GcpProject) -> None:
        self._project = project
        self._clients: dict[str, Any] = {}

    @staticmethod
    def name(instance: Item) -> str:
        """Its number."""
        return str(instance["id"])

    def ask(self, part: str) -> dict[str, Sequence[Item]]:
        """Answer of Compute Engine. Raises FetchError in its words; NotPermittedError with the permission that is missing."""
        return {part: list(self._list(part))}

    def find_refused(self) -> Iterator[tuple[str, str]]:
        """Each question, and why it is not permitted; empty where it is."""
        for part in self.parts:
            error = ""
            try:
                next(self._list(part), None)
            except FetchError as refused:
                error = str(refused)
            yield part, error

    def _list(self, part: str) -> Iterator[Item]:
        """All pages; one that fails, or says of a zone that it cannot be reached, fails the question."""
        try:
            from google.api_core.exceptions import Forbidden, GoogleAPIError
            from google.auth.exceptions import GoogleAuthError
        except ImportError as error:
            raise InputError("google-cloud-compute is not installed: `pip install 'loadfactor[gcp]'`") from error
        try:
            request: dict[str, Any] = {"project": self._project.project, "max_results": INSTANCES_PAGE}
            if part == PREEMPTIONS:
                request["filter"] = f'operationType="{PREEMPTED_BY}"'
            pages = self._open(part).aggregated_list(request=request, retry=_retry(), timeout=ANSWER_S)
            for scope, found in pages:
                content = _as_json(found)
                warning = content.get("warning") or {}
                if warning.get("code", _NOTHING_THERE) != _NOTHING_THERE:
                    raise FetchError(f"{scope}: {warning['code']}: {warning.get('message', '')}"[:300])
                if part == PREEMPTIONS:
                    operations = [item for item in content.get("operations") or () if "targetId" in item]
                    yield from ({key: item[key] for key in _KEPT_OF_OPERATION} for item in operations)
                else:
                    for item in map(_prune_instance, content.get("instances") or ()):
                        if (instance := read_instance(item)) and (instance.gpus or instance.lacks_gpus):
                            yield item
        except Forbidden as error:
            permission = f"give it {PERMISSIONS[part]} (the role roles/compute.viewer has it)"
            raise NotPermittedError(f"{describe_error(error)}; {permission}") from error
        except (GoogleAPIError, GoogleAuthError, OSError, ValueError, KeyError) as error:
            raise FetchError(describe_error(error)) from error

    def _open(self, part: str) -> Any:
        if part not in self._clients:
            self._clients[part] = _open_compute(self._project, part)
        return self._clients[part]


def _open_compute(project: GcpProject, part: str) -> Any:
    try:
        from google.cloud import compute_v1
    except ImportError as error:
        raise InputError("google-cloud-compute is not installed: `pip install 'loadfactor[gcp]'`") from error
    kind = compute_v1.GlobalOperationsClient if part == PREEMPTIONS else compute_v1.InstancesClient
    if project.compute_endpoint.startswith(LOCAL):
        from google.auth.credentials import AnonymousCredentials

        transport = kind.get_transport_class("rest")
        host = project.compute_endpoint.removeprefix(LOCAL)
        return kind(transport=transport(host=host, credentials=AnonymousCredentials(), url_scheme="http"))
    options = {"api_endpoint": project.compute_endpoint} if project.compute_endpoint else None
    if project.credentials_file is not None:
        return kind.from_service_account_file(str(project.credentials_file), client_options=options)
    return kind(client_options=options)


def _prune_instance(instance: Item) -> Item:
    """Fields of an instance that the decoder reads; of its labels those that are not secret."""
    labels = sorted((instance.get("labels") or {}).items())
    public = {key: value for key, value in labels if not value or choose_texts({key: value}, {})}
    return {**{key: instance[key] for key in _KEPT if key in instance}, "labels": public}
