"""Which of the processes of a training run this one is: torch.distributed, RANK and WORLD_SIZE, MPI, SLURM_PROCID."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_NAMES: Final = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""Best first: torchrun sets the first pair inside of one Slurm task a node."""
_NODE_NAMES: Final = ("NODE_RANK", "GROUP_RANK")


class Rank(NamedTuple):
    """A place among the processes of a run: the first one is 0."""

    rank: int
    ranks: int


def find_rank(environment: Mapping[str, str], modules: Mapping[str, Any] = sys.modules) -> Rank:
    """The place of this process; 0 of 1 where nobody says. torch is asked only where the run has imported it.

    >>> find_rank({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0"}, {})
    Rank(rank=3, ranks=8)
    >>> find_rank({}, {})
    Rank(rank=0, ranks=1)

    Lightning names its processes by node and place on it, and not how many a node has: then ranks are told apart, with gaps.

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


def is_loader_worker(modules: Mapping[str, Any] = sys.modules) -> bool:
    """Whether this process is a worker of a torch DataLoader: it loads data for a run and is none."""
    data = modules.get("torch.utils.data")
    try:
        return data is not None and data.get_worker_info() is not None
    except Exception:
        return False
