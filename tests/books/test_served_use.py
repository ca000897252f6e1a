"""Shared serving: the cost of a job that serves is borne by who used it, wherever costs are split."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.books.charging.gpu_bills import START as BILLED
from tests.books.charging.gpu_bills import line, write_bill
from tests.books.test_waterfall import START, made, make_books
from tests.ledger.fleets import HOUR, add, batch

from loadfactor.books.books import Books
from loadfactor.interfaces.pages.readings import build_page
from loadfactor.interfaces.requests import ShowRequest
from loadfactor.metrics.metric import Made, Metric
from loadfactor.settings.config import settings

CHARGED = '[chargeback]\nserved = "users"\n'
ENGINES = {"prompt_token": 2000.0, "cached_prompt_token": 800.0, "output_token": 200.0}


@pytest.fixture(autouse=True)
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working folder with a loadfactor.toml that charges users."""
    monkeypatch.chdir(tmp_path)
    configure(CHARGED)
    yield
    settings.cache_clear()


def configure(text: str) -> None:
    Path("loadfactor.toml").write_text(text)
    settings.cache_clear()


def make_shared(folder: Path, job: str = "serve") -> Books:
    """Of $20 of the job `serve` of team b, $2 idle; of 2,080 tokens by weight a had 1,040, and c 520."""
    books = make_books(folder, [made("serve", amount, unit) for unit, amount in ENGINES.items()])
    at = {"job_id": job, "from_utc": START, "to_utc": START, "model": "m"}
    first = {"prompt_tokens": 1000, "cached_prompt_tokens": 400, "output_tokens": 100, "user": "ann"}
    second = {"prompt_tokens": 120, "output_tokens": 100}
    logged = [at | {"request_id": "1", "team": "a"} | first, at | {"request_id": "2", "team": "acme"} | second]
    add(books, [batch("served_requests", logged)], "gateways", folder)
    return books


def show(books: Books, metric: str | Metric, *by: str, **more: Any) -> dict[Any, float | None]:
    with books.snapshot() as snapshot:
        found = snapshot.show((metric,), by, **more)
    return {
        key[0] if len(by) == 1 else key: value
        for key, value in zip(found.keys, found.column(getattr(metric, "name", metric)), strict=True)
    }


def charge(books: Books, month: str | None = None) -> dict[str, Decimal]:
    with books.snapshot() as snapshot:
        found = snapshot.chargeback(month)
    assert all(of.difference == 0 for of in found.totals.values())
    assert (found.policy["served"] == "users") == any("gateways logged" in remark for remark in found.remarks)
    return {of.by["team"] or of.pool or "": of.amounts["EffectiveCost"] for of in found.statements}


@pytest.mark.long
def test_who_used_a_model_bears_it_in_every_split(tmp_path: Path) -> None:
    """Of $20 of the job that serves, its idle $2 and the $4.50 that no gateway logged stay with team b, which has $20 more."""
    books = make_shared(tmp_path)
    costs = {"a": 29, "acme": 4.5, "b": 26.5, None: 20}
    assert show(books, "cost", "team") == pytest.approx(costs)
    assert show(books, "cost", "team", "month") == pytest.approx(
        {(team, "2026-01"): cost for team, cost in costs.items()}
    )
    assert show(books, "cost", "job", "team")["serve", "a"] == pytest.approx(9)
    assert show(books, "cost", where={"team": "acme"}) == pytest.approx({(): 4.5})
    assert show(books, "cost", "user", where={"job": "serve"}) == pytest.approx({"ann": 9, None: 11})
    assert charge(books) == {"a": 29, "acme": Decimal("4.5"), "b": Decimal("26.5"), "unallocated": 20}
    with books.snapshot() as snapshot:
        (statement,) = (of for of in snapshot.read_statements("2026-01") if of.team == "acme")
        steps = {step.name: step.amount for step in snapshot.bridge("acme").steps}
    assert {steps["cost of GPU-hours"], steps["statement"]} == {Decimal("4.50")}
    assert statement.amounts["EffectiveCost"] == Decimal("4.5")
    assert statement.hours.total == Decimal("2.25")


def test_a_unit_costs_each_tenant_what_it_used(tmp_path: Path) -> None:
    """9 of $18 for 100 of 200 output tokens and 1,000 of 2,000 of prompts; 880 of these no gateway logged."""
    books = make_shared(tmp_path)
    made_by = show(books, Metric("made", "tokens", "", "", "neither", Made("output_token")), "tenant")
    assert made_by == pytest.approx({"a": 100, "acme": 100, None: 0})
    assert show(books, "cost_per_output_token", "team", where={"team": "acme"})["acme"] == pytest.approx(4.5 / 100)
    assert show(books, "cost_per_prompt_token", "job", "team")["serve", "a"] == pytest.approx(9 / 1000)


def test_nobody_else_pays_unless_settings_say_so(tmp_path: Path) -> None:
    """By default the holder bears it all; tenants are a split of their own."""
    configure("")
    books = make_shared(tmp_path)
    assert show(books, "cost", "team") == pytest.approx({"a": 20, "b": 40, None: 20})
    assert show(books, "cost", "tenant") == pytest.approx({"a": 9, "acme": 4.5, None: 66.5})
    page = build_page(ShowRequest(metrics=("cost",), by=("tenant",), store=tmp_path / "store"))
    assert "divided by tokens of gateways' logs" in page.subtitle
    assert charge(books) == {"a": 20, "b": 40, "unallocated": 20}


def test_models_of_a_log_go_to_the_jobs_that_serve_them(tmp_path: Path) -> None:
    """Nobody said which job serves `m`: the settings do, and that gateways call team vision acme."""
    configure(CHARGED + '[serving_jobs]\nm = ["serve", "train"]\n[tenant_teams]\nacme = "vision"\n')
    books = make_shared(tmp_path, job="m")
    assert show(books, "cost", "team") == pytest.approx({"a": 29, "vision": 4.5, "b": 26.5, None: 20})
    configure(
        CHARGED + '[serving_jobs]\nm = ["train"]\n'
    )  # its engines count nothing: all its $18 that are not idle are used
    assert show(books, "cost", "team") == pytest.approx({"a": 2 + 12, "acme": 6, "b": 40, None: 20})


@pytest.mark.long
def test_a_bill_of_shared_serving_is_divided_to_the_cent(tmp_path: Path) -> None:
    """$100.01 for 80 GPU-hours of a job of team b; of 700 tokens x and y used 200 each, z 100, and 200 nobody logged."""
    hours = {"from_utc": BILLED, "to_utc": BILLED + 10 * HOUR}
    books = Books(tmp_path / "store")
    devices = [{"device_id": f"i-1/{n}", "node": "i-1", "accelerator": "a100-sxm-40gb", **hours} for n in range(8)]
    held = [{"job_id": "serve", "node": "i-1", "gpus": 8.0, "team": "b", **hours}]
    work = [{"job_id": "serve", "unit": "output_token", "amount": 700.0, "kept": True, **hours}]
    at = {"job_id": "serve", "model": "m", "from_utc": BILLED, "to_utc": BILLED}
    logged = [
        at | {"request_id": str(n), "team": team, "output_tokens": tokens}
        for n, (team, tokens) in enumerate((("x", 200), ("y", 200), ("z", 100)))
    ]
    tables = {"devices": devices, "allocations": held, "progress": work, "served_requests": logged}
    add(books, [batch(name, rows) for name, rows in tables.items()], "example", tmp_path)
    books.add("focus", [write_bill(tmp_path / "bill.csv", [line("i-1", 0, 10, "100.01")])])
    sevenths = {"b": 2, "x": 2, "y": 2, "z": 1}  # $28.574 and $14.287: of two cents left one is z's, one b's
    cents = {"b": "28.58", "x": "28.57", "y": "28.57", "z": "14.29"}
    assert charge(books, "2026-10") == {team: Decimal(cost) for team, cost in cents.items()}
    assert show(books, "cost", "team") == pytest.approx({team: 100.01 * part / 7 for team, part in sevenths.items()})
