"""Series that come and go: a stream forgets them by going on from its own state, and nothing is lost or counted twice."""

from pathlib import Path

import pytest
from tests.sources.prometheus.sender import SentSeries, pack_request
from tests.sources.prometheus.streams import AT_MS, STEP_MS, series

from loadfactor.collect.sample_stream import SampleStream
from loadfactor.sources.prometheus import decoder
from loadfactor.store.live import LiveLog, ReceivedBody, read_live

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
    return rows, len(decoders)


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
