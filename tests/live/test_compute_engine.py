"""Compute Engine, asked through Google's own client: instances of all zones and pages, and those that were taken away."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.live.fake_compute_engine import ZONES, FakeComputeEngine, make_instance

from loadfactor.base.units import MS_PER_S
from loadfactor.collect import google_cloud as gce
from loadfactor.collect.google_cloud import GceInstances
from loadfactor.collect.http_fetch import FetchError
from loadfactor.collect.polling import NotPermittedError
from loadfactor.settings.sources import GcpProject
from loadfactor.sources.base import Rows
from loadfactor.sources.clouds.gce import PREEMPTIONS, LiveGceDecoder
from loadfactor.sources.clouds.live_instances import ALL, INSTANCES

START_MS = 1_795_168_800 * MS_PER_S
"""2026-11-20 10:00 UTC, when instances were started."""
NOW_MS = START_MS + 3_600 * MS_PER_S


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeComputeEngine]:
    """A project without instances."""
    monkeypatch.setattr(gce, "FIRST_RETRY_S", 0.01)
    with FakeComputeEngine() as found:
        yield found


def ask(server: FakeComputeEngine) -> GceInstances:
    """The project through Google's client."""
    return GceInstances(GcpProject(name="prod", project="p", compute_endpoint=server.endpoint))


def decode(decoder: LiveGceDecoder, project: GceInstances, at_ms: int) -> dict[str, list[dict[str, Any]]]:
    """The rows that are new after asking, by table."""
    said = {part: project.ask(part)[part] for part in project.parts}
    names = [project.name(one) for one in said[INSTANCES]]
    decoder.feed([[at_ms, PREEMPTIONS, said[PREEMPTIONS]], [at_ms, INSTANCES, said[INSTANCES]], [at_ms, ALL, names]])
    return {item.table: item.data.to_pylist() for item in decoder.drain() if isinstance(item, Rows)}


def test_instances_of_all_zones_and_pages_though_a_quota_is_used_up(server: FakeComputeEngine) -> None:
    """Each instance with GPUs once, with its labels; machines without GPUs and those that are not there yet are none."""
    server.instances[ZONES[0]] = [make_instance(n, f"train-{n}", 2, labels={"team": "nlp"}) for n in range(1, 4)]
    server.instances[ZONES[1]] = [
        make_instance(4, "train-1", zone=ZONES[1]),
        make_instance(5, "small", 0, machineType="zones/x/machineTypes/e2-small"),
        make_instance(6, "coming", status="PROVISIONING"),
        make_instance(7, "gke-a-1", zone=ZONES[1], labels={"goog-k8s-cluster-name": "a"}),
    ]
    server.failures = [429, 503]
    rows = decode(LiveGceDecoder("prod"), ask(server), NOW_MS)
    assert sum("/instances?" in path for path in server.requests) == 4 + 2
    assert sorted(row["device_id"] for row in rows["devices"]) == sorted(
        [f"train-{n}:gpu{i}" for n in (2, 3) for i in (0, 1)]
        + [f"train-1.{ZONES[0]}.c.p.internal:gpu{i}" for i in (0, 1)]
        + [f"train-1.{ZONES[1]}.c.p.internal:gpu0", "gke-a-1:gpu0"]
    )
    assert {(row["accelerator"], row["from_utc"]) for row in rows["devices"]} == {("l4", START_MS)}
    held = {row["node"]: (row["gpus"], row["tags"]) for row in rows["allocations"]}
    assert "gke-a-1" not in held, "whom a cluster's machine serves is for the cluster to say"
    assert held["train-2"] == (2, '{"job_name": "train-2", "tag.team": "nlp"}')


def test_one_that_is_taken_away_ends_when_it_was(server: FakeComputeEngine) -> None:
    """Stopped or deleted by Compute Engine, it ends as preempted; started again it is another run."""
    decoder, project = LiveGceDecoder("prod"), ask(server)
    server.instances[ZONES[0]] = [make_instance(1, "spot-1"), make_instance(2, "spot-2"), make_instance(3, "own")]
    assert all(row.get("to_utc") is None for row in decode(decoder, project, NOW_MS)["devices"])
    decoder = LiveGceDecoder("prod", decoder.state())
    taken = {"operationType": "compute.instances.preempted", "insertTime": "2026-11-20T11:30:00Z"}
    server.operations[ZONES[0]] = [{"kind": "compute#operation", **taken, "targetId": number} for number in ("1", "2")]
    server.instances[ZONES[0]] = [
        make_instance(1, "spot-1", status="TERMINATED", lastStopTimestamp="2026-11-20T03:31:00-08:00"),
        make_instance(3, "own", lastStartTimestamp="2026-11-20T12:00:00Z"),
    ]
    rows = decode(decoder, project, NOW_MS + 7_200 * MS_PER_S)
    held = {(row["job_id"], row["from_utc"]): (row.get("to_utc"), row.get("end_state")) for row in rows["allocations"]}
    minute = 60 * MS_PER_S
    assert held == {
        ("spot-1", START_MS): (START_MS + 91 * minute, "preempted"),
        ("spot-2", START_MS): (START_MS + 90 * minute, "preempted"),
        ("own", START_MS): (NOW_MS, None),
        ("own", START_MS + 120 * minute): (None, None),
    }
    events = {(row["device_id"], row["at_utc"], row["detail"]) for row in rows["device_events"]}
    assert events == {(f"spot-{n}:gpu0", START_MS + 90 * minute, "preempted by Compute Engine") for n in (1, 2)}


def test_what_may_not_be_asked_and_zones_that_are_away_are_said(server: FakeComputeEngine) -> None:
    """The permission is named; an answer without a zone is none, so that nothing ends in it."""
    project = ask(server)
    server.instances[ZONES[0]] = [make_instance(1, "a")]
    server.forbidden = {"operations"}
    assert len(project.ask(INSTANCES)[INSTANCES]) == 1
    with pytest.raises(
        NotPermittedError, match=r"give it compute\.globalOperations\.list \(the role roles/compute\.viewer"
    ):
        project.ask(PREEMPTIONS)
    assert [part for part, why in project.find_refused() if why] == [PREEMPTIONS]
    server.away = {ZONES[1]}
    with pytest.raises(FetchError, match=f"^zones/{ZONES[1]}: UNREACHABLE"):
        project.ask(INSTANCES)
