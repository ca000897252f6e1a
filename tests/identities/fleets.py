"""Random fleets for the table of identities: nodes, jobs, samples, prices, bills, tags, budgets and policies."""

import csv
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

from tests.books.charging.gpu_bills import line, write_bill
from tests.identities.table import Fleet

from loadfactor.books.books import Books
from loadfactor.books.charging.bill_lines import read_month

MONTH = "2026-10"
TEAMS = ("vision", "speech", "infra")
DAYS = 5
WAYS = ("held hours", "even", "own pool", "effective hours")


def make_fleet(seed: int, folder: Path, write: Callable[[str], None], zone: tzinfo) -> Fleet:
    """Two nodes of eight GPUs over the end of September and the begin of October, with a bill in two fleets of three."""
    rnd = random.Random(seed)
    policy = "\n".join(f'{pool} = "{rnd.choice(WAYS)}"' for pool in ("unallocated", "shared", "untagged"))
    idle = rnd.choice(["holder", *WAYS])
    budgets = "".join(f'[[budget]]\nteam = "{team}"\namount = 1000\n' for team in TEAMS)
    write(
        f'timezone = "{zone}"\n{budgets}[[budget]]\nname = "all"\namount = 9000\n[chargeback]\nidle = "{idle}"\n{policy}\n'
    )
    start = datetime(2026, 9, 29, rnd.randrange(24), tzinfo=UTC)
    tables = folder / "tables"
    tables.mkdir(parents=True)
    _write_tables(rnd, tables, start)
    books = Books(folder / "books")
    books.add("tables", [tables])
    has_bill = seed % 3 > 0
    if has_bill:
        books.add("focus", [_write_bill(rnd, folder / "bill.csv")])
    return Fleet(books, folder, MONTH, read_month(MONTH, zone), zone, TEAMS, has_bill)


def _write_tables(rnd: random.Random, folder: Path, start: datetime) -> None:
    end = start + timedelta(days=DAYS, minutes=rnd.choice([0, 30, 15]))
    devices, jobs, samples = [], [], []
    for node in ("n1", "n2"):
        for gpu in range(2):
            name = f"{node}-{gpu}"
            devices.append((name, node, "h100-sxm", start.isoformat(), end.isoformat()))
            at = start
            while at < end:
                until = min(at + timedelta(minutes=rnd.randint(20, 2000)), end)
                team = rnd.choice([*TEAMS, *TEAMS, ""])
                if rnd.random() < 0.8:
                    jobs.append((f"j{len(jobs)}", name, team, at.isoformat(), until.isoformat()))
                at = until
            for hour in range(DAYS * 24):
                if rnd.random() < 0.9:
                    began = start + timedelta(hours=hour)
                    share = rnd.choice([0, 0, round(rnd.random(), 3)])
                    samples.append((name, began.isoformat(), (began + timedelta(hours=1)).isoformat(), share))
    prices = [("contracted", rnd.choice([2, 2.35, 1.999]))]
    for name, header, rows in (
        ("devices", "device_id,node,accelerator,from_utc,to_utc", devices),
        ("allocations", "job_id,device_id,team,from_utc,to_utc", jobs),
        ("samples", "device_id,from_utc,to_utc,sm_active_share", samples),
        ("prices", "basis,price_per_gpu_hour", prices),
    ):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            file.write(header + "\n")
            csv.writer(file).writerows(rows)


def _write_bill(rnd: random.Random, path: Path) -> Path:
    """Machines of the nodes and of an unknown one by day and by hour, disks, support and credits, with tags or without."""

    def tags() -> str:
        return rnd.choice(["", *(f'{{"team": "{team}"}}' for team in TEAMS)])

    def cost(most: int) -> str:
        return f"{rnd.randint(1, most * 10**6) / 10**6:f}"

    lines = []
    for day in range(DAYS - 1):
        lines += [line(node, 24 * day, 24, cost(900), Tags=tags()) for node in ("n1", "n3")]
        lines += [line("n2", 24 * day + hour, 1, cost(40), Tags=tags()) for hour in range(0, 24, 3)]
        disk = {"ServiceCategory": "Storage", "ServiceName": "disks", "Tags": tags()}
        lines.append(line("d1", 24 * day, 24, cost(50), kind="", **disk))
    lines.append(line("", 0, 24 * 31, cost(200), kind="", ServiceName="Support", ServiceCategory="Other"))
    lines.append(line("", 0, 24, f"-{cost(20)}", kind="", ChargeCategory="Credit", ServiceCategory="Other"))
    return write_bill(path, lines)
