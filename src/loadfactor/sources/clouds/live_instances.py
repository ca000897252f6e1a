"""Decoder of instances that a cloud lists again and again: what they were when, and what of it outlasts a restart.

An event is [when it was reported (ms), kind, what]. Kinds: `instances` (new or changed ones), `all` (the names of all that
are there), `seen` (they are as before); any other is a list of what explains them. An instance that is not there any more, or was
started again, ended when it was seen last, where nobody says when it did.
"""

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_DAY
from loadfactor.sources.base import Gap, Input, Rows
from loadfactor.sources.clouds.cloud_series import split_documents
from loadfactor.sources.kubernetes.fields import choose_texts, write_tags
from loadfactor.sources.parsing.cells import TableRow, write_tables
from loadfactor.sources.parsing.text_blocks import join_pieces
from loadfactor.tables.schema import table


def write_instance_tags(name: str, tags: Mapping[str, str]) -> str | None:
    """The column `tags`: each as tag.KEY, and what the instance is called as `job_name`; nothing secret.

    >>> write_instance_tags("train-1", {"team": "nlp", "api_key": "x"})
    '{"job_name": "train-1", "tag.team": "nlp"}'
    """
    chosen = {f"tag.{key.removeprefix('label.')}": value for key, value in choose_texts(tags, {}).items()}
    return write_tags({"job_name": name, **chosen})


def read_documents(inputs: Sequence[Input], service: str) -> Iterator[tuple[str, Any]]:
    """The JSON documents of saved answers, each with the label of its file. Raises SourceError for a file that is none."""
    for source in inputs:
        content = join_pieces(source.label, source.chunks, _LARGEST_ANSWER_BYTES, "save fewer instances a file")
        try:
            documents = list(split_documents(content.decode()))
        except (ValueError, RecursionError):
            raise SourceError(f"{source.label} is no JSON of {service}; is it whole?") from None
        yield from ((source.label, document) for document in documents)


_LARGEST_ANSWER_BYTES: Final = 256 * BYTES_PER_MIB
INSTANCES, ALL, SEEN = "instances", "all", "seen"
UNSEEN_END: Final = "instances that ended while nobody watched: taken to end when they were seen last"
KEPT_MS: Final = MS_PER_DAY
"""A run that is over is known for so long: a cloud may say later why it ended."""
_ENDED: Final = ("devices", "allocations")
_VERSION: Final = 1
_QUICK: Final = 1
Listed = dict[str, Any]
Key = tuple[str, Listed]
"""The name of a table, and the key of a row of it."""


class LiveInstanceDecoder(ABC):
    """The rows of one account or project, and its state."""

    family: ClassVar[str]

    def __init__(self, name: str, state: bytes = b"") -> None:
        """`name`: of the account. `state`: as `state()` gave it; empty for a new one. Raises SourceError where it is none."""
        self.label = f"{self.family}:{name}" if name else self.family
        self.runs: dict[str, tuple[int, Listed]] = {}
        """Runs of instances, from start to stop: since when (ms) they are listed so, and how."""
        self.others: dict[str, dict[str, Listed]] = {}
        """Lists that explain them, by kind."""
        self._there: set[str] = set()
        self._last_ms = 0
        self._emitted: dict[str, tuple[int, list[Key]]] = {}
        """Of each run the checksum of its rows as they were emitted last, and their keys."""
        self._lost = 0
        self._is_changed = False
        if state:
            self._restore(state)

    @abstractmethod
    def name_run(self, listed: Listed) -> tuple[str, str]:
        """The name of an instance, and of this run of it."""

    @abstractmethod
    def is_over(self, listed: Listed) -> bool:
        """Whether the run has ended."""

    @abstractmethod
    def write_end(self, listed: Listed, at_ms: int) -> Listed:
        """The run as it would be listed if it had ended then."""

    @abstractmethod
    def list_runs(self) -> Iterator[tuple[str, list[TableRow]]]:
        """The rows of each run."""

    @abstractmethod
    def needs(self, kind: str, listed: Listed, names: set[str]) -> bool:
        """Whether what explains instances explains one of these."""

    def feed(self, events: Sequence[Sequence[Any]]) -> None:
        """Events in the order in which they came."""
        for at_ms, kind, listed in events:
            self._is_changed |= kind != SEEN
            if kind == INSTANCES:
                for one in listed:
                    self._put_instance(one, at_ms)
            elif kind == ALL:
                self._there = set(listed)
                for run, (_, one) in self.runs.items():
                    if self.name_run(one)[0] not in self._there:
                        self._end(run, self._last_ms)
            elif kind != SEEN:
                self.others.setdefault(kind, {}).update({json.dumps(one, sort_keys=True): one for one in listed})
            if kind in (ALL, SEEN):
                self._last_ms = max(at_ms, self._last_ms)

    def _put_instance(self, listed: Listed, at_ms: int) -> None:
        name, run = self.name_run(listed)
        for other, (_, one) in self.runs.items():
            if other != run and self.name_run(one)[0] == name:
                self._end(other, self._last_ms)
        before = self.runs.get(run)
        is_as_over = before is not None and self.is_over(before[1]) and self.is_over(listed)
        self.runs[run] = before[0] if before is not None and is_as_over else at_ms, listed

    def _end(self, run: str, at_ms: int) -> None:
        _, listed = self.runs[run]
        if not self.is_over(listed):
            self.runs[run] = at_ms, self.write_end(listed, at_ms)
            self._lost += 1

    def drain(self) -> Iterator[Rows | Gap]:
        """The rows that are new or changed since they were taken last."""
        if not self._is_changed:
            return
        self._is_changed = False
        yield from write_tables(self._pick_new(), self.label)
        if self._lost:
            yield Gap(self.label, UNSEEN_END, self._lost)
            self._lost = 0
        self._forget()

    def _pick_new(self) -> Iterator[TableRow]:
        for run, rows in self.list_runs():
            check = zlib.crc32(repr(rows).encode(errors="replace"))
            was, keys_before = self._emitted.get(run, (None, []))
            if check == was:
                continue
            keys = [(name, {c: row.get(c) for c in table(name).key}) for name, row in rows]
            for name, key in keys_before:  # what it was called until now
                if name in _ENDED and (name, key) not in keys:
                    yield name, {**key, "to_utc": max(self._last_ms, key["from_utc"] + 1)}
            self._emitted[run] = check, keys
            yield from rows

    def _forget(self) -> None:
        """Know runs no longer that are over for some time, and what explained them."""
        old = [
            run
            for run, (at_ms, listed) in self.runs.items()
            if self.is_over(listed) and self._last_ms - at_ms > KEPT_MS and self._is_gone(run, listed)
        ]
        for run in old:
            del self.runs[run]
            self._emitted.pop(run, None)
        names = {self.name_run(listed)[0] for _, listed in self.runs.values()}
        for kind, some in self.others.items():
            self.others[kind] = {key: one for key, one in some.items() if self.needs(kind, one, names)}

    def _is_gone(self, run: str, listed: Listed) -> bool:
        name = self.name_run(listed)[0]
        return name not in self._there or any(
            other != run and self.name_run(one)[0] == name for other, (_, one) in self.runs.items()
        )

    def state(self) -> bytes:
        """All of it, to go on from here in another process."""
        listed = {
            "version": _VERSION,
            "runs": self.runs,
            "others": self.others,
            "there": sorted(self._there),
            "last": self._last_ms,
            "told": self._emitted,
        }
        return zlib.compress(json.dumps(listed, separators=(",", ":")).encode(), _QUICK)

    def _restore(self, state: bytes) -> None:
        try:
            listed: Mapping[str, Any] = json.loads(zlib.decompress(state))
            if listed["version"] != _VERSION:
                raise SourceError(
                    f"the state of {self.label} is of version {listed['version']!r}; this is another loadfactor"
                )
            self.runs = {run: (at_ms, one) for run, (at_ms, one) in listed["runs"].items()}
            self.others = dict(listed["others"])
            self._there, self._last_ms = set(listed["there"]), listed["last"]
            self._emitted = {
                run: (check, [(name, key) for name, key in keys]) for run, (check, keys) in listed["told"].items()
            }
        except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SourceError(f"the state of {self.label} cannot be read ({type(error).__name__}: {error})") from error
