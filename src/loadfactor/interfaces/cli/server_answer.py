"""One answer of a server that runs elsewhere, for commands that take --server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from loadfactor.base.errors import InputError
from loadfactor.collect.http_fetch import FetchError

LONGEST_ANSWER_S = 30.0


def fetch_answer(
    url: str, name: str, parameters: Mapping[str, Any], token_file: Path | None, client: httpx.Client | None = None
) -> dict[str, Any]:
    """Fetch the JSON object at an address, which has a list under `name`.

    Raises InputError if the question is refused or the token cannot be read, FetchError if the server fails.
    """
    server = url.partition("/api/")[0]
    try:
        client = client or httpx.Client(timeout=LONGEST_ANSWER_S)
        answer = client.get(url, params=parameters, headers=_make_headers(token_file))
        payload = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        reason = error or type(error).__name__
        raise FetchError(f"{server} does not answer as `loadfactor up` does ({reason})") from error
    if answer.status_code == httpx.codes.OK and isinstance(payload, dict) and isinstance(payload.get(name), list):
        return payload
    reason = payload.get("error", answer.reason_phrase) if isinstance(payload, dict) else answer.reason_phrase
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        reason = f"{reason}; give a token that may read with --token-file"
    raise (InputError if answer.status_code == httpx.codes.BAD_REQUEST else FetchError)(f"{server}: {reason}")


def _make_headers(token_file: Path | None) -> dict[str, str]:
    if token_file is None:
        return {}
    try:
        return {"Authorization": f"Bearer {token_file.read_text().strip()}"}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the token in {token_file} cannot be read: {error}") from error
