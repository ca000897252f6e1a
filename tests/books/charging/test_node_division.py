"""Tests of dividing lines of GPUs over what the ledger says these GPUs did: exact, by GPU-seconds, in any order."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import settings as with_settings
from hypothesis import strategies as st
from tests.books.charging.gpu_bills import START, line
from tests.books.charging.test_billed_prices import bill, make_books

from loadfactor.base.units import MS_PER_HOUR, S_PER_HOUR
from loadfactor.books.charging.fleet_chargeback import BESIDE_GPUS, OF_GPUS, DividedCosts, divide_charges, part_charges
from loadfactor.tables.charges import CHARGES

HOUR = MS_PER_HOUR


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
        return self.raw.execute(sql).fetchone()


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


LINES = st.fixed_dictionaries(
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


@given(st.lists(LINES, min_size=1, max_size=8), st.lists(HELD, max_size=8), st.randoms(use_true_random=False))
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
