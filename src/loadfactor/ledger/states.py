"""The states of held and unheld time: holdings joined with samples, once, so that every GPU-second is in exactly one state.

A ledger row is a holder's stretch on a GPU inside one hour, in one state:

    unallocated   installed, held by nobody          idle        held, activity under the threshold
    down          installed, not usable              busy        held, and working
                                                     unobserved  held, with no valid sample

Held is what a known holder has, and what has an unknown one (`holder`): what no allocation source speaks of, and a GPU that no
part of is allocated while it works all the same (`find_unheld_work`). What is left of a GPU that somebody holds a part of has no
unknown holder: its activity is that of who holds the rest. Outages stay down unless the GPU works.

Inside that, a row is under one set of circumstances: which signals were measured (`measured_mask`), in which twentieth of the scale
the activity lay (`activity_bin`), whether the chip was throttled, how much memory it has. State is decided for each sample;
only additive columns leave this file, so an hourly answer and a raw answer are the same. What follows from a row by itself
(effective seconds, seconds measured, costs) is in `measures`. All seconds are GPU-seconds: a holder of half a GPU has half of
its seconds, its energy and its memory.
"""

from typing import Any

import ibis

from loadfactor.base.units import MS_PER_S, S_PER_HOUR
from loadfactor.ledger.activity import ACTIVITIES, SIGNALS, THROTTLED
from loadfactor.ledger.columns import BINS, HISTOGRAM, HOLDER, KNOWN, NOBODY, UNKNOWN
from loadfactor.ledger.evidence import lies_within_hour, weigh_evidence
from loadfactor.ledger.inventory import LOCATION
from loadfactor.ledger.links import LINK_BITS, NVLINK, PCIE, PCIE_BUSIER, PEAKS, busier_direction
from loadfactor.ledger.prices import PRICE_COLUMNS
from loadfactor.tables.schema import BASES, MEASUREMENTS, measured_bit

Expr = Any

KEYS = ("hour_utc", "from_utc", "to_utc", "state", "holder", "has_source", "device_id", *LOCATION, *HOLDER)
CIRCUMSTANCES = ("measured_mask", "activity_bin", "throttled", "mem_total_bytes")
WEIGHTED = {
    **{signal: f"{signal.removesuffix('_share')}_s" for signal in SIGNALS},
    "mem_used_bytes": "mem_used_byte_s",
    "power_w": "energy_j",
    **{link: link.removesuffix("_per_s") for link in (*PCIE, PCIE_BUSIER, NVLINK)},
    "temperature_c": "temperature_c_s",
}
"""What samples measure, and its sum over time as a ledger column: null where the row's samples do not measure it."""
BITS = {c: measured_bit(c) for c in MEASUREMENTS} | LINK_BITS
"""What each measurement is known from: any of these bits of `measured_mask`."""


def summarize_samples(spans: Expr, samples: Expr, idle_below: float, measured: int) -> Expr:
    """What the samples say of each span: milliseconds and weighted sums per span, idleness and circumstances.

    Over exactly the parts inside the span: `samples` are disjoint for each GPU and lie inside hours. `measured` is the union of
    their masks: signals nobody measured are not read. `idle` is null where no activity signal was measured; `evidence` is what the
    samples say of a GPU nobody holds (see `find_unheld_work`).
    """
    kinds = [k for k in ACTIVITIES if measured & k.bit]
    activity = ibis.coalesce(*(samples[k.column] for k in kinds)) if kinds else ibis.null("float64")
    # what a sample says by itself comes before the join: engines are quickest on columns as they are read
    rows = samples.mutate(
        # integers compared with integers: engines read 19.0 as a decimal, and pay for it on every row
        activity_bin=ibis.least((activity * BINS).floor().cast("int32"), ibis.literal(BINS - 1, "int32")),
        idle=activity < idle_below,
        throttled=(samples.throttle_mask & THROTTLED) > 0 if measured & BITS["throttle_mask"] else ibis.null(bool),
        whole=lies_within_hour(samples),
        **{PCIE_BUSIER: busier_direction(samples)},
    )
    # signals nobody measured are nulls by declaration, which no engine has to read
    taken = {c: rows[c] if measured & BITS[c] else ibis.null("float64") for c in (*WEIGHTED, "mem_total_bytes")}
    own = ("measured_mask", "activity_bin", "idle", "throttled")
    joined = rows.join(
        spans,
        [
            rows.device_id == spans.device_id,
            rows.hour_utc == spans.hour_utc,
            rows.from_utc < spans.to_utc,
            rows.to_utc > spans.from_utc,
        ],
    )
    parts = joined.select(
        spans.span,
        *(rows[c] for c in own),
        **taken,
        part_ms=(ibis.least(rows.to_utc, spans.to_utc) - ibis.greatest(rows.from_utc, spans.from_utc)).cast("float64"),
        evidence=weigh_evidence(rows, spans),
    )
    return parts.group_by("span", "idle", "evidence", *CIRCUMSTANCES).aggregate(
        ms=parts.part_ms.sum(),
        mem_peak_bytes=parts.mem_used_bytes.max(),
        temperature_peak_c=parts.temperature_c.max(),
        **{f"{c}_ms": (parts[c] * parts.part_ms).sum() for c in WEIGHTED},
    )


def book_states(holdings: Expr, spans: Expr, observed: Expr, work: Expr) -> Expr:
    """The ledger: every holding's seconds in exactly one state, with what the samples add up to.

    For each holding, `gpu_s` over its rows is its GPUs × its length. Prices are null where they are unknown.
    """
    sampled = observed.left_join(work, ["span", "idle", "evidence"]).select(
        observed, works=ibis.coalesce(work.works, False)
    )
    account = ibis.union(sampled, _unsampled(spans, sampled))
    rows = holdings.join(account, "span")
    spoken = ibis.coalesce(holdings.has_source, False)
    unknown = (holdings.free & account.works) | (~holdings.held & ~spoken & ~holdings.down)
    activity = ibis.cases((account.idle.isnull(), "unobserved"), (account.idle, "idle"), else_="busy")
    given = {
        "state": ibis.cases((holdings.held | unknown, activity), (holdings.down, "down"), else_="unallocated"),
        "holder": ibis.cases((holdings.held, KNOWN), (unknown, UNKNOWN), else_=NOBODY),
    }

    def seconds(of: Expr) -> Expr:
        return holdings.gpus * of / MS_PER_S  # whole milliseconds of whole GPUs stay exact

    peak = ibis.ifelse(holdings.held | unknown, account.mem_peak_bytes / account.mem_total_bytes, None)
    return rows.select(
        **{c: given[c] if c in given else holdings[c] for c in KEYS},
        **{c: account[c] for c in CIRCUMSTANCES},
        gpu_s=seconds(account.ms),
        **{name: seconds(account[f"{c}_ms"]) for c, name in WEIGHTED.items()},
        mem_peak_share=peak,
        temperature_peak_c=account.temperature_peak_c,
        **{c: holdings[c] for c in (*PRICE_COLUMNS, *PEAKS.values())},
    )


def _unsampled(spans: Expr, observed: Expr) -> Expr:
    """What no sample says anything of: the rest of each span, in the same columns."""
    sampled = observed.group_by("span").aggregate(sampled_ms=observed.ms.sum())
    rest = spans.left_join(sampled, "span")
    length_ms = (spans.to_utc - spans.from_utc).cast("float64")
    rest = rest.select(spans.span, ms=length_ms - ibis.coalesce(sampled.sampled_ms, 0.0)).filter(lambda t: t.ms > 0)
    given = {"span": rest.span, "ms": rest.ms, "measured_mask": ibis.literal(0, "int64"), "works": ibis.literal(False)}
    return rest.select(**{name: given.get(name, ibis.null(of)) for name, of in observed.schema().items()})


def measures(book: Expr) -> dict[str, Expr]:
    """What follows from a ledger row by itself, each additive over rows: seconds in GPU-seconds, bytes × s, money.

    `effective_…_s` is activity × seconds by the best signal the row's samples had, `observed_…_s` the seconds these stand on;
    `…_measured_s` the seconds in which a signal was measured; `hist_…_s` the seconds by twentieth of activity. Of a link,
    `…_peak_measured_s` are the seconds in which its traffic was measured and its peak is known, `…_of_peak_bytes` the traffic
    then, and `…_peak_bytes` what it could have been.
    """

    def where(condition: Expr, value: Expr) -> Expr:
        return ibis.ifelse(condition, value, 0.0)

    def measured(column: str) -> Expr:
        return (book.measured_mask & BITS[column]) > 0

    counted = book.state.isin(["idle", "busy"])
    best, better = {}, ibis.literal(False)
    for kind in ACTIVITIES:
        best[kind] = counted & measured(kind.column) & ~better
        better = better | measured(kind.column)
    memory = measured("mem_used_bytes") & measured("mem_total_bytes")
    others = (*PCIE, NVLINK, "temperature_c")
    return {
        **{f"effective_{k.basis}_s": where(best[k], book[WEIGHTED[k.column]]) for k in ACTIVITIES},
        **{f"observed_{k.basis}_s": where(best[k], book.gpu_s) for k in ACTIVITIES},
        **{f"{s.removesuffix('_share')}_measured_s": where(measured(s), book.gpu_s) for s in SIGNALS},
        "activity_measured_s": where(better, book.gpu_s),
        "mem_used_byte_s": where(memory, book.mem_used_byte_s),
        "mem_total_byte_s": where(memory, book.mem_total_bytes * book.gpu_s),
        "mem_measured_s": where(memory, book.gpu_s),
        "energy_measured_s": where(measured("power_w"), book.gpu_s),
        **{f"{c.removesuffix('_bytes_per_s')}_measured_s": where(measured(c), book.gpu_s) for c in others},
        **_measure_links(book),
        "has_source_s": where(ibis.coalesce(book.has_source, False), book.gpu_s),
        "listed_s": where(book.has_source.notnull(), book.gpu_s),
        "throttled_s": where(book.throttled, book.gpu_s),
        "throttle_measured_s": where(measured("throttle_mask"), book.gpu_s),
        "throttled_energy_j": where(book.throttled & measured("power_w"), book.energy_j),
        "throttled_energy_measured_s": where(book.throttled & measured("power_w"), book.gpu_s),
        **{name: where(counted & (book.activity_bin == k), book.gpu_s) for k, name in enumerate(HISTOGRAM)},
        **{
            f"cost_{basis}": book[cost] * book.gpu_s / S_PER_HOUR
            for basis, cost in zip(BASES, PRICE_COLUMNS, strict=True)
        },
    }


def _measure_links(book: Expr) -> dict[str, Expr]:
    """Traffic, what it could have been and seconds, by link, where its traffic was measured and its peak is known."""
    out: dict[str, Expr] = {}
    for link, bits in LINK_BITS.items():
        name, peak = link.removesuffix("_bytes_per_s"), book[PEAKS[link]]
        known = ((book.measured_mask & bits) > 0) & peak.notnull()
        parts = {"of_peak_bytes": book[WEIGHTED[link]], "peak_bytes": peak * book.gpu_s, "peak_measured_s": book.gpu_s}
        out |= {f"{name}_{part}": ibis.ifelse(known, value, 0.0) for part, value in parts.items()}
    return out
