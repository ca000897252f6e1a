"""A tiny fleet with a row of every kind, imported in four parts: small enough to be imported some hundred times."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2026, 5, 1, tzinfo=UTC)
DEVICES = ("g0", "g1", "g2")
STEP = timedelta(minutes=30)


def at(hours: float) -> str:
    """An instant, so many hours after the fleet began."""
    return f"{START + timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"


def samples(first: float, last: float, seed: int, columns: Sequence[str] = ("busy_share", "power_w")) -> list[str]:
    """Half-hourly samples of every GPU between two hours; every value is its own, so that a lost row changes an answer."""
    rnd = random.Random(seed)
    times = [first + k / 2 for k in range(1, int(2 * (last - first)) + 1)]
    scale = {"busy_share": 1, "power_w": 700, "mem_used_bytes": 8e10, "sm_active_share": 1}
    rows = [
        f"{d},{at(t)},log,{','.join(f'{rnd.random() * scale[c]:.4g}' for c in columns)}" for d in DEVICES for t in times
    ]
    return [f"device_id,to_utc,source,{','.join(columns)}", *rows]


def bill(may: str, *more: str) -> list[str]:
    """A bill of May, and further rows: of another month, or of a sub account."""
    head = "ProviderName,BillingAccountId,SubAccountId,BillingPeriodStart,ChargePeriodStart,BilledCost,Tags"
    row = "AWS,1,a,2026-05-01T00:00:00Z,2026-05-01T00:00:00Z"
    return [head, f'{row},{may},"{{""team"":""red""}}"', *more]


INVENTORY = {
    "devices": [
        "device_id,node,accelerator,pool,from_utc,to_utc",
        *(f"{d},n{k // 2},h100-sxm,p,{at(0)},{at(48)}" for k, d in enumerate(DEVICES)),
    ],
    "prices": ["basis,price_per_gpu_hour,currency", "contracted,2.5,EUR"],
    "exchange_rates": ["currency,rate", "EUR,1.25"],
    "outages": ["device_id,from_utc,to_utc,reason", f"g2,{at(5)},{at(7.25)},drained"],
}
WORK = {
    "allocations": [
        "job_id,device_id,team,submitted_utc,from_utc,to_utc",
        *(f"a,{d},red,{at(0)},{at(1)},{at(20.5)}" for d in DEVICES[:2]),
        f"b,g2,blue,{at(2)},{at(3)},{at(30)}",
    ],
    "progress": [
        "job_id,from_utc,to_utc,unit,amount,kept",
        f"a,{at(1)},{at(10)},train_token,9000,true",
        f"a,{at(10)},{at(20)},train_token,1234,false",
    ],
    "job_sections": ["job_id,from_utc,to_utc,kind", f"a,{at(4)},{at(4.5)},checkpoint", f"b,{at(6)},{at(7)},evaluation"],
    "quotas": ["queue,resource,gpus,from_utc", f"red,nvidia.com/gpu,2,{at(0)}"],
    "queue_events": [
        "job_id,at_utc,event,gpus,pool,team",
        f"c,{at(4)},submitted,2,p,red",
        f"c,{at(9)},cancelled,2,p,red",
    ],
    "node_samples": ["node,to_utc,cpu_busy_share", *(f"n0,{at(k)},0.{k + 1}" for k in range(1, 6))],
    "device_events": ["device_id,at_utc,kind,detail", f"g1,{at(6)},xid,79", f"g0,{at(8)},ecc,dbe"],
    "served_requests": ["request_id,from_utc,to_utc,job_id,team,output_tokens", f"r1,{at(5)},{at(5)},b,red,9"],
    "samples": samples(0, 30, 1),
    "charges": bill(
        "7.10",
        "AWS,1,a,2026-04-01T00:00:00Z,2026-04-03T00:00:00Z,3.3,",
        "AWS,1,b,2026-05-01T00:00:00Z,2026-05-02T00:00:00Z,1,",
    ),
}
LATE = {
    # the same samples with another column, and between them ones that came late
    "samples": samples(10, 16, 2, ("mem_used_bytes", "sm_active_share")),
    "allocations": ["job_id,device_id,team,from_utc,to_utc", f"b,g2,green,{at(3)},{at(31)}"],
    "prices": ["basis,price_per_gpu_hour,currency", "contracted,3,EUR"],
    "charges": bill("8.20"),  # of one sub account: the rows of the other stay
}
LAST = {
    "samples": samples(30, 47.5, 3),
    "allocations": ["job_id,device_id,team,from_utc,to_utc", f"d,g0,red,{at(31)},{at(47)}"],
    "progress": ["job_id,from_utc,to_utc,unit,amount", f"d,{at(31)},{at(40)},train_token,777"],
    "job_sections": ["job_id,from_utc,to_utc,kind", f"d,{at(33)},{at(34)},checkpoint"],
    "quotas": ["queue,resource,gpus,from_utc", f"blue,nvidia.com/gpu,1,{at(40)}"],
    "node_samples": ["node,to_utc,cpu_busy_share", f"n1,{at(40)},0.25"],
    "device_events": ["device_id,at_utc,kind,detail", f"g2,{at(41)},throttle,power"],
    "served_requests": ["request_id,from_utc,to_utc,job_id,team,output_tokens", f"r2,{at(35)},{at(35)},d,red,7"],
    "queue_events": ["job_id,at_utc,event,gpus,pool,team", f"e,{at(42)},submitted,1,p,blue"],
    "outages": ["device_id,from_utc,to_utc,reason", f"g1,{at(44)},{at(45)},failed"],
    "charges": bill("9.30", "AWS,1,b,2026-05-01T00:00:00Z,2026-05-02T00:00:00Z,2,"),
}
PARTS = {"inventory": INVENTORY, "work": WORK, "late": LATE, "last": LAST}
"""In the order of their imports; `last` is the one that tests import."""
MONTH = "2026-05"
"""The month of the bills."""
MAPPING_FILE = "mapping.csv"
MAPPING = ["job_id,from,experiment,project", "a,,alpha,", "c,2026-05-01,gamma,cats", "b,2027-01-01,never,"]


def _ms(hours: float) -> int:
    return int((START + timedelta(hours=hours)).timestamp() * 1000)


LIVE: list[tuple[str, str, dict[str, list[object]]]] = [
    (
        source,
        "samples",
        {
            "device_id": [d for d in DEVICES for _ in range(3)],
            "to_utc": [_ms(first + k / 2) for _ in DEVICES for k in range(3)],
            "busy_share": [(place * 10 + k) / 100 for k in range(9)],
        },
    )
    for place, (source, first) in enumerate([("live", 40), ("log", 46), ("live", 41.5), ("live", 39.5), ("log", 47)])
]
"""Live batches of two sources: source, table and columns. Some rows come again, some come late."""
LIVE += [
    ("live", "device_events", {"device_id": ["g0"], "at_utc": [_ms(41)], "kind": ["xid"], "detail": ["31"]}),
    ("live", "allocations", {"job_id": ["f"], "device_id": ["g1"], "from_utc": [_ms(32)], "to_utc": [_ms(41)]}),
]


def write_parts(folder: Path) -> None:
    """Each part as a folder of CSV tables, and a mapping that speaks of some of their jobs."""
    for name, tables in PARTS.items():
        (folder / name).mkdir(parents=True)
        for table, rows in tables.items():
            (folder / name / f"{table}.csv").write_text("\n".join(rows) + "\n")
    (folder / MAPPING_FILE).write_text("\n".join(MAPPING) + "\n")
