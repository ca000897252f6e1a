"""Series of node-exporter: what cores, disks and interfaces counted, added up once; memory; restarts of the node."""

import pytest
from tests.sources.prometheus.streams import AT_MS, STEP_MS, Booked, Sample, decode, put

from loadfactor.sources.prometheus.decoder import PrometheusDecoder

CORES = 4


def node(name: str, **labels: str) -> dict[str, str]:
    """Labels of a series of node-exporter."""
    return {"__name__": name, "job": "node", "instance": "n1:9100", **labels}


def scrape(number: int, boot: float = 0.0) -> list[Sample]:
    """The `number`-th scrape of a node half busy, a tenth waiting, with 1 MB/s read from each of its two disks."""
    at_ms, up_s = AT_MS + number * STEP_MS, number * STEP_MS / 1000 - boot
    shares = {"idle": 0.4, "iowait": 0.1, "user": 0.3, "system": 0.2}
    samples: list[Sample] = [
        (node("node_cpu_seconds_total", cpu=str(cpu), mode=mode), at_ms, up_s * share)
        for cpu in range(CORES)
        for mode, share in shares.items()
    ]
    for device in ("sda", "sda1", "nvme0n1", "nvme0n1p2", "dm-0", "md127", "loop3", "nvme0c0n1"):
        samples.append((node("node_disk_read_bytes_total", device=device), at_ms, up_s * 1e6))
    for device in ("eth0", "eth1", "bond0", "lo", "veth12ab", "eth0.100", "docker0", "br-1a2b", "ib0"):
        samples.append((node("node_network_receive_bytes_total", device=device), at_ms, up_s * 1e5))
    samples.append((node("node_memory_MemTotal_bytes"), at_ms, 512e9))
    samples.append((node("node_memory_MemAvailable_bytes"), at_ms, 500e9))
    return samples


def test_what_a_node_did():
    """Shares of all cores, bytes of whole disks and real interfaces, and memory that is neither free nor a cache."""
    rows = decode(scrape(0), scrape(1)).list("node_samples")
    assert rows[0] == {
        "node": "n1",
        "source": "node-exporter:node",
        "from_utc": AT_MS - STEP_MS,
        "to_utc": AT_MS,
        "mem_used_bytes": 12e9,
        "mem_total_bytes": 512e9,
    }
    assert rows[1] == {
        "node": "n1",
        "source": "node-exporter:node",
        "from_utc": AT_MS,
        "to_utc": AT_MS + STEP_MS,
        "cpu_busy_share": pytest.approx(0.5),
        "io_wait_share": pytest.approx(0.1),
        "disk_read_bytes_per_s": pytest.approx(2e6),
        "net_rx_bytes_per_s": pytest.approx(3e5),
        "mem_used_bytes": 12e9,
        "mem_total_bytes": 512e9,
    }


def test_a_node_that_was_booted():
    """Totals that begin again give no rate, and the next ones do."""
    rows = decode(scrape(10), scrape(11, boot=325), scrape(12, boot=325)).list("node_samples")
    assert [row.get("disk_read_bytes_per_s") for row in rows] == [None, None, pytest.approx(2e6)]
    assert [row.get("cpu_busy_share") for row in rows] == [None, None, pytest.approx(0.5)]


def test_no_rate_over_a_gap_or_of_other_cores():
    """The mean of an hour is no measurement of its last step; a core that went takes its seconds with it."""
    missing = [one for one in scrape(3) if one[0].get("cpu") != "3"]
    rows = decode(scrape(0), scrape(1), scrape(2), missing, scrape(123)).list("node_samples")
    assert [("cpu_busy_share" in row, "disk_read_bytes_per_s" in row) for row in rows] == [
        *((False, False), (True, True), (True, True), (False, True), (False, False))
    ]


def test_bodies_sent_twice_and_restarts():
    """A request that is sent again changes nothing, and a decoder made from the state goes on with the same rates."""
    expected = decode(scrape(0), scrape(1), scrape(2)).list("node_samples")
    assert decode(scrape(0), scrape(0), scrape(1), scrape(2), scrape(2)).list("node_samples") == expected
    booked, state = Booked(), b""
    for number in range(3):
        decoder = PrometheusDecoder(state)
        put(decoder, number + 1, scrape(number))
        booked.take(decoder)
        state = decoder.state()
    assert booked.list("node_samples") == expected
