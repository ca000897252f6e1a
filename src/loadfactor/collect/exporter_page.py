"""Exporters, and asking one for its page of metrics."""

import ssl
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from loadfactor.collect.fetch_errors import FetchError
from loadfactor.collect.http_connection import write_address
from loadfactor.collect.http_fetch import FetchBounds, HttpAnswer, HttpRequest, fetch, read_token
from loadfactor.collect.lanes import Lane
from loadfactor.collect.scraped_page import LARGEST_PAGE_BYTES
from loadfactor.sources.prometheus.metrics_page import TargetLabels

USUAL_PATH: Final = "/metrics"
_SAID_CHARACTERS: Final = 100
_ACCEPT: Final = "text/plain;version=0.0.4;q=1,*/*;q=0.1"


@dataclass(frozen=True)
class Target:
    """An exporter: where it listens, what to ask it for, and what its rows are told of it. `path` begins with a slash."""

    host: str
    port: int
    path: str = USUAL_PATH
    is_tls: bool = False
    labels: TargetLabels = ()

    @property
    def address(self) -> str:
        """Host and port, as people write them."""
        return write_address(self.host, self.port)

    @property
    def name(self) -> str:
        """What to call it: where it listens, and its page where that is none of the usual name."""
        return self.address + (self.path if self.path != USUAL_PATH else "")

    @property
    def url(self) -> str:
        """Where its page is."""
        return f"{'https' if self.is_tls else 'http'}://{self.address}{self.path}"


@dataclass(frozen=True)
class ExporterAccess:
    """How the exporters of a group are asked. `tls` checks their certificates; None where none of them has one."""

    bearer_token_file: Path | None = None
    tls: ssl.SSLContext | None = None
    timeout_s: float = 10.0


async def fetch_page(target: Target, access: ExporterAccess, lane: Lane) -> HttpAnswer:
    """The page of an exporter, packed as it packed it. Raises FetchError, of a few words, also where it takes longer than
    `access` allows, and InputError where the token cannot be read."""
    headers = {"Accept": _ACCEPT, **read_token(access.bearer_token_file)}
    request = HttpRequest(target.host, target.port, target.path, access.tls if target.is_tls else None, headers)
    bounds = FetchBounds(LARGEST_PAGE_BYTES, access.timeout_s, access.timeout_s)
    answer = await fetch(request, bounds, lane)
    if answer.status != HTTPStatus.OK:
        said = "" if answer.is_gzip else answer.content[:_SAID_CHARACTERS].decode(errors="replace")
        raise FetchError(" ".join(f"answered {answer.status} {said}".split()))
    return answer
