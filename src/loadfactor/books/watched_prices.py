"""Prices that ended without another one: SQL over the tables `prices` and `devices`."""

from typing import Final

from loadfactor.tables.schema import ALWAYS, BASES

_NEVER: Final = ALWAYS[1]


def write_ended_prices(end_ms: int) -> str:
    """SQL: accelerator, pool, device_id, basis, ended, gone of prices of listed GPUs that ended before an instant for good.

    A price is followed by another one that is valid later, in the same or a better basis, for all that it was the price of.
    """
    rank = " ".join(f"WHEN '{basis}' THEN {number}" for number, basis in enumerate(BASES))
    what = ("accelerator", "pool", "device_id")
    covers = " AND ".join(f"(q.{of} IS NULL OR q.{of} = p.{of})" for of in what)
    matches = " AND ".join(f"(p.{of} IS NULL OR d.{of} = p.{of})" for of in what)
    return f"""
        WITH ranked AS (SELECT *, CASE basis {rank} END AS rank FROM prices),
          ended AS (SELECT accelerator, pool, device_id, basis, rank, max(coalesce(to_utc, {_NEVER})) AS ended
                    FROM ranked GROUP BY ALL HAVING ended < {end_ms}),
          last AS (SELECT * FROM ended AS p WHERE NOT EXISTS (
                     SELECT 1 FROM ranked AS q WHERE q.rank <= p.rank AND coalesce(q.to_utc, {_NEVER}) > p.ended AND {covers}))
        SELECT p.accelerator, p.pool, p.device_id, p.basis, p.ended, max(coalesce(d.to_utc, {_NEVER})) AS gone
        FROM last AS p JOIN devices AS d ON {matches} AND coalesce(d.to_utc, {_NEVER}) > p.ended
        GROUP BY ALL ORDER BY ALL"""
