"""Bills in a bucket of S3, as files in a folder."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.collect.s3_files import fetch_files
from loadfactor.collect.s3_objects import S3Object
from loadfactor.sources.billing.bill_reader import ENDINGS

MANIFEST: Final = "anifest.json"
"""How the name of a file ends that says which of several deliveries of a period is the last."""


def fetch_bills(url: str, folder: Path, progress: Callable[[str, float], None]) -> Path:
    """The bills under `s3://bucket/prefix`, with their manifests. Raises as `fetch_files`; SourceError where there is no bill."""

    def choose(objects: Sequence[S3Object]) -> Sequence[S3Object]:
        prefix = url.partition("://")[2].partition("/")[2]
        found = [one for one in objects if one.key == prefix or one.key.lower().endswith((*ENDINGS, MANIFEST))]
        if not any(one.key == prefix or one.key.lower().endswith(ENDINGS) for one in found):
            raise SourceError(f"{url} holds no bill ({', '.join(ENDINGS)}); `aws s3 ls {url}` lists what is there")
        return found

    return fetch_files(url, folder, progress, choose)
