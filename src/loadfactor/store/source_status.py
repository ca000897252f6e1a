"""The last reports of live collection on its sources, in a small file of the store: for `doctor`, with a server or without."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadfactor.base.clock import format_utc
from loadfactor.base.health import HealthReason
from loadfactor.base.paths import list_folders
from loadfactor.base.small_json import read_json
from loadfactor.sources.base import SKIPPED
from loadfactor.store import disk

NAME = "sources.json"
RUNNING = "running.json"
"""Digests of the settings that the last server runs by, or ran by."""
MOST_FAILURES = 5
"""So many of a source are remembered."""


@dataclass(frozen=True)
class Failure:
    """A source failed for a time."""

    from_ms: int
    to_ms: int
    error: str


@dataclass(frozen=True)
class TargetGap:
    """One exporter of a group gave nothing for a time; `to_ms` is None while that lasts."""

    target: str
    from_ms: int
    to_ms: int | None
    error: str


@dataclass(frozen=True)
class Skipped:
    """Samples that came since `since_ms` and were not kept, for one of the reasons SKIPPED; `example` is the last such series."""

    reason: str
    count: int
    since_ms: int
    example: str

    @property
    def words(self) -> str:
        """In words.

        >>> Skipped("no_name", 3, 0, "{job up}").words
        '3 samples without a name are not kept, like {job up}'
        """
        noun, verb = ("sample", "is") if self.count == 1 else ("samples", "are")
        like = f", like {self.example}" if self.example else ""
        return f"{self.count:,} {noun} {SKIPPED.get(self.reason, self.reason)} {verb} not kept{like}"


@dataclass(frozen=True)
class SourceStatus:
    """One source: `status` is ok, waiting (nothing came yet), silent (nothing comes any more), absent, degraded or failing.

    A source that is ok has an `error` if its samples are ahead of the clock: they are kept, and booked later.

    A group of exporters has `targets`, of which `answering` answered last; `gaps` are of those that did not. `unknown`: what a
    group of serving engines could not tell, and how often.
    """

    name: str
    status: str
    last_sample_ms: int | None = None
    error: str | None = None
    since_ms: int | None = None  # of the error
    failures: tuple[Failure, ...] = ()  # the last ones that are over
    gaps: tuple[TargetGap, ...] = ()
    targets: int | None = None
    answering: int | None = None
    unknown: tuple[tuple[str, int], ...] = ()
    skipped: tuple[Skipped, ...] = ()


BACKUP = "backup"
"""Sources of this name are backups, which a server lists with what it fetches."""
SET_CLOCKS = "set the clocks of both machines by NTP: `chronyc tracking` on each says how far they are off"
_ACTIONS = {
    "absent": "nothing, unless you use it",
    "silent": "see whether it still runs and sends here",
    "degraded": "see to what the cause names; the rest of the source is collected",
    "ok": "see to what sends it; the rest of the source is collected",
}


def explain_status(status: SourceStatus) -> HealthReason | None:
    """Explain a source that is not well; None if nothing is to be said. What is odd at a source that is ok is a note."""
    if not status.error:
        return None
    kind = status.name.partition(" ")[0]
    if "clock" in status.error:
        action = SET_CLOCKS
    elif kind == BACKUP:
        action = "see that the target exists and can be written; it is tried again every five minutes"
    else:
        action = _ACTIONS.get(
            status.status, "see that it runs and can be reached from here; it is asked again by itself"
        )
    return HealthReason(
        kind if kind in (BACKUP, "clock") else "collector",
        status.name,
        "note" if status.status in ("ok", "waiting", "absent") else "degraded",
        status.error,
        format_utc(status.since_ms),
        action,
    )


def write_statuses(folder: Path, statuses: Sequence[SourceStatus]) -> None:
    """Keep the statuses, in place of those before. Raises OSError where the disk does not take them."""
    _write(folder / NAME, json.dumps([asdict(s) for s in statuses], indent=1))


def write_running(folder: Path, digests: dict[str, str]) -> None:
    """Keep the digests of settings by name, in place of those before. Raises OSError where the disk does not take them."""
    _write(folder / RUNNING, json.dumps(digests, indent=1))


def read_running(folder: Path) -> dict[str, str]:
    """The digests kept last; none where no server ever ran."""
    try:
        return dict(read_json(folder / RUNNING))
    except (OSError, ValueError, TypeError):
        return {}


def _write(path: Path, content: str) -> None:
    new = path.with_suffix(".new")
    disk.write_file(new, content.encode())
    disk.rename(new, path)


def read_statuses(folder: Path) -> list[SourceStatus]:
    """The statuses kept last; none where nothing was ever collected, or the file is not readable: they are no books."""
    found = []
    for of in list_folders(folder):
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            found += [_read_status(one) for one in read_json(of / NAME)]
    return found


def _read_status(one: dict[str, Any]) -> SourceStatus:
    failures = tuple(Failure(**failure) for failure in one["failures"])
    gaps = tuple(TargetGap(**gap) for gap in one.get("gaps", ()))
    unknown = tuple((what, count) for what, count in one.get("unknown", ()))
    skipped = tuple(Skipped(**kind) for kind in one.get("skipped", ()))
    return SourceStatus(**{**one, "failures": failures, "gaps": gaps, "unknown": unknown, "skipped": skipped})
