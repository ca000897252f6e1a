"""Two runs side by side: numbers are those of `show`, the sentence follows from them, and what is unknown stays so."""

import json
from pathlib import Path

import pytest
from tests.commands import Run

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.insight.comparison import COMPARED, PRICE, SPEED

FAST, SLOW, SILENT = "481776", "481790", "481802"
"""Jobs of October: the first two report tokens and samples, the third nothing."""


@pytest.mark.long
def test_every_number_is_that_of_show(october: Path) -> None:
    """Values of both sides are the readings of their metrics, and the cheaper one is named with what it saves."""
    page = loadfactor.compare(FAST, SLOW, store=october)
    books = Books.open(october)
    for side, job in (("first", FAST), ("second", SLOW)):
        shown = {r.metric: r.value for r in books.show(COMPARED, where={"job": job})}
        assert {v.metric: getattr(v, side) for v in page.data.values} == {
            v.metric: shown[v.metric] for v in page.data.values
        }
    costs = {v.metric: (v.first, v.second) for v in page.data.values}
    low, high = costs["cost_per_token"]
    assert (page.data.by, page.data.better, page.data.saves) == ("cost_per_token", FAST, high - low)
    assert (page.data.why, page.data.shown_by) == (SPEED, "utilization")
    assert page.headline == (
        "481776 is better: $0.0816 per million tokens instead of $0.13, $0.0519 (38.9 %) less, above all by its training speed of a"
        " GPU, 8,000 instead of 4,889 tokens/s (utilization, 72.2 % instead of 43.7 %)."
    )


@pytest.mark.long
def test_the_order_of_the_two_changes_only_the_sides(october: Path) -> None:
    """Asked the other way round the same one is better, for the same reason."""
    one, other = (loadfactor.compare(*runs, store=october).data for runs in ((FAST, SLOW), (SLOW, FAST)))
    for name in ("by", "better", "saves", "why", "shown_by"):
        assert getattr(one, name) == getattr(other, name)


@pytest.mark.long
def test_a_price_is_the_reason_where_speed_is_not(october: Path) -> None:
    """A run beside itself at another price is no faster: what an effective GPU-hour costs says why."""
    week = loadfactor.compare("2026-W41", f"job={FAST}", store=october).data
    assert week.better == FAST
    assert week.why in (SPEED, PRICE)


@pytest.mark.long
def test_what_is_unknown_stays_unknown(run: Run, october: Path) -> None:
    """Where one of the two made nothing that is counted nobody is better, its cells are empty, and the page says it."""
    code, out, _ = run("compare", FAST, SILENT, "--store", october)
    assert code == 0
    assert " ".join(out.split()).startswith("Nobody can say which of 481776 and 481802 is better in money")
    data = json.loads(run("compare", FAST, SILENT, "--store", october, "--json")[1])
    assert (data["better"], data["saves"], data["why"]) == (None, None, None)
    assert {v["metric"]: v["second"] for v in data["values"]}["cost_per_token"] is None


@pytest.mark.parametrize(
    ("runs", "wrong"),
    [
        (("nobody", FAST), "no job, experiment or team 'nobody'"),
        (("2026-W60", FAST), "no week"),
        ((FAST, "2025-W01"), "know nothing of that time"),
    ],
)
def test_what_the_books_do_not_know_is_refused(october: Path, runs: tuple[str, str], wrong: str) -> None:
    """A name of nothing, and a week that is none or lies elsewhere, are refused in one line."""
    with pytest.raises(InputError, match=wrong):
        loadfactor.compare(*runs, store=october)
