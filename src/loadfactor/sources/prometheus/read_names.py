"""Names of metrics of which a decoder reads anything: exporters of GPUs and nodes, and serving engines."""

from functools import lru_cache
from typing import Final

from loadfactor.sources.prometheus.families import find_family
from loadfactor.sources.prometheus.node_source import list_node_names
from loadfactor.sources.serving_engines.engines import is_engines, spell

_OF_NODES: Final = frozenset(list_node_names())


@lru_cache(10_000)
def is_read(name: str) -> bool:
    """True where something is kept of series of this name, as far as their other labels say what they are of.

    >>> is_read("DCGM_FI_DEV_GPU_UTIL"), is_read("node_cpu_seconds_total"), is_read("kube_node_labels")
    (True, True, False)
    """
    return find_family({"__name__": name}) is not None or name in _OF_NODES or is_engines(spell(name))
