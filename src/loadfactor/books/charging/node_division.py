"""Lines of bills that are GPUs of known nodes, divided over what the ledger says these GPUs did in their charge periods.

What a line costs goes to holders and states by GPU-seconds; GPU-hours billed beyond those of the ledger are unobserved. Parts are
differences of rounded running sums, so those of a line sum to it exactly, however many they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from loadfactor.base.units import MS_PER_HOUR, S_PER_HOUR, US_PER_S
from loadfactor.money.currency import EXACT
from loadfactor.money.lines import ChargedHours, CostLine, Owner, read_hours
from loadfactor.store.session import Session
from loadfactor.tables.charges import COSTS
from loadfactor.tables.schema import DIMENSIONS

OF_GPUS, BESIDE_GPUS = "gpu_costs", "other_costs"
"""Relations of rows: costs of GPUs of known nodes; all other costs, what such a row costs beyond its GPUs among them."""
_UNSEEN: Final = "unseen"
_EXACT: Final = "DECIMAL(38, 18)"


@dataclass(frozen=True)
class DividedCosts:
    """Costs by owner and state of the ledger, and lines of what was billed and not seen."""

    by_state: dict[tuple[Owner, str], dict[str, Decimal]]
    unseen: list[CostLine]


def part_charges(session: Session, relation: str) -> int:
    """Part a relation of `view_bill_gpus` into `OF_GPUS` and `BESIDE_GPUS`, whose costs sum to its own; rows of the first.

    A row of no known node, or of which nobody knows what part its GPUs are, is beside.
    """
    known = "node IS NOT NULL AND coalesce(gpu_share, 0) > 0"
    of_gpus, rest = [], []
    for cost in COSTS:
        part = f"if(gpu_share = 1, {cost}, ({cost}::DOUBLE * gpu_share::DOUBLE)::{_EXACT})"
        of_gpus.append(f"{part} AS {cost}")
        rest.append(f"{cost} - {part} AS {cost}")
    session.create_view(OF_GPUS, f"SELECT * REPLACE ({', '.join(of_gpus)}) FROM {relation} WHERE {known}")
    session.create_view(
        BESIDE_GPUS,
        f"SELECT * REPLACE (sold IS NOT NULL AS is_gpu) FROM {relation} WHERE NOT ({known})"
        f" UNION ALL BY NAME SELECT * REPLACE ({', '.join(rest)}) FROM {relation} WHERE {known} AND gpu_share < 1",
    )
    return int(session.fetch_one(f"SELECT count(*) FROM {OF_GPUS}")[0])


def divide_charges(session: Session, by: Sequence[str]) -> DividedCosts:
    """The costs of `OF_GPUS` over the rows of `asked_ledger`, by GPU-seconds of each node in each charge period."""
    session.materialize("billed_gpus", _sum_billed())
    divided = DividedCosts({}, [])
    for row in session.raw.execute(_write_division(by)).fetchall():
        owner, (state, rate, unseen_us), parts = tuple(row[: len(by)]), row[len(by) : len(by) + 3], row[len(by) + 3 :]
        worth = Decimal(1) if rate is None else Decimal(rate)
        costs = {cost: EXACT.multiply(part or Decimal(0), worth) for cost, part in zip(COSTS, parts, strict=True)}
        if state == _UNSEEN:
            divided.unseen.append(
                CostLine(costs, None, "unobserved", "gpu", ChargedHours(read_hours(unseen_us / US_PER_S)))
            )
        else:
            before = divided.by_state.setdefault((owner, state), dict.fromkeys(COSTS, Decimal(0)))
            divided.by_state[owner, state] = {cost: EXACT.add(before[cost], costs[cost]) for cost in COSTS}
    return divided


def _sum_billed() -> str:
    """SQL: what was billed of a node in a charge period."""
    return f"""
    SELECT row_number() OVER () AS id, * FROM (
      SELECT node, rate, ChargePeriodStart AS start_ms,
        greatest(coalesce(ChargePeriodEnd, 0), ChargePeriodStart + 1) AS end_ms,
        sum(round(coalesce(gpu_hours, 0) * {S_PER_HOUR * US_PER_S})::HUGEINT) AS billed_us,
        {", ".join(f"coalesce(sum({cost}), 0)::{_EXACT} AS {cost}" for cost in COSTS)}
      FROM {OF_GPUS} GROUP BY ALL)"""


def _write_division(by: Sequence[str]) -> str:
    """SQL: costs by owner and state. The order of parts is that of owners and states, so the answer is the same every time."""
    names = [f'"{DIMENSIONS[name]}"' for name in by]
    owner, nobody = ", ".join(names), ", ".join(f"NULL AS {name}" for name in names)
    inside = "least(l.to_utc, h.end_ms) - greatest(l.from_utc, h.start_ms)"
    running = ", ".join(
        f"if(upto = whole, {cost}, ({cost}::DOUBLE * (upto::DOUBLE / whole::DOUBLE))::{_EXACT}) AS {cost}"
        for cost in COSTS
    )
    parts = ", ".join(f"{cost} - lag({cost}, 1, 0::{_EXACT}) OVER line AS {cost}" for cost in COSTS)
    return f"""
    WITH hours AS (
      SELECT id, node, start_ms, end_ms, unnest(range(start_ms - start_ms % {MS_PER_HOUR}, end_ms, {MS_PER_HOUR})) AS hour_utc
      FROM billed_gpus),
    held AS (
      SELECT node, hour_utc, from_utc, to_utc, {owner}, state, sum(round(gpu_s * {US_PER_S})::BIGINT) AS us
      FROM asked_ledger WHERE node IN (SELECT node FROM billed_gpus) GROUP BY ALL),
    seen AS (
      SELECT h.id, {", ".join(f"l.{name}" for name in names)}, l.state,
        sum(round(l.us * (({inside}) / (l.to_utc - l.from_utc)))::HUGEINT) AS us
      FROM hours h JOIN held l ON h.node = l.node AND h.hour_utc = l.hour_utc
        AND l.from_utc < h.end_ms AND l.to_utc > h.start_ms GROUP BY ALL),
    summed AS (SELECT id, sum(us) AS us FROM seen GROUP BY id),
    filled AS (
      SELECT id, {owner}, state, us, 0 AS unseen_us FROM seen WHERE us > 0
      UNION ALL BY NAME
      SELECT b.id, {nobody}, '{_UNSEEN}' AS state, greatest(b.billed_us - coalesce(s.us, 0), 1) AS us,
        greatest(b.billed_us - coalesce(s.us, 0), 0) AS unseen_us
      FROM billed_gpus b LEFT JOIN summed s USING (id) WHERE b.billed_us > coalesce(s.us, 0) OR coalesce(s.us, 0) = 0),
    placed AS (
      SELECT *, sum(us) OVER (PARTITION BY id ORDER BY {owner}, state ROWS UNBOUNDED PRECEDING) AS upto,
        sum(us) OVER (PARTITION BY id) AS whole FROM filled),
    summing AS (SELECT id, {owner}, state, unseen_us, upto, rate, {running} FROM placed JOIN billed_gpus USING (id)),
    parts AS (
      SELECT {owner}, state, rate, unseen_us, {parts} FROM summing WINDOW line AS (PARTITION BY id ORDER BY {owner}, state))
    SELECT {owner}, state, rate, sum(unseen_us), {", ".join(f"sum({cost})" for cost in COSTS)}
    FROM parts GROUP BY ALL ORDER BY ALL"""
