"""What the agent says of holders is in the allocations that the server makes of it."""

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
    labels = [Labels({"UUID": "GPU-1", "gpu": "0", "Hostname": "n1", "job": "agent", **h.labels()}) for h in holders]
    readings = [
        SeriesValues(of, BEGAN_MS + k * 10_000, {"DCGM_FI_DEV_FB_TOTAL": 80_000.0}) for k in range(3) for of in labels
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
