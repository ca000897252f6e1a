"""Sources that are collected of the configured clouds, and a metric stream whose bucket gets nothing new."""

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from loadfactor.base.errors import InputError
from loadfactor.collect.discovery.cluster_check import list_questions
from loadfactor.collect.live import LiveService
from loadfactor.collect.metric_stream import NEWEST, SILENT_S, MetricStreamWatch
from loadfactor.collect.polling import PolledSource
from loadfactor.settings.config import read_settings
from loadfactor.store.live import LiveLog
from loadfactor.store.source_status import SourceStatus


def test_metrics_instances_and_streams_of_each_account_and_project(tmp_path: Path) -> None:
    """Where a stream is read no metric is asked for; instances are asked for unless somebody says otherwise."""
    path = tmp_path / "loadfactor.toml"
    path.write_text(
        '[[cloudwatch]]\nname = "asked"\n'
        '[[cloudwatch]]\nname = "streamed"\nstream = "s3://metrics/gpus/"\nevery = "5min"\nbackfill = "1d"\n'
        '[[cloudwatch]]\nname = "metrics"\ninstances = false\n'
        '[[gcp-monitoring]]\nproject = "p"\n'
    )
    settings = read_settings(path)
    with LiveLog.open(tmp_path) as log:
        service = LiveService(tmp_path, lambda: 0, log, settings, lambda **_fields: None)
        assert [pull.name for pull in service._pulls] == ["cloudwatch asked", "cloudwatch metrics", "gcp-monitoring p"]
        *instances, stream = service._polled
        assert (stream.stream_id, stream._every_s) == ("metric-stream streamed", 300)
        assert (stream._objects.bucket, stream._objects.prefix) == ("metrics", "gpus/")  # type: ignore[attr-defined]
        names = [source.stream_id for source in instances]
        assert names == list(list_questions(settings)) == ["ec2 asked", "ec2 streamed", "gce p"]
        service.collector.close()
    assert settings.cloudwatch[1].backfill.s == 86_400
    path.write_text('[[cloudwatch]]\nstream = "https://metrics/gpus/"\n')
    with pytest.raises(InputError, match="stream"):
        read_settings(path)


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


def test_a_poll_that_is_under_way_is_waited_for() -> None:
    """A source has ended when its thread has: the process may not end beside it."""

    class Slow(PolledSource):
        began, ended = threading.Event(), threading.Event()

        def poll(self) -> None:
            self.began.set()
            self._stopped.wait()
            time.sleep(0.2)  # as what is under way takes a moment
            self.ended.set()

    async def run() -> None:
        source = Slow("slow", ("",), 1.0, None)
        task = asyncio.create_task(source.run())
        await asyncio.to_thread(source.began.wait)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert source.ended.is_set()

    asyncio.run(run())
