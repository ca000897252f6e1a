"""Where `loadfactor top` reads: the books of a folder, in which live rows are seen at once, or a server over HTTP."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.books.snapshot import Snapshot
from loadfactor.collect.fetch_errors import FetchError
from loadfactor.interfaces.requests import ShowRequest

LONGEST_ANSWER_S = 30.0


@dataclass(frozen=True)
class TopQuestion:
    """What is asked: metrics by dimensions, over the last part of the books (`last`) or from `start` to `end`.

    `may_lack`: the books may know nothing of that time; then there are no readings.
    """

    metrics: Sequence[str]
    by: Sequence[str] = ()
    last: str | None = None
    start: str | None = None
    end: str | None = None
    where: Sequence[str] = ()
    may_lack: bool = False


class ReadingsReader(Protocol):
    """Something that answers with readings as JSON objects.

    Raises InputError for what cannot be asked, FetchError where a server fails.
    """

    def ask(self, questions: Sequence[TopQuestion]) -> list[list[dict[str, Any]]]:
        """The readings of each question."""
        ...


@dataclass(frozen=True)
class StoreReader:
    """Reads the books of a folder."""

    books: Books

    def ask(self, questions: Sequence[TopQuestion]) -> list[list[dict[str, Any]]]:
        """The readings of each question, all of one snapshot."""
        with self.books.snapshot() as snapshot:
            windows = (_request(question).window(snapshot) for question in questions)
            snapshot.prepare((start, end) for start, end in windows if start is not None and end is not None)
            return [_answer(lambda q: _show(snapshot, q), question) for question in questions]


def _request(question: TopQuestion) -> ShowRequest:
    return ShowRequest(
        metrics=tuple(question.metrics),
        by=tuple(question.by),
        last=question.last,
        start=question.start,
        end=question.end,
        where=tuple(question.where),
        timezone="UTC",
    )


def _show(snapshot: Snapshot, question: TopQuestion) -> list[dict[str, Any]]:
    asked = _request(question)
    start, end = asked.window(snapshot)
    readings = snapshot.show(asked.metrics, asked.by, start, end, asked.zone, where=asked.filters)
    return [reading.as_json() for reading in readings]


def _answer(ask: Callable[[TopQuestion], list[dict[str, Any]]], question: TopQuestion) -> list[dict[str, Any]]:
    try:
        return ask(question)
    except InputError:
        if question.may_lack:
            return []
        raise


@dataclass(frozen=True)
class ServerReader:
    """Asks a server over HTTP."""

    url: str
    token_file: Path | None = None
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=LONGEST_ANSWER_S))

    def ask(self, questions: Sequence[TopQuestion]) -> list[list[dict[str, Any]]]:
        """The readings of each question."""
        return [_answer(self._ask, question) for question in questions]

    def _ask(self, question: TopQuestion) -> list[dict[str, Any]]:
        given: dict[str, Any] = {
            "metric": list(question.metrics),
            "by": list(question.by),
            "last": question.last,
            "from": question.start,
            "to": question.end,
            "where": list(question.where),
        }
        try:
            asked = {name: value for name, value in given.items() if value}
            answer = self.client.get(f"{self.url.rstrip('/')}/api/v1/readings", params=asked, headers=self._headers())
            said = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise FetchError(
                f"{self.url} does not answer as `loadfactor up` does ({error or type(error).__name__})"
            ) from error
        if answer.status_code == httpx.codes.OK and isinstance(said, dict) and isinstance(said.get("readings"), list):
            return list(said["readings"])
        why = said.get("error", answer.reason_phrase) if isinstance(said, dict) else answer.reason_phrase
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            why = f"{why}; give a token that may read with --token-file"
        raise (InputError if answer.status_code == httpx.codes.BAD_REQUEST else FetchError)(f"{self.url}: {why}")

    def _headers(self) -> dict[str, str]:
        if self.token_file is None:
            return {}
        try:
            return {"Authorization": f"Bearer {self.token_file.read_text().strip()}"}
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the token in {self.token_file} cannot be read: {error}") from error
