"""`loadfactor export openmetrics`: the history of `/metrics` in a file, for promtool to make blocks of."""

from dataclasses import dataclass
from datetime import datetime
from shlex import quote

from loadfactor.base.errors import InputError
from loadfactor.base.paths import read_path
from loadfactor.base.quantities import parse_duration_s
from loadfactor.base.units import MS_PER_HOUR, MS_PER_S
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.document import Document, Section, Suggestion
from loadfactor.interfaces.gauges.history import list_texts
from loadfactor.interfaces.progress import ProgressBar
from loadfactor.interfaces.reach import is_empty
from loadfactor.interfaces.render.present import replacing
from loadfactor.interfaces.requests import ExportRequest
from loadfactor.metrics.query.calendar import instant, milliseconds


@dataclass(frozen=True)
class History:
    """What was written."""

    output: str
    start: datetime
    end: datetime
    series: int
    samples: int
    bytes: int


def build_history_page(request: ExportRequest) -> Document:
    """Write the gauges of all full hours into a file, as OpenMetrics. Raises InputError where there is no full hour."""
    path = read_path(request.output)
    if path.is_dir():
        raise InputError(f"--output {path} is a folder; name the file to write, {path / 'loadfactor.om'}")
    books = request.books
    names: set[str] = set()
    samples = 0
    with ProgressBar() as bar, books.snapshot() as snapshot:
        if is_empty(snapshot):
            raise InputError("the books are empty: there is no history to write")
        start, end = _find_full_hours(snapshot, request.last)
        with replacing(path) as beside, beside.open("w", encoding="utf-8", errors="replace") as file:
            for text in list_texts(snapshot, start, end, books.store.currency, bar):
                series = [line.rpartition(" ")[0].rpartition(" ")[0] for line in text.splitlines() if line[0] != "#"]
                samples, names = samples + len(series), names | set(series)
                file.write(text)
    found = History(str(path), start, end, len(names), samples, path.stat().st_size)
    steps = (
        Suggestion(
            f"promtool tsdb create-blocks-from openmetrics {quote(str(path))} data", "blocks that Prometheus reads"
        ),
        Suggestion("mv data/* /var/lib/prometheus/metrics2/", "while it is stopped; its `--storage.tsdb.path`"),
    )
    return Document(
        f"{samples:,} samples of {len(names):,} series are in {path}, from {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC.",
        (Section(lead="On the machine of Prometheus:", suggestions=steps),),
        data=found,
    )


def _find_full_hours(snapshot: Snapshot, last: str | None) -> tuple[datetime, datetime]:
    """The first and the last full hour of the books, or of their last part. Raises InputError where there is none between."""
    first, end = (milliseconds(at) for at in snapshot.span)
    if last is not None:
        first = max(first, end - int(parse_duration_s(last) * MS_PER_S))
    first, end = -(-first // MS_PER_HOUR) * MS_PER_HOUR, end // MS_PER_HOUR * MS_PER_HOUR
    if end <= first:
        raise InputError("there is no full hour in the books, or in that part of them; a gauge speaks of one")
    return instant(first), instant(end)
