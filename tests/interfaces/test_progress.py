"""The progress bar: what is done, how fast, and how long it still takes, within the width and only on a terminal."""

import io

import pytest
from rich.console import Console

from loadfactor.base.spelling import HIDDEN
from loadfactor.interfaces.progress import ProgressBar, show_progress


def shown(bar: ProgressBar, width: int = 80) -> str:
    """What the bar shows now."""
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(bar._progress.get_renderable())
    return out.getvalue().rstrip("\n")


def make_bar(now: list[float]) -> ProgressBar:
    """A bar on a terminal of 80 columns whose clock is `now`."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80, _environ={"TERM": "xterm"})
    return ProgressBar(console, lambda: now[0])


def test_the_time_left_is_that_of_the_stage() -> None:
    """Share, pace, elapsed and left are shown; another stage starts afresh."""
    now = [0.0]
    bar = make_bar(now)
    for second in range(5):
        now[0] = float(second)
        bar("writing samples", second / 20)
    assert "writing samples" in shown(bar)
    assert "20 %, 5 %/s, 4 s, 16 s left" in shown(bar)
    bar("booking", 0.0)
    assert "left" not in shown(bar)
    now[0] = 30.0
    assert shown(bar).endswith(" 26 s")


def test_a_stage_that_begins_while_the_bar_is_drawn_is_shown() -> None:
    """Between two stages the share is 0 and the total still known; the time alone is shown."""
    now = [0.0]
    bar = make_bar(now)
    bar("booking", 0.5)
    bar._progress.reset(bar._task)
    now[0] = 3.0
    assert shown(bar).endswith(" 3 s")


def test_a_long_or_hostile_name_stays_in_the_line() -> None:
    """A name with escapes and markup is text, and one line of 80 columns holds it all."""
    now = [0.0]
    bar = make_bar(now)
    for second in range(3):
        now[0] = second * 4000.0
        bar("reading [red]\x1b]0;x\x07\u202e" + "a" * 200, second / 7)
    line = shown(bar)
    assert len(line) <= 80
    assert not HIDDEN.search(line)
    assert r"reading [red]\x1b]" in line
    assert line.endswith(" left")


def test_nothing_is_shown_where_nobody_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe gets nothing, whatever the environment says of colours."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert list(show_progress([1, 2, 3], "counting")) == [1, 2, 3]
    assert capsys.readouterr() == ("", "")
