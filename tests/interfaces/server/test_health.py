"""The reasons of /health: what is wrong, how severe it is, since when, and what to do."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from starlette.testclient import TestClient
from tests.interfaces.server.conftest import LOCAL, Remembering
from tests.live.scrapes import Fleet
from tests.sources.prometheus.sender import SentSeries, pack_request

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import InputError, StoreError
from loadfactor.base.health import HealthReason, Severity, derive_status
from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.collect import live
from loadfactor.collect.live import LiveService
from loadfactor.interfaces.server.alert_service import AlertService
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.digest_service import DigestService
from loadfactor.interfaces.server.guard import Guard
from loadfactor.interfaces.server.retention_service import BUSY_MS, RetentionService
from loadfactor.settings.config import Settings
from loadfactor.store.live import LiveLog
from loadfactor.store.live_database import QUARANTINE
from loadfactor.store.source_status import SourceStatus, explain_status
from loadfactor.store.tokens import TokenFile

GPU = {"__name__": "DCGM_FI_DEV_GPU_TEMP", "gpu": "0", "UUID": "GPU-1", "Hostname": "n", "job": "dcgm"}


def list_reasons(folder: Path, bodies: Sequence[bytes], error: str = "") -> dict[str, Any]:
    """The answer of a service that received these bodies and booked them. `error`: why it cannot make files."""

    def flush() -> int:
        if error:
            raise StoreError(error)
        return 0

    async def run() -> dict[str, Any]:
        with LiveLog.open(folder) as log:
            service = LiveService(folder, flush, log, Settings(), lambda **_: None)
            for body in bodies:
                with suppress(InputError):
                    await service.write(body, "remote_write")
            await asyncio.to_thread(service.collector.ingest, True)
            await service._ingest()
            await asyncio.to_thread(service._flush_rows)
            health = service.health()
            service.collector.close()
            return health

    return asyncio.run(run())


def odd_series() -> dict[str, SentSeries]:
    """Series of one sample that cannot be booked now, by what is odd."""
    at_ms = now_ms()
    return {
        "NaN": SentSeries(GPU | {"__name__": "DCGM_FI_DEV_GPU_UTIL"}, [(at_ms, float("nan"))]),
        "long label": SentSeries(GPU | {"x": "y" * (1 << 20)}, [(at_ms, 40.0)]),
        "year 1970": SentSeries(GPU, [(0, 40.0)]),
        "impossible": SentSeries(GPU | {"__name__": "DCGM_FI_DEV_FB_USED"}, [(at_ms, -7.0)]),
        "ahead of the clock": SentSeries(GPU, [(at_ms + 3 * MS_PER_HOUR, 40.0)]),
    }


@pytest.mark.parametrize("name", odd_series())
def test_an_odd_series_is_a_note_and_leaves_the_status_ok(tmp_path: Path, name: str) -> None:
    """A series that is NaN in every scrape is one note with since when, and the status is ok."""
    good = Fleet(now_ms() - 60_000, gpus=1).bodies(0)
    health = list_reasons(tmp_path, [*good, pack_request([odd_series()[name]])])
    (reason,) = health["reasons"]
    assert (health["status"], reason["severity"], reason["source"]) == ("ok", "note", "remote_write")
    assert reason["since_utc"]
    assert reason["action"]
    assert {source["status"] for source in health["sources"]} == {"ok"}


def test_a_refused_request_degrades_the_server(tmp_path: Path) -> None:
    """Bytes that are no request are refused: what they held is in no books, so the status is degraded for a while."""
    health = list_reasons(tmp_path, [b"no request"])
    (reason,) = health["reasons"]
    assert (health["status"], reason["severity"]) == ("degraded", "degraded")
    assert "a request was refused" in reason["cause"]


def test_a_flush_that_waits_for_another_command_is_a_note_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that stay live for a moment are a note; for longer than a quarter of an hour they degrade the server."""
    health = list_reasons(tmp_path, [], "another import is writing")
    (reason,) = health["reasons"]
    assert (health["status"], reason["component"], reason["severity"]) == ("ok", "store", "note")
    monkeypatch.setattr(live, "BUSY_MS", -1)
    assert list_reasons(tmp_path, [], "another import is writing")["status"] == "degraded"


def test_payloads_set_aside_by_an_earlier_process_are_a_note(tmp_path: Path) -> None:
    """Two files in quarantine/ since before the start are counted, and the status is ok."""
    (tmp_path / QUARANTINE).mkdir()
    for number in (1, 2):
        (tmp_path / QUARANTINE / f"body-{number}").write_bytes(b"x")
    health = list_reasons(tmp_path, [])
    (reason,) = health["reasons"]
    assert (health["status"], health["set_aside"], reason["severity"]) == ("ok", 2, "note")
    assert "quarantine" in reason["cause"]


def test_a_payload_set_aside_now_degrades_the_server_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload that no decoder survives is lost from the books: degraded for 24 hours, then a note."""

    async def run() -> None:
        passed_s = [0.0]
        with LiveLog.open(tmp_path) as log:
            service = LiveService(tmp_path, lambda: 0, log, Settings(), lambda **_: None)
            service.collector.sent.quarantined.append(tmp_path / QUARANTINE / "body-1")
            await service._ingest()
            assert service.health()["status"] == "degraded"
            later = SimpleNamespace(monotonic=lambda: live_time.monotonic() + passed_s[0], time=live_time.time)
            monkeypatch.setattr(live, "time", later)
            passed_s[0] = live.ASIDE_S
            assert service.health()["status"] == "ok"
            assert [reason.severity for reason in service.reasons()] == ["note"]
            service.collector.close()

    live_time = live.time
    asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "severity"),
    [("failing", "degraded"), ("degraded", "degraded"), ("silent", "degraded"), ("absent", "note"), ("ok", "note")],
)
def test_a_source_that_is_not_well_degrades_the_server(status: str, severity: str) -> None:
    """One source that fails is degraded, not failing: the others are collected. One that is not permitted is a note."""
    reason = explain_status(SourceStatus("dcgm a", status, None, "no answer", 1_772_409_600_000))
    assert reason is not None
    assert (reason.component, reason.source, reason.severity) == ("collector", "dcgm a", severity)
    assert reason.since_utc == "2026-03-02T00:00:00.000Z"


def test_a_backup_that_fails_is_named_as_one() -> None:
    """The component of `backup /mnt/books` is backup."""
    reason = explain_status(SourceStatus("backup /mnt/books", "failing", None, "the folder cannot be written"))
    assert reason is not None
    assert (reason.component, reason.severity) == ("backup", "degraded")


def test_a_source_that_is_well_is_no_reason() -> None:
    """Nothing is said of it."""
    assert explain_status(SourceStatus("dcgm a", "ok")) is None


@pytest.mark.parametrize("severity", get_args(Severity))
def test_the_status_is_that_of_the_most_severe_reason(severity: Severity) -> None:
    """Notes leave it ok."""
    reasons = [HealthReason("store", None, each, "why", None, "do") for each in ("note", severity)]
    assert derive_status(reasons) == ("ok" if severity == "note" else severity)


@pytest.mark.parametrize("service", ["alerts", "digests", "retention"])
def test_every_service_of_the_server_is_in_health(service: str, empty: Books) -> None:
    """Alerts that are not judged, digests that are not sent and rows that are not dropped are reasons with since when."""
    services: dict[str, Any] = {
        "alerts": AlertService(empty, Settings(), "http://here"),
        "digests": DigestService(empty, Settings(), "http://here"),
        "retention": RetentionService(empty, lambda **_: None),
    }
    app = make_app(empty, Remembering(), Guard(TokenFile(empty.store.folder)), **services)
    with TestClient(app, LOCAL, client=("127.0.0.1", 5000)) as client:
        assert client.get("/health").json()["reasons"] == []
        trouble = services[service]._trouble
        trouble.note("the disk is full")
        trouble.since_ms -= BUSY_MS + 1
        before_ms = trouble.since_ms
        trouble.note("the disk is still full")
        assert trouble.since_ms == before_ms
        health = client.get("/health").json()
        (reason,) = health["reasons"]
        assert (health["status"], reason["component"], reason["cause"]) == (
            "degraded",
            service,
            "the disk is still full",
        )
        trouble.note("")
        assert client.get("/health").json()["status"] == "ok"
    for name in ("alerts", "digests"):
        services[name].stop()
