"""`bill compare` beside slow and obvious Python, which goes through random lines and random nodes one by one."""

import random
from collections import defaultdict
from pathlib import Path

import pytest
from tests.books.charging.gpu_bills import START, Line, line
from tests.books.charging.test_billed_prices import bill, make_books
from tests.long import rest_long

from loadfactor.books.bill_comparison import HOURS, NEVER_BILLED, NEVER_SEEN, PRICE, UNSAID

GPUS = {"p4d.24xlarge": 8, "p4de.24xlarge": 8, "g5.xlarge": 1, "p99.48xlarge": None, "m5.large": 0}
AGREED = 1.25
Found = dict[tuple[str, str], tuple[float | None, float | None, float | None]]
"""Kind and name of a difference → hours billed and seen, amount."""


def make_line(rnd: random.Random, node: str) -> Line:
    """A line of an instance; now and then one that is no use of it."""
    start, hours = rnd.randrange(40), rnd.choice((1, 2.5, 24))
    kind = rnd.choice((*GPUS, "p4d.24xlarge", "p4d.24xlarge"))
    more = rnd.choice(({}, {}, {}, {}, {"ChargeCategory": "Tax"}, {"CommitmentDiscountStatus": "Unused"}))
    return line(node, start, hours, f"{rnd.randrange(1, 4000)}.{rnd.randrange(100):02}", kind, **more)


def compare(lines: list[Line], nodes: dict[str, tuple[int, float, float]]) -> Found:
    """What differs, line after line and node after node."""
    use = [
        at
        for at in lines
        if at["ChargeCategory"] == "Usage"
        and not at.get("CommitmentDiscountStatus")
        and GPUS[str(at["x_InstanceType"])] != 0
    ]
    spans = [(hour_of(at), hour_of(at) + float(str(at["ConsumedQuantity"]))) for at in use]
    first, last = max(0.0, min(s for s, _ in spans)), max(e for _, e in spans)
    first, last = max(first, min(s for _, s, _ in nodes.values())), min(last, max(e for _, _, e in nodes.values()))
    billed: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    unsaid: set[str] = set()
    for at, (start, end) in zip(use, spans, strict=True):
        part = (min(end, last) - max(start, first)) / (end - start)
        if part <= 0:
            continue
        name, gpus = str(at["ResourceId"]), GPUS[str(at["x_InstanceType"])]
        billed[name][1] += float(str(at["EffectiveCost"])) * part
        if gpus is None:
            unsaid.add(name)
        else:
            billed[name][0] += gpus * (end - start) * part
    seen = {n: g * max(0.0, min(e, last) - max(s, first)) for n, (g, s, e) in nodes.items()}
    found: Found = {}
    for name, (hours, cost) in billed.items():
        own = seen.get(name)
        if name in unsaid:
            found[UNSAID, name] = None, own or None, cost
        elif not own:
            found[NEVER_SEEN, name] = hours, 0.0, cost
        else:
            if abs(hours - own) > max(1.0, 0.01 * hours):
                found[HOURS, name] = hours, own, (hours - own) * cost / hours
            if abs(cost / hours - AGREED) > 0.001 * AGREED:
                found[PRICE, name] = hours, own, (cost / hours - AGREED) * hours
    for name, own in seen.items():
        if own and name not in billed:
            found[NEVER_BILLED, name] = 0.0, own, own * AGREED
    return found


def hour_of(at: Line) -> float:
    """The hour at which a line begins, counted from the start."""
    from datetime import datetime

    return (datetime.fromisoformat(str(at["ChargePeriodStart"])).timestamp() * 1000 - START) / 3_600_000


@pytest.mark.parametrize("seed", rest_long(range(6)))
def test_comparing_is_what_going_through_the_lines_says(seed: int, tmp_path: Path) -> None:
    """The same differences with the same hours and amounts, and the totals are the sums of the lines."""
    rnd = random.Random(seed)
    names = [f"n{i}" for i in range(rnd.randrange(3, 9))]
    nodes = {n: (8, rnd.randrange(20), rnd.randrange(21, 48)) for n in rnd.sample(names, max(1, len(names) - 1))}
    lines = [make_line(rnd, rnd.choice([*names, "ghost"])) for _ in range(rnd.randrange(5, 60))]
    lines.append(line(names[0], 0, 24, "192"))
    rnd.shuffle(lines)
    prices = [{"basis": "contracted", "price_per_gpu_hour": AGREED}]
    books = make_books(tmp_path, nodes, {"prices": prices})
    bill(books, tmp_path, lines)
    found = books.compare_bills()
    said = {(d.kind, d.of): (d.billed_gpu_hours, d.seen_gpu_hours, d.amount) for d in found.differences}
    expected = compare(lines, nodes)
    assert set(said) == set(expected)
    for which, numbers in expected.items():
        for is_one, number in zip(said[which], numbers, strict=True):
            assert is_one == (number if number is None else pytest.approx(number, rel=1e-9)), which
    assert len(said) == len(found.differences)
    amounts = [abs(d.amount or 0) for d in found.differences]
    assert amounts == sorted(amounts, reverse=True)
