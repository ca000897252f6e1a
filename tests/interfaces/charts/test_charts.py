"""A chart is one declaration that every renderer can draw, in colour or without, within the width."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import pytest

from loadfactor.interfaces.charts import Chart, Mark, Reference, Series, image, running, terminal

START = datetime(2026, 3, 1, tzinfo=UTC)
CHARTS = (
    Chart(
        "unit cost",
        "line",
        (0.1, 0.5, 1.0),
        (Series("self-hosted", (10, 2, 1)), Series("API", (2, 2, 2), dashed=True)),
        "utilization (share)",
        "$ per million tokens",
        marks=(Mark(0.5, 2.0, "break-even"),),
        references=(Reference(0.35, "today", "x"), Reference(4.0, "budget")),
    ),
    Chart("demand", "step", range(24), (Series("GPUs", [80] * 8 + [20] * 16),), "hour", "GPUs"),
    Chart(
        "waits",
        "line",
        (1, 10, 100),
        (Series("p50", (1e4, 100, 0)), Series("p99", (1e6, None, 3))),
        x_log=True,
        y_log=True,
    ),
    Chart("held", "line", [START + timedelta(hours=h) for h in range(30)], (Series("GPUs", range(30)),)),
    Chart(
        "seen", "line", (1, 2, 3), (Series("predicted", (1, 2, 3)), Series("measured", (1, 2.2, 2.9), kind="scatter"))
    ),
    Chart("spread", "histogram", (0, 0.5, 1.0), (Series("GPU-hours", (3, 7)),)),
    Chart(
        "teams", "bar", ("vision", "a team with a name that goes on and on and on and on"), (Series("$", (10.0, None)),)
    ),
    Chart("states", "stacked bar", ("vision", "nlp"), (Series("busy", (3, 4)), Series("idle", (1, 0)))),
    Chart(
        "money", "waterfall", ("paid", "idle", "lost"), (Series("$", (100, -30, -20)),), total="useful", note="in order"
    ),
    Chart("from $5 to $6 an hour", "line", (1, 2), (Series("$5", (5, 6)), Series("$6", (6, 6)))),
    Chart("one point", "line", (3,), (Series("a", (5,)),)),
    Chart("nothing known", "line", (1, 2), (Series("a", (None, None)),)),
)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda c: c.title)
@pytest.mark.parametrize("width", [60, 80, 100])
def test_terminal_fits_the_width(chart: Chart, width: int) -> None:
    """Without colour no line is wider than asked and none holds an escape code; with colour the words are the same."""
    lines = terminal.draw(chart, width).split("\n")
    assert chart.title in lines[0]
    assert max(map(len, lines)) <= width
    assert "\x1b" not in "".join(lines)
    colored = re.sub(r"\x1b\[[0-9;]*m", "", terminal.draw(chart, width, color=True))
    assert max(len(line.rstrip()) for line in colored.split("\n")) <= width


def test_terminal_names_every_series_and_mark() -> None:
    """Each line's name, each mark and each reference stands in the picture, so it can be read without colour."""
    text = terminal.draw(CHARTS[0], 80)
    for words in ("self-hosted", "API", "break-even", "today", "budget", "utilization (share)", "$ per million tokens"):
        assert words in text


def test_waterfall_steps_down_to_what_is_left() -> None:
    """A waterfall's bars start where the last one ended, and the closing bar shows what remains."""
    assert running([100, -30, -20]) == [(0, 100), (100, 70), (70, 50)]
    assert terminal.draw(CHARTS[8], 80).split("\n")[-2].endswith(" 50")


@pytest.mark.parametrize("chart", CHARTS, ids=lambda c: c.title)
def test_svg_is_well_formed_and_repeatable(chart: Chart) -> None:
    """The SVG parses, holds the title as text, and is the same bytes when drawn again."""
    text = image.svg(chart)
    words = "".join(ElementTree.fromstring(text).itertext())
    assert chart.title in words
    assert image.svg(chart) == text


def test_png_is_written(tmp_path: Path) -> None:
    """Several charts go into one PNG under a heading."""
    path = tmp_path / "out.png"
    image.save(CHARTS[:3], path, heading="Own 60 GPUs and rent the rest. " * 6)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Chart("c", "line", (1, 2), ()), "no series"),
        (lambda: Chart("c", "line", (1, 2), (Series("a", (1,)),)), "needs 1 x, got 2"),
        (lambda: Chart("c", "histogram", (1, 2), (Series("a", (1, 2)),)), "needs 3 x"),
        (lambda: Chart("c", "bar", ("x",), (Series("a", (1,), kind="line"),)), "cannot hold"),
        (lambda: Chart("c", "waterfall", ("x",), (Series("a", (1,)), Series("b", (1,)))), "one series"),
    ],
)
def test_a_chart_that_cannot_be_drawn_is_refused(make: object, says: str) -> None:
    """A declaration that contradicts itself names the chart and the contradiction."""
    with pytest.raises(ValueError, match=says):
        make()  # type: ignore[operator]


def test_moments_are_told_in_the_zone_they_come_in() -> None:
    """A line that starts at midnight in India starts at midnight in the picture, too."""
    zone = ZoneInfo("Asia/Kolkata")
    hours = [datetime(2026, 3, 1, tzinfo=zone) + timedelta(hours=h) for h in range(24)]
    chart = Chart("a day", "line", hours, (Series("full", [0.5] * 24),), x_label="Asia/Kolkata")
    ticks = (terminal.draw(chart, 80), image.svg(chart))
    assert all("00:00" in text or "01 Mar" in text for text in ticks)
    assert not any("18:30" in text for text in ticks)
    assert "12:00" in ticks[1]


def test_a_bar_of_nothing_known_has_no_number() -> None:
    """Unknown is not zero, and zero has no length."""
    parts = (Series("idle", (1.0, None, 0.0)), Series("busy", (2.0, None, 0.0)))
    lines = terminal.draw(Chart("who", "stacked bar", ("a", "b", "c"), parts), 60).splitlines()
    assert [line.split()[-1] for line in lines[-3:]] == ["3", "–", "0"]
    fall = terminal.draw(Chart("way", "waterfall", ("paid", "lost"), (Series("h", (5.0, 0.0)),)), 60).splitlines()
    assert fall[-1].split() == ["lost", "0"]
