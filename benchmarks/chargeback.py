"""How fast is a bill charged? 10 million lines of 1,000 owners, beside a plain DuckDB group-by of the same lines.

The lines are made as FOCUS in Parquet and imported like anybody's. `chargeback_over_groupby` is the time of a chargeback by team
and project over that of adding up the same costs by team and project in DuckDB, one thread each, the better of three; both read
the file that the books keep. `chargeback_peak_mb` is the memory of the charging process.
"""

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from loadfactor.base.units import BYTES_PER_KB
from loadfactor.books.books import Books
from loadfactor.tables.charges import COSTS

NAME = "chargeback"
OWNERS = 1_000
SERVICES = 40
METERS = 400


def run(quick: bool) -> dict[str, float]:
    """10 million lines; `quick` takes 200,000."""
    lines = 200_000 if quick else 10_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_bill(folder / "bill.parquet", lines)
        Books(folder / "books").add("focus", [folder / "bill.parquet"])
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            charged, peak_mb, total = pool.apply(_charge, (folder / "books",))
        plain, expected = _group(folder / "books")
    if total != expected:
        raise AssertionError(f"charged {total}, and the lines sum to {expected}")
    return {
        "chargeback_over_groupby": charged / plain,
        "chargeback_lines_per_s": lines / charged,
        "chargeback_peak_mb": peak_mb,
    }


def _write_bill(path: Path, lines: int) -> None:
    """Lines of a month: owners by tags, meters by service, costs of nine digits, some of them negative."""
    duckdb.execute(
        f"""COPY (SELECT 'Cloud' AS ProviderName, '1' AS BillingAccountId, 'USD' AS BillingCurrency, 'Usage' AS ChargeCategory,
          TIMESTAMP '2026-10-01' AS BillingPeriodStart, TIMESTAMP '2026-11-01' AS BillingPeriodEnd,
          TIMESTAMP '2026-10-01' + to_hours((i % 744)::INTEGER) AS ChargePeriodStart,
          TIMESTAMP '2026-10-01' + to_hours((i % 744 + 1)::INTEGER) AS ChargePeriodEnd,
          'service ' || i * 7 % {SERVICES} AS ServiceName, 'meter ' || i * 13 % {METERS} AS SkuMeter,
          ['Compute', 'Storage', 'Networking'][1 + i * 7 % {SERVICES} % 3] AS ServiceCategory,
          'vm-' || hash(i) % 50000 AS ResourceId,
          '{{"team": "team ' || i * 31 % {OWNERS} % 100 || '", "project": "project ' || i * 31 % {OWNERS} || '"}}' AS Tags,
          {", ".join(f"((hash(i, {n}) % 2000000000)::BIGINT - 100000000)::DECIMAL(18, 0) / 1000000000 AS {cost}" for n, cost in enumerate(COSTS))}
        FROM range({lines}) AS t(i)) TO '{path}' (FORMAT parquet)"""  # noqa: E501
    )


def _charge(folder: Path) -> tuple[float, float, str]:
    """Seconds of a chargeback, memory of this process in MB, and the exact sum of one column."""
    books = Books(folder)
    seconds, found = _time(lambda: books.chargeback("2026-10", by=("team", "project")))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / BYTES_PER_KB / BYTES_PER_KB
    return seconds, peak, f"{found.totals[COSTS[0]].bill:f}"


def _group(folder: Path) -> tuple[float, str]:
    """Seconds of the group-by, and the exact sum of one column."""
    files = sorted(map(str, folder.glob("charges-*.parquet")))
    sums = ", ".join(f"sum({cost})" for cost in COSTS)
    with duckdb.connect(config={"threads": 1}) as plain:
        sql = f"SELECT team, project, {sums} FROM read_parquet({files}) GROUP BY ALL"
        seconds, rows = _time(lambda: plain.execute(sql).fetchall())
    return seconds, f"{sum(row[2] for row in rows).normalize():f}"


def _time(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the best of three, and what came out."""
    best, found = float("inf"), None
    for _ in range(3):
        began = time.process_time()
        found = work()
        best = min(best, time.process_time() - began)
    return best, found
