"""Prometheus text of dcgm-exporter, of any version: one scrape a file, or many one after the other with their times."""

from loadfactor.sources.base import Source
from loadfactor.sources.dcgm.decoder import DEFAULT_STEP_S, decode_scrapes
from loadfactor.sources.files import find_with, read_with

SOURCE = Source(
    "dcgm",
    find_with((".prom", ".txt", ".metrics", ".om"), "text of dcgm-exporter", rotated=True),
    read_with(decode_scrapes),
    DEFAULT_STEP_S,
    watches=True,
)
