"""Bills in the cloud as files in a folder, to be read from there: objects of S3, and Google's billing export in BigQuery.

Credentials are found as the clouds' own tools find them. Requests that S3 throttles are repeated, longer and longer apart.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from loadfactor.base.errors import InputError, SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.collect.amazon import S3Object, S3Objects
from loadfactor.collect.http_fetch import FetchError
from loadfactor.settings.sources import CloudWatchAccount
from loadfactor.sources.billing.bill_reader import ENDINGS

BIGQUERY: Final = "bigquery://"
EMULATOR: Final = "BIGQUERY_EMULATOR_HOST"
"""Where Google's client finds another server in this variable, it is spoken to without credentials."""
_ADDRESS: Final = re.compile(
    r"(?P<table>[\w.:-]+\.\w+\.[\w$-]+)(?:/(?P<year>[0-9]{4})-(?P<month>0[1-9]|1[0-2]))?", re.ASCII
)
_PAGE_ROWS: Final = 10_000
ANSWER_S: Final = 120.0
MANIFEST: Final = "anifest.json"
"""How the name of a file ends that says which of several deliveries of a period is the last."""

Choose = Callable[[Sequence[S3Object]], Sequence[S3Object]]
"""Given the objects in a folder, those to fetch. Raises SourceError where there are none."""


def fetch_bills(url: str, folder: Path, progress: Callable[[str, float], None]) -> Path:
    """The bills under `s3://bucket/prefix`, with their manifests. Raises as `fetch_files`; SourceError where there is no bill."""

    def choose(objects: Sequence[S3Object]) -> Sequence[S3Object]:
        prefix = url.partition("://")[2].partition("/")[2]
        found = [item for item in objects if item.key == prefix or item.key.lower().endswith((*ENDINGS, MANIFEST))]
        if not any(item.key == prefix or item.key.lower().endswith(ENDINGS) for item in found):
            raise SourceError(f"{url} holds no bill ({', '.join(ENDINGS)}); `aws s3 ls {url}` lists what is there")
        return found

    return fetch_files(url, folder, progress, choose)


def fetch_files(url: str, folder: Path, progress: Callable[[str, float], None], choose: Choose) -> Path:
    """The objects under `s3://bucket/prefix`, as files named as they are there and as old; their folder, or the one named.

    A prefix is a folder: `cur` does not stand for cur-old/. Raises InputError: no address, no client. SourceError: nothing there,
    or in S3's words, in one line.
    """
    objects = S3Objects(CloudWatchAccount(), url)
    prefix = objects.prefix
    inside = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
    try:
        found = choose([item for item in objects.list_after("") if item.key == prefix or item.key.startswith(inside)])
        total, done = sum(item.size for item in found) or 1, 0
        for item in found:
            progress(f"fetching {item.key.rpartition('/')[2]}", done / total)
            path = _make_path(folder / objects.bucket, item.key)
            if not objects.download(item.key, path):
                raise SourceError(f"{objects.name(item.key)} is there no more; list it again")
            os.utime(path, (item.modified_ms / MS_PER_S,) * 2)  # where nothing else says it, the later delivery counts
            done += item.size
    except FetchError as error:
        raise SourceError(f"{url}: {error}") from error
    named = [item.key for item in found] == [prefix]
    return _make_path(folder / objects.bucket, prefix) if named else folder / objects.bucket


def choose_all(objects: Sequence[S3Object]) -> Sequence[S3Object]:
    """All of them but folders. Raises SourceError where there are none."""
    found = [item for item in objects if not item.key.endswith("/")]
    if not found:
        raise SourceError("nothing lies under this address of S3; `aws s3 ls` lists what is there")
    return found


def _make_path(folder: Path, key: str) -> Path:
    """Where an object is written: under its name, and never outside the folder. Its folder is made."""
    parts = key.split("/")
    if any(part in (".", "..") or "\0" in part for part in parts):
        raise SourceError(f"{key!r} cannot be the name of a file; name a prefix without it")
    path = folder.joinpath(*(part for part in parts if part))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def fetch_table(url: str, folder: Path, progress: Callable[[str, float], None]) -> Path:
    """The rows of `bigquery://project.dataset.table`, with `/2026-10` those of that invoice month, as lines of JSON in a file.

    A page of rows is in memory at a time. Raises InputError: no address, no client; SourceError in BigQuery's words, in one line.
    """
    table, month = split_address(url)
    where = f" WHERE invoice.month = '{month}'" if month else ""
    path = folder / f"{table.rpartition('.')[2]}{f'-{month}' if month else ''}.jsonl"
    try:
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError
        from google.cloud import bigquery
    except ImportError as error:
        raise InputError("google-cloud-bigquery is not installed: `pip install 'loadfactor[gcp]'`") from error
    try:
        with (
            closing(_open_client(bigquery, table.partition(".")[0])) as client,
            path.open("w", encoding="utf-8") as file,
        ):
            rows = client.query_and_wait(f"SELECT * FROM `{table}`{where}", page_size=_PAGE_ROWS, api_timeout=ANSWER_S)
            done = 0
            for page in rows.pages:
                for row in page:
                    file.write(json.dumps(dict(row.items()), default=_write, ensure_ascii=False) + "\n")
                    done += 1
                progress(f"fetching {done:,} rows", min(done / (rows.total_rows or 1), 1.0))
    except (GoogleAPIError, GoogleAuthError) as error:
        why = getattr(error, "message", "") or str(error)
        raise SourceError(f"{url}: {' '.join(why.split())[:300]}") from error
    if not done:
        raise SourceError(f"{url} holds no rows; check the month, and that the export has begun")
    return path


def split_address(url: str) -> tuple[str, str]:
    """The table of an address, and the invoice month as BigQuery writes it. Raises InputError where it names no table.

    >>> split_address("bigquery://acme.billing.gcp_billing_export_v1_01/2026-10")
    ('acme.billing.gcp_billing_export_v1_01', '202610')
    """
    found = _ADDRESS.fullmatch(url.removeprefix(BIGQUERY))
    if found is None:
        raise InputError(f"{url} names no table; write bigquery://project.dataset.table or …table/2026-10")
    return found["table"], f"{found['year'] or ''}{found['month'] or ''}"


def _open_client(bigquery: Any, project: str) -> Any:
    if not os.environ.get(EMULATOR):
        return bigquery.Client(project=project)
    from google.auth.credentials import AnonymousCredentials

    return bigquery.Client(project=project, credentials=AnonymousCredentials())


def _write(value: object) -> object:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is in no billing export")
