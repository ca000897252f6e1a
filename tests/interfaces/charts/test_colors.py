"""Colours can be told from what they stand on: 3 : 1 for lines and bars, 4.5 : 1 for words, on a light and on a dark page."""

import re
from pathlib import Path

import pytest

import loadfactor.interfaces.render
from loadfactor.interfaces.charts import Chart, Series, image
from loadfactor.interfaces.charts.labels import CARD, FAINT, INK, PALETTE

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
