"""CloudWatch: files of metric streams, and saved answers of get-metric-data."""

import re
from pathlib import Path
from typing import Final

from loadfactor.errors import SourceError
from loadfactor.sources.base import Source
from loadfactor.sources.clouds.saved_cloudwatch import decode_saved_cloudwatch
from loadfactor.sources.files import find_with, read_with
from loadfactor.units import S_PER_MIN

_ENDINGS: Final = (".json", ".jsonl", ".ndjson")
_OF_FIREHOSE: Final = re.compile(r"-\d{4}(?:-\d\d){5}-[0-9a-f]{8}-")
"""In the name of every file that Firehose writes: an instant, and the beginning of a UUID. Files of its own need no ending."""
_find_named = find_with(_ENDINGS, "output of CloudWatch")


def _find_files(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Files as named, and those in folders at any depth: Firehose makes a folder for each hour."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found += _find_named((path,))
            continue
        inside = sorted(one for one in path.rglob("*") if one.is_file() and _is_ours(one.name))
        if not inside:
            raise SourceError(
                f"{path} holds no output of CloudWatch ({', '.join(_ENDINGS)}); name the files themselves"
            )
        found += inside
    return tuple(found)


def _is_ours(name: str) -> bool:
    return name.removesuffix(".gz").endswith(_ENDINGS) or _OF_FIREHOSE.search(name) is not None


SOURCE = Source("cloudwatch", _find_files, read_with(decode_saved_cloudwatch), S_PER_MIN, watches=True)
