"""Cloud Monitoring: saved answers of ListTimeSeries."""

from loadfactor.base.units import S_PER_MIN
from loadfactor.sources.base import Source
from loadfactor.sources.clouds.saved_monitoring import decode_saved_monitoring
from loadfactor.sources.files import find_with, read_with

SOURCE = Source(
    "gcp-monitoring",
    find_with((".json",), "JSON of ListTimeSeries"),
    read_with(decode_saved_monitoring),
    S_PER_MIN,
    watches=True,
)
