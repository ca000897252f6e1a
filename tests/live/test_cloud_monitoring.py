"""`loadfactor up` and Cloud Monitoring, served on loopback, through Google's own client: the books are what was there, once."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import pytest
from google.api import metric_pb2
from google.cloud import monitoring_v3
from tests.live.up_process import UpProcess

from loadfactor.base.units import BYTES_PER_GIB, MS_PER_S, S_PER_MIN
from loadfactor.books.books import Books
from loadfactor.collect import google_cloud as cloud_monitoring
from loadfactor.collect.google_cloud import MonitoringMetrics
from loadfactor.collect.http_fetch import FetchError
from loadfactor.settings.sources import GcpProject

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


MINUTES = 20
UUID = "GPU-5d1f3a58-8a55-4b4c-9d4e-2f1b6f6d8a{:02}"
CLUSTER = {"project_id": "p", "location": "europe-west4", "cluster_name": "c", "namespace_name": "nlp"}
GKE = "kubernetes.io/container/accelerator"


def make_project(began_s: int) -> list[Any]:
    """Three pods of GKE with a GPU each, a machine with the Ops Agent, and a GPU of which DCGM's numbers are kept."""
    at = [began_s + (i + 1) * S_PER_MIN for i in range(MINUTES)]
    series = []
    for i, duty in enumerate((90.0, 60.0, 0.0)):
        told = {"make": "nvidia", "accelerator_id": UUID.format(i), "model": "nvidia-h100-80gb"}
        places = {**CLUSTER, "pod_name": f"train-{i}", "container_name": "main"}
        for name, value, unit in (
            ("duty_cycle", duty, "%"),
            ("memory_used", 10.0 * BYTES_PER_GIB, "By"),
            ("memory_total", 80.0 * BYTES_PER_GIB, "By"),
            ("request", 1.0, "{devices}"),
        ):
            points = [(one, value) for one in at]
            series.append(make_series(f"{GKE}/{name}", "k8s_container", told, places, points, unit))
    agent = {"gpu_number": "0", "model": "NVIDIA L4", "uuid": UUID.format(7)}
    machine = {"project_id": "p", "instance_id": "1234", "zone": "europe-west4-a"}
    begin = "agent.googleapis.com/gpu"
    series.append(make_series(f"{begin}/utilization", "gce_instance", agent, machine, [(a, 50.0) for a in at], "1"))
    for state, value in (("used", 4.0), ("free", 20.0)):
        points = [(one, value * BYTES_PER_GIB) for one in at]
        series.append(
            make_series(f"{begin}/memory/bytes_used", "gce_instance", {**agent, "memory_state": state}, machine, points)
        )
    dcgm = {"UUID": UUID.format(8), "gpu": "0", "Hostname": "n8", "modelName": "NVIDIA H100 80GB HBM3"}
    for name, value in (("DCGM_FI_DEV_GPU_UTIL", 70.0), ("DCGM_FI_PROF_SM_ACTIVE", 0.25)):
        kind = f"prometheus.googleapis.com/{name}/gauge"
        series.append(make_series(kind, "prometheus_target", dcgm, {"cluster": "c"}, [(a, value) for a in at], ""))
    return series


def read_samples(books: Path) -> list[dict[str, Any]]:
    """The samples of the books, without what was not measured."""
    rows = Books(books).table("samples").execute().sort_values(["device_id", "to_utc"])
    return [{k: v for k, v in row.items() if v == v and v is not None} for row in rows.to_dict("records")]


@pytest.mark.long
def test_the_books_are_what_the_project_has_after_a_restart(tmp_path: Path) -> None:
    """Over pages, with the quota used up twice, killed and started again: each point once; duty cycles cover ten seconds."""
    began_s = int(time.time()) // S_PER_MIN * S_PER_MIN - 40 * S_PER_MIN
    with FakeCloudMonitoring(make_project(began_s)) as server:
        server.exhausted = 2
        config = tmp_path / "loadfactor.toml"
        config.write_text(
            '[server]\nflush_every = "1s"\n[[gcp-monitoring]]\nproject = "p"\nevery = "1s"\nbackfill = "1h"\n'
            f'endpoint = "{server.endpoint}"\ninstances = false\n'
        )
        up = UpProcess(tmp_path / "books", config=config)
        with up:
            up.wait_until(lambda: len(read_samples(up.store)) >= 5 * MINUTES)
            up.kill()
            up.start()
            health = {one["name"]: one["status"] for one in up.ask("/health")["sources"]}
            assert up.stop() == 0
        assert server.exhausted == 0
    assert "gcp-monitoring p" in health
    rows = read_samples(up.store)
    of = {i: [row for row in rows if row["device_id"] == UUID.format(i)] for i in (0, 1, 2, 7, 8)}
    at_ms = [(began_s + (i + 1) * S_PER_MIN) * MS_PER_S for i in range(MINUTES)]
    assert all([row["to_utc"] for row in some] == at_ms for some in of.values())
    assert [some[3]["busy_share"] for some in of.values()] == pytest.approx([0.9, 0.6, 0, 0.5, 0.7])
    assert {row["to_utc"] - row["from_utc"] for i in (0, 1, 2) for row in of[i]} == {10 * MS_PER_S}
    assert {row["to_utc"] - row["from_utc"] for i in (7, 8) for row in of[i][1:]} == {S_PER_MIN * MS_PER_S}
    assert (of[0][0]["mem_used_bytes"], of[0][0]["mem_total_bytes"]) == (10 * BYTES_PER_GIB, 80 * BYTES_PER_GIB)
    assert (of[7][0]["mem_used_bytes"], of[7][0]["mem_total_bytes"]) == (4 * BYTES_PER_GIB, 24 * BYTES_PER_GIB)
    assert of[8][0]["sm_active_share"] == 0.25
    held = Books(up.store).table("allocations").execute().sort_values("job_id")
    assert held[["job_id", "team", "device_id"]].values.tolist() == [
        [f"nlp/train-{i}", "nlp", UUID.format(i)] for i in range(3)
    ]


@pytest.mark.long
def test_observed_time_of_duty_cycles_is_a_sixth(tmp_path: Path) -> None:
    """Ten seconds of every sixty: of half an hour of three GPUs five minutes were observed, and of these two thirds were busy."""
    began_s = int(time.time()) // 3600 * 3600 - 2 * 3600
    duty = [one for one in make_project(began_s) if one.metric.type.startswith("kubernetes.io")]
    path = tmp_path / "saved.json"
    path.write_text('{"timeSeries": [' + ",".join(type(one).to_json(one) for one in duty) + "]}")
    books = Books.open(tmp_path / "books", create=True)
    receipt = books.add("gcp-monitoring", [path])
    assert {gap.what: gap.count for gap in receipt.gaps} == {"time series that are not of GPUs": 3}
    rows = read_samples(tmp_path / "books")
    assert sum(row["to_utc"] - row["from_utc"] for row in rows) == 3 * MINUTES * 10 * MS_PER_S
    start, end = (datetime.fromtimestamp(began_s + minute * S_PER_MIN, UTC) for minute in (5, 15))
    names = ("observed_gpu_hours", "busy_gpu_hours", "unobserved_gpu_hours", "allocated_gpu_hours", "utilization")
    said = {one.metric: one for one in books.show(names, start=start, end=end)}
    assert [said[name].value for name in names] == pytest.approx([1 / 12, 1 / 18, 5 / 12, 1 / 2, 1 / 2])
    assert said["utilization"].coverage == pytest.approx(1 / 6)
    books.add("gcp-monitoring", [path])
    assert read_samples(tmp_path / "books") == rows


def test_pages_come_whole_though_the_quota_is_used_up_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third request is refused, lists and pages alike: asked again, each series comes once, with all its points."""
    monkeypatch.setattr(cloud_monitoring, "FIRST_RETRY_S", 0.01)
    began_s = int(time.time()) // S_PER_MIN * S_PER_MIN - 40 * S_PER_MIN
    project = make_project(began_s)
    with FakeCloudMonitoring(project) as server:
        server.refuse_every = 3
        metrics = MonitoringMetrics(GcpProject(name="p", project="p", endpoint=server.endpoint))
        series = metrics.read(began_s * MS_PER_S, (began_s + MINUTES * S_PER_MIN) * MS_PER_S)
        counted = {name: server.requests.count(name) for name in set(server.requests)}
        refused = len(server.requests) // server.refuse_every
    kept = [one for one in project if not one.metric.type.endswith("/request")]
    assert len(series) == len({tuple(sorted(one.labels.items())) for one in series}) == len(kept)
    assert all(len(one.points) == MINUTES for one in series)
    # two pages for each of three types of GKE, one for each of the four others; of descriptors two for GKE's containers
    assert counted["ListTimeSeries"] + counted["ListMetricDescriptors"] == 10 + 5 + refused


def test_a_quota_that_stays_used_up_is_said_in_googles_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for so long and no longer; asked again, later, everything is there."""
    monkeypatch.setattr(cloud_monitoring, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(cloud_monitoring, "LONGEST_RETRY_S", 0.2)
    began_s = int(time.time()) // S_PER_MIN * S_PER_MIN - 40 * S_PER_MIN
    with FakeCloudMonitoring(make_project(began_s)) as server:
        server.exhausted = 10**6
        metrics = MonitoringMetrics(GcpProject(name="p", project="p", endpoint=server.endpoint))
        until_ms = (began_s + MINUTES * S_PER_MIN) * MS_PER_S
        with pytest.raises(FetchError, match=r"^RESOURCE_EXHAUSTED: Quota exceeded for time series queries$"):
            metrics.read(began_s * MS_PER_S, until_ms)
        server.exhausted = 0
        assert len(metrics.read(began_s * MS_PER_S, until_ms)) == 14


def test_a_project_that_refuses_is_said_in_its_own_words() -> None:
    """Without the permission: an error of one line that names it."""
    with FakeCloudMonitoring([]) as server:
        server.forbid = True
        with pytest.raises(Exception, match=r"PERMISSION_DENIED: .*monitoring\.timeSeries\.list denied"):
            MonitoringMetrics(GcpProject(name="p", project="p", endpoint=server.endpoint)).read(0, 1000)
