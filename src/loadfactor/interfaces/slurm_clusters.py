"""Slurm clusters as the configuration names them, and as they are asked."""

import threading

from loadfactor.collect.slurm_commands import SlurmAccess, SlurmCommands
from loadfactor.collect.slurm_rest import RestAccess, SlurmRest
from loadfactor.settings.clusters import AskedSlurm


def name_slurm(cluster: AskedSlurm) -> str:
    """What its stream is called."""
    return f"slurm {cluster.name}".strip()


def open_slurm(cluster: AskedSlurm, stopped: threading.Event | None = None) -> SlurmCommands | SlurmRest:
    """What the cluster is asked through. `stopped`: set when answers are no longer of use."""
    if cluster.url:
        return SlurmRest(RestAccess(cluster.name, cluster.url, cluster.token_file, cluster.user, cluster.timeout_s))
    return SlurmCommands(SlurmAccess(cluster.name, cluster.command, cluster.bin, cluster.timeout_s), stopped)
