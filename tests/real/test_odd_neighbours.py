"""A real Prometheus scrapes nodes with hundreds of labels (kube-state-metrics) beside DCGM: every GPU sample arrives."""

from pathlib import Path

import httpx
from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.local_server import LocalServer
from tests.live.up_process import UpProcess
from tests.real.components import JOB, make_prometheus
from tests.waiting import wait_until

from loadfactor.books.books import Books

SCRAPES = 15


class KubeStateMetrics(LocalServer):
    """Nodes with 70 and 300 labels of Node Feature Discovery, and pods with annotations of 3 kB."""

    def respond(self, path: str, body: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        """The page."""
        del path, body, headers
        lines = []
        for k, count in enumerate((3, 70, 300)):
            features = "".join(f',label_feature_{i}="true"' for i in range(count))
            lines.append(f'kube_node_labels{{node="n{k}"{features}}} 1\n')
            lines.append(f'kube_pod_annotations{{pod="p{k}",annotation_spec="{"y" * 3000}"}} 1\n')
        return 200, {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}, "".join(lines).encode()


def test_every_gpu_sample_arrives_beside_long_label_sets(tmp_path: Path) -> None:
    """What Prometheus keeps of the GPUs is in the books, sample by sample; nothing is dropped, refused or missed."""
    with (
        FakeDcgmExporter(FleetTruth(gpus=16)) as exporter,
        KubeStateMetrics() as state,
        UpProcess(tmp_path / "books") as up,
    ):
        targets = {JOB: exporter.address, "kube-state-metrics": state.address}
        with make_prometheus(tmp_path / "prometheus", targets, write_to=up.url) as prometheus:
            wait_until(lambda: len(prometheus.list_instants("DCGM_FI_DEV_GPU_UTIL")) >= SCRAPES)
            instants = prometheus.list_instants("DCGM_FI_DEV_GPU_UTIL")
            prometheus.wait_until_sent()
            assert prometheus.list_instants("kube_node_labels")
            text = httpx.get(f"{prometheus.url}/metrics", timeout=60).text
            dropped = [
                line for line in text.splitlines() if line.startswith("prometheus_remote_storage_samples_failed_t")
            ]
            assert [float(line.split()[-1]) for line in dropped] == [0.0]
            up.wait_for_health(lambda said: said["status"] == "ok")
        up.wait_until_booked()
        unread = httpx.get(f"{up.url}/metrics", timeout=60).text
        assert "loadfactor_server_skipped_total{" not in unread
        rows = Books(up.store).table("samples").execute()
        found = set(zip(rows["device_id"], rows["to_utc"].tolist(), strict=True))
        assert not {(exporter.truth.uuid(gpu), at_ms) for gpu in range(16) for at_ms in instants} - found
