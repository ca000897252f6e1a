"""Bills in a bucket of S3, through Amazon's own client: what lies under a prefix as files in a folder, to be read from there.

Credentials and region are found as Amazon's tools find them. What S3 throttles is asked again, longer and longer apart.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from loadfactor.collect.cloudwatch import CloudWatchAccess, describe_error, open_client
from loadfactor.errors import InputError, SourceError
from loadfactor.sources.billing.bill_reader import ENDINGS

SCHEME: Final = "s3://"
MANIFEST: Final = "anifest.json"
"""How the name of a file ends that says which of several deliveries of a period is the last."""


def fetch_bills(url: str, folder: Path, progress: Callable[[str, float], None]) -> Path:
    """The bills under `s3://bucket/prefix`, as files named as they are there and as old; their folder, or the one named.

    Raises InputError: no address, no client. SourceError: no bill there, or what S3 says, in one line.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, prefix = split_address(url)
    client = open_client(CloudWatchAccess(url), "s3")
    try:
        found = [o for o in _list_objects(client, bucket, prefix) if _is_bill(o["Key"], prefix)]
        if not any(o["Key"] == prefix or o["Key"].lower().endswith(ENDINGS) for o in found):
            raise SourceError(f"{url} holds no bill ({', '.join(ENDINGS)}); `aws s3 ls {url}` lists what is there")
        total, done = sum(o["Size"] for o in found) or 1, 0
        for one in found:
            progress(f"fetching {one['Key'].rpartition('/')[2]}", done / total)
            path = _place(folder / bucket, one["Key"])
            client.download_file(bucket, one["Key"], str(path))
            os.utime(
                path, (one["LastModified"].timestamp(),) * 2
            )  # where nothing else says it, the later delivery counts
            done += one["Size"]
    except (ClientError, BotoCoreError) as error:
        raise SourceError(f"{url}: {describe_error(error)}") from error
    return _place(folder / bucket, prefix) if found[0]["Key"] == prefix else folder / bucket


def split_address(url: str) -> tuple[str, str]:
    """Bucket and prefix of an address. Raises InputError where it names no bucket.

    >>> split_address("s3://bills/cur/2024")
    ('bills', 'cur/2024')
    """
    bucket, _, prefix = url.removeprefix(SCHEME).partition("/")
    if not bucket:
        raise InputError(f"{url} names no bucket; write s3://bucket/prefix")
    return bucket, prefix


def _list_objects(client: Any, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    """The objects whose keys begin so, page by page."""
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        yield from page.get("Contents", ())


def _is_bill(key: str, prefix: str) -> bool:
    """True for the object that is named, and for bills and manifests in the folder that is: `cur` does not stand for cur-old/."""
    folder = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
    return key == prefix or (key.startswith(folder) and key.lower().endswith((*ENDINGS, MANIFEST)))


def _place(folder: Path, key: str) -> Path:
    """Where an object is written: under its name, and never outside the folder. Its folder is made."""
    parts = key.split("/")
    if any(part in (".", "..") or "\0" in part for part in parts):
        raise SourceError(f"{key!r} cannot be the name of a file; name a prefix without it")
    path = folder.joinpath(*(part for part in parts if part))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
