"""Saved lists of Compute Engine: what is installed, who holds it, and GPUs that the Ops Agent names count once."""

import json
from pathlib import Path

import pytest
from tests.live.fake_compute_engine import ZONES, make_instance
from tests.sources.clouds.test_ec2 import break_each
from tests.sources.reading import see

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_HOUR, MS_PER_S
from loadfactor.books.books import Books
from loadfactor.sources.base import Input, ReadOptions
from loadfactor.sources.clouds.gce import SOURCE, decode_gce

START_MS = 1_795_168_800 * MS_PER_S


def write(folder: Path, *said: object) -> Path:
    """Documents in a file."""
    path = folder / "instances.json"
    path.write_text("\n".join(map(json.dumps, said)))
    return path


def test_what_gcloud_printed_and_pages_of_the_api(tmp_path: Path) -> None:
    """The same rows; what runs ends when the list was taken, what stopped when it says so."""
    stopped = make_instance(2, "b", 4, status="SUSPENDED", lastSuspendedTimestamp="2026-11-20T10:30:00Z")
    instances = [make_instance(1, "a"), stopped, make_instance(3, "c", 0)]
    page = {"items": {f"zones/{ZONES[0]}": {"instances": instances}, f"zones/{ZONES[1]}": {"warning": {"code": "x"}}}}
    seen = [see(SOURCE, write(tmp_path, one), at_ms=START_MS + MS_PER_HOUR) for one in (instances, page)]
    assert seen[0].devices == seen[1].devices
    ends = {row["device_id"]: row["to_utc"] for row in seen[0].devices}
    half = START_MS + MS_PER_HOUR // 2
    assert ends == {"a:gpu0": START_MS + MS_PER_HOUR, **{f"b:gpu{i}": half for i in range(4)}}
    assert seen[0].gaps == {"instances of a type with GPUs that list none": 1}


def test_gpus_that_the_ops_agent_names_count_once(tmp_path: Path) -> None:
    """Two hours of an instance with one GPU, of which the agent speaks in one, are two GPU-hours held by it."""
    books = Books.open(tmp_path / "books", create=True)
    books.add("gce", [write(tmp_path, [make_instance(1, "a")])], ReadOptions(at_ms=START_MS + 2 * MS_PER_HOUR))
    series = {
        "metric": {"type": "agent.googleapis.com/gpu/utilization", "labels": {"uuid": "GPU-1", "gpu_number": "0"}},
        "resource": {"type": "gce_instance", "labels": {"instance_id": "1"}},
        "metadata": {"systemLabels": {"name": "a"}},
        "unit": "%",
        "points": [
            {"interval": {"endTime": f"2026-11-20T10:{i:02}:00Z"}, "value": {"doubleValue": 50.0}} for i in range(60)
        ],
    }
    path = tmp_path / "series.json"
    path.write_text(json.dumps({"timeSeries": [series]}))
    books.add("gcp-monitoring", [path])
    names = ("paid_gpu_hours", "allocated_gpu_hours")
    assert [one.value for one in books.show(names)] == pytest.approx([2, 2], abs=0.02)


def test_an_instance_that_was_made_again_under_its_name_is_the_same_node(tmp_path: Path) -> None:
    """As managed groups do it: the node is installed twice, one after the other."""
    before = make_instance(1, "a", status="TERMINATED", lastStopTimestamp="2026-11-20T10:30:00Z")
    after = make_instance(2, "a", lastStartTimestamp="2026-11-20T10:45:00Z")
    seen = see(SOURCE, write(tmp_path, [before, after]), at_ms=START_MS + MS_PER_HOUR)
    quarter = MS_PER_HOUR // 4
    assert [(row["device_id"], row["from_utc"] - START_MS, row["to_utc"] - START_MS) for row in seen.devices] == [
        ("a:gpu0", 0, 2 * quarter),
        ("a:gpu0", 3 * quarter, 4 * quarter),
    ]


def test_whatever_is_broken_is_read_or_refused() -> None:
    """Rows, or an error of one line: never anything else."""
    taken = {"operationType": "compute.instances.preempted", "targetId": "1", "insertTime": "2026-11-20T10:30:00Z"}
    whole = [make_instance(1, "a", labels={"team": "nlp"}, lastStopTimestamp="2026-11-20T10:30:00Z"), taken]
    assert len(list(decode_gce([Input("x.json", [json.dumps(whole).encode()])], ReadOptions(at_ms=START_MS + 1)))) == 3
    count = 0
    for broken in break_each(whole):
        source = Input("x.json", [json.dumps(broken).encode()])
        try:
            count += len(list(decode_gce([source], ReadOptions(at_ms=START_MS + MS_PER_HOUR))))
        except SourceError:
            count += 1
    assert count > len(whole)


def test_what_is_no_list_is_refused_in_one_line(tmp_path: Path) -> None:
    """Whatever it is."""
    for said in ({"Volumes": []}, [5], [{"name": "x"}], {"items": [{"kind": "compute#disk"}]}, "x", None):
        with pytest.raises(SourceError, match=r"instances\.json"):
            see(SOURCE, write(tmp_path, said), at_ms=START_MS)
    with pytest.raises(SourceError, match="do not say when they were taken: give --at"):
        see(SOURCE, write(tmp_path, [make_instance(1, "a")]))
