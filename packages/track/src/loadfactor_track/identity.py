"""Identity of a run (experiment, job, lineage) and its place among its processes, from the user, the environment and libraries."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

_NAMES: Final = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""Best first: torchrun sets the first pair inside of one Slurm task a node."""
_NODE_NAMES: Final = ("NODE_RANK", "GROUP_RANK")
_LOCAL_NAMES: Final = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")


class Rank(NamedTuple):
    """A place among the processes of a run: the first one is 0."""

    rank: int
    ranks: int


def find_rank(environment: Mapping[str, str], modules: Mapping[str, Any] = sys.modules) -> Rank:
    """The place of this process; 0 of 1 where nobody says. torch is called only where the run has imported it.

    >>> find_rank({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0"}, {})
    Rank(rank=3, ranks=8)
    >>> find_rank({}, {})
    Rank(rank=0, ranks=1)

    Lightning names its processes by node and place on it, and not how many a node has: then ranks are distinct, with gaps.

    >>> find_rank({"NODE_RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, {})
    Rank(rank=5, ranks=4)
    """
    distributed = modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return Rank(int(distributed.get_rank()), int(distributed.get_world_size()))
    except Exception:  # somebody else's code: then the environment says it
        distributed = None
    for rank, ranks in _NAMES:
        place, count = environment.get(rank, ""), environment.get(ranks, "")
        if place.isdigit():
            return Rank(int(place), int(count) if count.isdigit() else 1)
    return _find_local_rank(environment)


def _find_local_rank(environment: Mapping[str, str]) -> Rank:
    local, count = environment.get("LOCAL_RANK", ""), environment.get("WORLD_SIZE", "")
    node = next((environment[name] for name in _NODE_NAMES if environment.get(name, "").isdigit()), "0")
    if not local.isdigit() or not count.isdigit():
        return Rank(0, 1)
    return Rank(int(node) * int(count) + int(local), int(count))


def find_local_rank(environment: Mapping[str, str]) -> int:
    """The place of this process among those of its machine; 0 where nobody says.

    >>> find_local_rank({"LOCAL_RANK": "3", "SLURM_LOCALID": "0"})
    3
    """
    return next((int(place) for name in _LOCAL_NAMES if (place := environment.get(name, "")).isdigit()), 0)


def is_loader_worker(modules: Mapping[str, Any] = sys.modules) -> bool:
    """Whether this process is a worker of a torch DataLoader: it loads data for a run and is none."""
    data = modules.get("torch.utils.data")
    try:
        return data is not None and data.get_worker_info() is not None
    except Exception:
        return False


_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_LINEAGES: Final = ("LOADFACTOR_RUN", "WANDB_RUN_ID", "MLFLOW_RUN_ID")
"""Variables that name a run over several jobs: whoever resumes it sets them again."""
_LONGEST_NAME: Final = 200


def find_identity(experiment: str | None, job: str | None, environment: Mapping[str, str]) -> dict[str, Any]:
    """The fields of the run in the first line of a file; what nobody knows is left out.

    >>> identity = find_identity("ft-42", None, {"SLURM_JOB_ID": "71", "SLURM_RESTART_COUNT": "1", "WANDB_RUN_ID": "a1"})
    >>> identity["job"], identity["experiment"], identity["run"], identity["attempt"]
    ('71', 'ft-42', 'a1', 1)
    """
    experiment = _text(experiment) or environment.get("LOADFACTOR_EXPERIMENT") or None
    scheduler, found = _find_job(environment)
    user = _find_user(environment)
    job = _text(job) or environment.get("LOADFACTOR_JOB") or found or f"{user} {experiment or _script()}"
    restarts = environment.get("SLURM_RESTART_COUNT", "")
    identity = {
        "experiment": experiment,
        "job": job[:_LONGEST_NAME],
        "run": next((environment[name] for name in _LINEAGES if environment.get(name)), None),
        "attempt": int(restarts) if restarts.isdigit() else None,
        "scheduler": scheduler,
        "user": user,
        "host": platform.node(),
        "pid": os.getpid(),
        "wandb": _find_wandb(),
        "mlflow": _find_mlflow(),
    }
    return {
        name: value[:_LONGEST_NAME] if isinstance(value, str) else value
        for name, value in identity.items()
        if value is not None
    }


def describe_rank(rank: Rank, counts: str) -> dict[str, Any]:
    """The fields of the process among those of its run."""
    return {"rank": rank.rank, "ranks": rank.ranks, "counts": counts}


def _find_job(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The scheduler and its name of the job, as the books call it: Slurm's number, a pod's namespace/name."""
    slurm = environment.get("SLURM_JOB_ID")
    if slurm:
        array, task = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
        return "slurm", f"{array}_{task}" if array and task else slurm
    if "KUBERNETES_SERVICE_HOST" in environment:
        pod = environment.get("POD_NAME") or environment.get("HOSTNAME") or platform.node()
        return "kubernetes", f"{environment.get('POD_NAMESPACE') or _read_namespace()}/{pod}"
    return None, None


def _read_namespace() -> str:
    try:
        return _NAMESPACE.read_text().strip() or "default"
    except (OSError, ValueError):
        return "default"


def _find_user(environment: Mapping[str, str]) -> str:
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return environment.get("USER", "somebody")


def _script() -> str:
    return Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"


def _find_wandb() -> str | None:
    try:
        run = getattr(sys.modules.get("wandb"), "run", None)
        return None if run is None else str(run.id)
    except Exception:
        return None


def _find_mlflow() -> str | None:
    try:
        mlflow: Any = sys.modules.get("mlflow")
        run = None if mlflow is None else mlflow.active_run()
        return None if run is None else str(run.info.run_id)
    except Exception:
        return None


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)
