"""The manifest, which names all files of the books: what it says, how it is written down, and what may not be in it.

A reader never looks into the folder, only into the manifest, so it always sees whole imports. Files are immutable: a change
writes new ones. The manifest carries a checksum of itself, and names nothing outside its folder.

Layout of stored samples: their columns in a file, and what a store knows of a file without opening it.

A file holds samples of one UTC day and one range of devices, sorted by device and time. A sample ends at the instant it was taken
(`sampled_utc`). Where its start was not given it covers the gap to the previous sample of its device and source when that gap is at
most `REACH_STEPS` nominal steps, else one nominal step. The step of a source is learnt from all its files (`step_votes`), so a file
keeps the gap and not the start: the start is worked out when the file is read (`sample_files`), and no file changes with the step.

A sample is cut at the hours it may reach into: a row is the part of it in one hour, and the part in its last hour (`late_ms` 0)
stands for the sample as it was taken. How far it may reach: as far as its start was given; else back to the previous sample when
that is no further than `LONGEST_REACH_MS`; else `LONGEST_STEP_MS`.
"""

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from loadfactor.base.errors import DamageError, StoreError
from loadfactor.base.small_json import parse_json
from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.tables.schema import REACH_STEPS, Span

LONGEST_STEP_MS: Final = MS_PER_HOUR
"""Nothing slower is taken for a series."""
LONGEST_REACH_MS: Final = int(REACH_STEPS * LONGEST_STEP_MS)


@dataclass(frozen=True)
class StepVote:
    """Votes of some devices on the step of their source: each device votes for its own most common gap, with all its gaps."""

    source: str
    gap_ms: int
    gaps: int
    first_device: str  # the lowest and the highest name of the devices that vote so
    last_device: str


@dataclass(frozen=True)
class SampleStart:
    """Where the earliest samples of a source begin: one nominal step before `taken_ms`, or not before `given_ms`."""

    source: str
    step_ms: int | None  # stated by the importer
    lone_step_ms: int | None
    taken_ms: (
        int | None
    )  # the first instant at which the first sample of a series was taken, where its start was not given
    given_ms: int | None  # the first start that was given, or sample that another one reaches back to


@dataclass(frozen=True)
class SampleFacts:
    """Facts of a file of samples that are known without opening it."""

    measured: int  # union of the masks
    sources: tuple[str, ...]
    first_device: str
    last_device: str
    first_taken_ms: int  # the first and the last instant that a sample was taken at
    last_taken_ms: int
    given: bool  # some starts were given
    # samples of one device may overlap, of two sources or of given starts: within the file, and with earlier ones of their series
    overlaps: bool
    votes: tuple[StepVote, ...]
    starts: tuple[SampleStart, ...] = ()
    settled: bool = True  # no other file holds earlier or later samples that change the reach of these


FORMAT: Final = 5
"""The format of version 0.1.0. Versions before it, which were never released, wrote 1 to 4."""
NAME: Final = "manifest.json"
OWN_NAME: Final = re.compile(r"[a-z_]+(-[0-9]+)?-[0-9a-f]{32}\.parquet")
"""How the store names its files. What is called otherwise is not its own."""


@dataclass(frozen=True)
class StoredFile:
    """One Parquet file of the books: `[from_ms, to_ms)` covers what its rows speak of, at the widest.

    `is_log`: rows as they were imported, kept so that an import can be taken out again; questions do not read them.
    """

    name: str
    table: str
    rows: int
    bytes: int
    crc32: int
    from_ms: int | None = None
    to_ms: int | None = None
    day: int | None = None  # of samples and the ledger: days since 1970, UTC
    is_log: bool = False
    imports: Span | None = None  # the lowest and the highest number of the imports whose rows it holds
    samples: SampleFacts | None = None
    hours: tuple[Span, ...] | None = (
        None  # of the ledger: the hours of it that count, where not all of them do; of its sums always
    )

    @property
    def booked(self) -> tuple[Span, ...]:
        """Of the ledger and its sums: the hours of it that count."""
        return self.hours or ((self.from_ms or 0, self.to_ms or 0),)

    def keep(self, hours: tuple[Span, ...]) -> "list[StoredFile]":
        """The same with these of its hours alone; nothing where there are none."""
        return [self] if hours == self.booked else [replace(self, hours=hours)] if hours else []

    def holds_import(self, number: int) -> bool:
        """True where it may hold rows of this import."""
        return self.imports is not None and self.imports[0] <= number <= self.imports[1]


@dataclass(frozen=True)
class Loss:
    """A file that was damaged and is in quarantine, what was in it, and the imports (their digests) that would bring it again."""

    name: str
    what: str
    digests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dropped:
    """What the books held and do not any more, since it was older than it is kept.

    `frozen`: UTC days (the first of the books from where they begin) whose samples are gone, and whose ledger stays as booked;
    `changed`: hours of these that rows came for since; `redefined`: hours of these that a ledger of today would define otherwise.
    `votes`: those of the dropped samples on the steps of their sources. `begins_ms`: the books begin here, what was before is gone.
    `rows`: small tables without the rows that ended before an instant.
    """

    frozen: tuple[Span, ...] = ()
    changed: tuple[Span, ...] = ()
    redefined: tuple[Span, ...] = ()
    votes: tuple[StepVote, ...] = ()
    begins_ms: int | None = None
    rows: tuple[tuple[str, int], ...] = ()

    @property
    def hours(self) -> tuple[Span, ...]:
        """The whole hours that are frozen."""
        return merge([(s - s % MS_PER_HOUR, e) for s, e in self.frozen])

    def has_booked(self, file: StoredFile) -> bool:
        """Whether it is the ledger of days without samples, which nothing can be booked from."""
        return file.table == "ledger" and bool(intersect(file.booked, self.hours))

    def lacks_samples(self, day: int) -> bool:
        """Whether the samples of a UTC day (days since 1970) were dropped."""
        start, end = day * MS_PER_DAY, (day + 1) * MS_PER_DAY
        return end <= (self.begins_ms or 0) or any(s < end and e > start for s, e in self.frozen)


@dataclass(frozen=True)
class Manifest:
    """The state of the books at one generation. `stale` lists the spans whose hours the ledger has yet to book."""

    generation: int = 0
    currency: str = ""
    files: tuple[StoredFile, ...] = ()
    last_import: int = 0
    stale: tuple[Span, ...] = ()
    ledger_key: str = ""
    sources_key: str = ""
    live_through: int = 0  # batches of the live log up to this number are in files
    losses: tuple[Loss, ...] = ()
    dropped: Dropped = Dropped()
    trusted_ms: int = 0  # the newest time that the clock may be measured by (`trusted_time`); 0: it is not known

    def of(self, table: str) -> tuple[StoredFile, ...]:
        """The files of one table that questions read."""
        return tuple(f for f in self.files if f.table == table and not f.is_log)

    def logs_of(self, table: str) -> tuple[StoredFile, ...]:
        """The files that hold rows of one table as they were imported."""
        return tuple(f for f in self.files if f.table == table and f.is_log)

    def swap(self, old: tuple[StoredFile, ...], new: tuple[StoredFile, ...]) -> "Manifest":
        """The manifest with some files in place of others."""
        gone = {f.name for f in old}
        return replace(self, files=tuple(f for f in self.files if f.name not in gone) + new)


def name_file(table: str, day: int | None = None) -> str:
    """A new name for a file of a table."""
    return f"{table}-{uuid4().hex}.parquet" if day is None else f"{table}-{day}-{uuid4().hex}.parquet"


def is_booked(table: str) -> bool:
    """Whether it is the ledger or sums of it, which can be made anew from the other tables."""
    return table == "ledger" or table.startswith("ledger_")


def write_down(manifest: Manifest) -> bytes:
    """The manifest as text, with its checksum."""
    body = asdict(manifest)
    return json.dumps({"format": FORMAT, "crc32": _checksum(body), **body}, indent=1).encode()


def understand(content: bytes, path: Path) -> Manifest:
    """The manifest written down in `content`.

    Raises DamageError where it is not what was written, StoreError for another format.
    """
    raw = _parse(content, path)
    found = _format(raw, path)
    if found != FORMAT:
        raise refuse_format(str(path), found, FORMAT)
    body = {name: value for name, value in raw.items() if name not in ("format", "crc32")}
    try:
        if raw.get("crc32") != _checksum(body):
            raise damaged(path, "its checksum is not that of its text")
        manifest = Manifest(
            **body
            | {
                "files": tuple(read_file(f) for f in raw["files"]),
                "stale": _spans(raw["stale"]),
                "losses": tuple(Loss(loss["name"], loss["what"], tuple(loss["digests"])) for loss in raw["losses"]),
                "dropped": _read_dropped(raw["dropped"]),
            }
        )
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, RecursionError) as error:
        raise damaged(path, " ".join(str(error).split())) from error
    _check_types(manifest, path)
    for file in manifest.files:
        if not OWN_NAME.fullmatch(file.name):
            raise damaged(path, f"it names {file.name!r}, which no store wrote")
    return manifest


def _check_types(manifest: Manifest, path: Path) -> None:
    """Refuse a manifest with texts for numbers, and the like, before anything counts with them."""
    texts = [manifest.currency, manifest.ledger_key, manifest.sources_key]
    numbers = [manifest.generation, manifest.last_import, manifest.live_through]
    for file in manifest.files:
        texts += [file.name, file.table]
        numbers += [file.rows, file.bytes, file.crc32]
        numbers += [value for value in (file.from_ms, file.to_ms, file.day) if value is not None]
    wrong: list[object] = [text for text in texts if not isinstance(text, str)]
    wrong += [number for number in numbers if not isinstance(number, int)]
    if wrong:
        raise damaged(path, f"it says {str(wrong[0])[:40]!r} where something else belongs")


def _read_dropped(raw: dict[str, Any]) -> Dropped:
    return Dropped(
        **raw
        | {name: _spans(raw[name]) for name in ("frozen", "changed", "redefined")}
        | {"votes": tuple(StepVote(**vote) for vote in raw["votes"])}
        | {"rows": tuple((name, until) for name, until in raw["rows"])}
    )


def read_file(raw: dict[str, Any]) -> StoredFile:
    """A description of a file from its plain form, as `asdict` makes it."""
    samples = raw["samples"]
    if samples is not None:
        samples = SampleFacts(
            **samples
            | {
                "sources": tuple(samples["sources"]),
                "votes": tuple(StepVote(**vote) for vote in samples["votes"]),
                "starts": tuple(SampleStart(**start) for start in samples["starts"]),
            }
        )
    imports, hours = raw["imports"], raw["hours"]
    return StoredFile(
        **raw
        | {
            "samples": samples,
            "imports": None if imports is None else (imports[0], imports[1]),
            "hours": None if hours is None else _spans(hours),
        }
    )


def refuse_format(name: str, found: int, expected: int) -> StoreError:
    """Return the error for a file of a store in a format that this version does not read."""
    if found > expected:
        advice = "install the newest version of loadfactor"
    else:
        advice = (
            "carry it over: `loadfactor export` of the version that wrote it keeps its ledger and statements as Parquet,"
            " and the files that its `loadfactor imports` lists are imported into a new store"
        )
    return StoreError(f"{name} has format {found}, this version reads {expected}; {advice}")


def damaged(path: Path, why: str) -> DamageError:
    """The error for a file that is not what was written."""
    return DamageError(f"{path} is damaged ({why}); run `loadfactor repair --store {path.parent}`")


def checksum_file(path: Path) -> int:
    """Checksum of a file's bytes, read in pieces: several times faster than a digest, and sure to see a damaged sector."""
    total = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            total = zlib.crc32(piece, total)
    return total


def merge(spans: list[Span]) -> tuple[Span, ...]:
    """The union of spans as disjoint, ordered spans.

    >>> merge([(5, 9), (0, 3), (2, 4), (9, 10)])
    ((0, 4), (5, 10))
    """
    out: list[Span] = []
    for start, end in sorted(s for s in spans if s[0] < s[1]):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return tuple(out)


def subtract(spans: tuple[Span, ...], taken: tuple[Span, ...]) -> tuple[Span, ...]:
    """Remove spans from spans; both disjoint and in order.

    >>> subtract(((0, 10), (20, 30)), ((5, 6), (8, 25)))
    ((0, 5), (6, 8), (25, 30))
    """
    out = []
    for start, end in spans:
        for since, until in taken:
            if since < end and until > start:
                if start < since:
                    out.append((start, since))
                start = max(start, until)
        if start < end:
            out.append((start, end))
    return tuple(out)


def intersect(spans: tuple[Span, ...], others: tuple[Span, ...]) -> tuple[Span, ...]:
    """What both of two lists of spans cover; both disjoint and in order.

    >>> intersect(((0, 10), (20, 30)), ((5, 6), (8, 25)))
    ((5, 6), (8, 10), (20, 25))
    """
    return subtract(spans, subtract(spans, others))


def find_restepped(manifest: Manifest, before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[Span]:
    """The spans of the files that hold samples of a source whose step is another than before."""
    changed = {source for source in {*before, *after} if before.get(source) != after.get(source)}
    for file in manifest.of("samples"):
        if file.samples is not None and changed.intersection(file.samples.sources) and file.from_ms is not None:
            yield file.from_ms, file.to_ms or file.from_ms


def find_moved_ends(before: Span, after: Span) -> tuple[Span, ...]:
    """Parts that two spans do not share: time in which the books begin or end otherwise than before.

    >>> find_moved_ends((10, 20), (12, 30))
    ((10, 12), (20, 30))
    """
    return merge([*subtract((before,), (after,)), *subtract((after,), (before,))])


def _parse(content: bytes, path: Path) -> dict[str, Any]:
    try:
        raw = parse_json(content)
    except ValueError as error:
        raise damaged(path, str(error)) from error
    if not isinstance(raw, dict):
        raise damaged(path, "it is no manifest")
    return raw


def _format(raw: dict[str, Any], path: Path) -> int:
    found = raw.get("format")
    if not isinstance(found, int):
        raise damaged(path, "it names no format")
    return found


def _checksum(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _spans(raw: list[list[int]]) -> tuple[Span, ...]:
    return tuple((s[0], s[1]) for s in raw)
