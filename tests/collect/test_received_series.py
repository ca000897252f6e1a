"""Series that are received: holders that the agent sends, overlapping answers, writes that wait, series that come and go."""

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import cramjam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.collect.test_bad_records import FLEET, times
from tests.sources.prometheus.sender import SentSeries, pack_request
from tests.sources.prometheus.streams import AT_MS, STEP_MS, series

from loadfactor.base.errors import StoreError
from loadfactor.collect import collector as collecting
from loadfactor.collect import sample_stream as taken_points
from loadfactor.collect.sample_stream import KNOWN_MS, SampleStream, TakenPoints
from loadfactor.sources.base import Rows
from loadfactor.sources.prometheus import decoder
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.gpu_source import UNTIL_SECOND_MS
from loadfactor.sources.prometheus.remote_write import Points, RemoteWriteScanner, WriteLimits
from loadfactor.store.live import LiveLog, ReceivedBody, read_live
from loadfactor_agent.holder import RUNS, Holder
from loadfactor_agent.write_request import Labels, SeriesValues, SnappyBlock, pack_readings

BEGAN_MS = 1_772_409_600_000


def allocate(*holders: Holder) -> list[dict[str, object]]:
    """The last allocations of a GPU that these held together for three scrapes."""
    return follow(holders, holders, holders)


def follow(*scrapes: Sequence[Holder]) -> list[dict[str, object]]:
    """The last allocations of a GPU that was held so at each scrape."""
    return take(PrometheusDecoder(), [read_gpu(k, holder) for k, holders in enumerate(scrapes) for holder in holders])


def read_gpu(scrape: int, holder: Holder) -> SeriesValues:
    facts = {"UUID": "GPU-1", "gpu": "0", "Hostname": "n1", "job": "agent"}
    at_ms = BEGAN_MS + scrape * 10_000
    return SeriesValues(Labels({**facts, **holder.labels()}), at_ms, {"DCGM_FI_DEV_FB_TOTAL": 80_000.0})


def take(decoder: PrometheusDecoder, readings: Sequence[SeriesValues]) -> list[dict[str, object]]:
    """The allocations that a decoder makes of readings."""
    decoder.feed(RemoteWriteScanner(decoder.identify_series, WriteLimits()).scan(pack_readings(list(readings))), 1, 0.0)
    rows = [item for item in decoder.drain(None) if isinstance(item, Rows) and item.table == "allocations"]
    return sorted((row for item in rows for row in item.data.to_pylist()), key=lambda row: str(row["job_id"]))


def test_user_and_experiment_are_kept() -> None:
    """A Slurm job comes with its user and the experiment it is a run of."""
    (row,) = allocate(Holder(job="4711", user="ana", experiment="lr-sweep"))
    assert (row["job_id"], row["user"], row["experiment_id"]) == ("4711", "ana", "lr-sweep")


def test_pod_has_its_namespace_as_team() -> None:
    """A pod is named with its namespace, which is its team."""
    (row,) = allocate(Holder(pod="llm-0", namespace="research", experiment="e"))
    assert (row["job_id"], row["team"], row["user"], row["experiment_id"]) == ("research/llm-0", "research", None, "e")


def test_holders_of_one_gpu_share_it() -> None:
    """Two jobs on one GPU hold half of it each, each with its own user."""
    rows = allocate(Holder(job="1", user="ana"), Holder(job="2", user="bo"))
    assert [(row["job_id"], row["share"], row["user"]) for row in rows] == [("1", 0.5, "ana"), ("2", 0.5, "bo")]


def test_pod_stays_one_job_when_its_container_becomes_known() -> None:
    """A pod whose first samples were read before the kubelet said more is one allocation from its beginning."""
    unknown, known = Holder(pod="llm-0", namespace="a"), Holder(pod="llm-0", namespace="a", container="trainer")
    rows = follow([unknown], [unknown], [known], [known])
    assert {row["job_id"] for row in rows} == {"a/llm-0"}
    assert len({row["from_utc"] for row in rows}) == 1


def test_pods_that_share_a_gpu_hold_half_of_it() -> None:
    """Two pods with replicas of one GPU share it, whether or not they run anything."""
    rows = allocate(*(Holder(pod=f"llm-{k}", namespace="a", container="c") for k in range(2)))
    assert [(row["job_id"], row["share"]) for row in rows] == [("a/llm-0", 0.5), ("a/llm-1", 0.5)]


def read_tags(row: dict[str, object]) -> dict[str, str]:
    tags: dict[str, str] = json.loads(str(row["tags"] or "{}"))
    return tags


def test_environment_of_a_job_becomes_tags() -> None:
    """Every variable that says a run, and others by name; of a job that says none there are no tags."""
    said = (*((name.lower(), "v") for name in RUNS), ("job_env_sweep", "7"))
    (row,) = allocate(Holder(job="4711", variables=said))
    trackers = {"wandb.project", "wandb.run_group", "wandb.run_id"}
    trackers |= {"mlflow.experiment_id", "mlflow.experiment_name", "mlflow.run_id"}
    assert read_tags(row) == dict.fromkeys(trackers, "v") | {"env.SWEEP": "7"}
    assert allocate(Holder(job="4711"))[0]["tags"] is None


def test_processes_of_a_job_need_not_all_say_its_run() -> None:
    """A launcher without a run and a worker with one hold the GPU as one job, with what both say; of two runs the first counts."""
    launcher = Holder(job="1", user="ana")
    worker, other = (Holder(job="1", experiment=name, variables=(("wandb_run_id", name),)) for name in "ab")
    (row,) = follow([launcher, worker], [launcher, worker], [launcher, worker])
    assert (row["user"], row["experiment_id"], read_tags(row), row["share"]) == (
        "ana",
        "a",
        {"wandb.run_id": "a"},
        None,
    )
    (row,) = follow([worker], [other], [other])
    assert read_tags(row) == {"wandb.run_id": "a"}


def test_run_that_is_known_later_counts_from_the_beginning() -> None:
    """A job whose first process says nothing is one allocation, with the tags of the next one."""
    decoder = PrometheusDecoder()
    job, run = Holder(job="1"), Holder(job="1", variables=(("mlflow_run_id", "1f"),))
    seen = [take(decoder, [read_gpu(k, holder)]) for k, holder in enumerate([job, job, run, run])]
    assert [row["tags"] for rows in seen for row in rows][-1] == '{"mlflow.run_id": "1f"}'
    assert len({row["from_utc"] for rows in seen[1:] for row in rows}) == 1  # seen with the second scrape


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


@pytest.mark.long
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


MINUTE_MS = 60_000


def make(*points: tuple[int, int]) -> Points:
    """Points by series and minute."""
    series, minutes = zip(*points, strict=True) if points else ((), ())
    at_ms = np.array(minutes, np.int64) * MINUTE_MS
    return Points(np.array(series, np.int32), at_ms, np.zeros(len(points)))


def read(points: Points) -> list[tuple[int, int]]:
    """The same as pairs."""
    return sorted(zip(points.series.tolist(), (points.at_ms // MINUTE_MS).tolist(), strict=True))


def test_a_point_that_a_server_stored_late_fills_its_hole() -> None:
    """It is older than points of its series that were taken; asked for again, it counts, once."""
    taken = TakenPoints()
    assert read(taken.pick_new(make((0, 11), (0, 13), (1, 12)), 10 * MINUTE_MS)) == [(0, 11), (0, 13), (1, 12)]
    again = make((0, 11), (0, 12), (0, 13), (1, 12), (0, 14))
    assert read(taken.pick_new(again, 13 * MINUTE_MS)) == [(0, 12), (0, 14)]
    assert read(taken.pick_new(again, 14 * MINUTE_MS)) == []


def test_what_an_earlier_process_took_is_not_taken_again() -> None:
    """Points before the first answer of this one."""
    taken = TakenPoints()
    taken.pick_new(make((0, 11)), 10 * MINUTE_MS)
    assert read(taken.pick_new(make((0, 9), (0, 10), (0, 11), (0, 12)), 11 * MINUTE_MS)) == [(0, 12)]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(0, 12)), max_size=80),
    st.sampled_from([5, 1_000_000]),
)
def test_every_point_is_taken_once(stored: list[tuple[int, int, int]], most: int) -> None:
    """Each of those that were there within the overlap after their time, where few are known; never one twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taken_points, "MOST_KNOWN", most)
        taken, found = TakenPoints(), list[tuple[int, int]]()
        overlap = KNOWN_MS // MINUTE_MS
        there = {(series, minute): minute + late for series, minute, late in stored}
        for now in range(1, 60):
            answer = [point for point, at in there.items() if at <= now and now - 1 - overlap < point[1] <= now]
            found += read(taken.pick_new(make(*answer), (now - 1) * MINUTE_MS))
    assert len(found) == len(set(found))
    if most > len(stored):
        assert set(found) == {point for point, at in there.items() if at - point[1] <= overlap}


def test_a_write_before_the_scanner_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused after a while, to be sent again; once the scanner is there it is taken."""
    compiled = threading.Event()
    monkeypatch.setattr(collecting, "compile_scanner", compiled.wait)
    monkeypatch.setattr(collecting, "READY_WAIT_S", 0.01)
    with LiveLog.open(tmp_path) as log:
        collector = collecting.LiveCollector(log)
        body, *_ = FLEET.bodies(0)

        async def write() -> None:
            with pytest.raises(StoreError, match="getting ready"):
                await collector.write(body)
            compiled.set()
            monkeypatch.setattr(collecting, "READY_WAIT_S", 60.0)
            await collector.write(body)

        asyncio.run(write())
        collector.ingest(everything=True)
        collector.close()
    assert times(tmp_path)


def test_a_write_while_rows_are_made(tmp_path: Path) -> None:
    """It waits in a thread, and others are answered meanwhile."""
    with LiveLog.open(tmp_path) as log:
        collector = collecting.LiveCollector(log)
        body, *_ = FLEET.bodies(0)
        stream = collector.stream("remote_write")

        async def write() -> None:
            with stream._lock:  # as `book` holds it
                written = asyncio.create_task(collector.write(body))
                await asyncio.sleep(0.05)
                assert not written.done()
            await written

        asyncio.run(write())
        collector.ingest(everything=True)
        collector.close()
    assert times(tmp_path)


SCRAPES, GPUS = 24, 3
FIELDS = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_XID_ERRORS")


def make_bodies() -> list[bytes]:
    """Scrapes of some GPUs, a body each, whose pods are others every second time."""
    bodies = []
    for scrape in range(SCRAPES):
        at_ms = AT_MS + scrape * STEP_MS
        values = (50.0, 3e6 * scrape * (scrape + 1), 31.0 if scrape > SCRAPES // 2 else 0.0)
        for gpu in range(GPUS):
            pod = {"pod": f"p{gpu}-{scrape // 2}", "namespace": "team"}
            sent = [SentSeries(series(f, gpu, **pod), [(at_ms, v)]) for f, v in zip(FIELDS, values, strict=True)]
            bodies.append(pack_request(sent))
    return bodies


def run(folder: Path) -> tuple[dict[str, dict[tuple[object, ...], dict[str, object]]], int]:
    """The rows that readers see of these bodies, by table and key, and how often the decoder was made anew."""
    folder.mkdir()
    decoders = set()
    with LiveLog.open(folder) as log:
        stream = SampleStream("remote_write", log, None, ())
        for number, body in enumerate(make_bodies()):
            kept = ReceivedBody("remote_write", "remote_write", AT_MS + SCRAPES * STEP_MS, body)
            stream.receive(kept, float(number)).number.result()
            stream.ingest(number - GPUS - 0.5)  # what came last always waits
            decoders.add(stream._decoder)
        stream.ingest(None)
        assert stream.waiting == 0
        assert not list(log.received())
    rows: dict[str, dict[tuple[object, ...], dict[str, object]]] = {}
    for _, batch in read_live(folder, 0):
        for row in batch.rows.to_pylist():
            names = ("device_id", "job_id", "from_utc") if "job_id" in row else ("device_id", "at_utc", "to_utc")
            names = ("device_id", "from_utc") if batch.table == "devices" else names
            key = tuple(row.get(name) for name in names)
            known = {name: value for name, value in row.items() if value is not None}
            table = rows.setdefault(batch.table, {})
            assert batch.table != "samples" or key not in table  # each once
            table[key] = {**table.get(key, {}), **known}
    for name in (
        "devices",
        "allocations",
    ):  # what was read by itself before the second scrape is in what was seen with that
        rows[name] = {k: row for k, row in rows[name].items() if row["from_utc"] != AT_MS - UNTIL_SECOND_MS}
    return rows, len(decoders)


@pytest.mark.long
def test_series_that_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples with their rates, devices, allocations and events are those of a stream that never forgot a series."""
    expected, decoders = run(tmp_path / "whole")
    assert decoders == 1
    assert len(expected["samples"]) == SCRAPES * GPUS
    assert sum("power_w" in row for row in expected["samples"].values()) == (SCRAPES - 1) * GPUS
    monkeypatch.setattr(decoder, "SERIES_MAX", 4)
    found, decoders = run(tmp_path / "churn")
    assert decoders > 3
    assert found == expected
