"""Fields of DCGM: units, blanks, totals and zeros that are none; XID, ECC and throttle reasons become events, once each."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import SourceError
from loadfactor.books.books import Books
from loadfactor.sources.base import DeviceEvent, Input, ReadOptions, Rows
from loadfactor.sources.dcgm.decoder import decode_scrapes

AT_MS = 1_700_000_000_000
LABELS = 'gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"'


def line(name: str, value: object, at_ms: int | None = None, labels: str = LABELS) -> str:
    """One line of exposition."""
    return f"DCGM_FI_{name}{{{labels}}} {value}{'' if at_ms is None else f' {at_ms}'}\n"


@pytest.mark.parametrize(
    ("name", "value", "column", "expected"),
    [
        ("DEV_GPU_UTIL", 97, "busy_share", 0.97),
        ("DEV_GPU_UTIL", 173, "busy_share", 1.73),  # handed on, not clipped; the door of the store refuses it
        ("DEV_GPU_UTIL_RATIO", 97, "busy_share", 0.97),
        ("PROF_GR_ENGINE_ACTIVE", 0.5, "engine_active_share", 0.5),
        ("PROF_GR_ENGINE_UTIL_RATIO", 0.5, "engine_active_share", 0.5),
        ("PROF_SM_ACTIVE", 0.4, "sm_active_share", 0.4),
        ("PROF_SM_UTIL_RATIO", 0.4, "sm_active_share", 0.4),
        ("PROF_PIPE_TENSOR_ACTIVE", 0.3, "tensor_active_share", 0.3),
        ("PROF_TENSOR_UTIL_RATIO", 0.3, "tensor_active_share", 0.3),
        ("PROF_DRAM_ACTIVE", 0.2, "dram_active_share", 0.2),
        ("PROF_DRAM_UTIL_RATIO", 0.2, "dram_active_share", 0.2),
        ("PROF_PIPE_FP32_ACTIVE", 0.1, "fp32_active_share", 0.1),
        ("PROF_FP32_UTIL_RATIO", 0.1, "fp32_active_share", 0.1),
        ("PROF_SM_OCCUPANCY", 0.6, "sm_occupancy_share", 0.6),
        ("PROF_OCCUPANCY_RATIO", 0.6, "sm_occupancy_share", 0.6),
        ("DEV_FB_USED", 1024, "mem_used_bytes", 2**30),
        ("DEV_FB_TOTAL", 81559, "mem_total_bytes", 81559 * 2**20),
        ("DEV_POWER_USAGE", 612.25, "power_w", 612.25),
        ("DEV_BOARD_POWER_WATTS", 612.25, "power_w", 612.25),
        ("DEV_BOARD_POWER_RAW_WATTS", 612.25, "power_w", 612.25),
        ("DEV_SM_CLOCK", 1980, "sm_clock_hz", 1.98e9),
        ("DEV_GPU_TEMP", 60, "temperature_c", 60),
        ("DEV_GPU_TEMP_CELSIUS", 60, "temperature_c", 60),
        ("DEV_CLOCK_THROTTLE_REASONS", 4, "throttle_mask", 4),
        ("DEV_CLOCKS_EVENT_REASONS", 132, "throttle_mask", 132),
        ("PROF_PCIE_TX_BYTES", 3e9, "pcie_tx_bytes_per_s", 3e9),
        ("PROF_PCIE_RX_BYTES", 2**31 + 5, "pcie_rx_bytes_per_s", 2**31 + 5),
    ],
)
def test_each_field_under_each_name(read, name, value, column, expected):
    """Old and new names say the same, in the unit that DCGM means."""
    assert read(line(name, value)).measured() == {column: pytest.approx(expected, rel=1e-15)}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (0x7FFFFFF0, "blank"),
        (0x7FFFFFF1, "not found"),
        (0x7FFFFFF2, "not supported"),
        (0x7FFFFFF3, "not permitted"),
        (0x7FFFFFFFFFFFFFF0, "blank"),
        (9223372036854775794, "not supported"),
        ("9223372036854775795", "not permitted"),
        ("9223372036854776000", "blank"),
        ("9.223372036854776e+18", "blank"),
        ("140737488355328.0", "blank"),
        ("140737488355330.000000", "not supported"),
        ("NaN", "NaN"),
        ("+Inf", "infinite"),
        ("1_0", "an unreadable value"),
    ],
)
def test_blanks_are_not_measured(read, value, why):
    """A blank of DCGM is null with its reason, never a number."""
    seen = read(line("DEV_GPU_UTIL", value) + line("DEV_GPU_TEMP", 33))
    assert seen.measured() == {"temperature_c": 33}
    assert seen.gaps == {f"{why} in DCGM_FI_DEV_GPU_UTIL": 1}


def test_totals_may_pass_the_smaller_blanks(read):
    """A total of bytes honestly grows beyond 2**47; only the largest blank is one there."""
    seen = read(*(line("PROF_PCIE_RX_BYTES_TOTAL", 2**47 + 10_000 + i * 10**9, AT_MS + i * 1000) for i in range(2)))
    assert seen.measured(1) == {"pcie_rx_bytes_per_s": 1e9}


def test_memory_is_what_can_be_told(read):
    """Memory there is: the total, else used, free and reserved; used from its share only where both others are known."""
    used_free = line("DEV_FB_USED", 100) + line("DEV_FB_FREE", 900)
    assert read(used_free).measured()["mem_total_bytes"] == 1000 * 2**20
    assert read(used_free + line("DEV_FB_RESERVED", 24)).measured()["mem_total_bytes"] == 1024 * 2**20
    share = line("DEV_FB_USED_PERCENT", 0.25) + line("DEV_FB_TOTAL", 1024)
    assert "mem_used_bytes" not in read(share).measured()
    assert read(share + line("DEV_FB_RESERVED", 24)).measured()["mem_used_bytes"] == 250 * 2**20
    assert "mem_used_bytes" not in read(share + line("DEV_FB_RESERVED", 1024)).measured()


def test_energy_gives_the_mean_power(read):
    """Power is the energy drawn since the last scrape over the time between; one scrape alone gives none."""
    texts = [
        line("DEV_TOTAL_ENERGY_CONSUMPTION", 10_000_000 + i * 9_000_000, AT_MS + i * 30_000)
        + line("DEV_POWER_USAGE", 250, AT_MS + i * 30_000)
        for i in range(3)
    ]
    seen = read("".join(texts))
    assert [row["power_w"] for row in seen.samples] == [250, 300, 300]
    assert read(line("DEV_TOTAL_ENERGY_CONSUMPTION", 5, AT_MS)).measured() == {}


def test_energy_set_back_to_0(read):
    """A driver that was loaded anew counts from 0: no power from that step."""
    energies = [10_000_000, 19_000_000, 1_000, 9_001_000]
    seen = read("".join(line("DEV_TOTAL_ENERGY_CONSUMPTION", e, AT_MS + i * 30_000) for i, e in enumerate(energies)))
    assert [row["power_w"] for row in seen.samples] == [None, 300, None, 300]
    assert seen.gaps == {"total of energy_j set back to 0": 1}


def test_no_rate_over_a_gap(read):
    """The mean of a gap is no measurement of its last step."""
    times = [0, 30, 60, 90, 3690, 3720]
    seen = read("".join(line("DEV_TOTAL_ENERGY_CONSUMPTION", t * 300_000, AT_MS + t * 1000) for t in times))
    assert [row["power_w"] for row in seen.samples] == [None, 300, 300, 300, None, 300]


@pytest.mark.parametrize(("kind", "expected"), [("gauge", [5e9, 6e9]), ("counter", [None, 1e9])])
def test_the_type_line_tells_rate_from_total(read, kind, expected):
    """PCIe bytes go by the same name as a rate and as a total."""
    head = f"# HELP DCGM_FI_PROF_PCIE_TX_BYTES bytes\n# TYPE DCGM_FI_PROF_PCIE_TX_BYTES {kind}\n"
    texts = [head + line("PROF_PCIE_TX_BYTES", 5e9 + i * 1e9, AT_MS + i * 1000) for i in range(2)]
    assert [row["pcie_tx_bytes_per_s"] for row in read("".join(texts)).samples] == expected


def test_nvlink_is_the_sum_of_both_directions(read):
    """NVLink counts both directions; one alone is not measured."""
    both = line("PROF_NVLINK_TX_BYTES", 2e9) + line("PROF_NVLINK_RX_BYTES", 3e9)
    assert read(both).measured() == {"nvlink_bytes_per_s": 5e9}
    seen = read(line("PROF_NVLINK_TX_BYTES", 2e9) + line("PROF_NVLINK_L0_TX_BYTES", 1e9))
    assert seen.measured() == {}
    assert seen.gaps["NVLink in one direction only"] == 1


ZEROS = "".join(
    line(f"PROF_{name}", "0.000000")
    for name in ("SM_ACTIVE", "GR_ENGINE_ACTIVE", "DRAM_ACTIVE", "SM_OCCUPANCY", "PIPE_FP32_ACTIVE")
)


@pytest.mark.parametrize("busy", [line("DEV_GPU_UTIL", 5), line("DEV_POWER_USAGE", 351)])
def test_a_profiler_that_reads_0_of_a_working_gpu_is_not_believed(read, busy):
    """All profiled fields 0 while GPU_UTIL or power is high is unknown, never idle."""
    seen = read(ZEROS + busy)
    assert not {name for name in seen.measured() if "active" in name or "occupancy" in name}
    assert seen.gaps == {"PROF fields all 0 while the GPU was at work": 1}


@pytest.mark.parametrize("idle", [line("DEV_GPU_UTIL", 4), line("DEV_POWER_USAGE", 349), ""])
def test_zeros_of_an_idle_gpu_are_zeros(read, idle):
    """Zeros of the profiler stand where nothing speaks against them."""
    assert read(ZEROS + idle).measured().items() >= {"sm_active_share": 0.0, "dram_active_share": 0.0}.items()


def test_sm_active_alone_at_0(read):
    """SM_ACTIVE 0 while the tensor pipes work is SM_ACTIVE that failed."""
    seen = read(line("PROF_SM_ACTIVE", 0) + line("PROF_PIPE_TENSOR_ACTIVE", 0.3))
    assert seen.measured() == {"tensor_active_share": 0.3}


def test_nothing_to_read_says_what_to_do(read):
    """Text without DCGM fields, or without a time, is refused in one line."""
    with pytest.raises(SourceError, match="no DCGM fields"):
        read("go_goroutines 7\n")
    with pytest.raises(SourceError, match="--at"):
        read(line("DEV_GPU_UTIL", 5), at_ms=None)
    with pytest.raises(SourceError, match="empty"):
        read("")


def test_exemplars_are_no_values(read):
    """What OpenMetrics writes behind a value, timed or not, is neither the value nor part of the labels."""
    for time in ("", " 1700000000.0"):
        text = f'DCGM_FI_DEV_GPU_UTIL{{UUID="G"}} 50{time} # {{trace_id="x"}} 1.0 1700000000.0\n# EOF\n'
        assert read(text).measured() == {"busy_share": 0.5}


def test_totals_by_the_name_of_openmetrics(read):
    """OpenMetrics puts _total behind the name of whatever only grows."""
    text = "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES counter\n" + "".join(
        f'DCGM_FI_{name}_total{{UUID="G"}} {step * growth} {1_700_000_000 + 30 * step}.0\n'
        for step in range(2)
        for name, growth in (("DEV_TOTAL_ENERGY_CONSUMPTION", 9_000_000), ("PROF_PCIE_TX_BYTES", 3000))
    )
    assert read(text).measured(1) == {"power_w": 300.0, "pcie_tx_bytes_per_s": 100.0}


def test_a_mask_is_a_whole_number(read):
    """What is no mask is unknown."""
    text = "".join(
        f'DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{UUID="{i}"}} {text}\n' for i, text in enumerate(("4", "-16e66", "1.5"))
    )
    assert [r["throttle_mask"] for r in read(text).samples] == [4]


HOUR_MS = 1_699_999_200_000
BLANK = 9223372036854775794
NAMES = ("DEV_XID_ERRORS", "DEV_ECC_SBE_VOL_TOTAL", "DEV_ECC_DBE_AGG_TOTAL", "DEV_CLOCKS_EVENT_REASONS")


def scrape(step: int, gpu: int = 0, instance: str = "", **values: int) -> str:
    """A scrape of one GPU, `step` times 30 s after the beginning."""
    labels = f'gpu="{gpu}",UUID="GPU-{gpu}"' + (f',GPU_I_ID="{instance}",GPU_I_PROFILE="1g.10gb"' if instance else "")
    fields = {"DEV_GPU_UTIL": 50, **values}
    return "".join(f"DCGM_FI_{name}{{{labels}}} {value} {AT_MS + step * 30_000}\n" for name, value in fields.items())


def decode(text: str, before: tuple[DeviceEvent, ...] = ()) -> list[DeviceEvent]:
    source = Input("log.prom", [text.encode()])
    return [
        DeviceEvent(r["at_utc"], r["device_id"], r["kind"], r["detail"], r["count"] and int(r["count"]))
        for rows in decode_scrapes([source], ReadOptions(events_before=before))
        if isinstance(rows, Rows) and rows.table == "device_events"
        for r in rows.data.to_pylist()
    ]


def test_an_xid_is_one_event_until_the_driver_is_loaded_again() -> None:
    """The gauge repeats its code: an event where it changes, a reset where it goes back; blanks tell nothing."""
    codes = [0, 79, 79, BLANK, 79, 31, 0, 0, 31]
    found = decode("".join(scrape(k, DEV_XID_ERRORS=code) for k, code in enumerate(codes)))
    expected = [(1, "xid", "79", None), (5, "xid", "31", None), (6, "reset", "xid", None), (8, "xid", "31", None)]
    assert [((e.at_ms - AT_MS) // 30_000, e.kind, e.detail, e.count) for e in found] == expected


def test_ecc_errors_are_counted_from_their_totals() -> None:
    """How many were new since the scrape before; a counter that was set back begins again."""
    totals = [0, 2, 2, 5, 1]
    found = decode("".join(scrape(k, DEV_ECC_DBE_VOL_TOTAL=total) for k, total in enumerate(totals)))
    assert [((e.at_ms - AT_MS) // 30_000, e.kind, e.detail, e.count) for e in found] == [
        (1, "ecc", "dbe_volatile", 2),
        (3, "ecc", "dbe_volatile", 3),
        (4, "ecc", "dbe_volatile", 1),
        (4, "reset", "dbe_volatile", None),
    ]


def test_throttling_is_an_event_an_hour_and_reason() -> None:
    """However often a bit comes and goes; being idle is none."""
    masks = [0x1, 0x4, 0x0, 0x4, 0x44]
    found = decode("".join(scrape(k, DEV_CLOCKS_EVENT_REASONS=mask) for k, mask in enumerate(masks)))
    expected = [(HOUR_MS, "throttle", "hw_thermal_slowdown"), (HOUR_MS, "throttle", "sw_power_cap")]
    assert [(e.at_ms, e.kind, e.detail) for e in found] == expected


def test_mig_instances_repeat_the_event_of_their_gpu() -> None:
    """Each instance has a line with the GPU's XID: one event, of the GPU."""
    found = decode("".join(scrape(0, 0, instance, DEV_XID_ERRORS=94) for instance in "12"))
    assert found == [DeviceEvent(AT_MS, "GPU-0", "xid", "94")]


STEP = st.fixed_dictionaries({name: st.sampled_from([0, 0, 1, 4, 79]) for name in NAMES})


@pytest.mark.long
@settings(deadline=None, max_examples=30)
@given(st.lists(STEP, min_size=1, max_size=12), st.sets(st.integers(1, 11)))
def test_a_log_in_pieces_tells_what_the_whole_tells(steps: list[dict[str, int]], cuts: set[int]) -> None:
    """Cut anywhere, read piece by piece with what the books know by then; a piece twice adds nothing."""
    scrapes = [scrape(k, gpu, **step) for k, step in enumerate(steps) for gpu in range(2)]
    bounds = [0, *sorted(2 * cut for cut in cuts if cut < len(steps)), len(scrapes)]
    known: set[DeviceEvent] = set()
    for first, last in pairwise(bounds):
        piece = "".join(scrapes[first:last])
        known |= set(decode(piece, tuple(known)))
        assert set(decode(piece, tuple(known))) <= known
    assert known == set(decode("".join(scrapes)))


@pytest.mark.long
def test_the_books_remember_what_was_told(tmp_path: Path) -> None:
    """A second log that begins with the XID the first one ended with adds no event."""
    books = Books.open(tmp_path / "store", create=True)
    for number, codes in enumerate(([0, 79], [79, 79, 31])):
        path = tmp_path / f"log{number}.prom"
        path.write_text("".join(scrape(10 * number + k, DEV_XID_ERRORS=code) for k, code in enumerate(codes)))
        books.add("dcgm", [path])
    with books.store.read() as session:
        session.view_table("device_events", "device_events")
        rows = session.fetch("SELECT at_utc, detail FROM device_events ORDER BY at_utc").to_pylist()
    assert [((row["at_utc"] - AT_MS) // 30_000, row["detail"]) for row in rows] == [(1, "79"), (12, "31")]
