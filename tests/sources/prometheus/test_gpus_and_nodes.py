"""Series of every GPU exporter, with one definition of units, holders, MIG, blanks and totals; and those of node-exporter."""

import struct

import pytest
from tests.sources.prometheus.streams import AT_MS, STEP_MS, Booked, Sample, decode, put, series

from loadfactor.sources.prometheus.decoder import NAMES_MAX, OTHERS, PrometheusDecoder
from loadfactor.sources.prometheus.gpu_source import UNTIL_SECOND_MS
from loadfactor.sources.prometheus.remote_write import NOT_UNDERSTOOD

UUID = "0a1b2c3d-0000-1111-2222-333344445555"
MIB = 2**20
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]


def measured(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name not in ("device_id", "to_utc")}


@pytest.mark.parametrize(
    ("name", "labels", "value", "where", "column", "expected"),
    [
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", {"UUID": f"GPU-{UUID}"}, 97, "dcgm:j", "busy_share", 0.97),
        ("DCGM_FI_PROF_SM_UTIL_RATIO", {"uuid": f"GPU-{UUID}"}, 0.4, "dcgm:j", "sm_active_share", 0.4),
        ("DCGM_FI_DEV_FB_USED", {"gpu_uuid": f"GPU-{UUID}"}, 100, "dcgm:j", "mem_used_bytes", 100 * MIB),
        ("nvidia_smi_utilization_gpu_ratio", {"uuid": UUID}, 0.5, "nvidia-gpu-exporter:j", "busy_share", 0.5),
        ("nvidia_smi_memory_used_bytes", {"uuid": UUID}, 85e9, "nvidia-gpu-exporter:j", "mem_used_bytes", 85e9),
        ("nvidia_smi_power_draw_watts", {"uuid": UUID}, 300.5, "nvidia-gpu-exporter:j", "power_w", 300.5),
        ("nvidia_smi_temperature_gpu", {"uuid": UUID}, 34, "nvidia-gpu-exporter:j", "temperature_c", 34),
        (
            "nvidia_gpu_duty_cycle",
            {"uuid": f"GPU-{UUID}", "minor_number": "0"},
            50,
            "nvidia-gpu-exporter:j",
            "busy_share",
            0.5,
        ),
        (
            "nvidia_gpu_power_usage_milliwatts",
            {"uuid": f"GPU-{UUID}"},
            300_500,
            "nvidia-gpu-exporter:j",
            "power_w",
            300.5,
        ),
        ("nvidia_smi_utilization_gpu", {"uuid": f"GPU-{UUID}", "name": "T4"}, 50, "telegraf:j", "busy_share", 0.5),
        (
            "nvidia_smi_memory_used",
            {"uuid": f"GPU-{UUID}", "name": "T4"},
            100,
            "telegraf:j",
            "mem_used_bytes",
            100 * MIB,
        ),
        ("nvidia_smi_temperature_gpu", {"uuid": f"GPU-{UUID}", "name": "T4"}, 34, "telegraf:j", "temperature_c", 34),
    ],
)
def test_nvidia(name, labels, value, where, column, expected):
    """Whichever exporter speaks, the GPU has one name and the value our unit."""
    booked = decode([({"__name__": name, "job": "j", "instance": "n1:9", **labels}, AT_MS, value)])
    (key,) = booked.rows["samples"]
    assert key == (where, f"GPU-{UUID}", AT_MS)
    assert measured(booked.rows["samples"][key]) == {column: pytest.approx(expected, rel=1e-12)}


def test_amd():
    """Omnistat counts percent and joules, the device metrics exporter MiB and microjoules; both call GPUs by node and number."""
    omnistat = {"job": "a", "instance": "n1:8001", "card": "2"}
    bodies: list[list[Sample]] = []
    for i in range(2):
        values = {"utilization_percentage": 40.0, "vram_used_percentage": 25.0, "vram_total_bytes": 64e9}
        values["energy_joules"] = 1e6 + i * 9000
        bodies.append([({"__name__": f"rocm_{k}", **omnistat}, AT_MS + i * STEP_MS, v) for k, v in values.items()])
    row = decode(*bodies).list("samples")[1]
    assert row["device_id"] == "n1/2"
    assert measured(row) == {"busy_share": 0.4, "mem_used_bytes": 16e9, "mem_total_bytes": 64e9, "power_w": 300}
    amd = {"job": "b", "hostname": "tw038", "gpu_id": "1"}
    amd |= {"card_series": "AMD Instinct MI300X OAM", "gpu_partition_id": "0"}
    one = [
        ({"__name__": "gpu_used_vram", **amd}, AT_MS, 1000.0),
        ({"__name__": "gpu_gfx_activity", "pod": "default-metrics-exporter-x", **amd}, AT_MS, 50.0),
    ]
    booked = decode(one)
    assert measured(booked.list("samples")[0]) == {"mem_used_bytes": 1000 * MIB, "busy_share": 0.5}
    assert booked.list("allocations") == []


def test_models_from_the_info_metric():
    """nvidia_gpu_exporter says the model in a metric of its own; it is kept over a restart."""
    info = {"__name__": "nvidia_smi_gpu_info", "job": "j", "instance": "n1:9"}
    info |= {"uuid": UUID, "name": "NVIDIA H100 80GB HBM3"}
    util = {"__name__": "nvidia_smi_utilization_gpu_ratio", "job": "j", "instance": "n1:9", "uuid": UUID}
    decoder = PrometheusDecoder()
    put(decoder, 1, [(info, AT_MS, 1.0), (util, AT_MS, 0.5)])
    (device,) = Booked().take(decoder).list("devices")
    assert (device["accelerator"], device["node"]) == ("h100-sxm", "n1")
    again = PrometheusDecoder(decoder.state())
    put(again, 2, [(util, AT_MS + STEP_MS, 0.5)])
    assert Booked().take(again).list("devices")[0]["accelerator"] == "h100-sxm"


def test_pods_hold_gpus():
    """A pod is a holder of its namespace's team, under the name Prometheus gave its labels; two of them hold half each."""
    exporter = {"exported_namespace": "research", "pod": "dcgm-exporter-x", "namespace": "gpu"}
    pods = [exporter | {"exported_pod": pod} for pod in "ab"]
    booked = decode([(series("DCGM_FI_DEV_GPU_UTIL", **labels), AT_MS, 50.0) for labels in pods])
    expected = [("research/a", "research", 0.5), ("research/b", "research", 0.5)]
    assert [(a["job_id"], a["team"], a["share"]) for a in booked.list("allocations")] == expected
    assert measured(booked.list("samples")[0]) == {"busy_share": 0.5}


def test_what_is_no_measurement():
    """Blanks of DCGM and infinite values are counted; the mark of a series that ended is neither a value nor a gap."""
    values = [9223372036854775794.0, float("inf"), float("nan"), STALE, 40.0]
    bodies = [[(series("DCGM_FI_DEV_GPU_TEMP"), AT_MS + i * STEP_MS, v)] for i, v in enumerate(values)]
    booked = decode(*bodies)
    assert [(row["to_utc"] - AT_MS) // STEP_MS for row in booked.list("samples")] == [4]
    reasons = ("blank", "infinite", "NaN")
    assert booked.gaps == {("dcgm:dcgm", f"{reason} in DCGM_FI_DEV_GPU_TEMP"): 1 for reason in reasons}


def test_late_points():
    """What comes after later samples were taken is added to its sample; where energy is counted, a glimpse of power is not."""
    decoder, booked = PrometheusDecoder(), Booked()
    for i in range(3):
        energy = (series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), AT_MS + i * STEP_MS, 1e9 + i * 9e6)
        put(decoder, i + 1, [energy], float(i))
        booked.take(decoder)
    late = [
        (series("DCGM_FI_DEV_GPU_UTIL"), AT_MS + STEP_MS, 70.0),
        (series("DCGM_FI_DEV_POWER_USAGE"), AT_MS + STEP_MS, 555.0),
        (series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), AT_MS + 2 * STEP_MS, 1e9 + 18e6),
    ]
    put(decoder, 4, late)
    booked.take(decoder, -1.0)
    expected = [{}, {"power_w": 300, "busy_share": 0.7}, {"power_w": 300}]
    assert [measured(row) for row in booked.list("samples")] == expected
    assert decoder.done() == 4


@pytest.mark.parametrize("batches", [((0, 31), (0, 31, 31, 0), (0, 31, 31)), ((0, 31, 31, 0, 0, 0),)])
def test_errors_of_a_series_that_comes_late(batches: tuple[tuple[float, ...], ...]) -> None:
    """A sender that backed off brings the errors of a minute after its other series, by themselves or before those of now.

    They are dated by themselves, each once.
    """
    decoder, booked = PrometheusDecoder(), Booked()

    def send(number: int, name: str, *values: float) -> None:
        put(decoder, number, [(series(name), AT_MS + k * STEP_MS, value) for k, value in enumerate(values)])
        booked.take(decoder)

    send(1, "DCGM_FI_DEV_GPU_UTIL", 50, 50, 50, 50)
    for number, values in enumerate(batches, 2):
        send(number, "DCGM_FI_DEV_XID_ERRORS", *values)
    found = [((e["at_utc"] - AT_MS) // STEP_MS, e["kind"], e["detail"]) for e in booked.list("device_events")]
    assert found == [(1, "xid", "31"), (3, "reset", "xid")]


def test_a_scrape_waits_until_it_is_ripe():
    """Points of one scrape in several requests are one sample, and a body is done when all of its points were taken."""
    decoder = PrometheusDecoder()
    assert decoder.done() is None
    put(decoder, 7, [(series("DCGM_FI_DEV_GPU_UTIL"), AT_MS, 50.0)], 10.0)
    heat = [(series("DCGM_FI_DEV_GPU_TEMP"), AT_MS, 33.0), (series("DCGM_FI_DEV_GPU_TEMP", 1), AT_MS, 44.0)]
    put(decoder, 8, heat, 12.0)
    assert (Booked().take(decoder, 10.0).list("samples"), decoder.done()) == ([], 6)
    (row,) = Booked().take(decoder, 11.0).list("samples")
    assert (measured(row), decoder.done()) == ({"busy_share": 0.5, "temperature_c": 33}, 7)
    assert len(Booked().take(decoder).list("samples")) == 1
    assert decoder.done() == 8
    assert decoder.last_sample_ms == {"dcgm:dcgm": AT_MS}


def test_series_nobody_understands():
    """They are counted by name, names beyond a bound together; a field without a GPU is one of them."""
    decoder = PrometheusDecoder()
    for i in range(NAMES_MAX + 5):
        assert decoder.identify({"__name__": f"go_{i}"}) == NOT_UNDERSTOOD
    assert decoder.identify({"__name__": "DCGM_FI_DEV_GPU_UTIL", "job": "j"}) == NOT_UNDERSTOOD
    assert (len(decoder.not_understood), decoder.not_understood[OTHERS]) == (NAMES_MAX + 1, 6)


@pytest.mark.parametrize(
    ("name", "labels", "number"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", {"gpu": "3"}, 3),
        ("nvidia_gpu_duty_cycle", {"minor_number": "2"}, 2),
        ("nvidia_smi_utilization_gpu", {"index": "1", "name": "T4"}, 1),
        ("DCGM_FI_DEV_GPU_UTIL", {"gpu": "nvidia3"}, None),
        ("DCGM_FI_DEV_GPU_UTIL", {}, None),
    ],
)
def test_the_number_of_a_gpu_on_its_node_is_kept(name, labels, number):
    """Each exporter calls it otherwise; what is no number says nothing. A decoder that goes on from its state knows it still."""
    one = {"__name__": name, "job": "j", "instance": "n1:9", "uuid": f"GPU-{UUID}", **labels}
    first = PrometheusDecoder()
    put(first, 1, [(one, AT_MS, 1)])
    (device,) = Booked().take(first).list("devices")
    assert device.get("gpu_index") == number
    second = PrometheusDecoder(first.state())
    put(second, 2, [(one, AT_MS + STEP_MS, 1)])
    (device,) = Booked().take(second).list("devices")
    assert device.get("gpu_index") == number


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


@pytest.mark.parametrize("portions", ["one", "each", "each, of an import"])
@pytest.mark.parametrize("step_ms", [1000, 15_000, 60_000])
def test_a_gpu_begins_with_the_interval_of_its_first_scrape(portions: str, step_ms: int) -> None:
    """As long before it as the second one comes after it: seen at once in a long answer, and with the second scrape of a live one.

    Its holders do so, too. What was scraped once reaches back hardly at all while more may come; in an import, half a minute.
    """
    bodies = [
        [(series("DCGM_FI_DEV_GPU_UTIL", gpu, pod="a", namespace="v"), AT_MS + k * step_ms, 90.0)]
        for k, gpu in ((0, 0), (1, 0), (2, 0), (3, 1))
    ]
    booked, decoder = Booked(), PrometheusDecoder(is_live=portions != "each, of an import")
    for number, body in enumerate([[one for of_body in bodies for one in of_body]] if portions == "one" else bodies, 1):
        put(decoder, number, body)
        booked.take(decoder)
    if portions == "each, of an import":
        booked.add(decoder.end())
        assert [len(booked.list(table)) for table in ("devices", "allocations")] == [2, 2]
    alone_ms = STEP_MS if portions == "each, of an import" else UNTIL_SECOND_MS
    for table in ("devices", "allocations"):
        begun: dict[str, int] = {}
        for row in booked.list(table):
            began_ms = int(str(row["from_utc"]))
            begun[str(row["device_id"])] = min(begun.get(str(row["device_id"]), began_ms), began_ms)
        assert begun == {"GPU-0": AT_MS - step_ms, "GPU-1": AT_MS + 3 * step_ms - alone_ms}


@pytest.mark.parametrize("restarted", [False, True])
def test_a_pod_named_before_and_after_a_gap_held_its_gpu_through_it(restarted: bool) -> None:
    """Portion by portion, and by a server that was started again: bridged where the gap is longer than labels linger."""
    decoder, booked = PrometheusDecoder(), Booked()
    scraped = series("DCGM_FI_DEV_GPU_UTIL", 0, pod="a", namespace="v")
    for number, ks in enumerate(((0, 1), (2,), (9,), (10,), (60,), (61,)), 1):
        put(decoder, number, [(scraped, AT_MS + k * STEP_MS, 90.0) for k in ks])
        booked.take(decoder)
        if restarted:
            decoder = PrometheusDecoder(decoder.state())
    spans = [
        (
            row["known_from"],
            (int(str(row["from_utc"])) - AT_MS) // STEP_MS,
            (int(str(row["to_utc"])) - AT_MS) // STEP_MS,
        )
        for row in booked.list("allocations")
    ]
    assert sorted(spans, key=lambda span: span[1]) == [("labels", -1, 10), ("bridged", 10, 59), ("labels", 59, 61)]


def test_labels_that_come_late_say_who_held_a_gpu_meanwhile() -> None:
    """Scrapes of a gap that a backfill brings name a third pod; those that the open allocation covers say nothing new."""
    decoder, booked = PrometheusDecoder(), Booked()
    for number, (pod, ks) in enumerate((("a", (0, 1, 2)), ("b", (60, 61, 63)), ("c", (20, 21)), ("b", (62,))), 1):
        points = [(series("DCGM_FI_DEV_GPU_UTIL", 0, pod=pod, namespace="v"), AT_MS + k * STEP_MS, 90.0) for k in ks]
        put(decoder, number, points)
        booked.take(decoder)
    spans = [
        (row["job_id"], row["known_from"], *((int(str(row[c])) - AT_MS) // STEP_MS for c in ("from_utc", "to_utc")))
        for row in booked.list("allocations")
    ]
    assert sorted(spans) == [("v/a", "labels", -1, 2), ("v/b", "labels", 59, 63), ("v/c", "bridged", 19, 21)]
