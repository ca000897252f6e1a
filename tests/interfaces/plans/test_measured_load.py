"""Plans of serving take demand, lengths, price and throughput from a store, and say where the measured load lies."""

from pathlib import Path

import pytest
from tests.ledger.fleets import Row, add, batch

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.interfaces.render.terminal import render_text

START = 1_767_225_600_000
HOUR = 3_600_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that held two H100 for two hours at $2, served 3,600 requests in the first and none in the second."""
    folder = tmp_path_factory.mktemp("served")
    of_gpu = {"node": "n", "from_utc": START, "to_utc": START + 2 * HOUR}
    devices = [{"device_id": f"g{k}", "accelerator": "H100", **of_gpu} for k in range(2)]
    held = [{"job_id": "chat", "device_id": f"g{k}", **of_gpu} for k in range(2)]
    made = {"prompt_token": 1_800_000.0, "output_token": 360_000.0, "request": 3600.0}
    progress: list[Row] = [
        {"job_id": "chat", "replica": "0", "unit": unit, "amount": amount * (hour == 0)}
        | {"from_utc": START + hour * HOUR, "to_utc": START + (hour + 1) * HOUR}
        for unit, amount in made.items()
        for hour in range(2)
    ]
    prices = [{"basis": "contracted", "price_per_gpu_hour": 2.0}]
    books = Books(folder / "store")
    named = (("devices", devices), ("allocations", held), ("progress", progress), ("prices", prices))
    add(books, [batch(name, rows) for name, rows in named], "example", folder)
    return folder / "store"


def test_break_even_of_a_measured_load(store: Path) -> None:
    """One request/s in the busiest hour saturates a replica of $4 an hour; at 0.5/s it is half full, and the floor is 46 %."""
    page = loadfactor.plan_breakeven(store=store, api_price=(4.0,))
    plan = page.data
    assert (plan.request.input_tokens, plan.request.output_tokens) == (500, 100)
    assert (plan.replica.gpus, plan.replica.cost_per_hour, plan.replica.tokens_per_s) == pytest.approx((2, 4, 600))
    assert (plan.measured_share, plan.floor_share) == pytest.approx((0.5, 4 / 3600 / 0.0024), rel=1e-12)
    assert (plan.demand.requests_per_s, plan.demand.replicas) == pytest.approx((0.5, 1))
    assert (plan.measured.duty_share, plan.measured.counted_share, plan.measured.cost) == pytest.approx((0.5, 1, 8))
    assert plan.self_hosting_pays
    text = " ".join(render_text(page.document, 100).split())
    assert "The measured load lies above the floor." in text
    cheaper = loadfactor.plan_breakeven(store=store, api_price=(3.0,))
    assert not cheaper.data.self_hosting_pays
    assert "lies below the floor" in render_text(cheaper.document, 100)


def test_a_window_of_the_measured_load(store: Path) -> None:
    """The first hour alone is busy throughout; the last hour has no request; a window needs books, and something in it."""
    plan = loadfactor.plan_breakeven(store=store, api_price=(4.0,), start="2026-01-01", end="2026-01-01T01:00Z").data
    assert (plan.measured.duty_share, plan.measured.requests_per_s, plan.measured_share) == pytest.approx((1, 1, 1))
    assert (plan.measured.span_s, plan.measured.gpu_s, plan.measured.cost) == pytest.approx((3600, 7200, 4))
    half = loadfactor.plan_breakeven(store=store, api_price=(4.0,), last="90min").data.measured
    assert (half.span_s, half.requests, half.duty_share) == pytest.approx((5400, 1800, 1 / 3))
    with pytest.raises(InputError, match="requests of the jobs"):
        loadfactor.plan_breakeven(store=store, api_price=(4.0,), last="1h")
    with pytest.raises(InputError, match="in that time"):
        loadfactor.plan_breakeven(store=store, api_price=(4.0,), start="2027-01")
    with pytest.raises(InputError, match="--last is about the books"):
        loadfactor.plan_breakeven(api_price=(4.0,), last="1h")


def test_what_is_given_comes_before_what_was_measured(store: Path) -> None:
    """A throughput and a price that are typed in stay; the measured load is held against that throughput."""
    plan = loadfactor.plan_breakeven(store=store, api_price=(4.0,), tokens_per_s=1200, price_per_gpu_hour=1.0).data
    assert (plan.replica.gpus, plan.replica.cost_per_hour, plan.replica.tokens_per_s) == pytest.approx((2, 2, 1200))
    assert plan.measured_share == pytest.approx(0.25, rel=1e-12)


def test_a_fleet_for_a_measured_load(store: Path) -> None:
    """`plan serve` draws as many requests a day of the measured lengths, and holds the measured load against its layout."""
    page = loadfactor.plan_serving(store=store, job="chat", model="llama-3.1-8b", arrivals="poisson", shape="flat")
    assert page.data.measured.requests_per_day == pytest.approx(43_200)
    assert page.data.price_per_gpu_hour == pytest.approx(2.0)
    assert page.data.total.requests == pytest.approx(43_200, rel=0.05)
    assert page.document.sections[-1].title == "What was measured"


def test_books_without_what_is_needed_are_refused_in_one_line(store: Path, tmp_path: Path) -> None:
    """No such job, a job without a store, and books in which nobody served."""
    with pytest.raises(InputError, match="chat"):
        loadfactor.plan_breakeven(store=store, job="chatt", api_price=(4.0,))
    with pytest.raises(InputError, match="--store"):
        loadfactor.plan_breakeven(job="chat", api_price=(4.0,))
    books = Books(tmp_path / "store")
    devices: list[Row] = [{"device_id": "g", "from_utc": START, "to_utc": START + HOUR}]
    add(books, [batch("devices", devices)], "example", tmp_path)
    with pytest.raises(InputError, match="import serving"):
        loadfactor.plan_breakeven(store=tmp_path / "store", api_price=(4.0,))
