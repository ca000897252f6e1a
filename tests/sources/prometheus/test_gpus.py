"""Series of every GPU exporter: the same GPU, the same units, one definition of holders, MIG, blanks and totals."""

import struct

import pytest
from tests.sources.prometheus.streams import AT_MS, STEP_MS, Booked, decode, put, series

from loadfactor.sources.prometheus.decoder import NAMES_MAX, OTHERS, PrometheusDecoder
from loadfactor.sources.prometheus.remote_write import NOT_UNDERSTOOD

UUID = "0a1b2c3d-0000-1111-2222-333344445555"
MIB = 2**20
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]


def measured(row: dict[str, object]) -> dict[str, object]:
    """What a sample knows."""
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
    bodies = [
        [
            ({"__name__": "rocm_utilization_percentage", **omnistat}, AT_MS + i * STEP_MS, 40.0),
            ({"__name__": "rocm_vram_used_percentage", **omnistat}, AT_MS + i * STEP_MS, 25.0),
            ({"__name__": "rocm_vram_total_bytes", **omnistat}, AT_MS + i * STEP_MS, 64e9),
            ({"__name__": "rocm_energy_joules", **omnistat}, AT_MS + i * STEP_MS, 1e6 + i * 9000),
        ]
        for i in range(2)
    ]
    row = decode(*bodies).list("samples")[1]
    assert row["device_id"] == "n1/2"
    assert measured(row) == {"busy_share": 0.4, "mem_used_bytes": 16e9, "mem_total_bytes": 64e9, "power_w": 300}
    amd = {
        "job": "b",
        "hostname": "tw038",
        "gpu_id": "1",
        "card_series": "AMD Instinct MI300X OAM",
        "gpu_partition_id": "0",
    }
    one = [
        ({"__name__": "gpu_used_vram", **amd}, AT_MS, 1000.0),
        ({"__name__": "gpu_gfx_activity", "pod": "default-metrics-exporter-x", **amd}, AT_MS, 50.0),
    ]
    booked = decode(one)
    assert measured(booked.list("samples")[0]) == {"mem_used_bytes": 1000 * MIB, "busy_share": 0.5}
    assert booked.list("allocations") == []


def test_models_from_the_info_metric():
    """nvidia_gpu_exporter says the model in a metric of its own; it is kept over a restart."""
    info = {
        "__name__": "nvidia_smi_gpu_info",
        "job": "j",
        "instance": "n1:9",
        "uuid": UUID,
        "name": "NVIDIA H100 80GB HBM3",
    }
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
    pods = [
        {"exported_pod": p, "exported_namespace": "research", "pod": "dcgm-exporter-x", "namespace": "gpu"}
        for p in "ab"
    ]
    booked = decode([(series("DCGM_FI_DEV_GPU_UTIL", **labels), AT_MS, 50.0) for labels in pods])
    assert [(a["job_id"], a["team"], a["share"]) for a in booked.list("allocations")] == [
        ("research/a", "research", 0.5),
        ("research/b", "research", 0.5),
    ]
    assert measured(booked.list("samples")[0]) == {"busy_share": 0.5}


def test_what_is_no_measurement():
    """Blanks of DCGM and infinite values are counted; the mark of a series that ended is neither a value nor a gap."""
    values = [9223372036854775794.0, float("inf"), float("nan"), STALE, 40.0]
    bodies = [[(series("DCGM_FI_DEV_GPU_TEMP"), AT_MS + i * STEP_MS, v)] for i, v in enumerate(values)]
    booked = decode(*bodies)
    assert [(row["to_utc"] - AT_MS) // STEP_MS for row in booked.list("samples")] == [4]
    assert booked.gaps == {
        ("dcgm:dcgm", "blank in DCGM_FI_DEV_GPU_TEMP"): 1,
        ("dcgm:dcgm", "infinite in DCGM_FI_DEV_GPU_TEMP"): 1,
        ("dcgm:dcgm", "NaN in DCGM_FI_DEV_GPU_TEMP"): 1,
    }


def test_late_points():
    """What comes after later samples were taken is added to its sample; where energy is counted, a glimpse of power is not."""
    decoder, booked = PrometheusDecoder(), Booked()
    for i in range(3):
        put(
            decoder,
            i + 1,
            [(series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), AT_MS + i * STEP_MS, 1e9 + i * 9e6)],
            float(i),
        )
        booked.take(decoder)
    late = [
        (series("DCGM_FI_DEV_GPU_UTIL"), AT_MS + STEP_MS, 70.0),
        (series("DCGM_FI_DEV_POWER_USAGE"), AT_MS + STEP_MS, 555.0),
        (series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), AT_MS + 2 * STEP_MS, 1e9 + 18e6),
    ]
    put(decoder, 4, late)
    booked.take(decoder, -1.0)
    assert [measured(row) for row in booked.list("samples")] == [
        {},
        {"power_w": 300, "busy_share": 0.7},
        {"power_w": 300},
    ]
    assert decoder.done() == 4


def test_a_scrape_waits_until_it_is_ripe():
    """Points of one scrape in several requests are one sample, and a body is done when all of its points were taken."""
    decoder = PrometheusDecoder()
    assert decoder.done() is None
    put(decoder, 7, [(series("DCGM_FI_DEV_GPU_UTIL"), AT_MS, 50.0)], 10.0)
    put(
        decoder,
        8,
        [(series("DCGM_FI_DEV_GPU_TEMP"), AT_MS, 33.0), (series("DCGM_FI_DEV_GPU_TEMP", 1), AT_MS, 44.0)],
        12.0,
    )
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
