"""`export openmetrics` writes what /metrics would have shown at each full hour, for a Prometheus that comes later."""

from datetime import UTC, timedelta
from pathlib import Path

import pytest
from tests.books.conftest import Write
from tests.commands import Run
from tests.identities.fleets import make_fleet

from loadfactor.base.units import S_PER_HOUR
from loadfactor.interfaces.gauges.exposition import MetricFamily, write_exposition
from loadfactor.interfaces.gauges.history import DATED_SPLITS, EVERY_S
from loadfactor.interfaces.gauges.measured import measure_split


def read_values(families: list[MetricFamily]) -> dict[str, float]:
    """The value of each series, as /metrics writes them."""
    lines = [line.rpartition(" ") for line in write_exposition(families).decode().splitlines() if line[0] != "#"]
    return {series: float(value) for series, _, value in lines}


@pytest.mark.long
def test_history_is_what_metrics_would_have_shown(write: Write, run: Run, tmp_path: Path) -> None:
    """At full hours, of days that begin at any hour; and again until the next hour ends, never after the books."""
    books = make_fleet(3, tmp_path / "fleet", write, UTC).books
    path = tmp_path / "loadfactor.om"
    where = ("--store", books.store.folder, "--output")
    code, out, err = run("export", "openmetrics", *where, path)
    assert code == 0, err
    assert "promtool tsdb create-blocks-from openmetrics" in out
    *lines, last_line = path.read_text().splitlines()
    assert last_line == "# EOF"
    of_time: dict[int, dict[str, float]] = {}
    for line in lines:
        if line[0] != "#":
            series, value, at = line.rsplit(" ", 2)
            of_time.setdefault(int(at), {})[series] = float(value)
    first, last = books.span
    hour = first.replace(minute=0, second=0, microsecond=0)
    hours = [hour + timedelta(hours=n) for n in (3, 24, 25, 31, 40)]
    assert max(of_time) <= last.timestamp()
    with books.snapshot() as snapshot:
        for moment in hours:
            splits = [
                s for s in DATED_SPLITS if s.window_s == S_PER_HOUR or moment - timedelta(seconds=s.window_s) >= first
            ]
            families = [f for s in splits for f in measure_split(snapshot, s, moment, books.store.currency)]
            at_s = int(moment.timestamp())
            assert of_time[at_s] == pytest.approx(read_values(families), rel=1e-9, abs=1e-9), moment
            assert of_time[at_s + EVERY_S] == of_time[at_s + S_PER_HOUR - EVERY_S] == of_time[at_s]
    code, out, err = run("export", "openmetrics", *where, path, "--last", "3h")
    assert code == 0, err
    times = {int(line.rpartition(" ")[2]) for line in path.read_text().splitlines() if line[0] != "#"}
    assert max(of_time) - 3 * S_PER_HOUR <= min(times) <= max(times) == max(of_time)
    for subject, words, reason in (
        ("openmetrics", (tmp_path,), "is a folder"),
        ("openmetrics", (path, "--last", "10min"), "no full hour"),
        ("ledger", (tmp_path / "lake", "--last", "1d"), "--last is of openmetrics"),
    ):
        code, out, err = run("export", subject, *where, *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert reason in err
