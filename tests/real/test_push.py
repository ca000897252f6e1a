"""Prometheus and vmagent send to `loadfactor up`, every party is restarted in the middle, and the books are true."""

import time
from pathlib import Path

from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.up_process import UpProcess, free_port
from tests.real.components import JOB, make_prometheus
from tests.real.fleet_books import check_fleet, list_scrapes


def test_prometheus_sends(tmp_path: Path) -> None:
    """What Prometheus sent is in the books once, as the exporter said it."""
    up = UpProcess(tmp_path / "books")
    up.start()
    truth = FleetTruth(gpus=64, began_s=time.time() - 3, tick_s=3.0, stay_s=11.0, xid_after_s=14.0)
    exporter = FakeDcgmExporter(truth, port=free_port())
    with make_prometheus(tmp_path / "prometheus", {JOB: exporter.address}, up.url) as prometheus:
        with exporter:
            time.sleep(10)
            up.kill()
            up.start()
        time.sleep(2.5)
        with exporter:
            time.sleep(3)
            assert up.stop() == 0
            time.sleep(3)
            up.start()
            prometheus.wait_until_sent()
            prometheus.stop()
            prometheus.start()
            time.sleep(8)
        time.sleep(1)
        scrapes = list_scrapes(prometheus, exporter)
        prometheus.wait_until_sent()
        prometheus.stop()
        up.wait_until_booked()
        assert up.stop() == 0
    check_fleet(up.store, truth, scrapes)
