"""How fast does a month's bill come in? A FOCUS bill as gzipped CSV, imported into new books: read, checked, tagged, stored.

The floor is parsing the same file with pyarrow.csv. `bill_import_rows_per_s` counts rows a second of processor time;
`bill_import_peak_mib` is the memory of a process of its own, which a bill ten times as long does not raise.
"""

import gzip
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.csv as pacsv

from benchmarks.memory import find_peak_bytes
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.books.books import Books

NAME = "bills"
HEAD = (
    "ProviderName,BillingAccountId,SubAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart,ChargePeriodEnd,"
    "ChargeCategory,ChargeDescription,BilledCost,EffectiveCost,ListCost,ContractedCost,PricingQuantity,PricingUnit,ServiceCategory,"
    "ServiceName,SkuId,ResourceId,RegionId,Tags"
)
_MEASURE = "import sys; from benchmarks.bills import measure_peak; print(measure_peak(sys.argv[1]))"


def run(quick: bool) -> dict[str, float]:
    """Importing: rows a second, over the floor, and peak memory."""
    rows = 100_000 if quick else 2_000_000
    with tempfile.TemporaryDirectory() as folder:
        bill = Path(folder) / "bill.csv.gz"
        write_bill(bill, rows)
        importing = _cpu_s(lambda: add(bill, Path(folder) / "books"))
        floor = _cpu_s(lambda: pacsv.read_csv(bill))
        peak = subprocess.run([sys.executable, "-c", _MEASURE, str(bill)], check=True, capture_output=True, text=True)
    return {
        "bill_rows": float(rows),
        "bill_import_rows_per_s": rows / importing,
        "bill_import_over_floor": importing / floor,
        "bill_import_peak_mib": float(peak.stdout),
    }


def write_bill(path: Path, rows: int) -> None:
    """A month of hourly lines of 200 sub accounts and 5,000 resources; a third carries no tags."""
    draw = np.random.default_rng(1)
    subs, resources, hours = (draw.integers(0, most, rows).tolist() for most in (200, 5_000, 720))
    costs = draw.integers(1, 10**9, rows).tolist()
    month = "USD,2026-10-01T00:00:00Z,2026-11-01T00:00:00Z"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(HEAD + "\n")
        for sub, resource, hour, cost in zip(subs, resources, hours, costs, strict=True):
            day, at = divmod(hour, 24)
            amount = f"{cost / 10**7:.10f}"
            tags = f'"{{""team"":""team-{sub}"",""owner"":""user-{resource}""}}"' if resource % 3 else ""
            begin = f"2026-10-{day + 1:02}T{at:02}:00:00Z,2026-10-{day + 1:02}T{at:02}:59:59Z"
            file.write(
                f"AWS,1,{sub},{month},{begin},Usage,p5.48xlarge,{amount},{amount},{amount},{amount},1,Hrs,Compute,Amazon EC2,"
                f"sku-{sub % 40},i-{resource},us-east-1,{tags}\n"
            )


def add(bill: Path, store: Path) -> None:
    """The bill in new books."""
    Books.open(store, create=True).add("focus", [bill])


def measure_peak(path: str) -> float:
    """MiB that importing the bill takes at its peak, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        add(Path(path), Path(folder) / "books")
    return find_peak_bytes() / BYTES_PER_MIB


def _cpu_s(work: Callable[[], object]) -> float:
    """Seconds of processor time that it takes, of all threads."""
    begin = time.process_time()
    work()
    return time.process_time() - begin
