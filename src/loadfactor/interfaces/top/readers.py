"""Where `loadfactor top` reads: the books of a folder, in which live rows are seen at once, or a server over HTTP."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any, Literal, Protocol

import httpx

from loadfactor.base.errors import InputError
from loadfactor.base.units import S_PER_HOUR, S_PER_MIN
from loadfactor.books.books import Books
from loadfactor.books.snapshot import Snapshot
from loadfactor.collect.http_fetch import FetchError
from loadfactor.interfaces.requests import ShowRequest
from loadfactor.metrics.query.reading import iso
from loadfactor.tables.schema import DEFAULT_CURRENCY

Grouping = Literal["gpu", "node", "job", "team"]
DIMENSIONS: dict[str, tuple[str, ...]] = {
    "gpu": ("device", "node", "job"),
    "node": ("node",),
    "job": ("job", "team"),
    "team": ("team",),
}
"""Dimensions of the rows of a grouping."""
METRICS = (
    *("paid_gpu_hours", "allocation", "utilization", "sm_activity", "mem_utilization", "power_w", "temperature_c_max"),
    "cost",
)
STEP = timedelta(seconds=5 * S_PER_MIN)
STEPS = 12


@dataclass(frozen=True)
class TopRow:
    """Work of one group over the window; None where it is unknown. `gpus` is their mean number, shares are of 1."""

    names: tuple[str | None, ...]
    gpus: float | None
    held: float | None
    utilization: float | None
    sm_activity: float | None
    memory: float | None
    power_w: float | None
    temperature_c: float | None
    cost_per_hour: float | None


@dataclass(frozen=True)
class TopAnswer:
    """The fleet and its groups over [start, end)."""

    grouping: Grouping
    start: datetime | None
    end: datetime | None
    currency: str
    fleet: TopRow | None
    rows: tuple[TopRow, ...]


@dataclass(frozen=True)
class GpuHistory:
    """One GPU's last hour: its step that ends at `ends[i]` is `steps[i]`."""

    gpu: str
    ends: tuple[datetime, ...]
    steps: tuple[TopRow, ...]
    currency: str


def ask_top(reader: "ReadingsReader", grouping: Grouping, last: str, where: Sequence[str] = ()) -> TopAnswer:
    """The last window of the fleet and its groups. Raises as the reader."""
    whole = TopQuestion(METRICS, last=last, where=where)
    fleet, split = reader.ask([whole, replace(whole, by=DIMENSIONS[grouping])])
    groups: dict[tuple[str | None, ...], list[Mapping[str, Any]]] = {}
    for reading in split:
        groups.setdefault(tuple(reading["by"].values()), []).append(reading)
    rows = tuple(read_row(names, readings) for names, readings in groups.items())
    start, end = _read_window(fleet)
    currency = next((r["currency"] for r in fleet if r["currency"]), DEFAULT_CURRENCY)
    return TopAnswer(grouping, start, end, currency, read_row((), fleet) if fleet else None, rows)


def find_gpu(answer: TopAnswer, begins: str) -> str:
    """The GPU whose name begins so. Raises InputError where none or several do."""
    found = {row.names[0] for row in answer.rows if row.names[0] and row.names[0].startswith(begins)}
    if len(found) == 1:
        (name,) = found
        assert name is not None
        return name
    some = "several GPUs begin" if found else "no GPU begins"
    raise InputError(f"{some} with {begins!r}; `loadfactor top --by gpu --once` lists them")


def ask_history(reader: "ReadingsReader", gpu: str, end: datetime, known: GpuHistory | None = None) -> GpuHistory:
    """One GPU's hour up to `end`, in steps of the clock; steps of `known` that are over are not read again."""
    size_s = STEP.total_seconds()
    last = datetime.fromtimestamp(ceil(end.timestamp() / size_s) * size_s, end.tzinfo)
    ends = tuple(last - STEP * back for back in reversed(range(STEPS)))
    over = dict(zip(known.ends[:-2], known.steps, strict=False)) if known is not None and known.gpu == gpu else {}
    new = [at for at in ends if at not in over]
    where = (f"device={gpu}",)
    questions = [
        TopQuestion(METRICS, start=iso(at - STEP), end=iso(min(at, end)), where=where, may_lack=True) for at in new
    ]
    answers = dict(zip(new, reader.ask(questions), strict=True))
    currency = next((r["currency"] for readings in answers.values() for r in readings if r["currency"]), "")
    steps = tuple(over[at] if at in over else read_row((gpu,), answers[at]) for at in ends)
    return GpuHistory(gpu, ends, steps, currency or (known.currency if known is not None else DEFAULT_CURRENCY))


def read_row(names: tuple[str | None, ...], readings: Sequence[Mapping[str, Any]]) -> TopRow:
    """A row from the readings of one group."""
    value = {reading["metric"]: reading["value"] for reading in readings}
    start, end = _read_window(readings)
    hours = (end - start).total_seconds() / S_PER_HOUR if start and end else 0.0

    def each_hour(amount: float | None) -> float | None:
        return None if amount is None or not hours else amount / hours

    return TopRow(
        names,
        each_hour(value.get("paid_gpu_hours")),
        value.get("allocation"),
        value.get("utilization"),
        value.get("sm_activity"),
        value.get("mem_utilization"),
        value.get("power_w"),
        value.get("temperature_c_max"),
        each_hour(value.get("cost")),
    )


def _read_window(readings: Sequence[Mapping[str, Any]]) -> tuple[datetime | None, datetime | None]:
    if not readings:
        return None, None
    return datetime.fromisoformat(readings[0]["from"]), datetime.fromisoformat(readings[0]["to"])


LONGEST_ANSWER_S = 30.0


@dataclass(frozen=True)
class TopQuestion:
    """Metrics by dimensions, over the last part of the books (`last`) or from `start` to `end`.

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

    Raises InputError for a question that cannot be answered, FetchError where a server fails.
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
    request = _request(question)
    start, end = request.window(snapshot)
    readings = snapshot.show(request.metrics, request.by, start, end, request.zone, where=request.filters)
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
        payload = self.get("/api/v1/readings", "readings", {name: value for name, value in given.items() if value})
        return list(payload["readings"])

    def get(self, path: str, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The answer at a path, whose list has this name. InputError for what is refused, FetchError where the server fails."""
        try:
            answer = self.client.get(f"{self.url.rstrip('/')}{path}", params=parameters, headers=self._headers())
            payload = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise FetchError(
                f"{self.url} does not answer as `loadfactor up` does ({error or type(error).__name__})"
            ) from error
        if answer.status_code == httpx.codes.OK and isinstance(payload, dict) and isinstance(payload.get(name), list):
            return payload
        why = payload.get("error", answer.reason_phrase) if isinstance(payload, dict) else answer.reason_phrase
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
