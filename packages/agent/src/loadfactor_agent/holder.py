"""Holders of GPUs: the job, pod or command of a process that runs on it, from /proc, and the pods it was given to."""

import json
import os
import pwd
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

LOGS: Final = Path("/var/log/pods")
"""The kubelet makes a folder NAMESPACE_NAME_UID for each pod."""
_NAMESPACE: Final = Path("root/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NAMES, _NAMESPACES = ("POD_NAME", "MY_POD_NAME", "HOSTNAME"), ("POD_NAMESPACE", "MY_POD_NAMESPACE")


class PodNames:
    """Name and namespace of pods by their uid."""

    def __init__(self, logs: Path = LOGS) -> None:
        self._logs = logs
        self._known: dict[str, tuple[str, str]] = {}

    def find(self, uid: str, process: Path, environment: Mapping[str, str]) -> tuple[str, str]:
        """Name and namespace; the uid and nothing where nobody says them. `process` is its folder in /proc."""
        if uid not in self._known:
            self._list_logs()
        if uid in self._known:
            return self._known[uid]
        name = next((environment[n] for n in _NAMES if environment.get(n)), uid)
        namespace = next((environment[n] for n in _NAMESPACES if environment.get(n)), "")
        if not namespace:
            try:
                namespace = (process / _NAMESPACE).read_text().strip()
            except OSError:
                namespace = ""
        return name, namespace

    def _list_logs(self) -> None:
        try:
            folders = [entry.name for entry in self._logs.iterdir()]
        except OSError:
            return
        self._known = {
            uid: (pod, namespace) for namespace, pod, uid in (f.split("_") for f in folders if f.count("_") == 2)
        }


EXPERIMENT: Final = "LOADFACTOR_EXPERIMENT"
RUNS: Final = (
    "WANDB_PROJECT",
    "WANDB_RUN_GROUP",
    "WANDB_RUN_ID",
    "MLFLOW_EXPERIMENT_ID",
    "MLFLOW_EXPERIMENT_NAME",
    "MLFLOW_RUN_ID",
)
"""Variables that say which run of an experiment tracker a process is; each a label of this name in small letters."""
_OTHERS: Final = "job_env_"
"""Prefix of the labels of other variables."""
_LONGEST_VALUE: Final = 200
_SLURM_JOB: Final = re.compile(r"slurm.*/job_(\d+)(?:/|$)")
_POD: Final = re.compile(r"kubepods.*[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})")
_SHELLS: Final = (
    *("bash", "sh", "zsh", "fish", "dash", "csh", "tcsh"),
    *("tmux", "screen", "sshd", "login", "su", "sudo", "systemd", "init"),
)
_LONGEST_COMMAND: Final = 60
_MOST_PARENTS: Final = 32
_RECORDS: Final = re.compile(r"-[0-9a-f]{32}\.jsonl")
"""How the name of a tracked run's file ends."""
_LONGEST_LINE: Final = 16_384


@dataclass(frozen=True)
class Holder:
    """A job, as labels say it. Everybody who is the same holder is one job on all GPUs."""

    job: str = ""
    pod: str = ""
    namespace: str = ""
    user: str = ""
    experiment: str = ""
    container: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    """Labels of further variables of its environment."""

    def labels(self) -> dict[str, str]:
        """The labels of dcgm-exporter, user and experiment, and those of its environment."""
        return {
            "hpc_job": self.job,
            "pod": self.pod,
            "namespace": self.namespace,
            "container": self.container,
            "user": self.user,
            "experiment": self.experiment,
            **dict(self.variables),
        }


class GivenPod(NamedTuple):
    """A pod that was given a device, and the container it is for."""

    namespace: str
    name: str
    container: str


def join_holders(running: Collection[Holder], given: Collection[GivenPod]) -> list[Holder]:
    """Those that run on a device and the pods it was given to, in order; who is both is one, known by what both say.

    A running pod whose name nobody knew is one of those it was given to.
    """
    pods = {
        (pod.namespace, pod.name): pod.container for pod in sorted(given, reverse=True)
    }  # the first container stays
    nameless = {holder for holder in running if pods and holder.pod and not holder.namespace}
    found = {holder for holder in running if (holder.namespace, holder.pod) not in pods} - nameless
    for (namespace, name), container in pods.items():
        same = [holder for holder in running if (holder.namespace, holder.pod) == (namespace, name)]
        same = same or (list(nameless) if len(pods) == 1 else []) or [Holder()]
        found |= {replace(holder, pod=name, namespace=namespace, container=container) for holder in same}
    return sorted(found, key=repr)


class HolderFinder:
    """Finds the holders of processes, each once as long as it runs; more seldom each time while no experiment is known.

    A run may begin long after its process.
    """

    def __init__(self, proc: Path, pods: PodNames, variables: Sequence[str] = ()) -> None:
        """`variables`: names of what else is read of environments."""
        self._proc, self._pods = proc, pods
        self._labels = {name: name.lower() for name in RUNS} | {name: _OTHERS + name.lower() for name in variables}
        self._known: dict[int, Holder | None] = {}
        self._lookups: dict[int, int] = {}

    def find(self, pid: int) -> Holder | None:
        """The holder; None where the process cannot be seen."""
        lookups = self._lookups[pid] = self._lookups.get(pid, 0) + 1
        known = self._known.get(pid)
        if pid not in self._known or (known is not None and not known.experiment and lookups & (lookups - 1) == 0):
            self._known[pid] = self._read(pid)
        return self._known[pid]

    def keep_only(self, pids: set[int]) -> None:
        """Forgets processes that are gone: their numbers are given again."""
        for pid in set(self._known) - pids:
            self._known.pop(pid, None)
            self._lookups.pop(pid, None)

    def _read(self, pid: int) -> Holder | None:
        folder = self._proc / str(pid)
        try:
            uid = folder.stat().st_uid
            cgroup = (folder / "cgroup").read_text(errors="replace")
        except OSError:
            return None
        environment = _read_environment(folder)
        run = _read_run(folder)
        experiment = run.get("experiment") or environment.get(EXPERIMENT, "")
        variables = tuple(
            (label, v[:_LONGEST_VALUE]) for name, label in self._labels.items() if (v := environment.get(name))
        )
        user = _name_user(uid)
        if found := _SLURM_JOB.search(cgroup):
            return Holder(job=found[1], user=user, experiment=experiment, variables=variables)
        if found := _POD.search(cgroup):
            name, namespace = self._pods.find(found[1].replace("_", "-"), folder, environment)
            return Holder(pod=name, namespace=namespace, experiment=experiment, variables=variables)
        if job := environment.get("SLURM_JOB_ID"):
            return Holder(job=job, user=user, experiment=experiment, variables=variables)
        if own := run.get("job"):
            return Holder(job=own, user=user, experiment=experiment, variables=variables)
        if experiment:
            return Holder(job=f"{user} {experiment}", user=user, experiment=experiment, variables=variables)
        return Holder(job=f"{user} {self._name_command(pid, uid)}", user=user, variables=variables)

    def _name_command(self, pid: int, uid: int) -> str:
        """The command a person gave: of the highest parent that is theirs and no shell, with its process number."""
        top = pid
        for _ in range(_MOST_PARENTS):
            parent = _read_parent(self._proc / str(top))
            folder = self._proc / str(parent)
            try:
                if parent <= 1 or folder.stat().st_uid != uid:
                    break
                if (folder / "comm").read_text().strip().lstrip("-") in _SHELLS:
                    break
            except OSError:
                break
            top = parent
        try:
            words = (self._proc / str(top) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            words = []
        names = [word.rpartition("/")[2] for word in words if word]
        return f"{' '.join(names)[:_LONGEST_COMMAND].strip() or '?'} {top}"


def _read_environment(folder: Path) -> Mapping[str, str]:
    """Environment of the process; empty where that may not be read."""
    try:
        content = (folder / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in content.decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs}


def _read_run(folder: Path) -> Mapping[str, str]:
    """Job and experiment of the tracked run whose file of records a process holds open, as its first line says them."""
    try:
        for file in (folder / "fd").iterdir():
            if _RECORDS.search(os.readlink(file)):
                with file.open("rb") as records:
                    begin = json.loads(records.readline(_LONGEST_LINE))
                if isinstance(begin, dict) and begin.get("kind") == "begin":
                    return {of: str(begin[of])[:_LONGEST_VALUE] for of in ("job", "experiment") if begin.get(of)}
    except (OSError, ValueError):
        return {}
    return {}


def _read_parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _name_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


PROC: Final = Path(os.sep, "proc")
