"""Slurm clusters as the configuration names them, and as they are asked."""

from loadfactor.collect.slurm_commands import SlurmAccess
from loadfactor.configured_clusters import AskedSlurm


def make_slurm_access(cluster: AskedSlurm) -> SlurmAccess:
    """How a cluster is reached."""
    return SlurmAccess(cluster.name, cluster.command, cluster.bin, cluster.timeout_s)
