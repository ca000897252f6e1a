"""The digest of a period for the fleet, a team or a user: what it cost, what was wasted and by whom, what changed, what fires.

Every number is one that another page says: metrics of `show`, steps of `waterfall`, parts of `why-changed`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import InputError
from loadfactor.books.snapshot import Snapshot
from loadfactor.books.targets import TargetStatus
from loadfactor.books.waterfall import ASKED, WaterfallGroup
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.delivery.board import belongs_to, read_board
from loadfactor.insight.changes import Change, explain_change
from loadfactor.interfaces.addresses import PLACES, address_of
from loadfactor.interfaces.digests.period import Period
from loadfactor.interfaces.document import Document, Section, Suggestion
from loadfactor.interfaces.formats import UNKNOWN, counted, instant, money, number, percent
from loadfactor.interfaces.pages.alerts import name_group
from loadfactor.interfaces.pages.books import say_finding
from loadfactor.interfaces.pages.budgets import list_budgets, write_headline
from loadfactor.interfaces.pages.waterfall import TITLES
from loadfactor.interfaces.pages.why_changed import build_change
from loadfactor.interfaces.reports import sections
from loadfactor.interfaces.reports.inquiry import NOBODY, UNTAGGED, Group, Inquiry
from loadfactor.interfaces.reports.job import REMEDIES
from loadfactor.interfaces.reports.tiles import TILES, build_tiles
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics.query.calendar import instant as moment
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.metrics.query.reading import Reading, rank
from loadfactor.money.spending import BudgetStatus
from loadfactor.settings.config import settings

MOST_WASTES: Final = 5
MOST_JOBS: Final = 3
MOST_ALERTS: Final = 5
MOST_PARTS: Final = 4
HOUR: Final = timedelta(hours=1)
LEAST_GPUS: Final = 0.05
"""Of less, which a rounding or a late minute may be, nothing is said."""
TILES_OF_A_USER: Final = ("allocated_gpu_hours", "utilization", "idle_cost", "cost")
OF_A_USER: Final = ("allocated_gpu_hours", "utilization", "idle_gpu_hours", "idle_cost", "cost")
CHANGES: Final = ("cost", "utilization")
"""Metrics whose change is explained."""
FIRED: Final = ("firing", "resolved")
QUALITY: Final = "How well it is known"
SPLITS: Final = {"day": "hour", "week": "day", "month": "day"}
BEFORE: Final = {"day": "the day before", "week": "the week before", "month": "the month before"}
ACTIONS: Final = {
    **REMEDIES,
    "unallocated": "let those who wait have them, or rent fewer",
    "down": "repair the nodes that fail, or return them",
}
"""One thing to do, by the kind of loss."""


@dataclass(frozen=True)
class Audience:
    """Whom a digest is for: a user, a team, or with neither whoever runs the fleet."""

    team: str | None = None
    user: str | None = None

    @property
    def where(self) -> dict[str, str]:
        """The part of the books that is theirs."""
        return {name: value for name, value in (("team", self.team), ("user", self.user)) if value is not None}

    @property
    def name(self) -> str:
        """Who it is, inside a sentence."""
        return self.user or (f"team {self.team}" if self.team else "the fleet")


@dataclass(frozen=True)
class Waste:
    """GPU-hours of one holder that brought nothing, for one reason, and one thing to do; `job` has most of it.

    A holder without a name is nobody where `job` is None, too. `cost` is None where no price is known.
    """

    team: str | None
    user: str | None
    job: str | None
    loss: str
    gpu_hours: float
    cost: float | None
    action: str


@dataclass(frozen=True)
class DigestJob:
    """A job of a user in the period; None is not known. `action`: one thing to change."""

    job: str
    gpu_hours: float | None
    utilization: float | None
    idle_gpu_hours: float | None
    idle_cost: float | None
    cost: float | None
    action: str


@dataclass(frozen=True)
class FleetChange:
    """GPUs of a pool and model that were there in the first hour of a period and in its last one, as far as the books know it."""

    pool: str | None
    accelerator: str | None
    gpus_first: float
    gpus_last: float


@dataclass(frozen=True)
class DataQuality:
    """Shares of held time that was observed and of paid time that has a price; findings of `doctor`, the fleet's alone."""

    observed_share: float | None
    priced_share: float | None
    balances: bool | None
    findings: int | None


@dataclass(frozen=True)
class Digest:
    """What a digest says. [from, to) is its period; `is_empty`: nobody held or paid for anything, so it is not sent."""

    period: str
    every: str
    from_: datetime
    to: datetime
    team: str | None
    user: str | None
    currency: str
    readings: Sequence[Reading]
    wastes: tuple[Waste, ...]
    jobs: tuple[DigestJob, ...]
    opted_out: int
    changes: tuple[Change, ...]
    fleet_changes: tuple[FleetChange, ...]
    budgets: tuple[BudgetStatus, ...]
    targets: Sequence[TargetStatus]
    alerts: tuple[Alert, ...]
    quality: DataQuality
    links: Mapping[str, str]
    is_empty: bool


def build_digest(
    books: Snapshot, period: Period, audience: Audience, address: str = "", basis: str | None = None
) -> Document:
    """The digest of a period. `address`: that of the server, for links. Raises InputError for a team or user that is unknown."""
    inquiry = Inquiry(books, (), period.start, period.end, period.zone, basis, audience.where)
    earlier = period.before
    before = replace(inquiry, start=earlier.start, end=earlier.end) if earlier.start >= books.span[0] else None
    metrics = TILES_OF_A_USER if audience.user else TILES
    tiles, readings = build_tiles(inquiry, before, metrics, BEFORE[period.every], SPLITS[period.every])
    totals = Group(
        {r.metric: r for r in inquiry.ask("paid_gpu_hours", *dict.fromkeys((*metrics, "idle_cost", "cost")))}
    )
    wastes, opted_out = find_wastes(inquiry, is_own=audience.user is not None)
    jobs = list_jobs(inquiry) if audience.user else ()
    changes = () if before is None or audience.user else tuple(_explain(inquiry, earlier))
    fleet_changes = () if audience.where else tuple(find_fleet_changes(inquiry))
    alerts = _find_alerts(books, period, audience)
    quality, of_quality = _read_quality(inquiry)
    links = _list_links(address, period, audience, wastes, jobs)
    over, targets = sections.build_over_time(inquiry), None if audience.user else sections.build_targets(inquiry)
    budgets, of_budgets = _read_budgets(inquiry, audience)
    built = [
        _show_jobs(jobs, totals.currency) if audience.user else _show_wastes(wastes, opted_out, totals),
        _show_changes(changes),
        _show_fleet(fleet_changes),
        over and replace(over.section, charts=over.section.charts[:1]),
        of_budgets,
        targets and targets.section,
        _show_alerts(alerts),
        of_quality,
        _show_links(links, inquiry),
    ]
    ends = "" if books.span[1] >= period.end else f" The books end at {instant(inquiry.local(books.span[1]))}."
    return Document(
        f"{period.name}: {_say(totals, audience)}",
        tuple(section for section in built if section),
        f"{period.every.capitalize()} from {instant(period.start)} to {instant(period.end)}.{ends}",
        tiles,
        data=Digest(
            period.name, period.every, period.start, period.end, audience.team, audience.user, totals.currency, readings,
            wastes, jobs, opted_out, changes, fleet_changes, budgets, targets.targets if targets else (), alerts, quality, links,
            not totals.value("paid_gpu_hours"),
        ),
    )  # fmt: skip


def _say(totals: Group, audience: Audience) -> str:
    if not totals.value("paid_gpu_hours"):
        return f"{audience.name} held nothing." if audience.where else "nothing was paid for."
    full = totals.value("utilization" if audience.user else "load_factor")
    words = (
        f"{audience.name} was {percent(full)} full"
        if full is not None
        else f"how full {audience.name} was is not known"
    )
    if audience.user:
        hours = number(totals.value("allocated_gpu_hours"))
        words = f"{audience.user} held {hours} GPU-hours, used {UNKNOWN if full is None else percent(full)} of them"
    if totals.value("cost") is None:
        return f"{words}; what that cost is not known."
    idle = f", {totals.money('idle_cost')} of it idle" if totals.value("idle_cost") else ""
    return f"{words} and cost {totals.money('cost')}{idle}."


def find_wastes(inquiry: Inquiry, is_own: bool) -> tuple[tuple[Waste, ...], int]:
    """The largest losses by holder and kind, by cost where prices are known, and how many holders opted out of being named.

    `is_own`: they are of the one who reads it, who may be named.
    """
    found = inquiry.ask(*ASKED, by=("job", "team", "user"))
    by_holder, by_job = (
        inquiry.books.read_waterfall(found, inquiry.basis, by) for by in (("team", "user"), ("team", "user", "job"))
    )
    jobs: dict[tuple[str | None, str | None], list[WaterfallGroup]] = {}
    for row in by_job.rows:
        jobs.setdefault((row.by["team"], row.by["user"]), []).append(row)
    wastes, opted_out = [], set()
    for row in by_holder.rows:
        team, user = row.by["team"], row.by["user"]
        if not is_own and settings().notices.leaves_out(user):
            opted_out.add(user)
            continue
        for step in row.steps:
            if step.kind == "loss" and step.gpu_hours:
                worst = max(jobs[team, user], key=lambda of, name=step.name: getattr(of.gpu_hours, name))  # type: ignore[misc]
                action = ACTIONS[step.name]
                wastes.append(Waste(team, user, worst.by["job"], step.name, step.gpu_hours, step.cost, action))
    wastes.sort(key=lambda of: (-rank(of.cost), -of.gpu_hours, of.loss, str(of.user)))
    return tuple(wastes[:MOST_WASTES]), len(opted_out)


def list_jobs(inquiry: Inquiry) -> tuple[DigestJob, ...]:
    """The jobs of a user that cost most, or held most, each with one thing to change."""
    found = inquiry.ask(*OF_A_USER, *ASKED, by=("job",))
    losses = {row.by["job"]: row for row in inquiry.books.read_waterfall(found, inquiry.basis, ("job",)).rows}
    jobs = []
    for place, (name,) in enumerate(found.keys):
        values = {metric: found.column(metric)[place] for metric in OF_A_USER}
        if name is None or not values["allocated_gpu_hours"]:
            continue
        lost = [step for step in losses[name].steps if step.kind == "loss" and step.gpu_hours]
        worst = max(lost, key=lambda step: (rank(step.cost), rank(step.gpu_hours)), default=None)
        action = "nothing was lost that is known" if worst is None else f"{TITLES[worst.name]}: {ACTIONS[worst.name]}"
        if values["utilization"] is None:
            action = ACTIONS["unobserved"]
        jobs.append(DigestJob(job=name, gpu_hours=values.pop("allocated_gpu_hours"), action=action, **values))  # type: ignore[arg-type]
    jobs.sort(key=lambda of: (-rank(of.cost), -rank(of.gpu_hours), of.job))
    return tuple(jobs[:MOST_JOBS])


def _explain(inquiry: Inquiry, earlier: Period) -> Iterator[Change]:
    """Why metrics changed, as far as both periods know them."""
    against = earlier.start, earlier.end
    for name in CHANGES:
        with suppress(InputError):
            yield explain_change(
                inquiry.books, name, inquiry.window, against, (), inquiry.timezone, inquiry.basis, inquiry.where
            )


def find_fleet_changes(inquiry: Inquiry) -> Iterator[FleetChange]:
    """Pools and models of which there are more or fewer GPUs at the end of a window than when it began."""
    first, last = inquiry.books.span
    start, end = max(inquiry.window[0], first), min(inquiry.window[1], last)
    if end - start < 2 * HOUR:
        return

    def count(since: datetime) -> dict[tuple[str | None, ...], float]:
        found = replace(inquiry, start=since, end=since + HOUR).ask("paid_gpu_hours", by=("pool", "accelerator"))
        hours = found.column("paid_gpu_hours")
        return {key: of for key, of in zip(found.keys, hours, strict=True) if isinstance(of, float)}

    before, after = count(start), count(end - HOUR)
    for pool, accelerator in sorted({**before, **after}, key=str):
        gpus = [of.get((pool, accelerator), 0.0) for of in (before, after)]
        if abs(gpus[1] - gpus[0]) >= LEAST_GPUS:
            yield FleetChange(pool, accelerator, *gpus)


def _find_alerts(books: Snapshot, period: Period, audience: Audience) -> tuple[Alert, ...]:
    """Alerts that fired in the period, of the team where it is one's; none of a user."""
    if audience.user:
        return ()
    start, end = milliseconds(period.start), milliseconds(period.end)
    board = read_board(books.folder, now_ms(), FIRED)
    return tuple(
        of.alert
        for of in board.alerts
        if of.alert.start_ms < end and (of.alert.end_ms or end) > start and belongs_to(of.alert, audience.team)
    )


def _read_quality(inquiry: Inquiry) -> tuple[DataQuality, Section]:
    """How much was known, in one line; of the fleet also whether the books balance, and what `doctor` finds first."""
    observed, priced = (reading.coverage for reading in inquiry.ask("observed_gpu_hours", "cost"))
    words = [f"{percent(observed)} of the held time was observed", f"{percent(priced)} of the paid time has a price"]
    if inquiry.where:
        return DataQuality(observed, priced, None, None), Section(QUALITY, f"{', '.join(words)}.")
    checked = inquiry.books.check()
    words.append("the books balance" if checked.balance.holds else "the books DO NOT BALANCE")
    found = len(checked.findings)
    first = ""
    if found:
        words.append(f"{counted(found, 'finding')} of `loadfactor doctor`")
        first = f" First: {say_finding(checked.findings[0], inquiry.read_whole('cost').currency)}."
    return DataQuality(observed, priced, checked.balance.holds, found), Section(QUALITY, f"{', '.join(words)}.{first}")


def _read_budgets(inquiry: Inquiry, audience: Audience) -> tuple[tuple[BudgetStatus, ...], Section | None]:
    """All budgets, or those of the team, in the month that the period ends in; none of a user."""
    if not settings().budget or audience.user:
        return (), None
    review = inquiry.books.budgets(inquiry.last_month, inquiry.basis, timezone=inquiry.timezone)
    if audience.team:
        own = tuple(status for status in review.statuses if status.budget.team == audience.team)
        review = replace(review, statuses=own)
    if not review.statuses:
        return (), None
    return review.statuses, Section("Budgets", write_headline(review), tables=(list_budgets(review),))


def _list_links(
    address: str, period: Period, audience: Audience, wastes: Sequence[Waste], jobs: Sequence[DigestJob]
) -> dict[str, str]:
    """Pages of the server in this period by what they show; none where its address is not known."""
    if not address:
        return {}
    zone = {} if str(period.zone) == "UTC" else {"tz": str(period.zone)}
    state = urlencode({"from": f"{period.start:%Y-%m-%d}", "to": f"{period.end:%Y-%m-%d}"} | zone)
    paths = {"the fleet": "/"} if not audience.where else {}
    if audience.team:
        paths[f"team {audience.team}"] = address_of(PLACES["team"], audience.team)
    named = dict.fromkeys((*(of.job for of in jobs), *(of.job for of in wastes)))
    paths |= {f"job {job}": address_of(PLACES["job"], job) for job in named if job is not None}
    return {name: f"{address.rstrip('/')}{path}?{state}" for name, path in paths.items()}


def _show_fleet(found: Sequence[FleetChange]) -> Section | None:
    if not found:
        return None
    change = sum(of.gpus_last - of.gpus_first for of in found)
    words = "As many GPUs as when it began, but others."
    if abs(change) >= LEAST_GPUS:
        words = f"{counted(abs(change), 'GPU')} {'more' if change > 0 else 'fewer'} at the end than when it began."
    listed = table(
        found,
        col("pool", lambda of: of.pool or UNTAGGED),
        col("accelerator", lambda of: of.accelerator or UNKNOWN),
        col("GPUs in the first hour", "gpus_first", "number"),
        col("in the last hour", "gpus_last", "number"),
    )
    return Section("What changed in the fleet", words, tables=(listed,))


def _show_wastes(wastes: Sequence[Waste], opted_out: int, totals: Group) -> Section | None:
    if not wastes:
        return None
    left = f"{counted(opted_out, 'user')} opted out of being named" if opted_out else ""
    is_priced = any(of.cost is not None for of in wastes)
    listed = table(
        wastes,
        col("who", _name_holder),
        col("lost to", lambda of: TITLES[of.loss]),
        col("cost", "cost", "money") if is_priced else col("GPU-hours", "gpu_hours", "number"),
        col("most by job", lambda of: of.job),
        col("what to do", "action"),
        currency=totals.currency,
        note=left,
    )
    first = wastes[0]
    amount = f"{number(first.gpu_hours)} GPU-hours" if first.cost is None else money(first.cost, totals.currency)
    who = "held by nobody" if first.job is None and not first.user else f"by {_name_holder(first)}"
    lead = f"Most: {amount} {TITLES[first.loss]}, {who}."
    return Section("The largest wastes", lead, tables=(listed,))


def _name_holder(of: Waste) -> str:
    return " / ".join(name for name in (of.user, of.team) if name) or (UNTAGGED if of.job else NOBODY)


def _show_jobs(jobs: Sequence[DigestJob], currency: str) -> Section | None:
    if not jobs:
        return None
    listed = table(
        jobs,
        col("job", "job"),
        col("GPU-hours", "gpu_hours", "number"),
        col("utilization", "utilization", "percent"),
        col("idle GPU-hours", "idle_gpu_hours", "number"),
        col("idle cost", "idle_cost", "money"),
        col("cost", "cost", "money"),
        col("one thing to change", "action"),
        currency=currency,
    )
    return Section("Your largest jobs", "What they used, what idled, and one thing to change.", tables=(listed,))


def _show_changes(changes: Sequence[Change]) -> Section | None:
    """Each metric's change in a sentence, and the parts of the first as a table."""
    if not changes:
        return None
    pages = [build_change(change) for change in changes]
    tables = pages[0].sections[0].tables if pages[0].sections else ()
    cut = [replace(of, rows=of.rows[:MOST_PARTS], title=changes[0].metric) for of in tables]
    return Section("What changed", " ".join(page.headline for page in pages), tables=cut)


def _show_alerts(alerts: Sequence[Alert]) -> Section | None:
    if not alerts:
        return None
    counts = Counter(alert.rule for alert in alerts).most_common(MOST_ALERTS)
    left = len({alert.rule for alert in alerts}) - len(counts)
    latest = {alert.rule: alert for alert in sorted(alerts, key=lambda of: of.start_ms)}
    listed = table(
        counts,
        col("alert", lambda row: row[0]),
        col("times", lambda row: float(row[1]), "number"),
        col("severity", lambda row: latest[row[0]].severity),
        col("last of", lambda row: name_group(latest[row[0]])),
        col("since", lambda row: instant(moment(latest[row[0]].start_ms))),
        note=f"and {left} more rules" if left else "",
    )
    firing = sum(alert.state == "firing" for alert in alerts)
    return Section("Alerts", f"{counted(len(alerts), 'alert')}, {firing} of them still firing.", tables=(listed,))


def _show_links(links: Mapping[str, str], inquiry: Inquiry) -> Section:
    """Addresses of pages, or commands where there is no server."""
    if links:
        return Section("Read on", tables=(table(links.items(), col("page"), col("address")),))
    return Section("Read on", suggestions=(Suggestion(f"loadfactor report {inquiry.options}", "the whole report"),))
