"""Holders that the agent sends are in the allocations that the server makes of it."""

import json
from collections.abc import Sequence

from loadfactor.sources.base import Rows
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.remote_write import RemoteWriteScanner, WriteLimits
from loadfactor_agent.holder import RUNS, Holder
from loadfactor_agent.write_request import Labels, SeriesValues, pack_readings

BEGAN_MS = 1_772_409_600_000


def allocate(*holders: Holder) -> list[dict[str, object]]:
    """The last allocations of a GPU that these held together for three scrapes."""
    return follow(holders, holders, holders)


def follow(*scrapes: Sequence[Holder]) -> list[dict[str, object]]:
    """The last allocations of a GPU that was held so at each scrape."""
    return take(PrometheusDecoder(), [read_gpu(k, holder) for k, holders in enumerate(scrapes) for holder in holders])


def read_gpu(scrape: int, holder: Holder) -> SeriesValues:
    """A GPU at one scrape."""
    facts = {"UUID": "GPU-1", "gpu": "0", "Hostname": "n1", "job": "agent"}
    at_ms = BEGAN_MS + scrape * 10_000
    return SeriesValues(Labels({**facts, **holder.labels()}), at_ms, {"DCGM_FI_DEV_FB_TOTAL": 80_000.0})


def take_allocations(decoder: PrometheusDecoder, scrape: int, holder: Holder) -> list[dict[str, object]]:
    """Allocations of one more scrape."""
    return take(decoder, [read_gpu(scrape, holder)])


def take(decoder: PrometheusDecoder, readings: Sequence[SeriesValues]) -> list[dict[str, object]]:
    """The allocations that a decoder makes of readings."""
    decoder.feed(RemoteWriteScanner(decoder.identify_series, WriteLimits()).scan(pack_readings(list(readings))), 1, 0.0)
    rows = [item for item in decoder.drain(None) if isinstance(item, Rows) and item.table == "allocations"]
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


def read_tags(row: dict[str, object]) -> dict[str, str]:
    """The tags of a row."""
    tags: dict[str, str] = json.loads(str(row["tags"] or "{}"))
    return tags


def test_environment_of_a_job_becomes_tags() -> None:
    """Every variable that says a run, and others by name; of a job that says none there are no tags."""
    said = (*((name.lower(), "v") for name in RUNS), ("job_env_sweep", "7"))
    (row,) = allocate(Holder(job="4711", variables=said))
    trackers = {"wandb.project", "wandb.run_group", "wandb.run_id"}
    trackers |= {"mlflow.experiment_id", "mlflow.experiment_name", "mlflow.run_id"}
    assert read_tags(row) == dict.fromkeys(trackers, "v") | {"env.SWEEP": "7"}
    assert allocate(Holder(job="4711"))[0]["tags"] is None


def test_processes_of_a_job_need_not_all_say_its_run() -> None:
    """A launcher without a run and a worker with one hold the GPU as one job, with what both say; of two runs the first counts."""
    launcher = Holder(job="1", user="ana")
    worker, other = (Holder(job="1", experiment=name, variables=(("wandb_run_id", name),)) for name in "ab")
    (row,) = follow([launcher, worker], [launcher, worker], [launcher, worker])
    assert (row["user"], row["experiment_id"], read_tags(row), row["share"]) == (
        "ana",
        "a",
        {"wandb.run_id": "a"},
        None,
    )
    (row,) = follow([worker], [other], [other])
    assert read_tags(row) == {"wandb.run_id": "a"}


def test_run_that_is_known_later_counts_from_the_beginning() -> None:
    """A job whose first process says nothing is one allocation, with the tags of the next one."""
    decoder = PrometheusDecoder()
    job, run = Holder(job="1"), Holder(job="1", variables=(("mlflow_run_id", "1f"),))
    seen = [take_allocations(decoder, k, holder) for k, holder in enumerate([job, job, run, run])]
    assert [row["tags"] for rows in seen for row in rows][-1] == '{"mlflow.run_id": "1f"}'
    assert len({row["from_utc"] for rows in seen for row in rows}) == 1
