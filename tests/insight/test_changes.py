"""Why a number changed: parts that add up, the cause of a change first, and closed months to the cent."""

import itertools
import random
from datetime import timedelta
from math import fsum
from pathlib import Path

import numpy as np
import pytest
from tests.insight.changed_fleets import CAUSES, write_change
from tests.ledger.fleets import Fleet, add, batches
from tests.long import rest_long

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.insight.changes import divide_change, explain_change
from loadfactor.metrics import METRICS, metric
from loadfactor.metrics.factors import Factors, find_factors
from loadfactor.metrics.metric import Made, Quantile, Ratio, Sum

PAIRS = 500
FLEETS, PAIRS_OF_BOOKS = 60, 9
"""So many books are drawn, and windows of each."""
ON_BOOKS = ("cost", "utilization", "busy_gpu_hours", "underused_cost")
CHANGES = 20
"""So many of each cause are simulated at length."""
ASKED = ("cost", "effective_gpu_hours", "utilization", "load_factor", "idle_cost", "cost_per_effective_gpu_hour")


def draw_amounts(factors: Factors, cells: int, rnd: random.Random) -> np.ndarray:
    """Amounts of a random fleet, some of them nothing: each a share of the one before it, or a price of it."""
    levels = np.zeros((len(factors.all), cells))
    for at, factor in enumerate(factors.all):
        parent = np.full(cells, 100.0) if factor.parent is None else levels[factor.parent]
        levels[at] = parent * np.array(
            [rnd.choice((0.0, 1.0, rnd.random(), rnd.random(), 3 * rnd.random())) for _ in range(cells)]
        )
    return levels


def divide(factors: Factors, levels: np.ndarray) -> float | None:
    """The metric of these amounts, None where there is nothing to divide by."""
    over = factors.per * levels[factors.over[-1]].sum()
    under = levels[factors.under[-1]].sum() if factors.under else 1.0
    return over / under if under else None


def test_parts_add_up_on_random_pairs_of_fleets() -> None:
    """Of 500 random pairs, with holders that come and go, the parts of every kind of metric sum to the change to nine digits."""
    rnd = random.Random(32)
    chosen = [of for of in METRICS if isinstance(of.kind, Sum | Ratio) and not getattr(of.kind, "each", False)]
    chosen += [metric(name) for name in ("cost_per_token", "tokens_per_gpu_s", "model_flops")]
    compared = 0
    while compared < PAIRS:
        factors = find_factors(rnd.choice(chosen))
        cells = rnd.randint(1, 6)
        before, after = (draw_amounts(factors, cells, rnd) for _ in range(2))
        one, other = divide(factors, before), divide(factors, after)
        if one is None or other is None:
            continue
        parts = divide_change(factors, before, after)
        assert fsum(of.sum() for of in parts.values()) == pytest.approx(
            other - one, rel=1e-9, abs=1e-9 * max(one, other, 1)
        )
        compared += 1


def test_a_change_of_one_factor_is_that_part_alone() -> None:
    """A price that rises by a tenth for all is price and nothing else; twice the hours of everybody are volume and nothing else."""
    factors = find_factors(metric("cost"))
    before = np.array([[10.0, 20.0], [10.0, 20.0], [20.0, 90.0]])
    dearer, longer = before * [[1], [1], [1.1]], before * 2
    for after, name, amount in ((dearer, "price", 11.0), (longer, "volume", 110.0)):
        parts = {part: of.sum() for part, of in divide_change(factors, before, after).items()}
        assert parts == {part: pytest.approx(amount if part == name else 0.0, abs=1e-12) for part in parts}


@pytest.mark.long
def test_parts_add_up_to_the_numbers_of_show(simulated_books: Books) -> None:
    """Before and after are those of `show`; money adds up to the cent, and holders to their part; the rest to nine digits."""
    with simulated_books.snapshot() as snapshot:
        first, last = snapshot.span
        middle = first + (last - first) / 2
        for name in ASKED:
            found = explain_change(snapshot, name, (middle, last))
            shown = [snapshot.show(name, (), *span)[0].value for span in ((first, middle), (middle, last))]
            digits = 0.005 if found.unit == found.currency else 1e-9
            for value, of_show in zip((found.before, found.after), shown, strict=True):
                assert value == pytest.approx(of_show, abs=digits, rel=1e-12), name
            total = fsum(part.amount for part in found.parts)
            assert total == pytest.approx(found.after - found.before, abs=1e-9, rel=1e-9), name
            for part in found.parts:
                assert fsum(of.amount for of in part.holders) == pytest.approx(part.amount, abs=1e-9, rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("seed", rest_long(range(FLEETS), 1))
def test_parts_add_up_on_random_fleets(seed: int, tmp_path: Path) -> None:
    """The same of books with everything that makes them hard: their halves, and windows drawn at random, which may overlap."""
    rnd = random.Random(seed)
    books = Books(tmp_path / "books")
    add(books, batches(Fleet(rnd).tables), "fleet", tmp_path)
    with books.snapshot() as snapshot:
        first, last = snapshot.span
        span_s = (last - first).total_seconds()
        pairs = [((first, first + (last - first) / 2), (first + (last - first) / 2, last))]
        while len(pairs) < PAIRS_OF_BOOKS:
            cuts = [sorted(timedelta(seconds=round(rnd.random() * span_s)) for _ in range(2)) for _ in range(2)]
            pairs.append(tuple((first + start, first + max(end, start + timedelta(minutes=1))) for start, end in cuts))
        for name, (before, window) in itertools.product(ON_BOOKS, pairs):
            if any(snapshot.show(name, (), *span)[0].value is None for span in (before, window)):
                continue
            found = explain_change(snapshot, name, window, before, by=("team",))
            total = fsum(part.amount for part in found.parts)
            assert total == pytest.approx(found.after - found.before, abs=1e-9, rel=1e-9), (name, before, window)


def judge(cause: str, seed: int, folder: Path) -> bool:
    """Whether the cause of a change stands first, with the team behind it."""
    books, truth = write_change(cause, seed, folder / "books")
    with books.snapshot() as snapshot:
        found = explain_change(snapshot, truth.metric, truth.window)
    first = found.parts[0]
    return first.name == truth.part and truth.team in (None, first.holders[0].by["team"])


@pytest.mark.long
@pytest.mark.parametrize("cause", CAUSES)
def test_the_cause_of_a_change_stands_first(cause: str, tmp_path: Path) -> None:
    """A price change, an idle team, a broken exporter, new nodes and a late bill are the first part of what they change."""
    assert judge(cause, 0, tmp_path)


@pytest.mark.long
def test_causes_stand_first_nearly_always(tmp_path: Path) -> None:
    """Of a hundred simulated changes at least 95 of each kind in a hundred have their cause first."""
    right = {}
    for cause in CAUSES:
        folders = [(tmp_path / f"{cause}{seed}", seed) for seed in range(1, CHANGES + 1)]
        for folder, _ in folders:
            folder.mkdir()
        right[cause] = sum(judge(cause, seed, folder) for folder, seed in folders)
    print(right)
    assert min(right.values()) >= 0.95 * CHANGES, right


def test_what_cannot_be_divided_says_so(october: Path) -> None:
    """Quantiles, windows outside the books and months that contradict a window are one sentence each."""
    for given, said in (
        ({"metric": "queue_wait_s_p50"}, "no sum and no ratio of sums"),
        ({"metric": "cost", "start": "2027-01-01", "end": "2027-01-02"}, "know nothing of that time"),
        ({"metric": "cost", "month": "2026-10", "last": "1d"}, "--month and --from"),
        ({"metric": "cost", "against": "closed"}, "--month 2026-10 --against closed"),
        ({"metric": "cost", "against": "2026-10"}, "write FROM/TO"),
        ({"metric": "cost", "month": "2026-10", "against": "closed"}, "is not closed"),
        ({"metric": "cost_per_token", "by": ("node",)}, "cannot be split by node"),
    ):
        with pytest.raises(InputError, match=said):
            loadfactor.why_changed(**given, store=october)


def test_of_the_same_kind_are_all_metrics() -> None:
    """Every metric that is a sum or ratio of one number is divided, and every factor hangs on one before it."""
    for of in METRICS:
        if isinstance(of.kind, Quantile) or getattr(of.kind, "each", False):
            with pytest.raises(InputError):
                find_factors(of)
        elif isinstance(of.kind, Sum | Ratio | Made):
            for at, factor in enumerate(find_factors(of).all):
                assert (factor.parent is None) == (at == 0)
                assert (factor.parent or 0) <= at


@pytest.mark.long
def test_a_closed_month_is_compared_to_the_cent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours that come late are late data, a price that is corrected is price, and a rule that is changed is rules."""
    from loadfactor.settings import config

    monkeypatch.chdir(tmp_path)
    config.settings.cache_clear()
    header = "job_id,device_id,team,from_utc,to_utc\n"
    at = "2026-10-05T{:02}:00Z".format
    first = tmp_path / "first"
    first.mkdir()
    (first / "devices.csv").write_text(f"device_id,node,from_utc,to_utc\ng0,n0,{at(0)},2026-10-06T00:00Z\n")
    (first / "allocations.csv").write_text(f"{header}j,g0,a,{at(0)},{at(4)}\n")
    (first / "prices.csv").write_text("basis,price_per_gpu_hour\ncontracted,2\n")
    books = Books(tmp_path / "books")
    books.add("tables", [first])
    books.close_month("2026-10", is_known_to_lack=True)

    def ask(**given: object) -> dict[str, float]:
        page = loadfactor.why_changed("cost", month="2026-10", against="closed", store=tmp_path / "books", **given)
        assert fsum(of.amount for of in page.data.parts) == pytest.approx(page.data.after - page.data.before, abs=1e-9)
        return {of.name: of.amount for of in page.data.parts}

    assert ask() == {}
    (tmp_path / "late.csv").write_text(f"{header}k,g0,b,{at(13)},{at(15)}\n")
    late = tmp_path / "late"
    late.mkdir()
    (tmp_path / "late.csv").rename(late / "allocations.csv")
    books.add("tables", [late])
    assert ask(where=("team=b",)) == {"late data": 4.0}
    assert ask() == {"late data": 0.0}  # what a team is charged more, the pool is charged less
    (tmp_path / "loadfactor.toml").write_text('[chargeback]\nunallocated = "held hours"\n')
    config.settings.cache_clear()
    # 18 free hours at $2, by 4 and 2 held hours
    assert ask(where=("team=a",)) == {"rules": 24.0}
    assert ask(where=("team=b",)) == {"rules": 12.0, "late data": 4.0}
    dearer = tmp_path / "dearer"
    dearer.mkdir()
    (dearer / "prices.csv").write_text(f"basis,from_utc,price_per_gpu_hour\ncontracted,{at(2)},3\n")
    books.add("tables", [dearer])
    # a's hours from 02 to 04 at $3: $2 more; the 18 free hours, of which a bears two thirds, at $3: $36 in place of nothing
    assert ask(where=("team=a",)) == {"rules": 36.0, "price": 2.0}
