"""Writes while the process is not ready to read them, or is busy making rows."""

import asyncio
import threading
from pathlib import Path

import pytest
from tests.collect.test_bad_records import FLEET, times

from loadfactor.base.errors import StoreError
from loadfactor.collect import collector as collecting
from loadfactor.store.live import LiveLog


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
