"""The states of held and unheld time: holdings joined with samples, once, so that every GPU-second is in exactly one state.

A ledger row is a holder's interval on a GPU inside one hour, in one state:

    unallocated   installed, held by nobody          idle        held, activity under the threshold
    down          installed, not usable              busy        held, and working
                                                     unobserved  held, with no valid sample

Held is what a known holder has, and what has an unknown one (`holder`): what no allocation source speaks of; a GPU that no part of
is allocated while it works all the same (`find_unheld_work`); and one of which labels alone speak, where no
sample shows them. What is left of a GPU that somebody holds a part of has no unknown holder: its activity is that of who holds the
rest. Outages stay down unless the GPU works.

Inside that, a row is of one value of each of `SAMPLE_DIMENSIONS`: which signals were measured (`measured_mask`), whether
the chip was throttled, how much memory it has. In which twentieth of the scale the activity lay stands in twenty columns
of seconds (`HISTOGRAM`): as a dimension it would make more than twice the rows. State is decided for each sample; only
additive columns leave this file, so an hourly answer and a raw answer are the same. What follows from a row by itself
(effective seconds, seconds measured, costs) is in `measures`. All seconds are GPU-seconds: a holder of half a GPU has half
of its seconds, its energy and its memory.

Where a GPU works that nobody is reported to hold: which samples are evidence of that, and which belong to a holder before or after.

A sample is a mean over its interval. One that reaches into time in which somebody holds the GPU says nothing of the time beside
it: only a sample that lies in unheld time as a whole does. Hours are booked one by one, so a sample that reaches over the edge
of an hour counts when a whole one in the same unheld interval of that hour shows work, too, or when the interval has no whole
sample and nobody held the GPU in that hour.

Overlapping samples of a GPU: at each instant, each measurement counts once, from the best sample that took it.

Two exporters may watch one GPU, and given intervals may overlap. Only such files pass through here (the store marks them).
Order of the samples of an instant, best first: the best activity signal measured, then the shorter interval (its part in the
hour), then the source's name, then the later start. Memory in use and memory there is make one share, so both are taken from the
best sample that has both, where there is one.

Traffic of a GPU's links beside their peaks: PCIe in its busier direction, NVLink in both directions together.
"""

from collections.abc import Mapping

import ibis

from loadfactor.base.units import MS_PER_S, S_PER_HOUR
from loadfactor.ledger.columns import (
    ACTIVITIES,
    BINS,
    HISTOGRAM,
    HOLDER,
    KNOWN,
    LOCATION,
    NOBODY,
    OBSERVED,
    SIGNALS,
    THROTTLED,
    UNKNOWN,
)
from loadfactor.ledger.intervals import Expr, covers, cut_at_bounds, number_islands
from loadfactor.ledger.prices import PRICE_COLUMNS
from loadfactor.tables.schema import BASES, MEASUREMENTS, REST, measured_bit

PCIE = ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s")
PCIE_BUSIER = "pcie_bytes_per_s"
"""PCIe traffic of a sample: that of the busier direction, for each direction has the link's peak to itself."""
NVLINK = "nvlink_bytes_per_s"

LINK_BITS = {PCIE_BUSIER: sum(measured_bit(c) for c in PCIE), NVLINK: measured_bit(NVLINK)}
"""Bits of `measured_mask`, of which any makes a link's traffic known."""
PEAKS = {PCIE_BUSIER: "pcie_peak_bytes_per_s", NVLINK: "nvlink_peak_bytes_per_s"}
"""The ledger's column of each link's peak, null where the catalog does not know the accelerator or its link."""


def link_table() -> Expr:
    """The input `links`: the peaks of each accelerator, by its catalog id."""
    return ibis.table({"accelerator": "string", **dict.fromkeys(PEAKS.values(), "float64")}, name="links")


def add_peaks(holdings: Expr, links: Expr) -> Expr:
    """Holdings with the peaks of the links of their accelerator."""
    found = holdings.left_join(links, holdings.accelerator == links.accelerator)
    return found.select(holdings, *(links[peak] for peak in PEAKS.values()))


def busier_direction(samples: Expr) -> Expr:
    """PCIe traffic in the busier direction; of one direction where only that was measured."""
    rx, tx = (samples[c] for c in PCIE)
    return ibis.greatest(ibis.coalesce(rx, tx), ibis.coalesce(tx, rx))


KEYS = ("hour_utc", "from_utc", "to_utc", "state", "holder", "has_source", "by_list", "device_id", *LOCATION, *HOLDER)
SAMPLE_DIMENSIONS = ("measured_mask", "throttled", "mem_total_bytes")
WEIGHTED = {
    **{signal: f"{signal.removesuffix('_share')}_s" for signal in SIGNALS},
    "mem_used_bytes": "mem_used_byte_s",
    "power_w": "energy_j",
    **{link: link.removesuffix("_per_s") for link in (*PCIE, PCIE_BUSIER, NVLINK)},
    "temperature_c": "temperature_c_s",
}
"""Measurements of samples, and the ledger column of each one's sum over time: null where the row's samples do not measure it."""
_OBSERVED_BY = ("span", "idle", "evidence", *SAMPLE_DIMENSIONS)
"""What the samples of a span are added up by."""
BITS = {c: measured_bit(c) for c in MEASUREMENTS} | LINK_BITS
"""Bits of `measured_mask`, of which any makes a measurement known."""


def part_samples(spans: Expr, samples: Expr, idle_below: float, measured: int, idle_alone: bool) -> Expr:
    """The parts of samples inside spans, with idleness and dimensions.

    `samples` are disjoint for each GPU and lie inside hours. `measured` is the union of their masks: signals nobody measured are
    not read. `idle` is null where no activity signal was measured; `evidence` is what the samples say of a GPU nobody holds (see
    `find_unheld_work`). `idle_alone`: of idle samples alone.
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
    if idle_alone:
        rows = rows.filter(rows.idle)
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
    # What a sample says of the unheld interval around a span: NONE, EDGE or WHOLE. `whole`: see `lies_within_hour`.
    inside = (rows.since >= spans.free_from) & (rows.until <= spans.free_to)
    return joined.select(
        spans.span,
        *(rows[c] for c in own),
        **taken,
        from_utc=ibis.greatest(rows.from_utc, spans.from_utc),
        to_utc=ibis.least(rows.to_utc, spans.to_utc),
        evidence=ibis.ifelse(inside, ibis.ifelse(rows.whole, WHOLE, EDGE), NONE).cast("int8"),
    )


def summarize_samples(spans: Expr, samples: Expr, idle_below: float, measured: int, idle_alone: bool = False) -> Expr:
    """Add up the samples of each span: milliseconds and weighted sums per span, idleness and dimensions.

    By bin of activity first: the few rows that are left are quickly divided into the columns of the histogram, which many
    samples are not.
    """
    parts = part_samples(spans, samples, idle_below, measured, idle_alone)
    parts = parts.mutate(part_ms=(parts.to_utc - parts.from_utc).cast("float64"))
    binned = parts.group_by(*_OBSERVED_BY, "activity_bin").aggregate(
        ms=parts.part_ms.sum(),
        mem_peak_bytes=parts.mem_used_bytes.max(),
        temperature_peak_c=parts.temperature_c.max(),
        **{f"{c}_ms": (parts[c] * parts.part_ms).sum() for c in WEIGHTED},
    )
    return binned.group_by(*_OBSERVED_BY).aggregate(
        ms=binned.ms.sum(),
        mem_peak_bytes=binned.mem_peak_bytes.max(),
        temperature_peak_c=binned.temperature_peak_c.max(),
        **{f"{c}_ms": binned[f"{c}_ms"].sum() for c in WEIGHTED},
        **{f"{name}_ms": of.sum() for name, of in _divide_by_bin(binned, binned.ms).items()},
    )


def rate_samples(spans: Expr, samples: Expr, idle_below: float, measured: int, idle_alone: bool = False) -> Expr:
    """The same in a row for each sample in a span, with its interval: what it adds in a second."""
    parts = part_samples(spans, samples, idle_below, measured, idle_alone)
    return parts.select(
        *_OBSERVED_BY,
        "activity_bin",
        ms=ibis.literal(float(MS_PER_S)),
        mem_peak_bytes=parts.mem_used_bytes,
        temperature_peak_c=parts.temperature_c,
        **{f"{c}_ms": parts[c] * float(MS_PER_S) for c in WEIGHTED},
        from_utc=parts.from_utc,
        to_utc=parts.to_utc,
    )


def _divide_by_bin(rows: Expr, time: Expr) -> dict[str, Expr]:
    """The time of rows by column of the histogram: all of it in one of them."""
    return {name: ibis.ifelse(rows.activity_bin == number, time, 0.0) for number, name in enumerate(HISTOGRAM)}


def book_states(holdings: Expr, spans: Expr, observed: Expr, work: Expr) -> Expr:
    """The ledger: every holding's seconds in exactly one state, with what the samples add up to.

    For each holding, `gpu_s` over its rows is its GPUs × its length. Prices are null where they are unknown.
    """
    sampled = _mark_work(observed, work)
    summed = sampled.group_by("span").aggregate(sampled_ms=sampled.ms.sum())
    rest = spans.left_join(summed, "span")
    length_ms = (spans.to_utc - spans.from_utc).cast("float64")
    rest = rest.select(spans.span, ms=length_ms - ibis.coalesce(summed.sampled_ms, 0.0)).filter(lambda t: t.ms > 0)
    account = ibis.union(sampled, _leave_unsampled(rest, sampled))
    booked = _account(holdings, account, WEIGHTED | {name: name for name in HISTOGRAM})
    counted = booked.state.isin(OBSERVED)  # there may be samples of a GPU that nobody holds, too
    return booked.mutate(**{name: ibis.ifelse(counted, booked[name], 0.0) for name in HISTOGRAM})


def rate_states(holdings: Expr, spans: Expr, observed: Expr, work: Expr) -> Expr:
    """What each second adds to the ledger, where `observed` are single samples (`rate_samples`).

    A row is of one sample of a holding, or of time in which there is none: such a row (`is_rest`) has the interval of the whole
    span. `holding` numbers holdings. In place of the histogram a row has its `activity_bin`, which few questions read.
    """
    sampled = _mark_work(observed, work)
    rest = spans.select("span", "from_utc", "to_utc", ms=ibis.literal(float(MS_PER_S)))
    account = ibis.union(sampled, _leave_unsampled(rest, sampled))
    own = {c: account[c] for c in ("from_utc", "to_utc", "activity_bin")}
    return _account(holdings, account, WEIGHTED, **own, holding=holdings.holding, is_rest=account.evidence.isnull())


def _mark_work(observed: Expr, work: Expr) -> Expr:
    found = observed.left_join(work, ["span", "idle", "evidence"])
    return found.select(observed, works=ibis.coalesce(work.works, False))


def _leave_unsampled(rest: Expr, observed: Expr) -> Expr:
    """The time of spans that no sample covers, in the columns of `observed`."""
    given = {c: rest[c] for c in rest.columns}
    given |= {"measured_mask": ibis.literal(0, "int64"), "works": ibis.literal(False)}
    return rest.select(**{name: given.get(name, ibis.null(of)) for name, of in observed.schema().items()})


def _account(holdings: Expr, account: Expr, summed: Mapping[str, str], **own: Expr) -> Expr:
    """The rows of holdings, of `account` what each adds; `own`: columns in place of those of holdings, or more.

    `summed`: what of `account` is in milliseconds, and the columns of its seconds.
    """
    rows = holdings.join(account, "span")
    spoken = ibis.coalesce(holdings.has_source, False)
    # no scrape shows that no label names a holder
    is_rest = ibis.coalesce(holdings.device_id.endswith(REST), False)
    unseen = holdings.free & ~holdings.by_list & ~is_rest & account.evidence.isnull()
    unknown = (holdings.free & account.works) | (~holdings.held & (~spoken | unseen) & ~holdings.down)
    activity = ibis.cases((account.idle.isnull(), "unobserved"), (account.idle, "idle"), else_="busy")
    given = {
        "state": ibis.cases((holdings.held | unknown, activity), (holdings.down, "down"), else_="unallocated"),
        "holder": ibis.cases((holdings.held, KNOWN), (unknown, UNKNOWN), else_=NOBODY),
        **own,
    }

    def seconds(of: Expr) -> Expr:
        return holdings.gpus * of / MS_PER_S  # whole milliseconds of whole GPUs stay exact

    peak = ibis.ifelse(holdings.held | unknown, account.mem_peak_bytes / account.mem_total_bytes, None)
    return rows.select(
        **{c: given.pop(c) if c in given else holdings[c] for c in KEYS},
        **{c: account[c] for c in SAMPLE_DIMENSIONS},
        gpu_s=seconds(account.ms),
        **{name: seconds(account[f"{c}_ms"]) for c, name in summed.items()},
        mem_peak_share=peak,
        temperature_peak_c=account.temperature_peak_c,
        **{c: holdings[c] for c in (*PRICE_COLUMNS, *PEAKS.values())},
        **given,
    )


def measures(book: Expr) -> dict[str, Expr]:
    """Measures that follow from a ledger row by itself, each additive over rows: seconds in GPU-seconds, bytes × s, money.

    `effective_…_s` is activity × seconds by the best signal the row's samples had, `observed_…_s` the seconds these stand on;
    `…_measured_s` the seconds in which a signal was measured. Of a link, `…_peak_measured_s` are the seconds in which its
    traffic was measured and its peak is known, `…_of_peak_bytes` the traffic then, and `…_peak_bytes` what it could have been.
    Rows of single samples, which have a bin in place of the histogram, have it here.
    """

    def where(condition: Expr, value: Expr) -> Expr:
        return ibis.ifelse(condition, value, 0.0)

    def measured(column: str) -> Expr:
        return (book.measured_mask & BITS[column]) > 0

    counted = book.state.isin(OBSERVED)
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
        **(_divide_by_bin(book, where(counted, book.gpu_s)) if "activity_bin" in book.columns else {}),
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


NONE, EDGE, WHOLE = 0, 1, 2
"""Evidence that a sample gives of work in an unheld interval: of nothing, perhaps, surely."""


def list_spans(holdings: Expr, weighed: bool = True) -> Expr:
    """The intervals of single GPUs, each once however many share it.

    `free_from` and `free_to` limit the unheld time around a span in its hour, null where somebody holds the GPU; `held_hour`
    says that somebody holds it at another time of that hour. Not `weighed`: as if all were held, for there is no evidence.
    """
    columns = ["span", "device_id", "hour_utc", "from_utc", "to_utc"]
    nothing = ibis.null("int64")
    if not weighed:
        rows = holdings.select(*columns).distinct()
        return rows.mutate(free_from=nothing, free_to=nothing, held_hour=ibis.literal(False))
    rows = holdings.select(*columns, "free").distinct()
    keys = ["device_id", "hour_utc"]
    free = number_islands(rows.filter(rows.free).select(*columns), keys)
    interval = ibis.window(group_by=[*keys, "island"])
    free = free.select(*columns, free_from=free.from_utc.min().over(interval), free_to=free.to_utc.max().over(interval))
    other = rows.filter(~rows.free)
    held = other.filter(other.device_id.notnull()).select(*keys, held_hour=ibis.literal(True)).distinct()
    out = ibis.union(free, other.select(*columns, free_from=nothing, free_to=nothing))
    marked = out.left_join(held, keys)
    return marked.select(out, held_hour=ibis.coalesce(held.held_hour, False))


def lies_within_hour(samples: Expr) -> Expr:
    """True where a sample lies in one hour as a whole. `since`, `until`: its part in the hour."""
    return (samples.since > samples.hour_utc) & (samples.until == samples.sampled_utc)


def find_unheld_work(spans: Expr, observed: Expr) -> Expr:
    """Where GPUs work that nobody is reported to hold: span, idle and evidence of such rows of `observed`, with `works` true."""
    free = spans.filter(spans.free_from.notnull())
    seen = observed.filter(observed.idle.notnull(), observed.evidence > NONE).join(free, "span")
    interval = ["device_id", "hour_utc", "free_from"]
    whole = seen.evidence == WHOLE
    known = seen.group_by(interval).aggregate(
        whole=ibis.ifelse(whole, 1, 0).sum(), working=ibis.ifelse(whole & ~seen.idle, 1, 0).sum()
    )
    active = seen.filter(~seen.idle).join(known, interval)
    likely = (active.working > 0) | ((active.whole == 0) & ~active.held_hour)
    counted = active.filter((active.evidence == WHOLE) | likely)
    return counted.select("span", "idle", "evidence", works=ibis.literal(True)).distinct()


MEMORY = ("mem_used_bytes", "mem_total_bytes")
_AT = ("device_id", "hour_utc", "from_utc", "to_utc")


def find_overlaps(samples: Expr, suspects: Expr) -> Expr:
    """Hours of GPUs in which samples overlap (device_id, hour_utc), among the hours of `suspects` (hour_utc)."""
    near = samples.semi_join(suspects, "hour_utc")
    by_start = ibis.window(group_by=[near.device_id, near.hour_utc], order_by=near.from_utc)
    # of two that overlap, one follows the other at once
    near = near.mutate(before_utc=near.to_utc.lag().over(by_start))
    return near.filter(near.from_utc < near.before_utc).select("device_id", "hour_utc").distinct()


def resolve_overlaps(samples: Expr, measured: int = -1) -> Expr:
    """The samples cut so that no two of a GPU overlap; same columns, the others from the best sample of the instant.

    `measured` is the union of the masks: measurements that nobody took are not looked at.
    """
    keys = ["device_id", "hour_utc"]
    pieces = cut_at_bounds([samples.select(*keys, "from_utc", "to_utc")], keys)
    order = ibis.cases(
        *(((samples.measured_mask & kind.bit) > 0, order) for order, kind in enumerate(ACTIVITIES)),
        else_=len(ACTIVITIES),
    )
    ranked = samples.mutate(kind_rank=order, length_ms=samples.to_utc - samples.from_utc)
    joined = pieces.join(ranked, covers(pieces, ranked, keys)).select(
        pieces, *(ranked[c] for c in ranked.columns if c not in _AT), start_utc=ranked.from_utc
    )
    best_first = [joined.kind_rank, joined.length_ms, joined.source, joined.start_utc.desc(), joined.sampled_utc]
    window = ibis.window(group_by=[joined.device_id, joined.from_utc], order_by=best_first)
    joined = joined.mutate(rank=ibis.row_number().over(window))
    taken = [c for c in MEASUREMENTS if measured & measured_bit(c)]
    given: dict[str, Expr] = {c: ibis.null(samples[c].type()) for c in MEASUREMENTS}
    given |= {c: _best(joined, c, joined[c].notnull()) for c in taken}
    if {*MEMORY} <= {*taken}:
        both = joined[MEMORY[0]].notnull() & joined[MEMORY[1]].notnull()
        given |= {c: ibis.coalesce(_best(joined, c, both), given[c]) for c in MEMORY}
    # the union of the masks bit by bit: not every engine has it as one function
    bits = [(joined.measured_mask & measured_bit(c)).max() for c in taken]
    given["measured_mask"] = sum(bits, (joined.measured_mask & 0).max())
    others = {c: _best(joined, c, joined["rank"] == 0) for c in samples.columns if c not in (*_AT, *given)}
    return joined.group_by(list(_AT)).aggregate(**given, **others).select(*samples.columns)


def _best(rows: Expr, column: str, where: Expr) -> Expr:
    return rows[column].argmin(rows["rank"], where=where)
