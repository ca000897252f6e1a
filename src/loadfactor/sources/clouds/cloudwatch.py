"""CloudWatch: files of metric streams, and saved answers of get-metric-data."""

import re
from typing import Final

from loadfactor.base.units import S_PER_MIN
from loadfactor.sources.base import Source
from loadfactor.sources.clouds.saved_cloudwatch import decode_saved_cloudwatch
from loadfactor.sources.files import find_with, read_with

_OF_FIREHOSE: Final = re.compile(r"-\d{4}(?:-\d\d){5}-[0-9a-f]{8}-")
"""In the name of every file that Firehose writes, in a folder for each hour: an instant, and the beginning of a UUID."""

SOURCE = Source(
    "cloudwatch",
    find_with((".json", ".jsonl", ".ndjson"), "output of CloudWatch", deep=True, without_ending=_OF_FIREHOSE),
    read_with(decode_saved_cloudwatch),
    S_PER_MIN,
    watches=True,
)
