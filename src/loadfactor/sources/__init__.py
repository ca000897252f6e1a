"""Every kind of input of `loadfactor import`, listed in `SOURCES`: decoders, and readers of the files they are given."""

from collections.abc import Sequence
from difflib import get_close_matches

from loadfactor.errors import InputError
from loadfactor.sources import dcgm, nvidia_smi, own_tables, price_list
from loadfactor.sources.base import Source
from loadfactor.sources.public_traces import alibaba_genai, alibaba_openb

SOURCES: tuple[Source, ...] = (
    nvidia_smi.SOURCE,
    dcgm.SOURCE,
    own_tables.SOURCE,
    price_list.SOURCE,
    alibaba_genai.SOURCE,
    alibaba_openb.SOURCE,
)


def find_source(name: str, sources: Sequence[Source] = SOURCES) -> Source:
    """The one of these sources called `name`. Raises InputError naming the nearest one, and all there are."""
    named = {source.name: source for source in sources}
    if name in named:
        return named[name]
    near = get_close_matches(name.lower().replace("_", "-"), named, 1, 0.4)
    advice = f"did you mean {near[0]}? " if near else ""
    raise InputError(f"no source called {name!r}; {advice}choose from {', '.join(named)}")
