"""Cloud Monitoring on loopback, made of the messages of Google's own client: types, filters, times, pages and quotas."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import grpc
from google.api import metric_pb2
from google.cloud import monitoring_v3

PAGE = 2
SERVICE = "google.monitoring.v3.MetricService"


def make_series(
    metric_type: str,
    resource: str,
    labels: dict[str, str],
    places: dict[str, str],
    points: Sequence[tuple[float, float]],
    unit: str = "%",
) -> Any:
    """A time series; `points` are instants (s) and values, the newest first, as the service gives them."""
    return monitoring_v3.TimeSeries(
        metric={"type": metric_type, "labels": labels},
        resource={"type": resource, "labels": places},
        unit=unit,
        points=[
            {"interval": {"end_time": datetime.fromtimestamp(at_s, UTC)}, "value": {"double_value": value}}
            for at_s, value in sorted(points, reverse=True)
        ],
    )


class FakeCloudMonitoring:
    """The server of one project's `series`, `PAGE` of them a page.

    The first `exhausted` requests are refused for want of quota, and one of each `refuse_every`; all of them where `forbid`.
    """

    def __init__(self, series: Sequence[Any]) -> None:
        self.series = list(series)
        self.exhausted = 0
        self.refuse_every = 0
        self.forbid = False
        self.requests: list[str] = []
        self._server = grpc.server(ThreadPoolExecutor(2))
        answers = {
            "ListTimeSeries": self._handle(self._list_series, "ListTimeSeries"),
            "ListMetricDescriptors": self._handle(self._list_types, "ListMetricDescriptors"),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, answers),))
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    @staticmethod
    def _handle(answer: Any, name: str) -> Any:
        request, response = (getattr(monitoring_v3, f"{name}{end}") for end in ("Request", "Response"))
        return grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=request.deserialize, response_serializer=response.serialize
        )

    def _check(self, context: Any) -> None:
        if self.forbid:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "Permission monitoring.timeSeries.list denied")
        is_due = self.refuse_every and len(self.requests) % self.refuse_every == 0
        if is_due or self.exhausted > 0:
            self.exhausted -= not is_due
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota exceeded for time series queries")

    def _list_types(self, request: Any, context: Any) -> Any:
        self.requests.append("ListMetricDescriptors")
        self._check(context)
        begin = request.filter.partition('starts_with("')[2].removesuffix('")')
        types = sorted({one.metric.type for one in self.series if one.metric.type.startswith(begin)})
        found = [metric_pb2.MetricDescriptor(type=one) for one in types]
        page, more = self._cut(found, request)
        return monitoring_v3.ListMetricDescriptorsResponse(metric_descriptors=page, next_page_token=more)

    @staticmethod
    def _cut(found: list[Any], request: Any) -> tuple[list[Any], str]:
        at = int(request.page_token or 0)
        return found[at : at + PAGE], str(at + PAGE) if at + PAGE < len(found) else ""

    def _list_series(self, request: Any, context: Any) -> Any:
        self.requests.append("ListTimeSeries")
        self._check(context)
        wanted = request.filter.partition('metric.type = "')[2].removesuffix('"')
        found = []
        for one in self.series:
            points = [
                p for p in one.points if request.interval.start_time <= p.interval.end_time <= request.interval.end_time
            ]
            if one.metric.type == wanted and points:
                found.append(
                    monitoring_v3.TimeSeries(metric=one.metric, resource=one.resource, unit=one.unit, points=points)
                )
        page, more = self._cut(found, request)
        return monitoring_v3.ListTimeSeriesResponse(time_series=page, next_page_token=more)

    def __enter__(self) -> "FakeCloudMonitoring":
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(0)
