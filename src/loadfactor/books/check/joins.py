"""Broken joins: jobs, samples and devices that should meet and do not, with the GPU-hours and the cost of it.

Every number of hours and money is a reading of the ledger, or a sum of some.
"""

from collections.abc import Iterable, Iterator
from shlex import quote
from typing import Final

from loadfactor.base.quantities import write_share
from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.check.finding import ROUNDING, SHOWN_NAMES, Examined, Finding, add_places, name_some
from loadfactor.books.unheld_work import list_unheld_work, say_log
from loadfactor.metrics.query.question import UNKNOWN_HOLDER

OF_A_JOB: Final = ("unobserved_gpu_hours", "unobserved_cost", "observed_gpu_hours")


def find_unmeasured_jobs(books: Examined) -> Iterator[Finding]:
    """Jobs without a single sample, and what summaries of whole runs say of them."""
    if books.totals["observed_gpu_hours"].coverage in (1, None):
        return  # of a large site there are millions of jobs
    readings = books.ask(OF_A_JOB, ("job",))
    columns = [readings.column(name) for name in OF_A_JOB]
    jobs = [
        (job, missed, cost)
        for (job,), missed, cost, observed in zip(readings.keys, *columns, strict=True)
        if not observed and missed and job is not None and job != UNKNOWN_HOLDER
    ]
    if jobs:
        known = [cost for *_, cost in jobs if isinstance(cost, float)]
        hours = sum(missed for _, missed, _ in jobs if isinstance(missed, float))
        yield Finding(
            "missing",
            f"jobs without a sample: {len(jobs):,} ({name_some([job for job, *_ in jobs[: SHOWN_NAMES + 1]])})",
            "check the exporters of their nodes: `loadfactor show unobserved_gpu_hours --by node"
            f" --store {quote(books.session.name)}`",
            gpu_hours=hours,
            cost=sum(known) if known else None,
        )
        yield from _sum_up(books, [job for job, *_ in jobs], hours)


def _sum_up(books: Examined, unmeasured: list[str], hours: float) -> Iterator[Finding]:
    """Compare summaries of jobs without a sample, which have so many GPU-hours."""
    books.session.view_table("allocations", "allocations")
    books.session.put("unmeasured", {"job_id": unmeasured})
    jobs, summed, busy, peak, peak_hours = books.session.fetch_one(
        f"""SELECT count(DISTINCT job_id), sum(ms) / {MS_PER_HOUR}, sum(ms * summary_busy_share) / {MS_PER_HOUR},
              sum(ms * summary_mem_peak_share) / {MS_PER_HOUR}, sum(ms) FILTER (summary_mem_peak_share IS NOT NULL) / {MS_PER_HOUR}
            FROM (SELECT *, summary_gpus * (to_utc - from_utc) AS ms FROM allocations SEMI JOIN unmeasured USING (job_id))
            WHERE ms > 0 AND summary_busy_share IS NOT NULL"""
    )
    if not jobs:
        return
    memory = f", up to {write_share(peak / peak_hours)} of their memory in use" if peak_hours else ""
    yield Finding(
        "note",
        f"of these, jobs that jobstats summed up at their end: {jobs:,}, GPUs busy {write_share(busy / summed)} of"
        f" the time{memory}; part of the GPU-hours",
        "means over whole runs hide idle time and are in no other number; import what its Prometheus still has:"
        " `loadfactor import prometheus URL --last 30d`",
        coverage=min(1.0, summed / hours),
        gpu_hours=max(0.0, hours - summed),
    )


def find_unheld_gpus(books: Examined) -> Iterator[Finding]:
    """GPUs with samples of which no job is known."""
    sampled = books.sampled
    unheld = [
        place
        for place in books.places
        if place.device in sampled
        and (place.get("unattributed_gpu_hours") or 0.0) > ROUNDING
        and not place.get("allocated_gpu_hours")
    ]
    if unheld:
        hours, money = add_places(unheld, "unattributed_gpu_hours", "unattributed_cost")
        nodes = sorted({place.node for place in unheld if place.node is not None})
        there = f" on {name_some(nodes)}" if nodes else ""
        yield Finding(
            "missing",
            f"GPUs with samples and without a job: {len(unheld):,}{there}",
            "import what the scheduler of these nodes says, or let their exporter label jobs; names of nodes must be the same on"
            " both sides",
            gpu_hours=hours,
            cost=money,
        )


def find_unlisted_samples(books: Examined) -> Iterator[Finding]:
    """Devices with samples that no list of devices has: their time is in no book."""
    books.session.view_table("devices", "devices")
    listed = {device for (device,) in books.session.raw.execute("SELECT DISTINCT device_id FROM devices").fetchall()}
    strangers = sorted(books.sampled - listed)
    if strangers:
        yield Finding(
            "missing",
            f"devices with samples that are in no device list: {len(strangers):,} ({name_some(strangers)})",
            "import their devices",
        )
    named = {place.device for place in books.places}
    unused = sorted((books.sampled & listed) - named)
    if unused:
        yield Finding(
            "missing",
            f"GPUs whose samples count for nobody: {len(unused):,} ({name_some(unused)}); who held them is known by node or pool"
            " alone",
            "import allocations that name GPUs (device_id)",
        )


def find_split_names(books: Examined) -> Iterator[Finding]:
    """Nodes that two sides call by names that differ by their domain alone, where the ledger cannot know that they are one."""
    pairs = list(_pair_names({place.node for place in books.places if place.node is not None}))
    if pairs:
        names = {name for pair in pairs for name in pair}
        hours, money = add_places(
            [place for place in books.places if place.node in names], "unobserved_gpu_hours", "unobserved_cost"
        )
        reported = name_some([f"{short} and {full}" for short, full in pairs])
        yield Finding(
            "missing",
            f"nodes under two names, with a domain and without: {len(pairs):,} ({reported}); what jobs hold under one and nothing"
            " measures there",
            "give a machine one name: hostname or instance in the labels of exporters as the scheduler calls the node",
            gpu_hours=hours,
            cost=money,
        )


def find_unscheduled_nodes(books: Examined) -> Iterator[Finding]:
    """Nodes with GPUs that no scheduler knows, where schedulers name nodes at all."""
    scheduled = books.scheduled_nodes
    if not scheduled:
        return
    again = {name for pair in _pair_names(books.nodes) for name in pair}  # reported above
    strange = [
        place
        for place in books.places
        if place.device is not None
        and place.node is not None
        and place.node not in scheduled
        and place.node not in again
    ]
    if strange:
        hours, money = add_places(strange, "paid_gpu_hours", "cost")
        nodes = sorted({place.node for place in strange if place.node is not None})
        yield Finding(
            "note",
            f"nodes that no scheduler names: {len(nodes):,} ({name_some(nodes)}), with {len({p.device for p in strange}):,} GPUs",
            "compare with `sinfo -N` or `kubectl get nodes`: they stood idle, are called something else there, or are in another"
            " cluster, whose accounting is not imported",
            gpu_hours=hours,
            cost=money,
        )


def find_unlisted_jobs(books: Examined) -> Iterator[Finding]:
    """Jobs that say what they made, and whose GPUs the books do not know, or only a part of the time."""
    found = list_unheld_work(books.session)
    orphans, partly = [one for one in found if one.is_unheld], [one for one in found if not one.is_unheld]
    if orphans:
        yield Finding(
            "missing",
            f"jobs with progress and without a GPU: {len(orphans):,} ({name_some([one.job for one in orphans])})",
            f"import their allocations, or a log of their GPUs: {say_log(orphans[0])}",
        )
    if partly:
        worst = max(partly, key=lambda one: one.outside_share)
        yield Finding(
            "missing",
            f"jobs with progress from outside the time that they held GPUs: {len(partly):,}, which counts in no unit cost; most"
            f" of it in {worst.job} ({write_share(worst.outside_share, 1)})",
            f"import the log of their GPUs whole: {say_log(worst)}; or see that both clocks and --timezone are right",
        )


def _pair_names(nodes: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names without a domain, and such that are the same with one.

    >>> list(_pair_names(["n1", "n1.cluster.local", "n2.a", "n2.b", "n3"]))
    [('n1', 'n1.cluster.local')]
    """
    names = sorted(nodes)
    short = {name.lower(): name for name in names if "." not in name}
    for name in names:
        begin, dot, _ = name.partition(".")
        if dot and begin.lower() in short:
            yield short[begin.lower()], name
