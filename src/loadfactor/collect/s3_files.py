"""What lies under a prefix of S3 as files in a folder, to be read from there.

Credentials and region are found as Amazon's tools find them. What S3 throttles is asked again, longer and longer apart.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.collect.cloudwatch import CloudWatchAccess
from loadfactor.collect.fetch_errors import FetchError
from loadfactor.collect.s3_objects import S3Object, S3Objects

Choose = Callable[[Sequence[S3Object]], Sequence[S3Object]]
"""Given the objects in a folder, those to fetch. Raises SourceError where there are none."""


def fetch_files(url: str, folder: Path, progress: Callable[[str, float], None], choose: Choose) -> Path:
    """The objects under `s3://bucket/prefix`, as files named as they are there and as old; their folder, or the one named.

    A prefix is a folder: `cur` does not stand for cur-old/. Raises InputError: no address, no client. SourceError: nothing there,
    or what S3 says, in one line.
    """
    objects = S3Objects(CloudWatchAccess(url), url)
    prefix = objects.prefix
    inside = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
    try:
        found = choose([one for one in objects.list_after("") if one.key == prefix or one.key.startswith(inside)])
        total, done = sum(one.size for one in found) or 1, 0
        for one in found:
            progress(f"fetching {one.key.rpartition('/')[2]}", done / total)
            path = _place(folder / objects.bucket, one.key)
            if not objects.download(one.key, path):
                raise SourceError(f"{objects.name(one.key)} is there no more; list it again")
            os.utime(path, (one.modified_ms / MS_PER_S,) * 2)  # where nothing else says it, the later delivery counts
            done += one.size
    except FetchError as error:
        raise SourceError(f"{url}: {error}") from error
    named = [one.key for one in found] == [prefix]
    return _place(folder / objects.bucket, prefix) if named else folder / objects.bucket


def choose_all(objects: Sequence[S3Object]) -> Sequence[S3Object]:
    """All of them but folders. Raises SourceError where there are none."""
    found = [one for one in objects if not one.key.endswith("/")]
    if not found:
        raise SourceError("nothing lies under this address of S3; `aws s3 ls` lists what is there")
    return found


def _place(folder: Path, key: str) -> Path:
    """Where an object is written: under its name, and never outside the folder. Its folder is made."""
    parts = key.split("/")
    if any(part in (".", "..") or "\0" in part for part in parts):
        raise SourceError(f"{key!r} cannot be the name of a file; name a prefix without it")
    path = folder.joinpath(*(part for part in parts if part))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
