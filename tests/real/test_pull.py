"""`loadfactor up` asks Prometheus and VictoriaMetrics, every party is restarted in the middle, and the books are true."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.live.up_process import free_port
from tests.real.components import Component, make_prometheus, make_victoria_metrics
from tests.real.fleet_books import check_fleet, check_nodes
from tests.real.parties import start_parties, write_config


@pytest.mark.parametrize("make_server", [make_prometheus, make_victoria_metrics])
def test_pull(tmp_path: Path, make_server: Callable[..., Component]) -> None:
    """What a server keeps is in the books once, as the exporters said it."""
    port = free_port()
    with start_parties(tmp_path, config=write_config(tmp_path, server=f"http://127.0.0.1:{port}")) as parties:
        with make_server(tmp_path / "server", parties.targets, port=port) as server:
            parties.restart(server, "kill")
            scrapes = parties.list_scrapes(server)
            parties.wait_until_pulled("server", scrapes[-1].at_ms)
        parties.finish()
    check_fleet(parties.up.store, parties.exporter.truth, scrapes)
    check_nodes(parties.up.store, scrapes)


def test_push_and_pull_at_once(tmp_path: Path) -> None:
    """A Prometheus that sends and is asked as well is in the books once."""
    port = free_port()
    with start_parties(tmp_path, config=write_config(tmp_path, server=f"http://127.0.0.1:{port}")) as parties:
        with make_prometheus(tmp_path / "server", parties.targets, parties.up.url, port) as server:
            parties.restart(server, "kill")
            scrapes = parties.list_scrapes(server)
            parties.wait_until_pulled("server", scrapes[-1].at_ms)
        parties.finish()
    check_fleet(parties.up.store, parties.exporter.truth, scrapes, is_sent=True)
    check_nodes(parties.up.store, scrapes)
