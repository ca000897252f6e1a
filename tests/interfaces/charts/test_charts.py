"""Charts: one declaration for every renderer, labels that cover nothing, and colours that can be told apart."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import loadfactor.interfaces.render
from loadfactor.interfaces.charts import Chart, Mark, Reference, Series, image, running, terminal
from loadfactor.interfaces.charts.labels import CARD, FAINT, INK, PALETTE, Box, spread
from loadfactor.interfaces.render.ascii import to_ascii

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


def test_an_axis_of_time_spans_its_moments() -> None:
    """Three days of which one is known are drawn as three days, and one day as one; not as the years around it."""
    days = [datetime(2026, 10, day, tzinfo=UTC) for day in (24, 25, 26)]
    for moments, values in ((days, (None, 2.0, None)), (days[:1], (2.0,))):
        chart = Chart("wait", "line", moments, (Series("median", values),))
        for text in (terminal.draw(chart, 80), image.svg(chart)):
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


def written(figure: Any) -> Iterator[tuple[str, Box]]:
    """Every text of a figure with its box in pixels; of the ticks those inside the axes."""
    from matplotlib.text import Text

    texts = []
    for part in [figure, *figure.subfigs]:
        texts += [*part.texts, *(text for legend in part.legends for text in legend.get_texts())]
    for axes in figure.axes:
        texts += [*axes.texts, axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
            texts += [label for at, label in ticks if low <= at <= high and axis.get_visible()]
    for text in dict.fromkeys(texts):
        if text is not None and text.get_text().strip():
            extent = Text.get_window_extent(text)
            yield text.get_text(), Box(extent.x0, extent.y0, extent.x1, extent.y1)


def assert_apart(figure: Any) -> None:
    figure.draw_without_rendering()  # annotations know where they are when they have been drawn
    boxes = list(written(figure))
    for (one, first), (other, second) in combinations(boxes, 2):
        small = Box(
            first.left + ROUNDING_PX, first.bottom + ROUNDING_PX, first.right - ROUNDING_PX, first.top - ROUNDING_PX
        )
        assert small.overlap(second) == 0, f"{one!r} covers {other!r}"
    width, height = figure.bbox.width, figure.bbox.height
    for text, box in boxes:
        assert Box(-1, -1, width + 1, height + 1).holds(box), f"{text!r} is cut"


@settings(max_examples=8, deadline=None, phases=[Phase.generate])
@given(charts())
def test_labels_of_a_picture_are_apart_and_whole(chart: Chart) -> None:
    """Names, marks, references, ticks, titles and legends: no two boxes overlap, none leaves the picture."""
    assert_apart(image.make_figure([chart]))


@pytest.mark.parametrize("kind", ["bar", "stacked bar", "waterfall"])
def test_labels_of_bars_are_apart_and_whole(kind: Any) -> None:
    """Long names, large numbers and a legend of many parts have their own room."""
    names = ("a team with a name that goes on and on and on until it ends somewhere", "b", "c" * 40)
    parts = [Series(f"part number {i}", (1e6 + i, 2.5, 0.0)) for i in range(1 if kind == "waterfall" else 6)]
    total = "what is left" if kind == "waterfall" else ""
    note = "A note that says in many words what else there is to know. " * 3
    assert_apart(
        image.make_figure([Chart("Bars " * 30, kind, names, parts, y_label="USD", total=total, note=note)] * 2)
    )


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
        chart = Chart("c", kind, names, [Series(f"series {i}", (1, 2)) for i in range(8)])  # type: ignore[arg-type]
        text = to_ascii(terminal.draw(chart, 100))
        keys = {text[text.index(f"series {i}") - 2] for i in range(8)}
        assert len(keys) == 8
        assert text.isascii()


CSS = (Path(loadfactor.interfaces.render.__file__).parent / "templates/style.css").read_text()
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


THEMES = [dict(re.findall(r"--(\w+): (#\w+)", block)) for block in re.findall(r"\.loadfactor \{[^}]*--ink[^}]*\}", CSS)]


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


def test_an_inline_picture_follows_the_page() -> None:
    """Words and axes take the page's variables, so that dark mode reaches them; what it shows is said in words."""
    text = image.svg(Chart("Cost & time", "line", (1, 2), [Series("API", (3, 4)), Series("own", (1, 9))], "h", "USD"))
    assert "var(--ink, #222222)" in text
    assert not re.search(rf"(?<!, )({INK}|{FAINT}|{CARD})", text)
    assert 'role="img"' in text
    assert "API: first 3 at 1, last 4 at 2, highest 4 at 2, lowest 3 at 1." in text
    assert " id=" not in re.sub(r"<defs>.*?</defs>", "", text, flags=re.DOTALL)
