"""Objects under a prefix of S3, through Amazon's own client."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S, S_PER_HOUR
from loadfactor.collect.cloudwatch import CloudWatchAccess, describe_error, open_client
from loadfactor.collect.fetch_errors import FetchError

SERVICE: Final = "s3"
SCHEME: Final = "s3://"
OPEN_AGAIN_S: Final = float(S_PER_HOUR) / 2
"""A role's credentials run out."""
_REFUSED: Final = ("AccessDenied", "AllAccessDisabled", "403")
_GONE: Final = ("NoSuchKey", "404")


class S3Object(NamedTuple):
    """One object as it is listed."""

    key: str
    etag: str
    size: int
    modified_ms: int


def split_address(url: str) -> tuple[str, str]:
    """Bucket and prefix of an address. Raises InputError where it names no bucket.

    >>> split_address("s3://bills/cur/2024")
    ('bills', 'cur/2024')
    """
    bucket, _, prefix = url.removeprefix(SCHEME).partition("/")
    if not bucket:
        raise InputError(f"{url} names no bucket; write s3://bucket/prefix")
    return bucket, prefix


class S3Objects:
    """The objects under one prefix."""

    def __init__(self, access: CloudWatchAccess, url: str) -> None:
        """`url`: s3://bucket/prefix. Raises InputError where it names no bucket."""
        self.bucket, self.prefix = split_address(url)
        self._access = access
        self._client: Any = None
        self._opened_s = 0.0

    def name(self, key: str) -> str:
        """The address of an object."""
        return f"{SCHEME}{self.bucket}/{key}"

    def list_after(self, key: str) -> Iterator[S3Object]:
        """Those that come after a key in the order of keys, page after page. Raises FetchError in S3's words."""
        asked = {"StartAfter": key} if key else {}
        with self._asking() as client:
            for page in client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self.prefix, **asked
            ):
                for one in page.get("Contents", ()):
                    modified_ms = round(one["LastModified"].timestamp() * MS_PER_S)
                    yield S3Object(one["Key"], one["ETag"].strip('"'), one["Size"], modified_ms)

    def download(self, key: str, path: Path) -> bool:
        """Write an object into a file; False where it is there no more. Raises FetchError in S3's words."""
        with self._asking() as client:
            try:
                client.download_file(self.bucket, key, str(path))
            except client.exceptions.ClientError as error:
                if error.response.get("Error", {}).get("Code") in _GONE:
                    return False
                raise
        return True

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            if self._client is None or time.monotonic() - self._opened_s > OPEN_AGAIN_S:
                self._client = open_client(self._access, SERVICE)
                self._opened_s = time.monotonic()
            yield self._client
        except ClientError as error:
            raise FetchError(self._describe_refusal(error) or describe_error(error)) from error
        except BotoCoreError as error:
            raise FetchError(describe_error(error)) from error

    def _describe_refusal(self, error: Any) -> str:
        """The line of the policy that is missing, where it is a refusal."""
        if error.response.get("Error", {}).get("Code") not in _REFUSED:
            return ""
        is_list = error.operation_name == "ListObjectsV2"
        action, of = ("s3:ListBucket", self.bucket) if is_list else ("s3:GetObject", f"{self.bucket}/{self.prefix}*")
        line = f'{{"Effect": "Allow", "Action": "{action}", "Resource": "arn:aws:s3:::{of}"}}'
        return f"may not {action}; add {line} to its policy (docs/connect-clouds.md)"
