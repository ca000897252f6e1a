"""Prometheus text of dcgm-exporter, of any version: one scrape a file, or many one after the other with their times."""

from loadfactor.sources.base import Source
from loadfactor.sources.dcgm.decoder import decode_scrapes
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.parsing.steps import EXPORTER_STEP_S

SOURCE = Source(
    "dcgm",
    find_with((".prom", ".txt", ".metrics", ".om"), "text of dcgm-exporter", rotated=True),
    read_with(decode_scrapes),
    EXPORTER_STEP_S,
    watches=True,
    uses=("at", "step", "node", "pool", "job"),
)
