"""The tables: columns, units, meaning, and what an empty cell means.

This is the one definition behind the storage schema, the checks at import, `loadfactor tables` and the empty templates.
Instants are stored as int64 milliseconds since 1970 UTC. A sample describes the interval that *ends* at its timestamp.
"""

from typing import Final

from loadfactor.base.limits import GPU_HOUR_PRICE, MOST_CLUSTER_GPUS, MOST_NODE_GPUS, MOST_RATE
from loadfactor.base.units import MS_PER_S
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.columns import NOT_MEASURED, TYPES, Column, Kind, Table
from loadfactor.tables.quotas import QUOTAS
from loadfactor.tables.work import JOB_SECTIONS, PROGRESS, SERVED_REQUESTS

Span = tuple[int, int]
"""An interval [from, to) of instants, int64 milliseconds UTC."""
ALWAYS: Final[Span] = (0, 2**62)
"""Since ever and for ever: what an interval without a start and without an end covers."""
NUMBERED: Final = ":gpu"
"""Between a node and a number: the name of a GPU that is known by its number alone."""


def _measured(name: str, kind: Kind, meaning: str, at_most: float | None = None) -> Column:
    return Column(name, kind, meaning, NOT_MEASURED, at_most=at_most)


MOST_BYTES: Final = 1e17
"""Of memory, and moved in a second: far more than any GPU or node has."""
MOST_W: Final = 100_000.0
MOST_HZ: Final = 1e11
MOST_C: Final = 200.0
WITHIN: Final = (("mem_used_bytes", "mem_total_bytes"),)
"""Measurements that are part of another one."""


REACH_STEPS: Final = 1.5
"""A sample reaches back to the one before it over at most this many nominal steps; beyond that lies a gap."""

IDLE_BELOW: Final = 0.05
"""Held, and activity under this share: idle. GPU_UTIL from here on means that a kernel was certainly resident."""

BASES: Final = ("effective", "contracted", "owned", "list", "estimate")
"""Cost bases, best first. A question is answered in one of them, never in a mixture."""
BILLED: Final = ("effective", "contracted")
"""Those that bills make prices of."""

EVENTS: Final = ("submitted", "eligible", "held", "requeued", "started", "cancelled")
"""Events of a waiting job. A wait runs from eligible (else submitted or requeued) to started."""

EVENT_KINDS: Final = (
    "xid", "ecc", "row_remap", "nvlink", "pcie", "out_of_memory", "throttle", "reset", "other",
)  # fmt: skip
"""Events of a GPU: an error of the driver, of memory, of a link, or a state that an alert asks for."""

CURRENCY: Final = "^[A-Z]{3}$"
"""How a currency is written: the three letters of ISO 4217."""
DEFAULT_CURRENCY: Final = "USD"
"""The currency of a store that names none."""

LABELS, EVEN_SPLIT, BRIDGED, RUN = "labels", "even_split", "bridged", "run"
KNOWN_FROM: Final = (LABELS, EVEN_SPLIT, BRIDGED, RUN)
"""How an allocation is known where nobody listed it: from labels of samples, or claims; its GPUs split evenly over its nodes;
bridged over a gap of its labels, which named it before and after, or came late; or a training loop that was tracked names itself,
on the GPUs that it sees, or (`gpus` 0) on none that it knows."""
NAMED: Final = (LABELS, BRIDGED, RUN)
"""Those that nobody listed: what labels or runs say of who works somewhere."""
IS_LISTED: Final = f"coalesce(known_from NOT IN {NAMED}, true)"
"""SQL: whether somebody listed an allocation."""

REST: Final = "/rest"
"""Ends the name of what MIG leaves of a GPU: it is no instance, so nobody can hold it."""

LIST, SCHEDULED, SEEN = "list", "scheduled", "seen"
LISTED_BY: Final = (LIST, SCHEDULED, SEEN)
"""How a device is known, the surest first, in the order of letters: from a list, which says when it ended; from a scheduler that
also lists who holds what, so that nobody holds the others; or because a log saw it, which may have broken off."""

LINGER_MS: Final = 600 * MS_PER_S
"""How long before and after a listed job its labels are taken for the same job: longer than exporters and clocks are late."""

_HOLDER = (
    Column("user", "text", "who asked for it", "not known"),
    Column("team", "text", "the team that pays", "not known"),
    Column("project", "text", "the project it belongs to", "not known"),
    Column("experiment_id", "text", "the experiment it is a run of", "not tagged"),
    Column("purpose", "text", "training, serving, notebook, …", "not known"),
)

_BY_SCHEDULER = (
    Column("job_number", "text", "the scheduler's number of a job whose id says more (an array's task)", "its id"),
    Column("queue", "text", "partition or queue it was sent to", "not known"),
    Column(
        "tags", "text", "what the scheduler says of the job, as a JSON object of texts, for rules of tagging", "nothing"
    ),
    Column(
        "original_holder",
        "text",
        "experiment_id, team, project and purpose as the source said them, as a JSON object, where rules of tagging say otherwise",
        "as the columns say",
    ),
)

DEVICES = Table(
    "devices",
    "this GPU existed",
    ("device_id", "from_utc"),
    (
        Column("device_id", "text", "unique name of the GPU (its UUID where there is one)"),
        Column("node", "text", "the machine it sits in", "not known"),
        Column("accelerator", "text", "catalog id or the driver's name of its model", "not known"),
        Column("pool", "text", "partition, cluster or capacity pool it belongs to", "not known"),
        Column("share", "share", "part of a physical GPU this is (a MIG slice: 1/7 … 1)", "1, a whole GPU"),
        Column(
            "gpu_index",
            "count",
            "its number among GPUs of its node, from 0, as its driver counts",
            "not known",
            at_most=MOST_NODE_GPUS,
        ),
        Column("from_utc", "instant", "installed since", "since the books begin"),
        Column("to_utc", "instant", "installed until", "still installed"),
        Column("known_from", "text", "whether a list says so, its end too, or a log saw it", "seen", one_of=LISTED_BY),
    ),
)

SAMPLES = Table(
    "samples",
    "it did this in an interval",
    ("device_id", "source", "to_utc"),
    (
        Column("device_id", "text", "the GPU"),
        Column("from_utc", "instant", "start of the interval", "derived from the series' step"),
        Column("to_utc", "instant", "end of the interval: the sample's timestamp"),
        _measured("busy_share", "share", "GPU_UTIL: share of the interval with a kernel resident (optimistic)"),
        _measured("engine_active_share", "share", "GR_ENGINE_ACTIVE: share with the graphics or compute engine active"),
        _measured("sm_active_share", "share", "SM_ACTIVE: share of cycles with a warp on an SM, mean over SMs"),
        _measured("tensor_active_share", "share", "PIPE_TENSOR_ACTIVE: share of cycles a tensor pipe is active"),
        _measured("dram_active_share", "share", "DRAM_ACTIVE: share of cycles the memory interface moves data"),
        _measured("mem_used_bytes", "amount", "device memory in use", MOST_BYTES),
        _measured("mem_total_bytes", "amount", "device memory there is", MOST_BYTES),
        _measured("power_w", "amount", "mean board power", MOST_W),
        _measured("energy_j", "amount", "energy drawn in the interval; kept as power_w"),
        _measured("pcie_rx_bytes_per_s", "amount", "host to GPU", MOST_BYTES),
        _measured("pcie_tx_bytes_per_s", "amount", "GPU to host", MOST_BYTES),
        _measured("nvlink_bytes_per_s", "amount", "sum over links, both directions", MOST_BYTES),
        _measured("sm_clock_hz", "amount", "SM clock", MOST_HZ),
        _measured("temperature_c", "amount", "GPU temperature, degrees Celsius", MOST_C),
        _measured("throttle_mask", "mask", "NVML clock event reasons, a bit mask"),
        # new measurements go last: the bits of stored masks keep their meaning
        _measured("fp32_active_share", "share", "PIPE_FP32_ACTIVE: share of cycles an FP32 pipe is active"),
        _measured("sm_occupancy_share", "share", "SM_OCCUPANCY: warps on an SM ÷ the most it holds, mean over SMs"),
        Column("source", "text", "what measured it", "the import's source"),
    ),
)

ALLOCATIONS = Table(
    "allocations",
    "someone held it",
    ("job_id", "device_id", "node", "pool", "from_utc"),
    (
        Column("job_id", "text", "the job, pod or session"),
        Column("attempt", "count", "which run of the job this is, after requeues", "0, the first"),
        Column("device_id", "text", "the GPU held", "only the node, the pool or nothing is known"),
        Column("node", "text", "the node, where the GPU is not known", "not known"),
        Column("pool", "text", "the pool, where the node is not known", "not known"),
        Column("gpus", "count", "how many GPUs, where they are not named one by one", "1", at_most=MOST_CLUSTER_GPUS),
        Column("share", "share", "part of each GPU held, where GPUs are divided", "1, all of it"),
        Column(
            "gpu_indices",
            "text",
            "which GPUs of the node, as the scheduler numbers them: 0,1,5",
            "not known",
            is_numbers=True,
        ),
        *_HOLDER,
        Column("submitted_utc", "instant", "when it was asked for", "not known"),
        Column("eligible_utc", "instant", "when it could first have started", "when submitted"),
        Column("from_utc", "instant", "held since"),
        Column("to_utc", "instant", "held until", "still held"),
        Column("end_state", "text", "completed, failed, cancelled, timeout, preempted, running, …", "not known"),
        *_BY_SCHEDULER,
        Column("known_from", "text", "how it is known, where it is inferred or estimated", "listed", one_of=KNOWN_FROM),
        Column(
            "summary_gpus",
            "count",
            "GPUs that a summary of the whole run measures (jobstats): no samples",
            "none",
            at_most=MOST_CLUSTER_GPUS,
        ),
        Column("summary_busy_share", "share", "mean GPU_UTIL of these over the whole run", "not known"),
        Column("summary_mem_peak_share", "share", "peak of the memory in use on these ÷ their memory", "not known"),
        Column("accelerator", "text", "model of the GPUs held, where the scheduler names it", "not known"),
    ),
)

OUTAGES = Table(
    "outages",
    "it was installed but not usable",
    ("device_id", "node", "from_utc"),
    (
        Column("device_id", "text", "the GPU", "every GPU of the node"),
        Column("node", "text", "the node", "only the GPU named"),
        Column("from_utc", "instant", "since"),
        Column("to_utc", "instant", "until", "still down"),
        Column("reason", "text", "drained, failed, maintenance, …", "not known"),
    ),
)

QUEUE_EVENTS = Table(
    "queue_events",
    "someone waited",
    ("job_id", "at_utc", "event"),
    (
        Column("job_id", "text", "the job"),
        Column("at_utc", "instant", "when"),
        Column("event", "text", "what happened", one_of=EVENTS),
        Column("gpus", "count", "how many GPUs it asks for", "not known", at_most=MOST_CLUSTER_GPUS),
        Column("reason", "text", "why it waits", "not known"),
        Column("pool", "text", "where it waits", "not known"),
        *_HOLDER,
        *_BY_SCHEDULER,
    ),
)

PRICES = Table(
    "prices",
    "an hour costs this",
    ("accelerator", "pool", "device_id", "from_utc", "basis"),
    (
        Column("accelerator", "text", "for GPUs of this model", "any model"),
        Column("pool", "text", "for GPUs of this pool", "any pool"),
        Column("device_id", "text", "for this GPU alone", "any GPU"),
        Column("from_utc", "instant", "valid since", "since ever"),
        Column("to_utc", "instant", "valid until", "until further notice"),
        Column("basis", "text", "which kind of money this is", one_of=BASES),
        Column(
            "price_per_gpu_hour",
            "amount",
            "price of a whole GPU for an hour, in `currency`",
            at_most=GPU_HOUR_PRICE.at_most,
        ),
        Column("currency", "text", "its currency, three letters", "the store's currency", is_currency=True),
        Column("source", "text", "where the price comes from", "not known"),
        Column("retrieved_on", "text", "the day it was read, YYYY-MM-DD", "not known"),
    ),
)

EXCHANGE_RATES = Table(
    "exchange_rates",
    "a foreign currency was worth this",
    ("currency", "from_utc"),
    (
        Column("currency", "text", "the foreign currency, three letters", is_currency=True),
        Column("from_utc", "instant", "valid since", "since ever"),
        Column("to_utc", "instant", "valid until", "until the next rate of that currency"),
        Column(
            "rate",
            "amount",
            "units of the store's currency for one of this currency",
            above_zero=True,
            at_most=MOST_RATE,
        ),
        Column("source", "text", "where the rate comes from", "not known"),
    ),
)

NODE_SAMPLES = Table(
    "node_samples",
    "a node did this in an interval",
    ("node", "source", "to_utc"),
    (
        Column("node", "text", "the machine"),
        Column("from_utc", "instant", "start of the interval", "not known"),
        Column("to_utc", "instant", "end of the interval: the sample's timestamp"),
        _measured("cpu_busy_share", "share", "share of CPU time not idle, mean over cores"),
        _measured("io_wait_share", "share", "share of CPU time idle and waiting for disks, mean over cores"),
        _measured("disk_read_bytes_per_s", "amount", "read from disks and file systems over the network", MOST_BYTES),
        _measured("disk_write_bytes_per_s", "amount", "written to them", MOST_BYTES),
        _measured("net_rx_bytes_per_s", "amount", "received, sum over network interfaces", MOST_BYTES),
        _measured("net_tx_bytes_per_s", "amount", "sent, sum over network interfaces", MOST_BYTES),
        _measured("mem_used_bytes", "amount", "main memory in use, caches not counted", MOST_BYTES),
        _measured("mem_total_bytes", "amount", "main memory there is", MOST_BYTES),
        Column("source", "text", "what measured it", "not known"),
    ),
)

DEVICE_EVENTS = Table(
    "device_events",
    "something happened to it",
    ("device_id", "at_utc", "kind", "detail"),
    (
        Column("device_id", "text", "the GPU"),
        Column("at_utc", "instant", "when"),
        Column("kind", "text", "what happened", one_of=EVENT_KINDS),
        Column("detail", "text", "the XID's number, the kind of ECC error, the reason of throttling, …", "not known"),
        Column("count", "count", "how often, where several are one row", "1"),
    ),
)

STATEMENTS = Table(
    "statements",
    "this was charged when a month was closed",
    ("closing", "number"),
    (
        Column("closing", "text", "the closing: its month and number, 2026-10.1"),
        Column("number", "count", "place of the statement among those of its closing"),
        Column("month", "text", "the month that was closed, 2026-10"),
        Column("currency", "text", "currency of the amounts", is_currency=True),
        Column("closed_utc", "instant", "when it was closed"),
        Column("replaces", "text", "the earlier closing that it replaces", "the first of its month"),
        Column("owner", "text", "who is charged, as a JSON object of names"),
        Column("pool", "text", "the pool that is charged", "an owner is"),
        Column("amounts", "text", "amounts by cost column, as a JSON object of decimal texts"),
        Column("parts", "text", "what they are made of, as JSON"),
        Column("hours", "text", "GPU-hours behind them, as a JSON object of decimal texts"),
        Column("policy", "text", "who bears what, as a JSON object"),
        Column("totals", "text", "bill, charged, rounding and difference of the whole month, as JSON"),
        Column(
            "stood_on", "text", "what the closing stood on, and the remark on what was missing, as JSON", "not kept"
        ),
    ),
)

MEASUREMENTS: Final = tuple(
    c.name for c in SAMPLES.columns if c.kind in ("share", "amount", "mask") and c.name != "energy_j"
)
"""Measurements of a stored sample. Bit i of its `measured_mask` says that MEASUREMENTS[i] was measured."""

TABLES: Final = (
    DEVICES, SAMPLES, ALLOCATIONS, OUTAGES, PROGRESS, JOB_SECTIONS, QUEUE_EVENTS, QUOTAS, PRICES, EXCHANGE_RATES,
    NODE_SAMPLES, DEVICE_EVENTS, SERVED_REQUESTS, CHARGES, STATEMENTS,
)  # fmt: skip

GIVEN: Final = tuple(table for table in TABLES if table is not STATEMENTS)
"""Tables that anybody's own data is imported as; statements are written by closing a month alone."""

DIAGNOSTIC: Final = (NODE_SAMPLES, DEVICE_EVENTS, JOB_SECTIONS, QUOTAS, SERVED_REQUESTS)
"""Tables for diagnosis, alerts, waits and who used served models: the ledger does not read them; they make its span no longer."""

DATED_BY_DAY: Final = (PRICES, EXCHANGE_RATES)
"""Tables whose times may be written as days, 2026-05-01 for its midnight UTC."""

DIMENSIONS: Final = {
    "device": "device_id",
    "node": "node",
    "accelerator": "accelerator",
    "pool": "pool",
    "job": "job_id",
    "experiment": "experiment_id",
    "user": "user",
    "team": "team",
    "project": "project",
    "purpose": "purpose",
    "tenant": "tenant",
    "state": "state",
    "hour": "hour",
    "day": "day",
    "week": "week",
    "month": "month",
}
"""Dimensions that a question can be split by, and their columns."""

SAMPLE_COLUMNS: Final = {
    "device_id": "string",
    **dict.fromkeys(("hour_utc", "from_utc", "to_utc", "began_utc", "sampled_utc", "step_ms", "lone_step_ms"), "int64"),
    "measured_mask": "int64",
    **{name: "int64" if name == "throttle_mask" else "float64" for name in MEASUREMENTS},
    "source": "string",
}
"""Columns of a stored sample and their types, as Ibis names them."""


def columns_of(name: str) -> dict[str, str]:
    """Columns of a stored table and their types, as Ibis names them."""
    if name == "samples":
        return SAMPLE_COLUMNS
    return {c.name: TYPES.get(c.kind, "float64") for c in table(name).columns}


def measured_bit(name: str) -> int:
    """The bit of `measured_mask` that says this measurement was taken.

    >>> measured_bit("busy_share")
    1
    """
    return 1 << MEASUREMENTS.index(name)


def table(name: str) -> Table:
    """The table called `name`; KeyError when there is none."""
    return {t.name: t for t in TABLES}[name]
