"""Bills of nodes: prices of their GPU-hours, lines divided over jobs, the table of nodes, and exact sums."""

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as with_settings
from hypothesis import strategies as st
from tests.books.charging.gpu_bills import START, Line, line, write_bill
from tests.ledger.fleets import HOUR, Row, add, batch

import loadfactor.books.rebuild as rebuild
from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_DAY, S_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.books.charging.bill_lines import sum_charges
from loadfactor.books.charging.fleet_chargeback import BESIDE_GPUS, OF_GPUS, DividedCosts, divide_charges, part_charges
from loadfactor.books.charging.instances import BilledResource, NodeRules, find_nodes, read_mapping
from loadfactor.money.chargeback import charge
from loadfactor.settings.money import ChargebackPolicy
from loadfactor.tables.charges import CHARGES, COSTS
from loadfactor.tables.schema import ALWAYS, Span


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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


WRONG = {
    "": "nodes.csv: the header is missing; write resource,node,from,to",
    "resource;node\ni-1;n1\n": "nodes.csv: the header is resource;node; write resource,node,from,to",
    "resource,from\ni-1,2026-10-01\n": "write resource,node,from,to",
    "resource,node,owner\ni-1,n1,me\n": "write resource,node,from,to",
    "resource,node\ni-1,n1\n,n2\n": "nodes.csv: line 3 names no resource and node",
    "resource,node\ni-1,\n": "nodes.csv: line 2 names no resource and node",
    "resource,node\ni-1,n1,x,y,z\n": "nodes.csv: line 2 names no resource and node",
    "resource,node,from\ni-1,n1,10/1/26\n": "nodes.csv: line 2",
    "resource,node,from,to\ni-1,n1,2026-10-02,2026-10-02\n": "`to` 2026-10-02 is not after `from` 2026-10-02",
    "resource,node,to\ni-1,n1,2026-10-02\nI-1,n2,\n": "nodes.csv: line 3: I-1 is two nodes at once; end the earlier row",
    "resource,node,node\ni-1,n1,n2\n": "nodes.csv: the header is resource,node,node; write resource,node,from,to",
}


@pytest.mark.parametrize("text", WRONG)
def test_bad_rows_are_named(text: str) -> None:
    """Header, cells, dates, rows that contradict each other: never read half."""
    with pytest.raises(InputError) as error:
        read_mapping(text, "nodes.csv")
    assert WRONG[text] in str(error.value)
    assert "\n" not in str(error.value)


def test_rows_count_at_their_time_and_the_ledger_knows_nodes_in_any_case() -> None:
    """A resource is the node of a row from its `from` until its `to`; outside the name of the resource decides."""
    text = "\ufeffresource, node, from, to\n\ni-1,GPU-1,1970-01-03,1970-01-05\ni-1,elsewhere,1970-01-05,\n"
    rules = NodeRules(mapping=read_mapping(text, "nodes.csv"))
    resource = BilledResource("arn:aws:ec2:us-east-1:1:instance/I-1", None)
    found = find_nodes([resource], rules, ["gpu-1.example", "i-1"])
    assert list(found[resource]) == [
        ((ALWAYS[0], 2 * MS_PER_DAY), "i-1"),
        ((2 * MS_PER_DAY, 4 * MS_PER_DAY), "gpu-1.example"),
        ((4 * MS_PER_DAY, ALWAYS[1]), "elsewhere"),
    ]


CHARGE_ROWS = st.fixed_dictionaries(
    {
        "team": st.sampled_from(["a", "b", "c", None]),
        "BilledCost": st.decimals(-1000, 1000, places=9),
        "EffectiveCost": st.decimals(-1000, 1000, places=18),
        "ChargeCategory": st.sampled_from(["Usage", "Tax", "Credit", "Purchase"]),
        "CommitmentDiscountStatus": st.sampled_from([None, "Used", "Unused"]),
        "ServiceCategory": st.sampled_from(["Compute", "Storage", "Networking", None]),
    }
)


def sum_lines(lines: list[dict[str, Any]]) -> Any:
    """Statements of lines, under a policy that spreads what is shared and unused."""
    usual = {"ListCost": Decimal(0), "ContractedCost": Decimal(0), "ResourceId": "vm"}
    schema = CHARGES.schema
    rows = pa.Table.from_pylist([{name: (usual | line).get(name) for name in schema.names} for line in lines], schema)
    session: Any = SimpleNamespace(raw=duckdb.connect(config={"threads": 1}))
    session.raw.register("rows", rows)
    session.raw.execute("CREATE VIEW lines AS SELECT *, NULL::VARCHAR AS rate, false AS is_gpu FROM rows")
    sums = sum_charges(session, ("team",), "lines")
    policy = ChargebackPolicy.model_validate({"shared": "even", "unused_commitment": "even", "storage": "apart"})
    return charge([found.line for found in sums], ("team",), COSTS, policy)


@pytest.mark.long
@given(st.lists(CHARGE_ROWS, min_size=1, max_size=25), st.randoms(use_true_random=False))
@with_settings(max_examples=25)
def test_sums_are_exact_in_any_order(lines: list[dict[str, Any]], random: Any) -> None:
    """Statements sum to the rounded bill with a difference of 0, and the order of the lines changes nothing."""
    found = sum_lines(lines)
    for column in ("BilledCost", "EffectiveCost"):
        whole = sum((line[column] for line in lines), Decimal(0))
        assert found.totals[column].bill == whole
        assert found.totals[column].difference == 0
        assert sum(s.amounts[column] for s in found.statements) == found.totals[column].charged
        assert abs(found.totals[column].charged - whole) <= Decimal("0.005")
    shuffled = list(lines)
    random.shuffle(shuffled)
    assert sum_lines(shuffled).statements == found.statements


class TinySession:
    """As much of a session as division needs."""

    def __init__(self) -> None:
        self.raw = duckdb.connect(config={"threads": 1})

    def create_view(self, name: str, sql: str) -> None:
        """As `Session.create_view`."""
        self.raw.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {sql}")

    def materialize(self, name: str, sql: str) -> None:
        """As `Session.materialize`."""
        self.raw.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")

    def fetch_one(self, sql: str) -> Any:
        """As `Session.fetch_one`."""
        return self.raw.execute(sql).fetchall()[0]


def open_session(charges: list[dict[str, Any]], ledger: list[dict[str, Any]]) -> Any:
    """A session with `bill_gpus` and `window_ledger`, parted."""
    session = TinySession()
    extra = [("rate", pa.string()), ("is_gpu", pa.bool_()), ("sold", pa.string()), ("node", pa.string())]
    extra += [("gpu_hours", pa.float64()), ("gpu_share", pa.decimal128(18, 9))]
    schema = pa.schema([*CHARGES.schema, *extra])
    usual = {
        "ChargePeriodStart": 0,
        "ChargePeriodEnd": HOUR,
        "sold": "machine",
        "gpu_share": Decimal(1),
        "is_gpu": False,
    }
    usual |= dict.fromkeys(("EffectiveCost", "ListCost", "ContractedCost"), Decimal(0))
    rows = pa.Table.from_pylist([{name: (usual | line).get(name) for name in schema.names} for line in charges], schema)
    held = {"node": "n1", "hour_utc": 0, "from_utc": 0, "to_utc": HOUR, "team": None, "state": "busy"}
    columns = [("node", pa.string()), ("hour_utc", pa.int64()), ("from_utc", pa.int64()), ("to_utc", pa.int64())]
    columns += [("team", pa.string()), ("state", pa.string()), ("gpu_s", pa.float64())]
    ledger_schema = pa.schema(columns)
    book = pa.Table.from_pylist(
        [{n: (held | row).get(n) for n in ledger_schema.names} for row in ledger], ledger_schema
    )
    session.raw.register("bill_rows", rows)
    session.raw.register("ledger_rows", book)
    session.create_view("bill_gpus", "SELECT * FROM bill_rows")
    session.create_view("window_ledger", "SELECT * FROM ledger_rows")
    part_charges(session, "bill_gpus")  # type: ignore[arg-type]
    return session


def billed(found: DividedCosts) -> dict[tuple[str | None, str], Decimal]:
    """BilledCost by team and state; what was not seen as a state of its own."""
    costs = {(owner[0], state): cost["BilledCost"] for (owner, state), cost in found.by_state.items()}
    unseen = sum((line.costs["BilledCost"] for line in found.unseen), Decimal(0))
    return costs | ({(None, "unseen"): unseen} if found.unseen else {})


def test_a_node_is_divided_by_gpu_seconds() -> None:
    """Eight GPU-hours billed: three held busy by a, one idle by b, two unallocated; two that the ledger does not know of."""
    ledger = [
        {"team": "a", "gpu_s": 3.0 * S_PER_HOUR},
        {"team": "b", "state": "idle", "gpu_s": 1.0 * S_PER_HOUR},
        {"state": "unallocated", "gpu_s": 2.0 * S_PER_HOUR},
        {"node": "n2", "team": "c", "gpu_s": 8.0 * S_PER_HOUR},
    ]
    session = open_session([{"node": "n1", "BilledCost": Decimal(80), "gpu_hours": 8.0}], ledger)
    found = divide_charges(session, ("team",))
    assert billed(found) == {("a", "busy"): 30, ("b", "idle"): 10, (None, "unallocated"): 20, (None, "unseen"): 20}
    assert found.unseen[0].hours.total == 2
    assert found.unseen[0].pool == "unobserved"


def test_only_the_charge_period_counts() -> None:
    """Of a half hour billed, the ledger's hour counts half; a node of which nothing is known then is unobserved as a whole."""
    ledger = [{"team": "a", "gpu_s": 1.0 * S_PER_HOUR}, {"team": "b", "gpu_s": 0.5 * S_PER_HOUR, "from_utc": HOUR // 2}]
    half = {"node": "n1", "BilledCost": Decimal(1), "gpu_hours": 0.5, "ChargePeriodEnd": HOUR // 2}
    assert billed(divide_charges(open_session([half], ledger), ("team",))) == {("a", "busy"): 1}
    later = {
        "node": "n1",
        "BilledCost": Decimal(1),
        "gpu_hours": 1.0,
        "ChargePeriodStart": HOUR,
        "ChargePeriodEnd": 2 * HOUR,
    }
    assert billed(divide_charges(open_session([later], ledger), ("team",))) == {(None, "unseen"): 1}


def test_costs_beside_gpus_stay_with_their_line() -> None:
    """Of a machine whose GPUs are a part of its cost, the rest stays beside; so do lines of no known node."""
    lines = [{"node": "n1", "BilledCost": Decimal(10), "gpu_share": Decimal("0.7")}, {"BilledCost": Decimal(3)}]
    session = open_session(lines, [{"team": "a", "gpu_s": 1.0}])
    sums = [session.fetch_one(f"SELECT sum(BilledCost) FROM {name}")[0] for name in (OF_GPUS, BESIDE_GPUS)]
    assert sums == [7, 6]
    assert session.raw.execute(f"SELECT BilledCost, is_gpu FROM {BESIDE_GPUS} ORDER BY ALL").fetchall() == [
        (3, False),
        (3, True),
    ]


@pytest.mark.long
def test_a_bill_of_a_known_node_goes_to_its_holders(tmp_path: Path) -> None:
    """Half a node held for half of the time: a quarter of its cost is its holder's, whoever the tags name; disks go by tags."""
    held = {"job_id": "j", "node": "i-1", "gpus": 4.0, "team": "vision", "from_utc": START, "to_utc": START + 5 * HOUR}
    books = make_books(tmp_path, {"i-1": (8, 0, 10)}, {"allocations": [held]})
    disk = line("vol-1", 0, 10, "7", kind="", ServiceCategory="Storage", Tags='{"team": "llm"}')
    bill(books, tmp_path, [line("i-1", 0, 10, "800", Tags='{"team": "llm"}'), disk])
    found = books.chargeback("2026-10")
    charged = {(s.by["team"], s.pool): str(s.amounts["BilledCost"]) for s in found.statements}
    assert charged == {("llm", None): "7.00", ("vision", None): "200.00", (None, "unallocated"): "600.00"}
    (vision,) = (s for s in found.statements if s.by["team"] == "vision")
    assert (vision.hours.total, vision.rates["BilledCost"]) == (20, 10)
    assert found.totals["BilledCost"].difference == 0


NODE_LINES = st.fixed_dictionaries(
    {
        "node": st.sampled_from(["n1", "n2"]),
        "BilledCost": st.decimals(-1000, 1000, places=18),
        "EffectiveCost": st.decimals(-1000, 1000, places=9),
        "gpu_hours": st.one_of(st.none(), st.floats(0, 10)),
        "ChargePeriodStart": st.sampled_from([0, HOUR // 3]),
        "ChargePeriodEnd": st.sampled_from([None, HOUR, 3 * HOUR]),
    }
)
HELD = st.fixed_dictionaries(
    {
        "node": st.sampled_from(["n1", "n2"]),
        "team": st.sampled_from(["a", "b", None]),
        "state": st.sampled_from(["busy", "idle", "unobserved", "unallocated", "down"]),
        "gpu_s": st.floats(0.001, 4.0 * S_PER_HOUR),
    }
)


@pytest.mark.long
@given(st.lists(NODE_LINES, min_size=1, max_size=8), st.lists(HELD, max_size=8), st.randoms(use_true_random=False))
@with_settings(max_examples=6)
def test_parts_sum_to_the_lines_in_any_order(lines: list[Any], held: list[Any], random: Any) -> None:
    """Parts of all lines sum to them to the last digit, and neither the order of lines nor that of the ledger changes one."""
    add: Callable[[DividedCosts, str], Decimal] = lambda of, column: sum(  # noqa: E731
        (cost[column] for cost in (*of.by_state.values(), *(line.costs for line in of.unseen))), Decimal(0)
    )
    found = divide_charges(open_session(lines, held), ("team",))
    for column in ("BilledCost", "EffectiveCost"):
        assert add(found, column) == sum((line[column] for line in lines), Decimal(0))
    random.shuffle(lines)
    random.shuffle(held)
    assert billed(divide_charges(open_session(lines, held), ("team",))) == billed(found)
