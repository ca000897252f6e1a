"""examples/slurm/job_submit.lua inside a real slurmctld: GPU jobs without an experiment are warned about, or refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.real.slurm_cluster import SlurmCluster

LUA = Path(__file__).resolve().parents[2] / "examples" / "slurm" / "job_submit.lua"
WARNING = "Nobody will know what these GPU-hours were for"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """A cluster whose controller asks the script."""
    with SlurmCluster("JobSubmitPlugins=lua", {LUA.name: LUA.read_text()}) as cluster:
        yield cluster


@pytest.mark.parametrize("asked", ["--gpus=1", "--gres=gpu:h100:1", "--gpus-per-node=1", "--gpus-per-task=1"])
def test_a_job_without_an_experiment_is_warned_about(cluster: SlurmCluster, asked: str) -> None:
    """However it asks for GPUs; it runs all the same. With a comment, or without GPUs, nothing is said."""
    assert cluster.submit("nobody", "true", "--ntasks=1", asked).isdigit()
    assert WARNING in cluster.complaint
    cluster.submit("nobody", "true", "--ntasks=1", asked, "--comment=exp-7")
    assert WARNING not in cluster.complaint
    cluster.submit("nobody", "true")
    assert WARNING not in cluster.complaint


def test_a_job_without_an_experiment_is_refused(cluster: SlurmCluster) -> None:
    """Where the site wants that; a comment may be corrected afterwards, not emptied."""
    cluster.start_controller(LOADFACTOR_REFUSE="1")
    with pytest.raises(AssertionError, match="This job asks for GPUs; name its experiment"):
        cluster.submit("nobody", "true", "--gpus=1")
    job = cluster.submit("nobody", "true", "--gpus=1", "--hold", "--comment=exp-7")
    cluster.run("scontrol", "update", f"jobid={job}", "comment=exp-8", user="nobody")
    with pytest.raises(AssertionError):
        cluster.run("scontrol", "update", f"jobid={job}", "comment=not an experiment", user="nobody")
    assert "Comment=exp-8" in cluster.run("scontrol", "show", "job", job)
