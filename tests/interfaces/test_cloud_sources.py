"""What is asked of the clouds that the configuration names."""

from pathlib import Path

import pytest

from loadfactor.base.errors import InputError
from loadfactor.interfaces.cloud_sources import list_questions, make_clouds, make_instances, make_streams
from loadfactor.settings.config import read_settings


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
    assert [one.origin for one in make_clouds(settings)] == [
        "cloudwatch asked",
        "cloudwatch metrics",
        "gcp-monitoring p",
    ]
    (stream,) = make_streams(settings)
    assert (stream.origin, stream.every_s, stream.backfill_s) == ("metric-stream streamed", 300, 86_400)
    assert (stream.objects.bucket, stream.objects.prefix) == ("metrics", "gpus/")
    instances = [one.origin for one in make_instances(settings)]
    assert instances == list(list_questions(settings)) == ["ec2 asked", "ec2 streamed", "gce p"]
    path.write_text('[[cloudwatch]]\nstream = "https://metrics/gpus/"\n')
    with pytest.raises(InputError, match="stream"):
        read_settings(path)
