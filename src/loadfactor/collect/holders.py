"""Holders of GPUs that are ended, at most once: a job of Slurm by scancel, the owner of pods by scaling it to zero."""

from typing import Final

from loadfactor.base.units import MS_PER_S
from loadfactor.collect.kubernetes_api import KubernetesApi
from loadfactor.collect.slurm_commands import CommandError, SlurmCommands
from loadfactor.settings.sources import KubernetesCluster, SlurmCluster
from loadfactor.sources.slurm.jobs import OPEN_STATES

ROUNDING_MS: Final = 2 * MS_PER_S
"""Slurm knows starts to the second."""


def cancel_job(cluster: SlurmCluster, job: str, began_ms: int) -> str:
    """Cancel a job of Slurm unless it is over, or is another run than the one that began then; what was done.

    Raises CommandError where Slurm cannot be asked or refuses.
    """
    if cluster.url:
        raise CommandError("it is asked through slurmrestd; scancel needs [[slurm]] with its commands")
    commands = SlurmCommands(cluster)
    found = commands.list_queue().jobs.to_pylist()
    runs = [run for run in found if run["job_id"] == job and run["state"] in OPEN_STATES]
    if not runs:
        return "nothing: it has ended"
    if abs((runs[0]["started"] or 0) - began_ms) > ROUNDING_MS:
        return "nothing: it has begun anew since"
    commands.run("scancel", job)
    return f"scancel {job}"


def scale_owner(cluster: KubernetesCluster, namespace: str, owner: str) -> str:
    """Scale the owner of pods, Kind/name, to no pods; what was done. Raises KubernetesError where that cannot be."""
    kind, _, name = owner.partition("/")
    return KubernetesApi(cluster).scale_to_zero(kind, namespace, name)
