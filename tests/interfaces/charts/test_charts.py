"""Charts: one declaration for every renderer, labels that cover nothing, and colours that can be told apart."""

import re
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from matplotlib.text import Text

from loadfactor.interfaces.charts import Chart, Mark, Reference, Series, image, running, terminal
from loadfactor.interfaces.charts.axes import make_axes, trace
from loadfactor.interfaces.charts.heat import LOOKS
from loadfactor.interfaces.charts.labels import CARD, FAINT, INK, PALETTE, Box, spread
from loadfactor.interfaces.charts.panels import NARROW_PX, WIDE_PX, draw_chart, thin
from loadfactor.interfaces.charts.picture import Sheet, Words, fill
from loadfactor.interfaces.charts.svg import draw_figure
from loadfactor.interfaces.render.ascii import to_ascii
from loadfactor.interfaces.render.html import STYLESHEET

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
    """The figure parses, holds the title as text at either width, no style of its own, and is the same bytes when drawn again."""
    text = draw_figure(chart)
    figure = ElementTree.fromstring(text)
    assert [svg[0].text for svg in figure] == [chart.title] * 2
    assert not [name for part in figure.iter() for name in part.attrib if name in ("style", "id", "fill", "stroke")]
    assert draw_figure(chart) == text


def test_png_is_written(tmp_path: Path) -> None:
    """Several charts go into one PNG under a heading."""
    path = tmp_path / "out.png"
    image.save_png(CHARTS, path, heading="Own 60 GPUs and rent the rest. " * 6)
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
    ticks = (terminal.draw(chart, 80), draw_figure(chart))
    assert all("00:00" in text or "01 Mar" in text for text in ticks)
    assert not any("18:30" in text for text in ticks)
    assert "12:00" in ticks[1]


def test_an_axis_of_time_spans_its_moments() -> None:
    """Three days of which one is known are drawn as three days, and one day as one; not as the years around it."""
    days = [datetime(2026, 10, day, tzinfo=UTC) for day in (24, 25, 26)]
    for moments, values in ((days, (None, 2.0, None)), (days[:1], (2.0,))):
        chart = Chart("wait", "line", moments, (Series("median", values),))
        for text in (terminal.draw(chart, 80), draw_figure(chart)):
            assert "2025" not in text
            assert "2028" not in text
            assert re.search(r"\b(24 Oct|12:00)", text)


def test_a_bar_of_nothing_known_has_no_number() -> None:
    """Unknown is not zero, and zero has no length."""
    parts = (Series("idle", (1.0, None, 0.0)), Series("busy", (2.0, None, 0.0)))
    lines = terminal.draw(Chart("who", "stacked bar", ("a", "b", "c"), parts), 60).splitlines()
    assert [line.split()[-1] for line in lines[-3:]] == ["3", "–", "0"]
    fall = terminal.draw(Chart("way", "waterfall", ("paid", "lost"), (Series("h", (5.0, 0.0)),)), 60).splitlines()
    assert fall[-1].split() == ["lost", "0"]


ROUNDING_PX = 0.5
NAMES = (
    "vision",
    "research",
    "foundation models",
    "self-hosted on our own GPUs",
    "API",
    "p99",
    "a",
    "speech and audio",
)
LABELS = ("today", "break-even", "budget", "planned for March", "peak", "limit of the pool")


@st.composite
def charts(draw: st.DrawFn) -> Chart:
    """Lines with marks and references anywhere, many of them in one place."""
    points = draw(st.integers(2, 30))
    values = st.one_of(st.floats(0, 10), st.sampled_from([0.0, 5.0, 5.01, 10.0]))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=len(NAMES), unique=True))
    series = [Series(name, draw(st.lists(values, min_size=points, max_size=points))) for name in names]
    at = st.one_of(st.floats(0, points - 1), st.just(1.0))
    marks = [
        Mark(draw(at), draw(values), label)
        for label in draw(st.lists(st.sampled_from(LABELS), max_size=4, unique=True))
    ]
    references = [
        Reference(draw(at if axis == "x" else values), f"{axis} {i}", axis)  # type: ignore[arg-type]
        for i, axis in enumerate(draw(st.lists(st.sampled_from("xy"), max_size=4)))
    ]
    kind = draw(st.sampled_from(["line", "step", "scatter"]))
    return Chart("A chart", kind, range(points), series, "hours", "GPUs", marks=marks, references=references)


def assert_apart(*charts: Chart) -> None:
    """No words of a picture cover others or are cut, on a screen and on a phone."""
    for width in (WIDE_PX, NARROW_PX):
        sheet = Sheet(width)
        for chart in charts:
            draw_chart(sheet, chart)
        words = [shape for shape in sheet.shapes if isinstance(shape, Words)]
        boxes = [(w.text, Box(w.left, w.y - w.size * 0.75, w.left + w.width, w.y + w.size * 0.22)) for w in words]
        for (one, first), (other, second) in combinations(boxes, 2):
            assert first.overlap(second) < ROUNDING_PX, f"{one!r} covers {other!r}"
        for text, box in boxes:
            assert Box(-1, -1, width + 1, sheet.bottom + 1).holds(box), f"{text!r} is cut"


def test_words_are_as_wide_as_they_are_measured() -> None:
    """What DejaVu Sans takes of a line, whose letters are the widest that pages fall back to, is what was kept free for it."""
    sheet = Sheet(WIDE_PX)
    for row, chart in enumerate(CHARTS):
        sheet.add(Words(0, row, f"{chart.title} GPU-hours 0.123 %–", bold=row % 2 == 0))
    figure = image.make_figure(sheet)
    for text, words in zip(figure.texts, sheet.shapes, strict=True):
        assert isinstance(words, Words)
        taken = Text.get_window_extent(text).width / figure.dpi * image.PX_PER_IN
        assert 0.88 * words.width < taken < 1.02 * words.width


@settings(max_examples=8, deadline=None, phases=[Phase.generate])
@given(charts())
def test_labels_of_a_picture_are_apart_and_whole(chart: Chart) -> None:
    """Names, marks, references, ticks, titles and keys: no two boxes overlap, none leaves the picture."""
    assert_apart(chart)


@pytest.mark.parametrize("kind", ["bar", "stacked bar", "waterfall"])
def test_labels_of_bars_are_apart_and_whole(kind: Any) -> None:
    """Long names, large numbers and a key of many parts have their own room."""
    names = ("a team with a name that goes on and on and on until it ends somewhere", "b", "c" * 10_000)
    parts = [Series(f"part number {i}", (1e6 + i, 2.5, 0.0)) for i in range(1 if kind == "waterfall" else 6)]
    total = "what is left" if kind == "waterfall" else ""
    note = "A note that says in many words what else there is to know. " * 3
    assert_apart(*[Chart("Bars " * 30, kind, names, parts, y_label="USD", total=total, note=note)] * 2)


def test_a_line_is_thinned_to_what_a_screen_shows() -> None:
    """Of each column of pixels the lowest and the highest value stay, gaps stay gaps, and gaps finer than a column cost no more."""
    xs = np.arange(10_000) / 100
    ys = np.sin(xs) + np.where(np.arange(len(xs)) % 1000 == 7, 5.0, 0.0)
    ys[3000:3250] = np.nan
    runs = thin(xs, ys)
    assert [(int(run[0][0]), int(run[-1][0])) for run in runs] == [(0, 29), (32, 99)]
    assert sum(map(len, runs)) <= 2 * 100 + 4
    for column in (*range(30), *range(33, 100)):
        inside = ys[column * 100 : (column + 1) * 100]
        kept = [y for run in runs for x, y in run if column <= x < column + 1]
        assert (min(kept), max(kept)) == (inside.min(), inside.max())
    ys[::2] = np.nan
    assert sum(map(len, thin(xs, ys))) <= 2 * 100 + 4
    assert thin(xs[:3], np.array([1.0, np.nan, 2.0])) == [[(0.0, 1.0)], [(0.02, 2.0)]]


def test_days_of_a_zone_begin_at_its_midnights() -> None:
    """Ticks of days stand at midnight on both sides of the night in which the clock is set."""
    zone = ZoneInfo("Europe/Berlin")
    days = [datetime(2026, 10, 24, tzinfo=zone) + timedelta(days=n) for n in range(4)]
    chart = Chart("days", "line", days, (Series("full", (1, 2, 3, 4)),))
    ticks = make_axes(chart, [trace(chart, chart.series[0])], 5, 5)[0].ticks
    assert ticks == [(day.timestamp(), day.strftime("%d %b")) for day in days]


@settings(max_examples=25, deadline=None, phases=[Phase.generate])
@given(charts(), st.sampled_from([60, 80, 100]))
def test_labels_of_a_terminal_are_whole(chart: Chart, width: int) -> None:
    """Every mark, reference and name is there from its first letter to its last, in Unicode and in ASCII."""
    text = terminal.draw(chart, width, 13)
    assert max(map(len, text.split("\n"))) <= width
    names = [s.name for s in chart.series] if len(chart.series) > 1 else []
    for label in (*(m.label for m in chart.marks), *(r.label for r in chart.references)):
        assert label in text
        assert label in to_ascii(text)
    for name in names:
        assert name[: width // 3 - 4] in text


@given(st.lists(st.floats(0, 100), min_size=1, max_size=10))
def test_spread_keeps_the_order_and_the_distance(wanted: list[float]) -> None:
    """Labels that fit stay inside, in their order, at least their size apart."""
    centres = spread(wanted, [8.0] * len(wanted), 0.0, 100.0)
    placed = [centres[i] for i in sorted(range(len(wanted)), key=lambda i: wanted[i])]
    assert all(after - before >= 8.0 - 1e-9 for before, after in pairwise(placed))
    assert placed[0] >= 4.0 - 1e-9
    assert placed[-1] <= 96.0 + 1e-9


def test_series_differ_in_ascii() -> None:
    """Lines and bars of several series are drawn with different characters where there is no Unicode."""
    for kind in ("line", "stacked bar"):
        names = ("a", "b") if kind == "stacked bar" else (1, 2)
        chart = Chart("c", kind, names, [Series(f"series {i}", (1, 2)) for i in range(8)])
        text = to_ascii(terminal.draw(chart, 100))
        keys = {text[text.index(f"series {i}") - 2] for i in range(8)}
        assert len(keys) == 8
        assert text.isascii()


GRAPHICS, WORDS = 3.0, 4.5


def luminance(color: str) -> float:
    """Relative luminance of WCAG 2.2."""
    code = color.lstrip("#")
    code = "".join(c * 2 for c in code) if len(code) == 3 else code
    parts = [int(code[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


THEMES = [
    dict(re.findall(r"--(\w+): (#\w+)", block)) for block in re.findall(r"\.loadfactor \{[^}]*--ink[^}]*\}", STYLESHEET)
]


def test_the_ratio_is_that_of_the_standard() -> None:
    """Black on white is 21 : 1."""
    assert contrast("#000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("theme", THEMES, ids=["light", "dark", "print"])
def test_words_and_series_stand_out_on_every_page(theme: dict[str, str]) -> None:
    """Ink, small print and strong words on paper and cards; every colour of a series on cards."""
    for ground in ("paper", "card"):
        for words in ("ink", "faint", "strong"):
            assert contrast(theme[words], theme[ground]) >= WORDS
    for color in (*PALETTE, theme["rule"]):
        assert contrast(color, theme["card"]) >= GRAPHICS


def test_pictures_in_files_stand_out() -> None:
    """A PNG has no page around it: its own ink and small print on its own ground."""
    assert contrast(INK, CARD) >= WORDS
    assert contrast(FAINT, CARD) >= WORDS


def test_a_picture_on_a_page_follows_the_page() -> None:
    """Every colour is a class that the style sheet gives, in files the same ones; what a picture shows is said in words."""
    given = dict(re.findall(r"\.picture \.(\w+) \{ --c: (#\w+|var\(--\w+\));", STYLESHEET))
    assert set(given) == set(image.COLORS)
    assert [given[f"s{i}"].lower() for i in range(len(PALETTE))] == [code.lower() for code in PALETTE]
    chart = Chart("Cost & time", "line", (1, 2), [Series("API", (3, 4)), Series("own", (1, 9))], "h", "USD")
    figure = ElementTree.fromstring(draw_figure(chart))
    classes = {part.get("class", "").split()[-1] for part in figure.iter() if part.tag in ("path", "rect")}
    assert classes <= set(given)
    assert figure.get("role") == "img"
    assert "API: first 3 at 1, last 4 at 2, highest 4 at 2, lowest 3 at 1." in figure.get("aria-label", "")


def test_parts_differ_by_more_than_their_colour() -> None:
    """Each part of a bar has a hatching of its own, and a fall one that a rise has not."""
    parts = [list(fill(0, 0, 40, 40, index))[1:] for index in range(len(PALETTE))]
    assert len({str(lines) for lines in parts}) == len(PALETTE)


def test_a_heat_map_tells_states_apart_by_more_than_their_colour(tmp_path: Path) -> None:
    """Each has a hatching and a character of its own; what was not there is left out; words say how much of each there is."""
    at = [datetime(2026, 10, 5, hour, tzinfo=UTC) for hour in range(6)]
    row = Series("node-1", [0.0, 1.0, *[None] * 4], states=[None, None, "idle", "down", "unobserved", None])
    chart = Chart("Nodes", "heat map", at, [row], "UTC")
    text = terminal.draw(chart, 80)
    assert "node-1 ▁█ix?" in text
    assert to_ascii(text).isascii()
    figure = draw_figure(chart)
    cells = [f'class="{name}"' for name in ("h0", "h5", "s1", "s3", "s6")]
    assert all(figure.count(cell) > figure.count('class="picture') for cell in cells)  # in the key and in the row
    assert len({look[1] for look in LOOKS.values()}) == len(LOOKS) == len({look[2] for look in LOOKS.values()})
    assert (
        "40.0 % working, 50.0 % full on average, 20.0 % held and idle, 20.0 % down, 20.0 % held and unobserved"
        in figure
    )
    image.save_png([chart], tmp_path / "heat.png")
    assert (tmp_path / "heat.png").stat().st_size > 1000
