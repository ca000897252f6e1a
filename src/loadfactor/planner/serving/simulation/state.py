"""State of the event loop in arrays of fixed size: requests in the system, replicas, the clock and what it has counted.

Nothing here grows with the length of a trace: a request leaves the pool when it finishes, counters are read and reset every hour.
Times are whole nanoseconds, so that sums of times are exact.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Counters(NamedTuple):
    """Sums over an interval of simulated time, an hour or the whole run. Times are whole nanoseconds, to add up exactly."""

    requests: int = 0  # that came, rejected ones too
    finished: int = 0  # got their last token
    in_slo: int = 0  # finished within the objective
    preempted: int = 0  # times a sequence lost its cache to another
    retried: int = 0  # started again because their replica failed
    steps: int = 0  # of an engine
    failures: int = 0  # of replicas
    cold_starts: int = 0  # of replicas
    # tokens: in (or asked for) = out + rejected once the system is empty
    prompt_tokens_in: int = 0
    prompt_tokens_out: int = 0  # of finished requests
    prompt_tokens_rejected: int = 0
    prompt_tokens_computed: int = 0  # without those found in the cache, with those computed again
    output_tokens_asked: int = 0
    output_tokens_out: int = 0  # of finished requests
    output_tokens_rejected: int = 0
    output_tokens_made: int = 0  # left an engine, those of requests given up later too
    # time of replicas: paid = busy + idle + starting + down
    paid_ns: int = 0
    busy_ns: int = 0  # a step is running
    idle_ns: int = 0
    starting_ns: int = 0
    down_ns: int = 0
    # time of requests
    decoding_ns: int = 0  # sequences decoding × busy time
    present_ns: int = 0  # sequences in a replica, decoding or in their prompt, × busy time
    system_ns: int = 0  # requests in the system × time, by the clock
    sojourn_ns: int = 0  # the same, summed over finished requests
    # work of one accelerator of each replica
    cache_fill_ns: float = 0.0  # share of cache blocks in use × busy time
    moved_bytes: float = 0.0
    flops: float = 0.0


# Reasons of a rejection, in the order they are tested.
REJECTED_EMPTY, REJECTED_TOO_LONG, REJECTED_DOES_NOT_FIT, REJECTED_QUEUE_FULL = 0, 1, 2, 3
REASONS = ("empty prompt or output", "longer than the context", "does not fit in the cache", "queue full")

# Histograms, logarithmic bins.
TTFT, TPOT, QUEUE, END_TO_END = 0, 1, 2, 3
HISTOGRAMS = 4
BINS = 1600
BIN_RATIO = 1.015
LEAST_NS = 1_000.0


Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NEVER = np.int64(2**62)
NONE = -1

# Status of a replica.
OFF, STARTING, ACTIVE, DRAINING, DOWN = 0, 1, 2, 3, 4
# Role of a replica.
BOTH, PREFILL, DECODE = 0, 1, 2
# Routers.
ROUND_ROBIN, LEAST_LOADED, PREFIX_AFFINE, SHARED_QUEUE = 0, 1, 2, 3
# Queue orders.
FIRST_COME, SHORTEST_FIRST, BY_TIME = 0, 1, 2
PREFIX_WAYS = 8


class StepRates(NamedTuple):
    """The scalars of the step-time equation of one replica; `tabulate_costs` fills them."""

    token_slope_s: float  # beyond the table
    sequence_s: float
    context_s: float  # per cached token read by layers that see the whole context
    window_s: float  # per cached token read by layers that see a window
    window: float
    pair_s: float  # per pair of tokens attended inside prompts
    pair_window_s: float
    decode_tokens: int  # tokens verified per sequence and step (1 without speculation)
    accepted: float  # tokens gained per sequence and step, over the time drafting adds
    prompt_token_s: float  # per prompt token, in layers with a fixed state
    context_bytes: float
    token_flops: float
    pair_flops: float


class Costs(NamedTuple):
    """The step-time equation of one replica: its scalars as a record (`as_record(Rates(…))`) and its tables."""

    rates: Any
    tokens_s: Floats  # everything that depends on the tokens of a step alone, by their number
    head_s: Floats  # the logits, by the number of sequences that get one
    tokens_bytes: Floats  # bytes moved, by tokens of a step, on one accelerator


class Rules(NamedTuple):
    """Numbers that every replica and the router go by."""

    max_sequences: int
    chunk_tokens: int
    mixed: int
    blocks: int
    block_tokens: int
    order: int
    router: int
    max_context: int
    queue_limit: int
    poll_steps: int  # decode steps between two looks for new requests
    wait_steps: int  # decode steps for which a prompt waits for others, unless a whole step of them waits
    cached_share: float  # of every prompt, where the trace has no hashes
    prefix_block_tokens: int
    closed_loop: int
    slo_ttft_ns: int
    slo_tpot_ns: int
    transfer_ns_per_token: float
    # autoscaling
    scale_interval_ns: int  # 0: fixed fleet
    scale_target: float  # sequences in a replica the scaler aims for
    least: int
    cold_start_ns: int
    scale_down_lag_ns: int
    # failures
    mtbf_ns: float  # 0: never
    repair_ns: int


# Requests in the system, one record each; a free one is chained in `next_run`.
POOL_FIELDS = (
    "arrival",
    "key",  # order of arrival
    "prompt",
    "output",
    "produced",  # tokens it has got
    "cached",  # leading tokens of its prompt found in the cache
    "progress",  # tokens of its prompt computed; below 0: its cache is on the way to a decoding replica
    "start",  # when that arrives
    "admitted",
    "first",  # when its first token came
    "finish_at",  # decode count at which it ends
    "context_at",  # cached tokens when it joined the running batch
    "joined_at",  # decode count when it joined
    "held",  # blocks reserved at admission
    "running",
    "next_run",
    "prev_run",
    "next_due",
    "prev_due",
    "next_done",
)
Pool = Any  # a NumPy array of such records


# One record a replica.
REPLICA_FIELDS = (
    "status",
    "role",
    "step_end",
    "timer",  # when its status changes by itself: started, repaired, failed
    "settled",  # until when its time is in the counters
    "decodes",  # decode steps so far
    "waited",  # decode steps for which prompts have waited for others
    "batch",  # sequences decoding
    "context",  # their cached tokens
    "present",  # admitted, decoding or prefilling
    "free",  # blocks
    "step_batch",
    "step_prompt",
    "partial",  # the request whose prompt is computed in parts
    "done",  # the first of those whose prompt completes in this step
    "first_run",
    "last_run",
    "outstanding",  # routed here and not finished
)
Replica = Any


class Replicas(NamedTuple):
    """The replicas; of the queues the last row holds transfers on the way, the one before those no replica could take."""

    each: Any  # a NumPy array of records
    phase: Ints  # replicas × block_tokens: sequences by where in a block they stand
    due: Ints  # replicas × ring: sequences by the decode step at which they end
    queue: Ints  # (replicas + 2) × limit
    queued: Ints


class Stream(NamedTuple):
    """Arrivals in order of time; `offsets[i]:offsets[i + 1]` are the prefix blocks of arrival i in `hashes`, if there are any."""

    at: Ints
    prompts: Ints
    outputs: Ints
    offsets: Ints
    hashes: Ints


# What survives between calls, then this hour's counters.
CLOCK_SCALARS = (
    "now",
    "next_free",  # request of the pool
    "sequence",
    "turn",
    "in_system",
    "last_settled",
    "recorded",
    "next_scale",
    "spare_since",
    "chance",
)
CLOCK_FIELDS = np.dtype(
    [(name, np.int64) for name in CLOCK_SCALARS]
    + [(name, np.float64 if kind is float else np.int64) for name, kind in Counters.__annotations__.items()]
    + [("histograms", np.int64, (HISTOGRAMS, BINS)), ("rejected", np.int64, (len(REASONS),))]
)
Clock = Any  # one NumPy record, which compiled code takes by reference

PREFIX_FIELDS = ("block", "used")
Prefix = Any  # a NumPy array of such records, replicas × sets × ways


def new_pool(size: int) -> Pool:
    pool: Pool = np.zeros(size, [(name, np.int64) for name in POOL_FIELDS])
    pool["next_run"][:] = np.arange(1, size + 1)
    pool["next_run"][-1] = NONE
    return pool


def new_replicas(count: int, rules: Rules, ring: int, active: int) -> Replicas:
    each = np.zeros(count, [(name, np.int64) for name in REPLICA_FIELDS])
    each["status"][:active] = ACTIVE
    each["step_end"], each["timer"] = NEVER, NEVER
    each["free"] = rules.blocks
    for link in ("partial", "done", "first_run", "last_run"):
        each[link] = NONE
    return Replicas(
        each,
        phase=np.zeros((count, rules.block_tokens), np.int64),
        due=np.full((count, ring), NONE, np.int64),
        queue=np.zeros((count + 2, rules.queue_limit + rules.max_sequences), np.int64),
        queued=np.zeros(count + 2, np.int64),
    )


def new_prefix(count: int, sets: int) -> Prefix:
    prefix: Prefix = np.zeros((count, max(sets, 1), PREFIX_WAYS), [(name, np.int64) for name in PREFIX_FIELDS])
    prefix["block"] = NONE
    return prefix


def new_clock() -> Clock:
    return np.zeros(1, CLOCK_FIELDS)[0]


def take_counters(clock: Clock) -> Counters:
    """Counts since the last call, which start again at zero."""
    found = Counters._make(clock[name].item() for name in Counters._fields)
    for name in Counters._fields:
        clock[name] = 0
    return found


def as_record(values: NamedTuple) -> Any:
    """The whole numbers and fractions of a named tuple as one NumPy record, which compiled code takes by reference."""
    kinds = [(n, np.float64 if isinstance(v, float) else np.int64) for n, v in zip(values._fields, values, strict=True)]
    return np.array([tuple(values)], kinds)[0]
