"""Prometheus and vmagent send to `loadfactor up`, every party is restarted in the middle, and the books are true."""

from pathlib import Path

from tests.real.components import make_prometheus, make_victoria_metrics, make_vmagent
from tests.real.fleet_books import check_fleet, check_nodes
from tests.real.parties import import_history, start_parties


def test_prometheus_sends(tmp_path: Path) -> None:
    """What Prometheus sent is in the books once, as the exporters said it; importing it as well changes nothing."""
    with start_parties(tmp_path) as parties:
        with make_prometheus(tmp_path / "prometheus", parties.targets, parties.up.url) as prometheus:
            parties.restart(prometheus, "stop")
            scrapes = parties.list_scrapes(prometheus)
            for store in (parties.up.store, parties.up.store, tmp_path / "imported"):
                print(import_history(prometheus, store))
        parties.finish()
    for store in (parties.up.store, tmp_path / "imported"):
        check_fleet(store, parties.exporter.truth, scrapes, is_sent=store == parties.up.store)
        check_nodes(store, scrapes)


def test_vmagent_sends(tmp_path: Path) -> None:
    """What vmagent sent is in the books once, beside the VictoriaMetrics that it sends to as well."""
    with start_parties(tmp_path) as parties, make_victoria_metrics(tmp_path / "victoria") as victoria:
        with make_vmagent(tmp_path / "vmagent", parties.targets, (parties.up.url, victoria.url)) as vmagent:
            parties.restart(vmagent, "stop")
            vmagent.stop()
        scrapes = parties.list_scrapes(victoria)
        for store in (parties.up.store, parties.up.store, tmp_path / "imported"):
            print(import_history(victoria, store))
        parties.finish()
    for store in (parties.up.store, tmp_path / "imported"):
        check_fleet(store, parties.exporter.truth, scrapes, is_sent=store == parties.up.store)
        check_nodes(store, scrapes)
