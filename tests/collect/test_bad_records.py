"""Bad records: acknowledged, impossible to decode, quarantined and counted, while everything else is ingested."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.scrapes import Fleet
from tests.sources.prometheus.sender import SentSeries, pack_request

from loadfactor.base.errors import BusyError
from loadfactor.base.units import MS_PER_HOUR
from loadfactor.collect.collector import LiveCollector
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.remote_write import Points
from loadfactor.store.live import LiveLog, read_live

NOW_MS = 1_772_409_600_000
FLEET = Fleet(NOW_MS - MS_PER_HOUR, gpus=2)
BAD_VALUE = 666.0


@pytest.fixture
def bad_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder with a defect: it fails on the value 666."""
    feed, drain = PrometheusDecoder.feed, PrometheusDecoder.drain

    def bad_feed(self: Any, points: Points, payload: int, arrived_s: float) -> None:
        self.is_broken = getattr(self, "is_broken", False) or BAD_VALUE in points.value
        feed(self, points, payload, arrived_s)

    def bad_drain(self: Any, complete_s: float | None) -> Iterator[Any]:
        yield from drain(self, complete_s)
        if getattr(self, "is_broken", False):
            raise ZeroDivisionError("a defect")

    monkeypatch.setattr(PrometheusDecoder, "feed", bad_feed)
    monkeypatch.setattr(PrometheusDecoder, "drain", bad_drain)


def bad_payload() -> bytes:
    labels = {"__name__": "DCGM_FI_DEV_GPU_TEMP", "gpu": "0", "UUID": "GPU-bad", "Hostname": "n", "job": "dcgm"}
    return pack_request([SentSeries(labels, [(NOW_MS, BAD_VALUE)])])


def write(collector: LiveCollector, *bodies: bytes) -> None:
    """Each is acknowledged when this returns."""
    for body in bodies:
        asyncio.run(collector.write(body))


def times(folder: Path) -> list[int]:
    """The times of the samples that readers see, of all devices."""
    batches = [b.rows for _, b in read_live(folder, 0) if b.table == "samples"]
    return sorted(t for rows in batches for t in rows["to_utc"].to_pylist())


@pytest.mark.usefixtures("bad_record")
def test_a_payload_that_cannot_be_decoded_is_quarantined(tmp_path: Path) -> None:
    """All others are booked once, before and after it; it lies in the quarantine as it came."""
    with LiveLog.open(tmp_path) as log:
        collector = LiveCollector(log, lambda: NOW_MS)
        write(collector, *(b for k in range(3) for b in FLEET.bodies(k)))
        collector.ingest(everything=True)
        write(collector, *FLEET.bodies(3), bad_payload(), *FLEET.bodies(4))
        collector.ingest(everything=True)
        assert [path.read_bytes() for path in collector.quarantined] == [bad_payload()]
        assert {path.parent.name for path in collector.quarantined} == {"quarantine"}
        write(collector, *FLEET.bodies(5))
        collector.ingest(everything=True)
        assert times(tmp_path) == sorted(FLEET.at_ms(k) for k in range(6) for _ in range(2))
        assert collector.lag_s == 0
        assert log.received_bytes == 0
        collector.close()


@pytest.mark.usefixtures("bad_record")
def test_a_bad_record_of_an_earlier_process_does_not_keep_the_next_from_starting(tmp_path: Path) -> None:
    """It is quarantined at the first ingest; the rest that was left is ingested."""
    with LiveLog.open(tmp_path) as log:
        collector = LiveCollector(log, lambda: NOW_MS)
        write(collector, *FLEET.bodies(0), bad_payload(), *FLEET.bodies(1))
        collector.close()
    with LiveLog.open(tmp_path) as log:
        collector = LiveCollector(log, lambda: NOW_MS)
        assert collector.lag_s > 0
        collector.ingest(everything=True)
        assert len(collector.quarantined) == 1
        assert times(tmp_path) == sorted(FLEET.at_ms(k) for k in range(2) for _ in range(2))
        collector.close()


def test_a_field_that_cannot_be_true_costs_the_others_nothing(tmp_path: Path) -> None:
    """Shares of 250 % and below 0 of an exporter that is broken are left out and counted; what is beside them is booked."""
    labels = {"gpu": "0", "UUID": "GPU-odd", "Hostname": "n", "job": "dcgm"}
    values = {"DEV_GPU_UTIL": 60.0, "DEV_FB_USED": -7.0, "PROF_SM_ACTIVE": 2.5, "DEV_GPU_TEMP": float("nan")}
    odd = [SentSeries({"__name__": f"DCGM_FI_{n}", **labels}, [(FLEET.at_ms(0), v)]) for n, v in values.items()]
    with LiveLog.open(tmp_path) as log:
        collector = LiveCollector(log, lambda: NOW_MS)
        write(collector, pack_request(odd), *FLEET.bodies(0))
        collector.ingest(everything=True)
        rows = [row for _, b in read_live(tmp_path, 0) if b.table == "samples" for row in b.rows.to_pylist()]
        (row,) = [row for row in rows if row["device_id"] == "GPU-odd"]
        assert (row["busy_share"], row["sm_active_share"], row["mem_used_bytes"]) == (0.6, None, None)
        assert len(rows) == 3
        assert collector.skipped == {"impossible": 2, "not_finite": 1}
        assert "mem_used_bytes -7340032.0 of GPU-odd" in str(collector.sent.skipped.list_missed())
        assert not collector.quarantined
        assert log.received_bytes == 0
        collector.close()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.0**47])
def test_a_scrape_of_nothing_but_what_is_no_value_is_no_bad_record(tmp_path: Path, value: float) -> None:
    """It is counted, and what came with it is booked: nothing is put into quarantine."""
    gpu = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "UUID": "GPU-odd", "Hostname": "n", "job": "dcgm"}
    with LiveLog.open(tmp_path) as log:
        collector = LiveCollector(log, lambda: NOW_MS)
        write(collector, pack_request([SentSeries(gpu, [(NOW_MS - 30_000, 50.0)])]))
        collector.ingest(everything=True)
        write(collector, pack_request([SentSeries(gpu, [(NOW_MS, value), (NOW_MS - 60_000, 40.0)])]))
        collector.ingest(everything=True)
        assert not collector.quarantined
        assert times(tmp_path) == [NOW_MS - 60_000, NOW_MS - 30_000]
        collector.close()


def test_a_stream_that_cannot_be_ingested_hinders_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised when all others were booked."""
    with LiveLog.open(tmp_path) as log:
        collector = LiveCollector(log, lambda: NOW_MS)
        first = collector.stream("a first one")
        monkeypatch.setattr(first, "ingest", lambda _complete: 1 / 0)
        collector._streams = dict(sorted(collector._streams.items()))
        write(collector, *FLEET.bodies(0))
        with pytest.raises(ZeroDivisionError):
            collector.ingest(everything=True)
        assert times(tmp_path) == [FLEET.at_ms(0)] * 2
        collector.close()


@pytest.mark.parametrize("jump_ms", [-MS_PER_HOUR, MS_PER_HOUR])
def test_a_clock_that_jumps_an_hour_loses_and_doubles_nothing(tmp_path: Path, jump_ms: int) -> None:
    """Samples before, during and after the jump are booked once, across a restart."""
    clock = [NOW_MS]
    for run in range(3):
        clock[0] = NOW_MS + (jump_ms if run == 1 else 0)
        with LiveLog.open(tmp_path) as log:
            collector = LiveCollector(log, lambda: clock[0])
            near = Fleet(NOW_MS - 15_000 + run * 60_000, gpus=2)
            write(collector, *(b for k in range(4) for b in near.bodies(k)))
            collector.ingest(everything=run != 1)
            collector.close()
    with LiveLog.open(tmp_path) as log:
        collector = LiveCollector(log, lambda: NOW_MS)
        collector.ingest(everything=True)
        collector.close()
    assert times(tmp_path) == sorted(NOW_MS + k * 15_000 for k in range(12) for _ in range(2))


@pytest.mark.parametrize("behind_h", [3, 50 * 365 * 24])
def test_a_clock_that_is_behind_loses_nothing(tmp_path: Path, behind_h: int) -> None:
    """What comes from ahead is acknowledged and reported, and booked once when the clock is there, across a restart."""
    clock = [NOW_MS - behind_h * MS_PER_HOUR]
    with LiveLog.open(tmp_path) as log:
        collector = LiveCollector(log, lambda: clock[0])
        write(collector, *(b for k in range(6) for b in FLEET.bodies(k)))
        collector.ingest(everything=True)
        assert times(tmp_path) == []
        assert "12 requests wait until it is there" in str(collector.sent.find_ahead())
        collector.close()
    with LiveLog.open(tmp_path) as log:
        collector = LiveCollector(log, lambda: clock[0])
        clock[0] = NOW_MS
        write(collector, *FLEET.bodies(6))
        collector.ingest(everything=True)
        collector.ingest(everything=True)
        assert times(tmp_path) == sorted(FLEET.at_ms(k) for k in range(7) for _ in range(2))
        assert log.received_bytes == 0
        assert collector.skipped == {}
        assert collector.sent.find_ahead() is None
        collector.close()


def test_samples_from_ahead_beside_those_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is 3 h ahead delays nothing; with no room to hold more its samples are skipped and counted."""
    now, ahead = Fleet(NOW_MS - 60_000, gpus=1), Fleet(NOW_MS + 3 * MS_PER_HOUR, gpus=2)

    def mix(k: int) -> bytes:
        return pack_request([*now.series(k), *ahead.series(k)])

    with LiveLog.open(tmp_path) as log:
        clock = [NOW_MS]
        collector = LiveCollector(log, lambda: clock[0])
        write(collector, mix(0), mix(1))
        collector.ingest(everything=True)
        assert times(tmp_path) == [now.at_ms(0), now.at_ms(1)]
        assert "3.0 hours ahead" in str(collector.sent.find_ahead())
        monkeypatch.setattr("loadfactor.collect.sample_stream.HELD_BYTES", 0)
        write(collector, mix(2))
        assert list(collector.skipped) == ["ahead"]
        with pytest.raises(BusyError, match="no more of them can be held"):
            write(collector, *ahead.bodies(3))
        clock[0] = ahead.at_ms(1)
        collector.ingest(everything=True)
        booked = [*(now.at_ms(k) for k in range(3)), *(ahead.at_ms(k) for k in range(2) for _ in range(2))]
        assert times(tmp_path) == sorted(booked)
        assert log.received_bytes == 0
        collector.close()
