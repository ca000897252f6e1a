"""The selector by which a server is asked for what is understood, and for nothing else: other series may be many."""

from collections.abc import Iterable
from typing import Final

from loadfactor.sources.prometheus.families import list_names
from loadfactor.sources.prometheus.node_fields import list_node_names
from loadfactor.sources.serving_engines import engines

DCGM_PREFIX: Final = "DCGM_FI_(DEV|PROF)_.*"

EXPORTERS: Final = (DCGM_PREFIX, *list_names(), *list_node_names())
ENGINES: Final = tuple(engines.list_names())
ALL: Final = (*EXPORTERS, *ENGINES)
"""The names of what exporters tell, of what serving engines tell, and of both."""


def write_selector(match: str = "", names: Iterable[str] = ALL) -> str:
    """The series of these names; `match` holds further matchers in braces, {cluster="a"}.

    >>> write_selector('{cluster="a"}').startswith('{__name__=~"DCGM_FI_(DEV|PROF)_.*|'), write_selector('{cluster="a"}')[-14:]
    (True, '",cluster="a"}')
    """
    further = match.strip().removeprefix("{").removesuffix("}").strip().strip(",")
    return f'{{__name__=~"{"|".join(names)}"{"," if further else ""}{further}}}'
