"""What was not measured: held time without samples, what imports could not read, and sources that fail."""

from collections.abc import Iterator
from shlex import quote
from typing import Final

from loadfactor.books.check.finding import Examined, Finding
from loadfactor.metrics.query.calendar import instant
from loadfactor.store.import_records import list_imports
from loadfactor.store.source_status import read_statuses

SET_CLOCKS: Final = "set the clocks of both machines by NTP: `chronyc tracking` on each says how far they are off"


def find_unobserved(books: Examined) -> Iterator[Finding]:
    """Held time that nothing measured."""
    coverage = books.totals["observed_gpu_hours"].coverage
    if coverage is not None and coverage < 1:
        there = f" --store {quote(str(books.session.folder))}"
        do = f"check the exporters of the hours in `loadfactor show unobserved_gpu_hours --by day{there}`"
        amounts = books.amounts("unobserved_gpu_hours", "unobserved_cost")
        yield Finding("missing", "not all held time is observed", do, coverage, **amounts)


def find_import_gaps(books: Examined) -> Iterator[Finding]:
    """What imports could not take."""
    for record in list_imports(books.session):
        for where, what, count in record.gaps:
            yield Finding("note", f"{where.rsplit('/', 1)[-1]}: {what} (×{count:,})", "not measured there")


def find_failing_sources(books: Examined) -> Iterator[Finding]:
    """Sources of live collection that send nothing, or sent nothing for a while, as the server said it last."""
    for source in read_statuses(books.session.folder):
        if source.status == "absent":
            yield Finding("note", f"{source.name}: {source.error}", "nothing, unless you use it")
        elif source.error:
            since = f" since {instant(source.since_ms):%Y-%m-%d %H:%M} UTC" if source.since_ms else ""
            do = SET_CLOCKS if "clock" in source.error else "see /health of `loadfactor up`"
            yield Finding("missing", f"{source.name} is {source.status}{since}: {source.error}", do)
        for gap in source.gaps:
            began = f"{source.name}: {gap.target} gave nothing"
            if gap.to_ms is None:
                since = f"{instant(gap.from_ms):%Y-%m-%d %H:%M} UTC"
                yield Finding("missing", f"{began} since {since}: {gap.error}", "start it, or take it off the list")
            else:
                yield Finding(
                    "note", f"{began} from {_say_times(gap.from_ms, gap.to_ms)}: {gap.error}", "not measured there"
                )
        for what, count in source.unknown:
            yield Finding("note", f"{source.name}: {what} (×{count:,})", "it counts as unknown")
        for failure in source.failures:
            times = _say_times(failure.from_ms, failure.to_ms)
            yield Finding(
                "note",
                f"{source.name} failed from {times}: {failure.error}",
                "it was asked for that time later",
            )


def _say_times(from_ms: int, to_ms: int) -> str:
    return f"{instant(from_ms):%Y-%m-%d %H:%M} to {instant(to_ms):%Y-%m-%d %H:%M} UTC"
