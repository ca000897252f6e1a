"""Clusters that published measurements were made on, with the speed of the network between their nodes.

One TOML file each. `known_by` are words of a paper, repository or file by which a row of measurements is recognised, so that
its network is a fact and not a guess.
"""

from dataclasses import dataclass
from functools import cache

from loadfactor.base.errors import no_such
from loadfactor.catalog.facts import Fact, fact, read_folder


@dataclass(frozen=True)
class PublishedCluster:
    """Nodes of one accelerator and the network between them, bytes/s per GPU and direction.

    `called` is the accelerator its measurements name where they name a plain one and the cluster's is a special part.
    """

    id: str
    name: str
    accelerator: str
    gpus_per_node: int
    known_by: tuple[str, ...]
    scale_out_bytes_per_s: Fact
    called: str


@cache
def clusters() -> tuple[PublishedCluster, ...]:
    """Every cluster of the catalog, in the order of their file names."""
    return tuple(
        PublishedCluster(
            row["id"],
            row["name"],
            row["accelerator"],
            row["gpus_per_node"],
            tuple(row["known_by"]),
            fact(row["scale_out_bytes_per_s"], row, row["id"]),
            row.get("called", row["accelerator"]),
        )
        for row in read_folder(__name__)
    )


def cluster(name: str) -> PublishedCluster:
    """The cluster with this id; raises InputError with the nearest when it is not in the catalog.

    >>> cluster("selene").accelerator
    'a100-sxm'
    """
    found = next((c for c in clusters() if c.id == name.lower()), None)
    if found is None:
        raise no_such("cluster", name, (c.id for c in clusters()))
    return found


def recognize_cluster(text: str, accelerator: str) -> PublishedCluster | None:
    """The cluster of this accelerator a measurement was made on, recognised by the words of its source; None when not known.

    >>> recognize_cluster("VIA-Research/vTrain: ground_truth_multi.csv", "a100-sxm").id
    'vtrain-a100'
    """
    same = (c for c in clusters() if accelerator in (c.accelerator, c.called))
    found = (c for c in same if any(word.lower() in text.lower() for word in c.known_by))
    return next(found, None)
