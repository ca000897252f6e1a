"""Asking a Prometheus-compatible server for raw samples: a query with a range selector gives them with their own times."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from loadfactor.errors import InputError, LoadfactorError
from loadfactor.units import BYTES_PER_KIB, BYTES_PER_MIB, MS_PER_S

LARGEST_ANSWER_BYTES = 32 * BYTES_PER_MIB
"""Read as JSON it takes some six times as much memory. A server with more to say is asked for a shorter time."""
LONG_BYTES = BYTES_PER_MIB
MOST_LONG = 2
"""So many answers of more than `LONG_BYTES` are received at once."""
PAUSE_S = 5 / MS_PER_S
"""After each piece of a long answer, for everybody else: servers that never end would take all there is."""
LONGEST_BLANK_BYTES = 100
LONGEST_ERROR_BYTES = 64 * BYTES_PER_KIB
SAID_CHARACTERS = 200


class FetchError(LoadfactorError):
    """A server could not be asked, or did not answer with samples."""


class TooMuchError(FetchError):
    """The answer would be larger than the server or we allow: ask for a shorter time."""


@dataclass(frozen=True)
class PrometheusServer:
    """A server to ask. `url` is what comes before /api/v1/query."""

    name: str
    url: str
    bearer_token_file: Path | None = None
    timeout_s: float = 30.0
    long_answers: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_LONG), compare=False)
    """Shared by those that are asked at once."""

    def headers(self) -> dict[str, str]:
        """What every request says; the token is read each time, so that it may be renewed."""
        if self.bearer_token_file is None:
            return {}
        try:
            return {"Authorization": f"Bearer {self.bearer_token_file.read_text().strip()}"}
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the token of {self.name} cannot be read: {error}") from error


@dataclass(frozen=True)
class QueryAnswer:
    """What a server answered: the JSON as it came, and when by its own clock (the header Date; empty where it says none)."""

    content: bytes
    date: str

    @property
    def now_ms(self) -> int | None:
        """Its clock, to the second."""
        try:
            return int(parsedate_to_datetime(self.date).timestamp() * MS_PER_S)
        except (ValueError, OverflowError):
            return None


async def fetch_range(
    client: httpx.AsyncClient, server: PrometheusServer, selector: str, from_ms: int, to_ms: int
) -> QueryAnswer:
    """The answer with all samples after `from_ms`, through `to_ms`. Raises FetchError in one line."""
    query = {"query": f"{selector}[{to_ms - from_ms}ms]", "time": f"{to_ms / MS_PER_S:.3f}"}
    answer = await fetch_answer(client, server, query)
    if not answer.content[:LONGEST_BLANK_BYTES].lstrip().startswith(b"{"):
        raise FetchError("its answer is no JSON; is it the address of a Prometheus?")
    return answer


async def fetch_answer(client: httpx.AsyncClient, server: PrometheusServer, query: Mapping[str, str]) -> QueryAnswer:
    """The answer to an instant query. Raises FetchError in one line."""
    try:
        async with client.stream(
            "POST",
            f"{server.url.rstrip('/')}/api/v1/query",
            data=query,
            headers=server.headers(),
            timeout=server.timeout_s,
        ) as answer:
            content = await _read(answer, server.long_answers)
    except httpx.HTTPError as error:
        raise FetchError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error
    if answer.status_code != httpx.codes.OK:
        said = _read_error(content)
        raise (TooMuchError if _is_too_much(answer.status_code, said) else FetchError)(
            f"answered {answer.status_code}: {said}"
        )
    return QueryAnswer(content, answer.headers.get("date", ""))


async def _read(answer: httpx.Response, long_answers: asyncio.Semaphore) -> bytes:
    """The answer as far as it is worth reading. Raises TooMuchError."""
    found = bytearray()
    async with AsyncExitStack() as turn:
        async for part in answer.aiter_bytes():
            if len(found) <= LONG_BYTES < len(found) + len(part):
                await turn.enter_async_context(long_answers)
            elif len(found) > LONG_BYTES:
                await asyncio.sleep(PAUSE_S)
            found += part
            is_error = answer.status_code != httpx.codes.OK or not found[:LONGEST_BLANK_BYTES].lstrip().startswith(b"{")
            if is_error and len(found) > LONGEST_ERROR_BYTES:
                break
            if len(found) > LARGEST_ANSWER_BYTES:
                raise TooMuchError(f"its answer is larger than {LARGEST_ANSWER_BYTES / BYTES_PER_MIB:,.0f} MiB")
    return bytes(found)


def _read_error(content: bytes) -> str:
    """What went wrong, as the server says it."""
    try:
        said = str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        said = content[:SAID_CHARACTERS].decode(errors="replace")
    return " ".join(said.split())[:SAID_CHARACTERS]


def _is_too_much(status: int, said: str) -> bool:
    return status == httpx.codes.REQUEST_ENTITY_TOO_LARGE or "too many samples" in said or "maxSamples" in said
