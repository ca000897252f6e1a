"""How does every GPU-second get into exactly one state? Holdings joined with samples, once; everything else is sums of this.

A ledger row is a holder's stretch on a GPU inside one hour, in one state:

    unallocated   installed, held by nobody          idle        held, activity under the threshold
    down          installed, not usable              busy        held, and working
                                                     unobserved  held, with no valid sample

State is decided for each sample; only additive columns leave this file, so an hourly answer and a raw answer are the same.
All seconds are GPU-seconds: a holder of half a GPU has half of its seconds, its energy and its memory.
"""

from collections.abc import Iterable
from typing import Any

import ibis

from loadfactor.metrics.installed import PLACE, USD
from loadfactor.metrics.kinds import ACTIVITIES, BINS, SIGNALS, THROTTLED
from loadfactor.metrics.places import HOLDER
from loadfactor.tables import BASES, measured_bit
from loadfactor.units import MS_PER_S, S_PER_HOUR

Expr = Any

KEYS = ("hour_utc", "from_utc", "to_utc", "state", "device_id", *PLACE, *HOLDER)
HISTOGRAM = tuple(f"hist_{k:02d}_s" for k in range(BINS))
DOLLARS = tuple(f"usd_{basis}" for basis in BASES)
SUMS = (
    *(f"effective_{kind.basis}_s" for kind in ACTIVITIES),  # activity × seconds, by the best signal each sample had
    *(f"observed_{kind.basis}_s" for kind in ACTIVITIES),  # the seconds these stand on
    *(f"{signal.removesuffix('_share')}_s" for signal in SIGNALS),  # each signal × seconds, best or not
    *(f"{signal.removesuffix('_share')}_measured_s" for signal in SIGNALS),
    "mem_used_byte_s",
    "mem_total_byte_s",
    "mem_measured_s",
    "energy_j",
    "energy_measured_s",
    "throttled_s",
    "throttle_measured_s",
    *HISTOGRAM,
)
"""Additive columns besides gpu_s and dollars."""


def spans(holdings: Expr) -> Expr:
    """The stretches of single GPUs, each once however many share it, with a number to join and group by."""
    rows = (
        holdings.filter(holdings.device_id.notnull()).select("device_id", "hour_utc", "from_utc", "to_utc").distinct()
    )
    return rows.mutate(span=ibis.row_number().over(order_by=[rows.device_id, rows.from_utc, rows.to_utc]))


def observed(spans: Expr, samples: Expr, idle_below: float, measured: int) -> Expr:
    """What the samples say of each span: per span, state and activity bin, sums over exactly the part inside the span.

    `samples` are disjoint for each GPU and lie inside hours; `measured` is the union of their masks: signals nobody measured
    are not read. `state` is idle, busy, or unobserved where no activity signal was measured.
    """
    kinds = [k for k in ACTIVITIES if measured & k.bit]
    activity = ibis.coalesce(*(samples[k.column] for k in kinds)) if kinds else ibis.null("float64")
    rows = samples.mutate(activity=activity)
    joined = rows.join(
        spans,
        [
            rows.device_id == spans.device_id,
            rows.hour_utc == spans.hour_utc,
            rows.from_utc < spans.to_utc,
            rows.to_utc > spans.from_utc,
        ],
    )
    part_ms = (ibis.least(rows.to_utc, spans.to_utc) - ibis.greatest(rows.from_utc, spans.from_utc)).cast("float64")
    read = [
        c
        for c in (*SIGNALS, "mem_used_bytes", "mem_total_bytes", "power_w", "throttle_mask")
        if measured & measured_bit(c)
    ]
    parts = joined.select(spans.span, rows.measured_mask, rows.activity, *(rows[c] for c in read), part_ms=part_ms)
    parts = parts.mutate(
        # integers compared with integers: engines read 19.0 as a decimal, and pay for it on every row
        bin=ibis.least((parts.activity * BINS).floor().cast("int32"), ibis.literal(BINS - 1, "int32")),
        idle=parts.activity < idle_below,
    )
    bins = parts.group_by("span", "measured_mask", "idle", "bin").aggregate(
        part_ms=parts.part_ms.sum(),
        **{f"{c}_ms": (parts[c] * parts.part_ms).sum() for c in read if c != "throttle_mask"},
        **(
            {"peak": (parts.mem_used_bytes / parts.mem_total_bytes).max()}
            if {"mem_used_bytes", "mem_total_bytes"} <= set(read)
            else {}
        ),
        **(
            {"throttled_ms": ibis.ifelse((parts.throttle_mask & THROTTLED) > 0, parts.part_ms, 0.0).sum()}
            if "throttle_mask" in read
            else {}
        ),
    )
    return _folded(bins, read)


def _folded(bins: Expr, read: Iterable[str]) -> Expr:
    """One row a span and state: bins become histogram columns, masks become seconds measured."""
    read = set(read)
    seconds = bins.part_ms / MS_PER_S
    nothing = seconds * 0.0  # what a signal that nobody measured adds up to

    def measured(column: str) -> Expr:
        return (bins.measured_mask & measured_bit(column)) > 0

    def within(value: Expr, where: Expr = None) -> Expr:
        """A sum where a condition holds, as a plain sum of zeros elsewhere: engines do that several times faster than FILTER."""
        return value.sum() if where is None else ibis.ifelse(where, value, 0.0).sum()

    def weighted(column: str, where: Expr = None) -> Expr:
        return within(bins[f"{column}_ms"] / MS_PER_S if column in read else nothing, where)

    best, better = {}, ibis.literal(False)
    for kind in ACTIVITIES:
        best[kind] = measured(kind.column) & ~better
        better = better | measured(kind.column)
    both = measured("mem_used_bytes") & measured("mem_total_bytes")
    sums = {
        **{f"effective_{k.basis}_s": weighted(k.column, best[k]) for k in ACTIVITIES},
        **{f"observed_{k.basis}_s": within(seconds, best[k]) for k in ACTIVITIES},
        **{f"{s.removesuffix('_share')}_s": weighted(s) for s in SIGNALS},
        **{f"{s.removesuffix('_share')}_measured_s": within(seconds, measured(s)) for s in SIGNALS},
        "mem_used_byte_s": weighted("mem_used_bytes", both),
        "mem_total_byte_s": weighted("mem_total_bytes", both),
        "mem_measured_s": within(seconds, both),
        "energy_j": weighted("power_w"),
        "energy_measured_s": within(seconds, measured("power_w")),
        "throttled_s": within(bins.throttled_ms / MS_PER_S if "throttle_mask" in read else nothing),
        "throttle_measured_s": within(seconds, measured("throttle_mask")),
        **{name: within(seconds, bins.bin == k) for k, name in enumerate(HISTOGRAM)},
    }
    state = ibis.cases((bins.idle.isnull(), "unobserved"), (bins.idle, "idle"), else_="busy")
    rows = bins.mutate(state=state)
    return rows.group_by("span", "state").aggregate(
        seconds=(rows.part_ms / MS_PER_S).sum(),
        **{name: ibis.coalesce(value, 0.0) for name, value in sums.items()},
        mem_peak_share=(
            rows.peak if "peak" in bins.columns else ibis.ifelse(rows.part_ms < 0, rows.part_ms, None)
        ).max(),
    )


def ledger(holdings: Expr, spans: Expr, observed: Expr) -> Expr:
    """The book: every holding's seconds in exactly one state, with dollars per basis and what the samples add up to.

    For each holding, `gpu_s` over its states is its GPUs × its length. Dollars are null where the price is unknown.
    """
    of_span = ["device_id", "from_utc", "to_utc"]
    numbered = holdings.left_join(spans, of_span).select(holdings, spans.span)
    seen = numbered.join(observed, "span")
    counts = seen.held & (seen.state != "unobserved")
    state = ibis.cases((seen.held, seen.state), (seen.down, "down"), else_="unallocated")
    book = seen.select(
        *(state.name("state") if c == "state" else numbered[c] for c in KEYS),
        *(numbered[c] for c in USD),
        gpu_s=ibis.ifelse(counts, numbered.gpus * observed.seconds, 0.0),
        **{
            c: ibis.ifelse(counts, numbered.gpus * observed[c], 0.0) if _only_held(c) else numbered.gpus * observed[c]
            for c in SUMS
        },
        mem_peak_share=ibis.ifelse(numbered.held, observed.mem_peak_share, None),
    )
    known = observed.filter(observed.state != "unobserved")
    known = known.group_by("span").aggregate(known_s=known.seconds.sum())
    whole = numbered.left_join(known, "span")
    length_s = (numbered.to_utc - numbered.from_utc) / MS_PER_S
    unknown_s = ibis.ifelse(numbered.held, length_s - ibis.coalesce(known.known_s, 0.0), length_s)
    state = ibis.cases((numbered.held, "unobserved"), (numbered.down, "down"), else_="unallocated")
    rest = whole.select(
        *(state.name("state") if c == "state" else numbered[c] for c in KEYS),
        *(numbered[c] for c in USD),
        gpu_s=numbered.gpus * unknown_s,
        **{c: ibis.literal(0.0) for c in SUMS},
        mem_peak_share=ibis.null("float64"),
    ).filter(lambda t: t.gpu_s > 0)
    rows = ibis.union(book, rest)
    return rows.select(
        *KEYS,
        "gpu_s",
        *SUMS,
        "mem_peak_share",
        **{name: rows[usd] * rows.gpu_s / S_PER_HOUR for name, usd in zip(DOLLARS, USD, strict=True)},
    )


def _only_held(column: str) -> bool:
    """Activity counts as effective only while somebody holds the GPU; energy and the like are real in any case."""
    return column.startswith(("effective_", "observed_", "hist_"))
