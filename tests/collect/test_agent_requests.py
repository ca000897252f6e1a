"""Bodies that the agent packs are what every receiver of remote_write reads."""

import cramjam
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.sources.prometheus.remote_write import RemoteWriteScanner, WriteLimits
from loadfactor_agent.write_request import Labels, SeriesValues, SnappyBlock, pack_readings

TEXTS = st.text('abcdé\U0001f600 ="\\', max_size=90)
LABELS = st.dictionaries(st.sampled_from(["A", "UUID", "gpu", "pod", "zone"]), TEXTS, max_size=5).map(Labels)
VALUES = st.dictionaries(
    st.sampled_from(["up", "DCGM_FI_DEV_GPU_UTIL", "x" * 70]), st.floats(allow_nan=False), max_size=3
)
READINGS = st.builds(SeriesValues, LABELS, st.integers(1_000_000_000_000, 4_000_000_000_000), VALUES)


def scan(body: bytes) -> list[tuple[list[tuple[str, str]], int, float]]:
    """Samples as the server reads them: labels, instant and value of each sample."""
    seen: list[dict[str, str]] = []

    def identify(name: str, others: tuple[str, ...]) -> int:
        seen.append({"__name__": name, **dict(zip(others[::2], others[1::2], strict=True))})
        return len(seen) - 1

    points = RemoteWriteScanner(identify, WriteLimits()).scan(body)
    return [(sorted(seen[s].items()), int(t), float(v)) for s, t, v in zip(*points, strict=True)]


@settings(deadline=None)
@given(st.lists(READINGS, max_size=12))
def test_server_reads_what_was_packed(readings: list[SeriesValues]) -> None:
    """Every sample arrives with its labels, instant and value, whatever they are."""
    sent = [
        (sorted({"__name__": name, **dict(labels.pairs)}.items()), at_ms, value)
        for labels, at_ms, values in readings
        for name, value in values.items()
    ]
    assert sorted(scan(pack_readings(readings)), key=repr) == sorted(sent, key=repr)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=300)), max_size=30), st.integers(0, 70_000))
def test_any_snappy_unpacks_the_block(parts: list[tuple[bool, bytes]], far: int) -> None:
    """A block with parts that repeat, near and far, is read by another's snappy."""
    block, whole = SnappyBlock(), b""
    for known, part in [*parts, (False, bytes(far)), *parts]:
        (block.add_known if known else block.add)(part)
        whole += part
    assert bytes(cramjam.snappy.decompress_raw(block.finish())) == whole


def test_nan_is_not_sent() -> None:
    """Unknown values are not sent."""
    readings = [SeriesValues(Labels({"gpu": "0"}), 1_772_409_600_000, {"a": float("nan"), "b": 1.0})]
    assert scan(pack_readings(readings)) == [([("__name__", "b"), ("gpu", "0")], 1_772_409_600_000, 1.0)]


def test_labels_that_repeat_cost_little() -> None:
    """Eight GPUs with thirty metrics fit in a third of what they are unpacked."""
    readings = [
        SeriesValues(
            Labels({"UUID": f"GPU-{gpu:08x}-0000-4000-8000-000000000000", "Hostname": "node-001", "gpu": str(gpu), "job": "x" * 60,
                    "modelName": "NVIDIA H100 80GB HBM3", "hpc_job": "4711", "user": "ana", "pci_bus_id": "00000000:01:00.0"}),
            1_772_409_600_000,
            {f"DCGM_FI_DEV_{metric}": 1.0 for metric in range(30)},
        )
        for gpu in range(8)
    ]  # fmt: skip
    body = pack_readings(readings)
    assert len(body) * 3 < len(cramjam.snappy.decompress_raw(body))
