"""The selector by which a server is asked for what is understood, and for nothing else: other series may be many."""

from typing import Final

from loadfactor.sources.prometheus.families import list_names
from loadfactor.sources.prometheus.node_fields import list_node_names

DCGM_PREFIX: Final = "DCGM_FI_(DEV|PROF)_.*"


def write_selector(match: str = "") -> str:
    """The series of every exporter that is understood; `match` holds further matchers in braces, {cluster="a"}.

    >>> write_selector('{cluster="a"}').startswith('{__name__=~"DCGM_FI_(DEV|PROF)_.*|'), write_selector('{cluster="a"}')[-14:]
    (True, '",cluster="a"}')
    """
    names = "|".join([DCGM_PREFIX, *list_names(), *list_node_names()])
    further = match.strip().removeprefix("{").removesuffix("}").strip().strip(",")
    return f'{{__name__=~"{names}"{"," if further else ""}{further}}}'
