"""Google's billing export in BigQuery: the rows of a table, of one month or all, as a file of JSON to be read from there.

Credentials are found as Google's tools find them (Application Default Credentials).
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from loadfactor.base.errors import InputError, SourceError

SCHEME: Final = "bigquery://"
EMULATOR: Final = "BIGQUERY_EMULATOR_HOST"
"""Where Google's client finds another server in this variable, it is spoken to without credentials."""
_ADDRESS: Final = re.compile(
    r"(?P<table>[\w.:-]+\.\w+\.[\w$-]+)(?:/(?P<year>[0-9]{4})-(?P<month>0[1-9]|1[0-2]))?", re.ASCII
)
_PAGE_ROWS: Final = 10_000
ANSWER_S: Final = 120.0


def fetch_table(url: str, folder: Path, progress: Callable[[str, float], None]) -> Path:
    """The rows of `bigquery://project.dataset.table`, with `/2026-10` those of that invoice month, as lines of JSON in a file.

    A page of rows is in memory at a time. Raises InputError: no address, no client; SourceError: what BigQuery says, in one line.
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
        said = getattr(error, "message", "") or str(error)
        raise SourceError(f"{url}: {' '.join(said.split())[:300]}") from error
    if not done:
        raise SourceError(f"{url} holds no rows; check the month, and that the export has begun")
    return path


def split_address(url: str) -> tuple[str, str]:
    """The table of an address, and the invoice month as BigQuery writes it. Raises InputError where it names no table.

    >>> split_address("bigquery://acme.billing.gcp_billing_export_v1_01/2026-10")
    ('acme.billing.gcp_billing_export_v1_01', '202610')
    """
    found = _ADDRESS.fullmatch(url.removeprefix(SCHEME))
    if found is None:
        raise InputError(f"{url} names no table; write bigquery://project.dataset.table or …table/2026-10")
    return found["table"], f"{found['year'] or ''}{found['month'] or ''}"


def _open_client(bigquery: Any, project: str) -> Any:
    if not os.environ.get(EMULATOR):
        return bigquery.Client(project=project)
    from google.auth.credentials import AnonymousCredentials

    return bigquery.Client(project=project, credentials=AnonymousCredentials())


def _write(value: object) -> object:
    """A value of BigQuery that JSON does not have; numbers as the text that is them."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is in no billing export")
