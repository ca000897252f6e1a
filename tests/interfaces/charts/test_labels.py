"""Labels of a chart cover one another neither in a picture nor in a terminal, whatever the series."""

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from loadfactor.interfaces.charts import Chart, Mark, Reference, Series, image, terminal
from loadfactor.interfaces.charts.labels import Box, spread
from loadfactor.interfaces.render.ascii import to_ascii

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
