"""A metric stream whose bucket answers and gets nothing new."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from loadfactor.collect.metric_stream import NEWEST, SILENT_S, MetricStreamWatch
from loadfactor.store.source_status import SourceStatus


def watch_nothing(newest_s: int) -> SourceStatus:
    """How a stream fares of which the newest object is this old, in a bucket that lists nothing new."""

    async def take(_body: bytes) -> None:
        raise AssertionError("there is nothing to keep")

    async def watch() -> SourceStatus:
        bucket = SimpleNamespace(list_after=lambda _key: [])
        stream = MetricStreamWatch("cloudwatch prod", bucket, 0.05, 0, {NEWEST: str(newest_s)}, take)  # type: ignore[arg-type]
        task = asyncio.create_task(stream.run())
        while stream.statuses()[0].status == "waiting":
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return stream.statuses()[0]

    return asyncio.run(watch())


@pytest.mark.parametrize(("before_s", "status"), [(60, "ok"), (SILENT_S + 60, "silent")])
def test_a_stream_that_writes_no_more_is_silent(before_s: int, status: str) -> None:
    """From when its last object was written, with what to look at."""
    newest_s = int(time.time()) - before_s
    said = watch_nothing(newest_s)
    assert said.status == status
    assert (said.since_ms == newest_s * 1000) is (status == "silent")
    assert ("no object was written since" in (said.error or "")) is (status == "silent")


def test_a_stream_of_which_nothing_was_ever_read_is_not_silent() -> None:
    """It may not have begun."""
    assert watch_nothing(0).status == "ok"
