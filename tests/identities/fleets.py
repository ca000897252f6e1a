"""Random fleets for the table of identities: jobs, samples, waits, work, networks, prices, bills, tags, budgets, policies."""

import csv
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from pathlib import Path

from tests.books.charging.gpu_bills import line, write_bill
from tests.identities.fleet import Fleet

from loadfactor.books.books import Books
from loadfactor.books.charging.bill_lines import read_month

MONTH = "2026-10"
TEAMS = ("vision", "speech", "infra")
DAYS = 5
NETWORKS = (
    'datatype = "bf16"\nmodel = "llama-3.1-8b"\nsequence_length = 4096\nmatch = { team = "vision" }',
    'datatype = "bf16"\nmodel = "llama-3.1-8b"\nsequence_length = 2048\nmatch = { team = "speech" }',
)
PROJECT = '[[project]]\nname = "project-{}"\nruns = 5\ngpu_hours_per_run = 30\nprice_per_gpu_hour = 2\n'
WAYS = ("held hours", "even", "own pool", "effective hours")


def make_fleet(seed: int, folder: Path, write: Callable[[str], None], zone: tzinfo) -> Fleet:
    """Two nodes of two GPUs over the end of September and the begin of October, with a bill in two fleets of three."""
    rnd = random.Random(seed)
    policy = "\n".join(f'{pool} = "{rnd.choice(WAYS)}"' for pool in ("unallocated", "shared", "untagged"))
    idle = rnd.choice(["holder", *WAYS])
    budgets = "".join(f'[[budget]]\nteam = "{team}"\namount = 1000\n' for team in TEAMS)
    budgets += '[[budget]]\nname = "all"\namount = 9000\n'
    owned = f'[[owned]]\naccelerator = "h100-sxm"\nserver_price = {rnd.randint(200, 400)}000\n' * rnd.randrange(2)
    networks = "".join(f"[[network]]\n{text}\n" for text in NETWORKS[: rnd.randrange(3)])
    projects = "".join(PROJECT.format(team) for team in TEAMS)
    energy = _describe_energy(seed, folder)
    served = '"users"' if seed % 2 else '"holder"'
    write(
        f'timezone = "{zone}"\n{budgets}{owned}{networks}{projects}{energy}'
        f'[chargeback]\nserved = {served}\nidle = "{idle}"\n{policy}\n'
    )
    start = datetime(2026, 9, 29, rnd.randrange(24), tzinfo=UTC)
    tables = folder / "tables"
    tables.mkdir(parents=True)
    _write_tables(rnd, tables, start, timedelta(days=DAYS, minutes=rnd.choice([0, 30, 15])))
    books = Books(folder / "books")
    books.add("tables", [tables])
    window, billed = read_month(MONTH, zone), None
    if seed % 3 > 0:
        bill = _write_bill(rnd, folder / "bill.csv")
        books.add("focus", [bill])
        billed = _add_up(bill)
    return Fleet(
        books, folder, MONTH, window, zone, TEAMS, rnd, billed, bool(owned), seed % 8 == 0, seed % 4 == 0, seed % 8 != 4
    )


def cut_fleet(fleet: Fleet, rnd: random.Random) -> Fleet:
    """Return the same fleet merged from two stores, a node in each; what names no node, and the bill, is in the first."""
    folders = [fleet.folder / "stores" / node for node in ("n1", "n2")]
    names = _list_rows(fleet.folder / "tables" / "allocations.csv")
    of_second = {row["job_id"] for row in names if row["device_id"].startswith("n2")}
    for path in sorted((fleet.folder / "tables").iterdir()):
        rows = _list_rows(path)
        parts: list[list[dict[str, str]]] = [[], []]
        for row in rows:
            own = row.get("node") or row.get("device_id") or row.get("pool", "").removeprefix("pool-") or row["job_id"]
            parts[own.startswith("n2") or own in of_second].append(row)
        for folder, part in zip(folders, parts, strict=True):
            _write_rows(folder / "tables" / path.name, [*rows[0]], part)
    merged = Books(fleet.folder / "stores" / "all")
    for folder in folders:
        books = Books(folder / "books")
        books.add("tables", [folder / "tables"])
        if fleet.billed is not None and folder is folders[0]:  # a later delivery of a period would replace it
            books.add("focus", [fleet.folder / "bill.csv"])
        merged.merge(books)
    return replace(fleet, books=merged, random=rnd)


def _list_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _write_rows(path: Path, names: list[str], rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if rows:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)


def _describe_energy(seed: int, folder: Path) -> str:
    """The table [energy] of two fleets in three, with a grid that knows another intensity of each third hour and not all PUE."""
    if seed % 3 == 0:
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    start = datetime(2026, 9, 29, tzinfo=UTC)
    hours = [
        f"de,{(start + timedelta(hours=hour)).isoformat()},0.{hour % 7 + 1},1.{hour % 4}" for hour in range(0, 96, 3)
    ]
    (folder / "grid.csv").write_text("\n".join(["region,hour,kgco2e_per_kwh,pue", "de,,0.35,", "se,,0.02,1.1", *hours]))
    estimate = "held_percent = 60\n" * (seed % 2)
    return (
        f'[energy]\ngrid = "{folder}/grid.csv"\nregion = "de"\nregions = {{ pool-n2 = "se" }}\n'
        f"pue = 1.4\nstatements = true\n{estimate}"
    )


def _write_tables(rnd: random.Random, folder: Path, start: datetime, length: timedelta) -> None:
    end = start + length
    step = rnd.choice([60, 5])
    devices, jobs, samples, events, outages = [], [], [], [], []
    for node in ("n1", "n2"):
        for gpu in range(2):
            name = f"{node}-{gpu}"
            devices.append((name, node, f"pool-{node}", "h100-sxm", start.isoformat(), end.isoformat()))
            at = start
            while at < end:
                until = min(at + timedelta(minutes=rnd.randint(20, 2000)), end)
                team, job = rnd.choice([*TEAMS, *TEAMS, ""]), f"j{len(jobs)}"
                who = (
                    team,
                    rnd.choice(["ann", "bob"]),
                    team and f"project-{team}",
                    rnd.choice(["training", "evaluation"]),
                )
                if rnd.random() < 0.8:
                    state = rnd.choice(["completed", "completed", "failed", "cancelled"])
                    jobs.append((job, name, *who, at.isoformat(), until.isoformat(), state))
                    asked = at - timedelta(minutes=rnd.randint(0, 300))
                    events += [
                        (job, when.isoformat(), event, team, 1)
                        for when, event in ((asked, "submitted"), (at, "started"))
                    ]
                elif rnd.random() < 0.5:
                    outages.append((name, at.isoformat(), until.isoformat()))
                at = until
            for hour in range(DAYS * 24):
                if rnd.random() < 0.9:
                    share, power = rnd.choice([0, 0, round(rnd.random(), 3)]), rnd.choice(["", rnd.randint(60, 700)])
                    for began in (start + timedelta(hours=hour, minutes=minute) for minute in range(0, 60, step)):
                        samples.append(
                            (name, began.isoformat(), (began + timedelta(minutes=step)).isoformat(), share, power)
                        )
    for number in range(rnd.randrange(4)):
        when = (start + timedelta(hours=rnd.randrange(DAYS * 24))).isoformat()
        events.append((f"w{number}", when, "submitted", rnd.choice(TEAMS), rnd.randint(1, 8)))
    bases = rnd.choice([("contracted",), ("contracted", "list"), ("list",)])
    prices = [(basis, pool, rnd.choice([2, 2.35, 1.999])) for basis in bases for pool in ("pool-n1", "pool-n2")]
    work = list(_list_work(rnd, jobs))
    use, counted = _list_use(random.Random(len(jobs)), jobs, {str(of[0]) for of in work})
    for name, header, rows in (
        ("devices", "device_id,node,pool,accelerator,from_utc,to_utc", devices),
        ("allocations", "job_id,device_id,team,user,project,purpose,from_utc,to_utc,end_state", jobs),
        ("samples", "device_id,from_utc,to_utc,sm_active_share,power_w", samples),
        ("prices", "basis,pool,price_per_gpu_hour", prices),
        ("outages", "device_id,from_utc,to_utc", outages),
        ("queue_events", "job_id,at_utc,event,team,gpus", events),
        ("progress", "job_id,from_utc,to_utc,unit,amount,kept,cause", [*work, *counted]),
        ("served_requests", "request_id,from_utc,to_utc,job_id,team,user,feature,prompt_tokens,output_tokens", use),
    ):
        if rows:
            with (folder / f"{name}.csv").open("w", newline="") as file:
                file.write(header + "\n")
                csv.writer(file).writerows(rows)


def _list_use(
    rnd: random.Random, jobs: list[tuple[str, ...]], train: set[str]
) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Requests of teams, some of nobody, to the first jobs that do not train; of every other what its engines counted."""
    use: list[tuple[object, ...]] = []
    counted: list[tuple[object, ...]] = []
    for job, _, _, _, _, _, begun, ended, _ in [of for of in jobs if of[0] not in train][:9]:
        first, last = (datetime.fromisoformat(at) for at in (begun, ended))
        made = 0
        for number in range(rnd.randrange(2, 12)):
            at = (first + (last - first) * rnd.random()).isoformat()
            tokens = rnd.randrange(1, 900), rnd.randrange(900)
            asked = rnd.choice([*TEAMS, "guest", ""]), rnd.choice(["ann", ""]), rnd.choice(["chat", ""])
            use.append((f"{job}-{number}", at, at, job, *asked, *tokens))
            made += tokens[1]
        if len(use) % 2:
            counted.append((job, begun, ended, "output_token", made + rnd.randrange(500), "true", ""))
    return use, counted


def _list_work(rnd: random.Random, jobs: list[tuple[str, ...]]) -> Iterator[tuple[object, ...]]:
    """Tokens and samples of two jobs in three, a part of the tokens of some lost; an H100 makes some thousand a second."""
    for job, _, _, _, _, _, begun, ended, _ in jobs:
        seconds = (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds()
        if rnd.random() < 0.67:
            tokens = int(seconds * rnd.randint(50, 3000))
            lost = rnd.choice([0, 0, tokens // rnd.randint(3, 20)])
            yield job, begun, ended, "train_token", tokens - lost, "true", ""
            yield job, begun, ended, "train_sample", tokens // 1000 + 1, "true", ""
            if lost:
                yield job, begun, ended, "train_token", lost, "false", rnd.choice(["restart", "preemption", ""])


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
    for covered in lines[::7]:
        if covered["x_InstanceType"]:
            covered |= {"CommitmentDiscountId": "sp-1", "CommitmentDiscountStatus": "Used"}
    lines.append(line("", 0, 24 * 31, cost(200), kind="", ServiceName="Support", ServiceCategory="Other"))
    lines.append(line("", 0, 24, f"-{cost(20)}", kind="", ChargeCategory="Credit", ServiceCategory="Other"))
    return write_bill(path, lines)


def read_bill_lines(fleet: Fleet) -> list[dict[str, str]]:
    """The lines of machines of a fleet's bill; none without one."""
    if fleet.billed is None:
        return []
    with (fleet.folder / "bill.csv").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["x_InstanceType"]]


def _add_up(bill: Path) -> Decimal:
    """What the lines of a bill cost; all of them begin in the month, in any zone."""
    with bill.open(newline="", encoding="utf-8") as file:
        return sum((Decimal(row["EffectiveCost"]) for row in csv.DictReader(file)), Decimal(0))
