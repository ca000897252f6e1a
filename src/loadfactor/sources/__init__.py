"""What can be read? The outside world, turned into the tables. `SOURCES` lists every kind of input, one file each."""

from loadfactor.sources import dcgm, nvidia_smi
from loadfactor.sources.source import Source

SOURCES: tuple[Source, ...] = (nvidia_smi.SOURCE, dcgm.SOURCE)
