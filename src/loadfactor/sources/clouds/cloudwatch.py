"""CloudWatch: files of metric streams, and saved answers of get-metric-data."""

from loadfactor.sources.base import Source
from loadfactor.sources.clouds.saved_cloudwatch import decode_saved_cloudwatch
from loadfactor.sources.files import find_with, read_with
from loadfactor.units import S_PER_MIN

SOURCE = Source(
    "cloudwatch",
    find_with((".json", ".jsonl", ".ndjson"), "output of CloudWatch"),
    read_with(decode_saved_cloudwatch),
    S_PER_MIN,
    watches=True,
)
