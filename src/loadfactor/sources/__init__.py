"""What can be read? The outside world, turned into the tables. `SOURCES` lists every kind of input, one file each."""

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
