"""Asking a Prometheus-compatible server for raw samples: a query with a range selector gives them with their own times."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path
from ssl import SSLContext
from typing import Final
from urllib.parse import quote, urlsplit

import httpx

from loadfactor.base.errors import InputError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S
from loadfactor.collect.http_fetch import (
    FetchBounds,
    FetchError,
    HttpAnswer,
    HttpRequest,
    RequestPool,
    TooMuchError,
    fetch,
    find_proxy,
    read_token,
    write_basic,
)

LARGEST_ANSWER_BYTES: Final = 32 * BYTES_PER_MIB
"""Read as JSON it takes some six times as much memory. A server with more is queried for a shorter time."""
_SHOWN_CHARACTERS: Final = 200
_BEGIN: Final = b"{"
_IN_PATHS: Final = "/%:@!$&'()*+,;=~[]"
_NOT_IN_FORMS: Final = re.compile(rb"[^A-Za-z0-9_.~-]")


@dataclass(frozen=True)
class PrometheusServer:
    """A server. `url` is what comes before /api/v1/query; it may hold a name and a password.

    An answer may take twice `timeout_s`, of which not more than `timeout_s` without a byte.
    """

    name: str
    url: str
    bearer_token_file: Path | None = None
    timeout_s: float = 30.0

    def write_query(self, query: Mapping[str, str]) -> HttpRequest:
        """The request with a query. Raises InputError where the address is none, or the token cannot be read."""
        try:
            url = urlsplit(f"{self.url.rstrip('/')}/api/v1/query")
            is_tls = url.scheme == "https"
            port = url.port or (443 if is_tls else 80)
            host = url.hostname or ""
            host = host if host.isascii() else host.encode("idna").decode()
        except ValueError as error:
            raise InputError(f"the address of {self.name} is none: {error}") from error
        if not host:
            raise InputError(f"the address of {self.name} has no host")
        headers = {"Content-Type": "application/x-www-form-urlencoded", **read_token(self.bearer_token_file, self.name)}
        if login := write_basic(url):
            headers["Authorization"] = login
        path = quote(url.path, safe=_IN_PATHS)
        tls = trust_authorities() if is_tls else None
        return HttpRequest(host, port, path, tls, headers, _pack_form(query), find_proxy(url))


def _pack_form(fields: Mapping[str, str]) -> bytes:
    """Fields as the body of a request. Python's own takes a millisecond for the thousands of characters of a selector."""
    packed = [_NOT_IN_FORMS.sub(lambda found: b"%%%02X" % found[0][0], text.encode()) for text in fields.values()]
    return b"&".join(name.encode() + b"=" + text for name, text in zip(fields, packed, strict=True))


@cache
def trust_authorities() -> SSLContext:
    """The authorities that this system trusts, and those that come with Python's clients; or those of SSL_CERT_FILE."""
    tls = httpx.create_ssl_context()
    tls.load_default_certs()
    return tls


def read_clock_ms(answer: HttpAnswer) -> int | None:
    """The clock of a server when it answered, to the second."""
    try:
        return int(parsedate_to_datetime(answer.date).timestamp() * MS_PER_S)
    except (ValueError, OverflowError):
        return None


async def fetch_range(
    server: PrometheusServer, selector: str, from_ms: int, to_ms: int, pool: RequestPool
) -> HttpAnswer:
    """The answer with all samples after `from_ms`, through `to_ms`. Raises as `fetch_answer`."""
    query = {"query": f"{selector}[{to_ms - from_ms}ms]", "time": f"{to_ms / MS_PER_S:.3f}"}
    answer = await fetch_answer(server, query, pool)
    if not answer.content.lstrip().startswith(_BEGIN):
        raise FetchError("its answer is no JSON; is it the address of a Prometheus?")
    return answer


async def fetch_answer(
    server: PrometheusServer, query: Mapping[str, str], pool: RequestPool | None = None
) -> HttpAnswer:
    """The answer to an instant query.

    Raises FetchError in one line, TooMuchError where a shorter time should be requested, and InputError as `write_query`.
    """
    bounds = FetchBounds(LARGEST_ANSWER_BYTES, 2 * server.timeout_s, server.timeout_s, begins=_BEGIN, unpacks=True)
    answer = await fetch(server.write_query(query), bounds, pool or RequestPool())
    if answer.status != HTTPStatus.OK:
        why = _read_error(answer.content)
        is_too_much = (
            answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or "too many samples" in why or "maxSamples" in why
        )
        raise (TooMuchError if is_too_much else FetchError)(f"answered {answer.status}: {why}")
    return answer


def _read_error(content: bytes) -> str:
    try:
        why = str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        why = content[:_SHOWN_CHARACTERS].decode(errors="replace")
    return " ".join(why.split())[:_SHOWN_CHARACTERS]
