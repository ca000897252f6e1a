"""Who a run is: its experiment, job and lineage, from what the user said, LOADFACTOR_*, Slurm, Kubernetes, W&B and MLflow."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from .ranks import Rank

_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_LINEAGES: Final = ("LOADFACTOR_RUN", "WANDB_RUN_ID", "MLFLOW_RUN_ID")
"""Variables that name a run over several jobs: whoever resumes it sets them again."""
_LONGEST_NAME: Final = 200


def find_identity(experiment: str | None, job: str | None, environment: Mapping[str, str]) -> dict[str, Any]:
    """What the first line of a file says of the run; what nobody knows is left out.

    >>> said = find_identity("ft-42", None, {"SLURM_JOB_ID": "71", "SLURM_RESTART_COUNT": "1", "WANDB_RUN_ID": "a1"})
    >>> said["job"], said["experiment"], said["run"], said["attempt"]
    ('71', 'ft-42', 'a1', 1)
    """
    experiment = _text(experiment) or environment.get("LOADFACTOR_EXPERIMENT") or None
    scheduler, found = _find_job(environment)
    user = _find_user(environment)
    job = _text(job) or environment.get("LOADFACTOR_JOB") or found or f"{user} {experiment or _script()}"
    restarts = environment.get("SLURM_RESTART_COUNT", "")
    said = {
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
        for name, value in said.items()
        if value is not None
    }


def describe_rank(rank: Rank, counts: str) -> dict[str, Any]:
    """What the first line says of the process among those of its run."""
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
    """The id of the run of W&B, where the script has begun one."""
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
