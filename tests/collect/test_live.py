"""Which sources are collected of the clouds that the configuration names."""

from pathlib import Path

import pytest

from loadfactor.base.errors import InputError
from loadfactor.collect.discovery.cluster_check import list_questions
from loadfactor.collect.live import LiveService
from loadfactor.settings.config import read_settings
from loadfactor.store.live import LiveLog


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
