"""What the agent says of holders is in the allocations that the server makes of it."""

from collections.abc import Sequence

from loadfactor.agent.holder import Holder
from loadfactor.agent.readings import Labels, SeriesValues
from loadfactor.agent.write_request import pack_readings
from loadfactor.sources.base import Rows
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.remote_write import RemoteWriteScanner
from loadfactor.sources.prometheus.remote_write_limits import WriteLimits

BEGAN_MS = 1_772_409_600_000


def allocate(*holders: Holder) -> list[dict[str, object]]:
    """The last allocations of a GPU that these held together for three scrapes."""
    return follow(holders, holders, holders)


def follow(*scrapes: Sequence[Holder]) -> list[dict[str, object]]:
    """The last allocations of a GPU that was held so at each scrape."""
    facts = {"UUID": "GPU-1", "gpu": "0", "Hostname": "n1", "job": "agent"}
    readings = [
        SeriesValues(Labels({**facts, **holder.labels()}), BEGAN_MS + k * 10_000, {"DCGM_FI_DEV_FB_TOTAL": 80_000.0})
        for k, holders in enumerate(scrapes)
        for holder in holders
    ]
    decoder = PrometheusDecoder()
    decoder.put(RemoteWriteScanner(decoder.identify_series, WriteLimits()).scan(pack_readings(readings)), 1, 0.0)
    rows = [item for item in decoder.take(None) if isinstance(item, Rows) and item.table == "allocations"]
    return sorted((row for item in rows for row in item.data.to_pylist()), key=lambda row: str(row["job_id"]))


def test_user_and_experiment_are_kept() -> None:
    """A Slurm job comes with its user and the experiment it is a run of."""
    (row,) = allocate(Holder(job="4711", user="ana", experiment="lr-sweep"))
    assert (row["job_id"], row["user"], row["experiment_id"]) == ("4711", "ana", "lr-sweep")


def test_pod_has_its_namespace_as_team() -> None:
    """A pod is named with its namespace, which is its team."""
    (row,) = allocate(Holder(pod="llm-0", namespace="research", experiment="e"))
    assert (row["job_id"], row["team"], row["user"], row["experiment_id"]) == ("research/llm-0", "research", None, "e")


def test_holders_of_one_gpu_share_it() -> None:
    """Two jobs on one GPU hold half of it each, each with its own user."""
    rows = allocate(Holder(job="1", user="ana"), Holder(job="2", user="bo"))
    assert [(row["job_id"], row["share"], row["user"]) for row in rows] == [("1", 0.5, "ana"), ("2", 0.5, "bo")]


def test_pod_stays_one_job_when_its_container_becomes_known() -> None:
    """A pod whose first samples were read before the kubelet said more is one allocation from its beginning."""
    unknown, known = Holder(pod="llm-0", namespace="a"), Holder(pod="llm-0", namespace="a", container="trainer")
    rows = follow([unknown], [unknown], [known], [known])
    assert {row["job_id"] for row in rows} == {"a/llm-0"}
    assert len({row["from_utc"] for row in rows}) == 1


def test_pods_that_share_a_gpu_hold_half_of_it() -> None:
    """Two pods with replicas of one GPU share it, whether or not they run anything."""
    rows = allocate(*(Holder(pod=f"llm-{k}", namespace="a", container="c") for k in range(2)))
    assert [(row["job_id"], row["share"]) for row in rows] == [("a/llm-0", 0.5), ("a/llm-1", 0.5)]
