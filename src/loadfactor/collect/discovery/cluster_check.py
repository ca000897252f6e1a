"""Checks of clusters of Kubernetes and Slurm, and clouds: each kind and question tried once, and what would allow more."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from loadfactor.base.errors import LoadfactorError
from loadfactor.base.units import S_PER_HOUR
from loadfactor.collect.amazon import find_refused
from loadfactor.collect.discovery.shortfalls import Shortfall, note_clock
from loadfactor.collect.google_cloud import GceInstances
from loadfactor.collect.kubernetes_api import (
    FORBIDDEN,
    NOT_FOUND,
    PODS,
    RESOURCES,
    KubernetesApi,
    KubernetesError,
    Resource,
)
from loadfactor.collect.slurm_commands import FIELDS, CommandError, SlurmCommands
from loadfactor.collect.slurm_watch import Slurm
from loadfactor.settings.config import Settings
from loadfactor.settings.sources import KubernetesCluster
from loadfactor.sources.kubernetes.fields import part, text
from loadfactor.sources.slurm.gpus import tally


@dataclass(frozen=True)
class KindCheck:
    """One kind: `can_read`, else why not. `is_needed`: there is no telling who holds what without it."""

    kind: str
    can_read: bool
    is_needed: bool
    error: str | None = None


@dataclass(frozen=True)
class ClusterCheck:
    """One cluster; `error`: why it cannot be queried at all, or not for its pods."""

    name: str
    address: str | None
    reachable: bool
    error: str | None
    kinds: tuple[KindCheck, ...] = ()


def check_cluster(cluster: KubernetesCluster) -> ClusterCheck:
    """Ask a cluster for each kind. Raises no KubernetesError."""
    try:
        api = KubernetesApi(cluster)
    except KubernetesError as error:
        return ClusterCheck(cluster.stream_id, None, False, str(error))
    kinds = []
    for resource in RESOURCES:
        problem = _check_kind(api, resource)
        kinds.append(KindCheck(resource.plural, problem is None, not resource.needs, problem))
    failed = next((kind.error for kind in kinds if kind.kind == PODS.plural and not kind.can_read), None)
    return ClusterCheck(cluster.stream_id, api.address, failed is None, failed, tuple(kinds))


def _check_kind(api: KubernetesApi, resource: Resource) -> str | None:
    """Why a kind cannot be listed and watched, and what nobody knows without it; None where it can."""
    try:
        page = api.list_page(resource, limit=1)
        api.check_watch(resource, text(part(page, "metadata"), "resourceVersion"))
    except KubernetesError as error:
        if error.status == NOT_FOUND and resource.needs:
            return f"{resource.needs} is not installed"
        return f"{error}; without it nobody knows {resource.gives}" if error.status == FORBIDDEN else str(error)
    return None


Refused = Iterable[tuple[str, str]]
"""Each question, and why it is not permitted; empty where it is."""


@dataclass(frozen=True)
class CloudQuestion:
    """One question: `works`, else why not."""

    asked: str
    works: bool
    error: str | None = None


@dataclass(frozen=True)
class CloudCheck:
    """One account or project."""

    name: str
    questions: tuple[CloudQuestion, ...]


def list_questions(settings: Settings) -> dict[str, Callable[[], Refused]]:
    """Functions that find refused questions about instances, by account or project."""
    questions: dict[str, Callable[[], Refused]] = {
        f"ec2 {account.label}": partial(find_refused, account) for account in settings.cloudwatch if account.instances
    }
    return questions | {
        f"gce {project.label}": GceInstances(project).find_refused
        for project in settings.gcp_monitoring
        if project.instances
    }


def check_instances(clouds: Mapping[str, Callable[[], Refused]]) -> list[CloudCheck]:
    """Which questions each account and project answers, by name. Raises no LoadfactorError."""
    found = []
    for name, ask in clouds.items():
        try:
            answers = [CloudQuestion(question, not error, error or None) for question, error in ask()]
        except LoadfactorError as error:
            answers = [CloudQuestion("instances", works=False, error=str(error))]
        found.append(CloudCheck(name, tuple(answers)))
    return found


FIELD_COSTS: Final = {
    "Restarts": "runs of requeued jobs are numbered in their order",
    "Comment": "rules of tagging that read comments",
    "AdminComment": "rules of tagging that read comments of administrators",
    "Reservation": "rules of tagging that read reservations",
    "WCKey": "rules of tagging that read wckeys",
}
"""Fields of sacct that a version may lack, and what is unknown without them."""


@dataclass(frozen=True)
class CommandCheck:
    """One question: `works`, else why not."""

    command: str
    works: bool
    error: str | None = None


@dataclass(frozen=True)
class SlurmCheck:
    """One cluster; `error`: why its jobs cannot be known. `clock_s`: how far its clock is ahead of ours."""

    name: str
    reachable: bool
    error: str | None
    commands: tuple[CommandCheck, ...]
    version: str | None = None
    nodes: int = 0
    gpus: int = 0
    clock_s: float | None = None
    missing: tuple[Shortfall, ...] = ()


def check_slurm(clusters: Mapping[str, Slurm]) -> list[SlurmCheck]:
    """Ask each cluster, by name. Raises no CommandError."""
    return [_SlurmQuestions(name, slurm).check() for name, slurm in clusters.items()]


class _SlurmQuestions:
    """Queries to one cluster, each sent once."""

    def __init__(self, name: str, slurm: Slurm) -> None:
        self._name = name
        self._slurm = slurm
        self._commands = slurm if isinstance(slurm, SlurmCommands) else None
        self._answers: list[CommandCheck] = []

    def check(self) -> SlurmCheck:
        """Ask everything."""
        config, clock_s = self._read_config()
        nodes, gpus = self._count_gpus()
        by = self._commands is not None
        knows_now = self._try("scontrol show job" if by else "slurmctld: jobs", self._slurm.list_queue)
        now_s = int(time.time())
        knows_before = self._try(
            "sacct" if by else "slurmdbd: jobs", lambda: self._slurm.list_accounting(now_s - S_PER_HOUR, now_s)
        )
        missing = [*note_clock(clock_s), *_list_settings(config), *(self._list_fields() if knows_before else ())]
        if nodes is not None and not gpus:
            missing.append(
                Shortfall(
                    "missing", "no node has GPUs", "everything: there is nothing to book", "give nodes Gres=gpu:TYPE:N"
                )
            )
        error = None if knows_now or knows_before else next(answer.error for answer in self._answers if answer.error)
        version = config.get("SLURM_VERSION")
        return SlurmCheck(
            self._name, error is None, error, tuple(self._answers), version, nodes or 0, gpus, clock_s, tuple(missing)
        )

    def _try(self, command: str, ask: Callable[[], object]) -> bool:
        try:
            ask()
        except CommandError as error:
            self._answers.append(CommandCheck(command, False, str(error).removeprefix(f"{command}: ")))
            return False
        self._answers.append(CommandCheck(command, True))
        return True

    def _read_config(self) -> tuple[dict[str, str], float | None]:
        """slurm.conf as the controller has it, and how far its clock is ahead; nothing where it does not answer."""
        lines: list[str] = []
        if (commands := self._commands) is None:
            return {}, None
        self._try(
            "scontrol show config",
            lambda: lines.extend(commands.run("scontrol", "show", "config").decode(errors="replace").splitlines()),
        )
        pairs = (line.partition("=") for line in lines)
        config = {key.strip(): value.strip() for key, equals, value in pairs if equals}
        at = lines[0].rpartition(" ")[2] if lines else ""
        return config, float(at) - time.time() if at.isdigit() else None

    def _count_gpus(self) -> tuple[int | None, int]:
        """Nodes with GPUs, and their GPUs; None where nobody knows."""
        counts: list[float] = []

        def count() -> None:
            for node in self._slurm.list_nodes().nodes:
                total, typed, _ = tally(node.gres or "")
                counts.append(max(total, sum(typed.values())))

        if not self._try("scontrol show node" if self._commands else "slurmctld: nodes", count):
            return None, 0
        return sum(n > 0 for n in counts), int(sum(counts))

    def _list_fields(self) -> list[Shortfall]:
        if self._commands is None:
            return []
        known = self._commands.list_fields()
        return [
            Shortfall("note", f"sacct has no field {name}", FIELD_COSTS[name], "a newer Slurm has it")
            for name in FIELDS
            if name in FIELD_COSTS and name not in known
        ]


def _list_settings(config: dict[str, str]) -> list[Shortfall]:
    if not config:
        return []
    found = []
    if config.get("AccountingStorageType", "").endswith("none"):
        found.append(
            Shortfall(
                "missing",
                "no accounting",
                "jobs between two questions, and history",
                "set up slurmdbd, and AccountingStorageType=accounting_storage/slurmdbd",
            )
        )
    elif "gres/gpu" not in config.get("AccountingStorageTRES", "").split(","):
        found.append(
            Shortfall(
                "missing",
                "AccountingStorageTRES has no gres/gpu",
                "GPU-hours of history: accounting does not know who held GPUs",
                "add gres/gpu to AccountingStorageTRES in slurm.conf, then restart slurmctld",
            )
        )
    if "jobs" in config.get("PrivateData", "").split(","):
        found.append(
            Shortfall(
                "missing",
                "PrivateData hides jobs",
                "jobs of other users, unless this one may see them",
                "sacctmgr modify user NAME set AdminLevel=Operator",
            )
        )
    if "job_comment" not in config.get("AccountingStoreFlags", "").split(","):
        found.append(
            Shortfall(
                "note",
                "AccountingStoreFlags has no job_comment",
                "experiments named by --comment, in history",
                "add job_comment to AccountingStoreFlags in slurm.conf",
            )
        )
    return found
