"""The epilogs of examples/slurm in a real Slurm: the lines of `loadfactor seff` stand in the job's own output."""

import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.up_process import UpProcess
from tests.real.slurm_cluster import PATH, SlurmCluster
from tests.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"
SCRIPTS = {"task_epilog.sh": "seff", "epilog_slurmctld.sh": "seff_later"}
"""Each script, and the command that it is given."""
FURTHER = "TaskEpilog={folder}/task_epilog.sh\nEpilogSlurmctld={folder}/epilog_slurmctld.sh"
HEAD = '#!/bin/sh\nset -a; . "$(dirname "$0")/here.sh"; SEFF_COMMAND="$(dirname "$0")/%s"; set +a\n'
"""What an administrator writes into the scripts: where things are."""
RUN = "from loadfactor.interfaces.cli import main; main()"
FIELDS = "job|name|user / team|state|GPUs|held|GPU utilization|GPU memory|GPU-hours|cost|finding"
SEEN = r"(?=.*'state': 'running')(?=.*'accelerators': \['h100)(?=.*'utilization': \d)"
"""What the server says of a job that its first lines can tell of."""


class GpusHere(FleetTruth):
    """GPUs of this machine, which Slurm alone gives out."""

    def node(self, gpu: int) -> str:  # noqa: ARG002 (all are in one)
        """This machine."""
        return socket.gethostname().partition(".")[0]

    def holder(self, gpu: int, at_s: float) -> None:
        """No pod."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """A cluster that runs both epilogs; the later one has its answer when another job has had the GPUs."""
    texts = {name: (EXAMPLES / name).read_text().replace("#!/bin/sh\n", HEAD % SCRIPTS[name], 1) for name in SCRIPTS}
    # a machine may have other things to do
    files = {name: re.sub(r"timeout \d+ ", "timeout 600 ", text) for name, text in texts.items()}
    paths = f'PYTHONPATH={os.environ.get("PYTHONPATH", "")} XDG_CACHE_HOME=$(dirname "$0")/outputs'
    run = f'exec env {paths} {sys.executable} -c "{RUN}" "$@"\n'
    wait = 'until [ -e "$(dirname "$0")/outputs/given" ]; do sleep 0.2; done\n'
    files |= {"seff": f"#!/bin/sh\n{run}", "seff_later": f"#!/bin/sh\n{wait}{run}"}
    with SlurmCluster(FURTHER, files) as cluster:
        yield cluster


def test_seff_stands_in_the_output_of_the_job(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Once by TaskEpilog, however many steps; once by EpilogSlurmctld, for which no GPU waits; each task of an array has its own.

    A job without GPUs has nothing, and an output that was removed is not made again.
    """
    folder = cluster.folder / "outputs"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    config = tmp_path / "loadfactor.toml"
    up = UpProcess(tmp_path / "books", config=config, environment=cluster.environment)
    here = {"SEFF_SERVER": up.url, "SEFF_WAIT_S": 3, "PATH": PATH, "SLURM_CONF": cluster.folder / "slurm.conf"}
    (cluster.folder / "here.sh").write_text("".join(f"{name}={value}\n" for name, value in here.items()))
    until_freed = f"until [ -e {folder}/freed ]; do sleep 0.2; done"
    steps = f"srun true; srun sh -c '{until_freed}; echo done'"
    with FakeDcgmExporter(GpusHere(gpus=8, began_s=time.time())) as exporter:
        dcgm = f'[[dcgm]]\nname = "here"\ntargets = ["{exporter.address}"]\nevery = "1s"\n'
        config.write_text(f'[server]\nflush_every = "2s"\n[[slurm]]\nevery = "1s"\ntimeout = "20s"\n{dcgm}')
        with up:
            # root may run the Python of the tests in a TaskEpilog, others perhaps not
            own = cluster.submit("", steps, "--gpus=2", f"--output={folder}/of %x %j")
            array = cluster.submit("nobody", until_freed, "--gpus=1", "--array=1-2", f"--output={folder}/%A-%a")
            removed = cluster.submit(
                "nobody", f"{until_freed}; rm {folder}/removed", "--gpus=1", f"--output={folder}/removed"
            )
            without = cluster.submit("nobody", f"{until_freed}; echo done", f"--output={folder}/without")
            following = cluster.submit("nobody", "true", "--gpus=8")
            tasks = {f"{array}_{task}": folder / f"{array}-{task}" for task in (1, 2)}
            for job in (own, *tasks, removed):
                wait_for(lambda job: ask(up, job), job, SEEN)
            (folder / "freed").touch()
            for job in (own, *tasks, removed, without, following):
                wait_for(lambda job: cluster.run("scontrol", "show", "job", job), job, "JobState=COMPLET(ED|ING)")
            for job in (own, *tasks, removed):
                wait_for(lambda job: ask(up, job), job, "'state': 'completed'")
            (folder / "given").touch()
            outputs = {own: folder / f"of wrap {own}", **tasks}
            for job in outputs:
                wait_for(lambda job: outputs[job].read_text(), job, r"state +completed\n(.*\n)+finding")
            assert up.stop() == 0
    text = outputs[own].read_text()
    assert text.startswith(f"done\nJob {own}: GPU utilization ")
    assert re.findall(r"^state +(\w+)", text, re.MULTILINE) == ["running", "completed"]
    assert re.findall(rf"^({FIELDS})  ", text, re.MULTILINE) == FIELDS.split("|") * 2
    assert len(re.findall(r"^GPUs +2 × h100-sxm on 1 node", text, re.MULTILINE)) == 2
    assert len(re.findall(r"^GPU utilization +\d.* of the observed time", text, re.MULTILINE)) == 2
    for job, output in tasks.items():
        assert set(re.findall(r"^job +(\S+)", output.read_text(), re.MULTILINE)) == {job}
        assert len(re.findall(r"^state +completed", output.read_text(), re.MULTILINE)) == 1
    assert (folder / "without").read_text() == "done\n"
    names = {path.name for path in folder.iterdir() if path.is_file()}
    assert names == {path.name for path in outputs.values()} | {"without", "freed", "given"}


def wait_for(read: Callable[[str], str], job: str, pattern: str) -> None:
    """Until something stands in what is read of a job."""
    wait_until(lambda: re.search(pattern, read(job)), lambda: f"{job}: {read(job)}")


def ask(up: UpProcess, job: str) -> str:
    """What the server has to say of a job; empty while it knows none."""
    try:
        return str(up.ask("/api/v1/seff", job=job)["jobs"] or "")
    except AssertionError:
        return ""
