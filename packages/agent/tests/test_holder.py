"""Holders of processes: jobs of Slurm, pods, experiments, and people's commands; and the node's own measurements."""

import os
import pwd
from collections.abc import Sequence
from pathlib import Path

import pytest
from pages import read_page

from loadfactor_agent.holder import Holder, HolderFinder, PodNames
from loadfactor_agent.main import main
from loadfactor_agent.node import NodeReader
from loadfactor_agent.page_server import write_page

UID = "2c48913c-b29f-11e7-9350-020968147796"
USER = pwd.getpwuid(os.getuid()).pw_name


class ProcFolder:
    """A /proc with the processes that a test wants."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "proc"
        self.logs = folder / "pods"
        self.logs.mkdir()

    def add(
        self,
        pid: int,
        cgroup: str = "0::/user.slice",
        parent: int = 1,
        command: Sequence[str] = ("x",),
        **environment: str,
    ) -> None:
        folder = self.path / str(pid)
        folder.mkdir(parents=True)
        (folder / "cgroup").write_text(f"{cgroup}\n")
        (folder / "stat").write_text(f"{pid} (a (b) c) S {parent} 1 1 0")
        (folder / "comm").write_text(f"{command[0].rpartition('/')[2]}\n")
        (folder / "cmdline").write_bytes("\0".join([*command, ""]).encode())
        (folder / "environ").write_bytes("\0".join(f"{k}={v}" for k, v in environment.items()).encode())

    def find(self, pid: int) -> Holder | None:
        return HolderFinder(self.path, PodNames(self.logs)).find(pid)


@pytest.fixture
def proc(tmp_path: Path) -> ProcFolder:
    return ProcFolder(tmp_path)


@pytest.mark.parametrize(
    "cgroup",
    [
        "5:devices:/slurm/uid_1000/job_4711/step_0/task_0",
        "0::/system.slice/slurmstepd.scope/job_4711/step_batch/user/task_0",
        "0::/slurm_node7/uid_0/job_4711",
    ],
)
def test_job_of_slurm(proc: ProcFolder, cgroup: str) -> None:
    """The job's number is in the path of the cgroup, of either version."""
    proc.add(7, cgroup, LOADFACTOR_EXPERIMENT="lr-sweep")
    assert proc.find(7) == Holder(job="4711", user=USER, experiment="lr-sweep")


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-0a.scope",
        f"3:memory:/kubepods/besteffort/pod{UID}/0a1b",
        f"0::/../../kubepods-besteffort-pod{UID.replace('-', '_')}.slice/x",
    ],
)
def test_pod_by_the_folder_of_its_logs(proc: ProcFolder, cgroup: str) -> None:
    """The pod's uid is in the path of the cgroup, its name in that of its logs."""
    (proc.logs / f"research_llm-0_{UID}").mkdir()
    proc.add(7, cgroup)
    assert proc.find(7) == Holder(pod="llm-0", namespace="research")


def test_pod_by_what_its_process_knows(proc: ProcFolder) -> None:
    """Without its logs a pod has the name its processes know, or else its uid."""
    proc.add(7, f"0::/kubepods/pod{UID}/0a", POD_NAME="llm-1", POD_NAMESPACE="research", HOSTNAME="other")
    assert proc.find(7) == Holder(pod="llm-1", namespace="research")
    proc.add(8, f"0::/kubepods/pod{UID}/0b")
    assert proc.find(8) == Holder(pod=UID)


def test_command_is_that_of_the_parent_a_person_started(proc: ProcFolder) -> None:
    """All workers of one command are one holder: the highest parent that is no shell."""
    proc.add(100, command=("/bin/bash",))
    proc.add(101, parent=100, command=("/usr/bin/python3", "/home/ana/bin/torchrun", "/home/ana/train.py"))
    for worker in (102, 103):
        proc.add(worker, parent=101, command=("/usr/bin/python3", "/home/ana/train.py"))
    assert proc.find(102) == proc.find(103) == Holder(job=f"{USER} python3 torchrun train.py 101", user=USER)


def test_experiment_names_a_process_without_a_job(proc: ProcFolder) -> None:
    """LOADFACTOR_EXPERIMENT says what it is where no scheduler does."""
    proc.add(7, LOADFACTOR_EXPERIMENT="lr-sweep")
    assert proc.find(7) == Holder(job=f"{USER} lr-sweep", user=USER, experiment="lr-sweep")


def test_a_tracked_run_names_its_process(proc: ProcFolder, tmp_path: Path) -> None:
    """What `track(experiment=…)` says in code is read from the file that the run holds open, also where it begins later."""
    proc.add(7)
    proc.add(8, "0::/slurm/job_4711")
    finder = HolderFinder(proc.path, PodNames(proc.logs))
    before = finder.find(7)
    assert before is not None
    assert before.experiment == ""
    records = tmp_path / f"ft-42-{'0a' * 16}.jsonl"
    records.write_text('{"kind":"begin","format":1,"job":"ann ft-42","experiment":"ft-42"}\n{"kind":"alive"}\n')
    for pid in (7, 8):
        (proc.path / f"{pid}" / "fd").mkdir()
        (proc.path / f"{pid}" / "fd" / "3").symlink_to(records)
    assert finder.find(7) == Holder(job="ann ft-42", user=USER, experiment="ft-42")
    assert finder.find(8) == Holder(job="4711", user=USER, experiment="ft-42"), "a scheduler names the job"


def test_process_that_cannot_be_seen_has_no_holder(proc: ProcFolder) -> None:
    """A process of another namespace is of nobody we know."""
    assert proc.find(7) is None


def test_number_given_again_is_another_process(proc: ProcFolder) -> None:
    """Once a process is gone its number is read anew."""
    proc.add(7, "0::/slurm/job_1")
    finder = HolderFinder(proc.path, PodNames(proc.logs))
    first = finder.find(7)
    finder.keep_only({8})
    (proc.path / "7" / "cgroup").write_text("0::/slurm/job_2\n")
    second = finder.find(7)
    assert first
    assert second
    assert (first.job, second.job) == ("1", "2")


def test_run_of_a_tracker_is_said_of_jobs_pods_and_commands(proc: ProcFolder) -> None:
    """W&B and MLflow are told their run by variables; others are read where they were asked for."""
    said = {"WANDB_PROJECT": "llm", "WANDB_RUN_ID": "x" * 300, "MLFLOW_RUN_ID": "", "SWEEP": "7", "OTHER": "8"}
    proc.add(1, "0::/slurm/job_4711", **said)
    proc.add(2, f"0::/kubepods/pod{UID}/0a", **said)
    proc.add(3, **said)
    finder = HolderFinder(proc.path, PodNames(proc.logs), ["SWEEP"])
    expected = {"wandb_project": "llm", "wandb_run_id": "x" * 200, "job_env_sweep": "7"}
    for pid in (1, 2, 3):
        found = finder.find(pid)
        assert found is not None
        assert dict(found.variables) == expected
        assert expected.items() <= found.labels().items()


@pytest.mark.parametrize(
    ("name", "said"), [("WANDB_API_KEY", "may be a secret"), ("sweep", "is no name of a variable in capitals")]
)
def test_variables_that_may_be_secrets_are_refused(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels hold no password; in one line, before anything is read."""
    with pytest.raises(SystemExit, match="2"):
        main(["--once", "--variable", name])
    assert said in capsys.readouterr().err


def write_proc(folder: Path) -> None:
    """A machine with two cores, a disk with a partition and two interfaces."""
    (folder / "net").mkdir(parents=True)
    (folder / "stat").write_text("cpu  1000 200 300 4000 500 60 70 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    (folder / "meminfo").write_text("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   400 kB\n")
    (folder / "diskstats").write_text(" 259 0 nvme0n1 1 2 300 4 5 6 700 8 0 0 0\n 7 0 loop0 1 2 3 4 5 6 7 8 0 0 0\n")
    (folder / "net" / "dev").write_text(
        "Inter-| Receive\n face |bytes\n    lo: 9 0 0 0 0 0 0 0 9 0\n  eth0: 1234 5 0 0 0 0 0 0 5678 9\n"
    )


def test_node_is_read_under_the_names_of_node_exporter(tmp_path: Path) -> None:
    """Seconds of all cores by mode, bytes of memory, disks and interfaces; the loopback and loop devices not."""
    write_proc(tmp_path)
    found = [
        (name, *labels.values(), value)
        for name, labels, value in read_page(write_page(NodeReader(tmp_path, "n1").read(1)))
    ]
    modes = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    seconds = (10, 2, 3, 40, 5, 0.6, 0.7, 0.08)
    assert found == [
        *(("node_cpu_seconds_total", mode, s) for mode, s in zip(modes, seconds, strict=True)),
        ("node_memory_MemTotal_bytes", 1000 * 1024),
        ("node_memory_MemAvailable_bytes", 400 * 1024),
        ("node_disk_read_bytes_total", "nvme0n1", 300 * 512),
        ("node_disk_written_bytes_total", "nvme0n1", 700 * 512),
        ("node_network_receive_bytes_total", "eth0", 1234),
        ("node_network_transmit_bytes_total", "eth0", 5678),
    ]


def test_what_the_kernel_does_not_say_is_left_out(tmp_path: Path) -> None:
    """A machine without /proc/diskstats still has a CPU."""
    write_proc(tmp_path)
    (tmp_path / "diskstats").unlink()
    names = {name for name, _, _ in read_page(write_page(NodeReader(tmp_path, "n1").read(1)))}
    assert "node_cpu_seconds_total" in names
    assert not any("disk" in name for name in names)
