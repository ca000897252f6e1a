"""The ledger's prices where there is a bill: what a node's GPUs cost on a day ÷ the GPU-hours billed for it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.books.charging.gpu_bills import START, Line, line, write_bill
from tests.ledger.fleets import HOUR, Row, add, batch

import loadfactor.books.rebuild as rebuild
from loadfactor.books.books import Books
from loadfactor.tables.schema import Span


def make_books(
    folder: Path, nodes: dict[str, tuple[int, float, float]], more: dict[str, list[Row]] | None = None
) -> Books:
    """Books of nodes: how many GPUs each has, from which hour to which."""
    books = Books(folder / "store")
    devices = [
        {"device_id": f"{node}/{n}", "node": node, "accelerator": "a100-sxm-40gb",
         "from_utc": START + round(since * HOUR), "to_utc": START + round(until * HOUR)}
        for node, (gpus, since, until) in nodes.items()
        for n in range(gpus)
    ]  # fmt: skip
    tables = {"devices": devices, **(more or {})}
    add(books, [batch(name, rows) for name, rows in tables.items()], "all", folder)
    return books


def bill(books: Books, folder: Path, lines: list[Line], name: str = "bill.csv") -> int:
    """Import a bill; the number of the import."""
    receipt = books.add("focus", [write_bill(folder / name, lines)])
    assert receipt.number is not None
    return receipt.number


@pytest.fixture
def booked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Span]]:
    """The spans that are booked from here on."""
    spans: list[Span] = []
    original = rebuild.book

    def listen(session: object, of: tuple[Span, ...], *rest: object, **more: object) -> None:
        spans.extend(of)
        original(session, of, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(rebuild, "book", listen)
    return spans


def test_price_times_installed_time_is_the_bill(tmp_path: Path) -> None:
    """Where billed and seen agree, the ledger's cost is what the bill charges for GPUs, whatever periods its lines have."""
    books = make_books(tmp_path, {"i-1": (8, 0, 30), "i-2": (8, 5, 12.5), "i-3": (8, 0, 48)})
    lines = [line("i-1", hour, 1, f"{10 + hour / 7:.9f}") for hour in range(30)]
    lines += [line("arn:aws:ec2:us-east-1:1:instance/i-2", 5, 7.5, "33.333333333")]
    lines += [line("i-3", 0, 48, "1000.1", EffectiveCost="600.07", ContractedCost="")]
    lines += [line("i-3", 0, 48, "-1.5", ChargeCategory="Credit", ConsumedQuantity="", ContractedCost="")]
    lines += [line("i-1", 0, 1, "5", kind="m5.large"), line("i-1", 0, 1, "0.2", kind="", SkuMeter="EBS:VolumeUsage")]
    bill(books, tmp_path, lines)
    charged = sum(10 + hour / 7 for hour in range(30)) + 33.333333333 + 600.07 - 1.5
    (cost, paid) = books.show(["cost", "paid_gpu_hours"])
    assert cost.cost_basis == "effective"
    assert cost.value == pytest.approx(charged, rel=1e-9)
    assert paid.value == pytest.approx(8 * (30 + 7.5 + 48))
    contracted = books.show(["cost"], ["node"], basis="contracted")
    by_node = dict(zip((node for (node,) in contracted.keys), contracted.column("cost"), strict=True))
    assert by_node["i-2"] == pytest.approx(33.333333333, rel=1e-9)
    assert by_node["i-3"] is None, "the bill does not say what was contracted"
    assert books.check().balance.holds


def test_only_hours_that_a_bill_touches_are_booked_again(tmp_path: Path, booked: list[Span]) -> None:
    """A new bill books its hours, a grown one the days that changed, another one for no GPUs none, a forgotten one its own."""
    books = make_books(tmp_path, {"i-1": (8, 0, 72), "i-2": (8, 0, 72)})
    books.compact()
    before = books.show(["cost"]).column("cost")
    booked.clear()
    bill(books, tmp_path, [line("i-1", 0, 24, "100")])
    assert booked == [(START, START + 24 * HOUR)]
    booked.clear()
    number = bill(books, tmp_path, [line("i-1", 0, 24, "100"), line("i-1", 24, 10, "50")], "grown.csv")
    assert booked == [(START + 24 * HOUR, START + 48 * HOUR)]
    booked.clear()
    other = bill(
        books, tmp_path, [line("b-1", 0, 24, "7", kind="m5.large", BillingAccountId="2", SubAccountId="2")], "other.csv"
    )
    assert books.show(["cost"], basis="effective").column("cost") == pytest.approx([100 + 50 / 10 * 24]), (
        "a price of the day"
    )
    assert booked == []
    books.forget(number)
    assert booked == [(START + 24 * HOUR, START + 48 * HOUR)]
    assert books.show(["cost"], basis="effective").column("cost") == pytest.approx([100])
    books.forget(other)
    books.forget(number - 1)
    assert books.show(["cost"]).column("cost") == before, "the same digits as without bills"


def test_a_bill_comes_before_a_price_list_and_foreign_ones_need_a_rate(tmp_path: Path) -> None:
    """The bill's price counts before a GPU's own price of that basis, converted at the rate of the time."""
    prices = [
        {"basis": "effective", "price_per_gpu_hour": 9.0, "device_id": "i-1/0"},
        {"basis": "list", "price_per_gpu_hour": 4.0},
    ]
    rates = [{"currency": "EUR", "rate": 1.25}]
    books = make_books(tmp_path, {"i-1": (8, 0, 10)}, {"prices": prices, "exchange_rates": rates})
    bill(books, tmp_path, [line("i-1", 0, 10, "80", BillingCurrency="EUR")])
    assert books.show(["cost"]).column("cost") == pytest.approx([100])
    assert books.show(["cost"], basis="list").column("cost") == pytest.approx([320])


def test_nodes_are_found_by_tag_id_and_the_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mapping comes first, with its dates; then the tag Name, with or without the domain; then the provider's id."""
    (tmp_path / "nodes.csv").write_text("resource,node,from,to\ni-9,gpu-1,,2026-10-02\ni-9,gpu-2,2026-10-02,\n")
    (tmp_path / "loadfactor.toml").write_text('[billing]\nnodes = "nodes.csv"\ngpu_share = 0.5\n')
    monkeypatch.chdir(tmp_path)
    rebuild_settings()
    books = make_books(
        tmp_path, {"gpu-1": (8, 0, 24), "gpu-2": (8, 24, 48), "gpu-3.a.local": (8, 0, 10), "vm-4": (8, 0, 10)}
    )
    azure = "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/virtualMachines/VM-4"
    lines = [
        line("i-9", 0, 24, "10"),
        line("i-9", 24, 24, "20"),
        line("i-8", 0, 10, "30", Tags=json.dumps({"Name": "gpu-3"})),
    ]
    lines += [line(azure, 0, 10, "40", kind="Standard_ND96asr_v4"), line("i-7", 0, 10, "50")]
    bill(books, tmp_path, lines)
    readings = books.show(["cost"], ["node"])
    by_node = dict(zip((node for (node,) in readings.keys), readings.column("cost"), strict=True))
    assert by_node == {
        "gpu-1": pytest.approx(5),
        "gpu-2": pytest.approx(10),
        "gpu-3.a.local": pytest.approx(15),
        "vm-4": pytest.approx(20),
    }
    monkeypatch.undo()
    rebuild_settings()


def rebuild_settings() -> None:
    """Read the settings again."""
    import loadfactor.settings.config

    loadfactor.settings.config.settings.cache_clear()
