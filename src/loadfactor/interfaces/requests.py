"""Requests: what each command takes, and what the same questions take over HTTP and in Python.

First the parts that questions of the books share (the store, the window, the zone, the filters), then a class a command, named
after it. Nothing heavy is imported here: the command line reads these classes for its help.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal

from loadfactor.base.errors import DamageError, InputError
from loadfactor.base.limits import WAIT_H
from loadfactor.base.paths import check_names_one_store, name_store, read_store, read_url
from loadfactor.base.quantities import parse_duration_s
from loadfactor.base.request import Request, option
from loadfactor.interfaces.notices import write_notice

if TYPE_CHECKING:
    from loadfactor.books.books import Books
    from loadfactor.books.snapshot import Snapshot

MOMENT = "2026-10 (the start of that month), 2026-10-05 or 2026-10-05T08:00+01:00"

LISTEN = "127.0.0.1:9417"
"""Where servers listen."""
STORE_HELP = (
    "Folder of the books, or s3://, gs:// or az://BUCKET/PREFIX. [default: books, or what loadfactor.toml says]"
)

KEY_HELP = "File with the key. [default: what loadfactor.toml says]"
DIMENSIONS = "device, node, accelerator, pool, job, experiment, user, team, project, purpose, tenant, state, hour, day, week, month"
"""The dimensions in words; the tables, which define them, take a while to import."""


@dataclass(frozen=True, kw_only=True)
class StoreRequest(Request):
    """A question of the books as a whole."""

    store: Path | None = option(STORE_HELP, None)

    @property
    def books(self) -> "Books":
        """The books of a folder that exists. Raises InputError saying how to begin where it does not."""
        from loadfactor.books.books import Books  # the query engine takes a second to load
        from loadfactor.settings.config import settings

        books = Books.open(find_store(self.store), idle_below=settings().idle_below)
        # Say on stderr that the books lack what was in damaged files; the first question reports a damaged manifest.
        with suppress(DamageError):
            losses = books.store.manifest.losses
            if losses:
                files = "a damaged file" if len(losses) == 1 else f"{len(losses)} damaged files"
                line = f"these books lack what was in {files}: import it again (`loadfactor imports` names the files)"
                write_notice(line)
        return books


@dataclass(frozen=True, kw_only=True)
class MonthRequest(StoreRequest):
    """A question of a month, or of months."""

    timezone: str | None = option("Where days and months begin.", None)

    @property
    def zone(self) -> tzinfo:
        """The zone given, else the one in the settings."""
        return read_zone(self.timezone)

    @property
    def words(self) -> str:
        """Options to type behind a command for it to speak of the same books and zone."""
        zone = f" --timezone {quote(self.timezone)}" if self.timezone else ""
        return f" --store {quote(name_store(find_store(self.store)))}{zone}"


def read_filters(pieces: Sequence[str], flag: str) -> dict[str, str]:
    """Dimension → value of pieces like team=vision; a piece without a sign belongs to the value before it."""
    pairs: list[str] = []
    for piece in pieces:
        if "=" not in piece and pairs:
            pairs[-1] += f",{piece}"
        else:
            pairs.append(piece)
    found = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not value:
            raise InputError(f"{flag} {pair!r} is no filter; write {flag} team=vision")
        found[name.strip()] = value.strip()
    return found


def find_store(given: Path | Sequence[Path] | None) -> Path:
    """The folder of the books: the one given, else the one in the settings; what it points to where it is a link.

    Raises InputError if several are given.
    """
    from loadfactor.settings.config import settings  # pydantic takes a while to load

    if not given:
        return settings().store
    paths = (given,) if isinstance(given, Path) else tuple(given)
    check_names_one_store(*paths)
    return read_store(paths[0])


@dataclass(frozen=True, kw_only=True)
class SpanRequest(Request):
    """A question of some interval of the books."""

    start: str | None = option(f"Start of the window: {MOMENT}.", None, name="--from")
    end: str | None = option("End of the window, itself not included.", None, name="--to")
    last: str | None = option("The last part of the window alone: 90min, 12h, 7d, 4w.", None)
    store: Path | None = option(STORE_HELP, None)
    timezone: str | None = option("Where days begin, and which zone times without one mean.", None)

    @property
    def books(self) -> "Books":
        """The books it asks; says where answers take long, because these are booked otherwise."""
        books = StoreRequest(store=self.store).books
        # Say on stderr that a question takes as long as booking everything, and how to have that once.
        with suppress(DamageError):
            if books.is_booked_otherwise:
                line = (
                    "this ledger was booked by another version or with another idle_below: every question books it anew"
                )
                command = f"loadfactor compact --store {quote(books.store.name)}"
                write_notice(f"{line}; `{command}` writes it once")
        return books

    @property
    def zone(self) -> tzinfo:
        """The zone given, else the one in the settings."""
        return read_zone(self.timezone)

    def window(self, books: "Books | Snapshot") -> tuple[datetime | None, datetime | None]:
        """The start and the end of the window; None where the books decide. Raises InputError where it cannot be."""
        start, end = read_moment(self.start, self.zone), read_moment(self.end, self.zone)
        if self.last is None:
            return start, end
        length = timedelta(seconds=parse_duration_s(self.last))
        if start is not None:
            raise InputError("--last and --from both say where the window begins; give one of them")
        return (end or books.span[1]) - length, end


@dataclass(frozen=True, kw_only=True)
class WindowRequest(SpanRequest):
    """A question of some part of the books, whatever its money."""

    by: tuple[str, ...] = option(f"Split by one or several of {DIMENSIONS}.", ())
    where: tuple[str, ...] = option("Only these: team=vision,job=4711.", ())

    @property
    def filters(self) -> dict[str, str]:
        """`--where` as dimension → value."""
        return read_filters(self.where, "--where")


@dataclass(frozen=True, kw_only=True)
class BooksRequest(WindowRequest):
    """A question of some part of the books, in one kind of money."""

    basis: str | None = option(
        "Kind of money: effective, contracted, owned, list or estimate. [default: the best there is]", None
    )


def read_zone(name: str | None) -> tzinfo:
    """The zone of this name, else the one in the settings."""
    from loadfactor.settings.config import settings, zone

    return zone(name or settings().timezone)


def read_moment(text: str | None, zone: tzinfo) -> datetime | None:
    """A point in time as people write it; one without a zone is meant in `zone`. Raises InputError when it is none.

    >>> from datetime import UTC
    >>> read_moment("2026-10", UTC).isoformat(), read_moment("2026-10-05T08:00+01:00", UTC).isoformat()
    ('2026-10-01T00:00:00+00:00', '2026-10-05T08:00:00+01:00')
    """
    if text is None:
        return None
    try:
        day = f"{text}-01" if len(text) == len("2026-10") else text
        if len(day) == len("2026-10-05"):
            return datetime.combine(date.fromisoformat(day), time(), zone)
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{text!r} is no time; write {MOMENT}") from error
    return at if at.tzinfo else at.replace(tzinfo=zone)


def find_currency(currency: str | None, store: Path | Sequence[Path] | None) -> str:
    """The currency given, else that of the books, else that of the settings. Raises InputError for what is none."""
    from loadfactor.settings.config import settings
    from loadfactor.tables.schema import DEFAULT_CURRENCY

    if currency is not None:
        if not re.fullmatch("[A-Z]{3}", currency):
            raise InputError(f"--currency {currency!r} is no currency; write three capital letters, like EUR")
        return currency
    if store or read_url(find_store(None)) or (find_store(None) / "manifest.json").exists():
        return StoreRequest(store=find_store(store)).books.store.currency
    return settings().currency or DEFAULT_CURRENCY


@dataclass(frozen=True, kw_only=True)
class InitRequest(Request):
    force: bool = option("Replace a loadfactor.toml that is there.", False)


@dataclass(frozen=True, kw_only=True)
class DemoRequest(Request):
    store: Path = option("Where to keep its books; an earlier demo there is replaced.", Path("demo"))
    serve: bool = option("Open it for a browser instead, an earlier demo as it is, until it is stopped.", False)
    listen: str = option("Where --serve listens, HOST:PORT. Port 0 takes any.", LISTEN)


@dataclass(frozen=True, kw_only=True)
class ImportRequest(Request):
    source: str = option("What kind of files these are.", is_argument=True)
    paths: tuple[str, ...] = option(
        "Files or a folder, as the source asks, - for standard input; of bills and cloudwatch s3://bucket/prefix, "
        "of gcp-billing bigquery://project.dataset.table, of prometheus the URL.",
        is_argument=True,
    )
    store: Path | None = option(STORE_HELP, None)
    price_per_gpu_hour: float | None = option("One flat price for every GPU, at any time.", None, above=0)
    job: str | None = option(
        "The job that the files are of: that held every GPU of a log, or made what they count.", None, short="--held-by"
    )
    timezone: str | None = option("Zone of times that carry none: Europe/Berlin.", None)
    step: float | None = option("Seconds between samples, where the files do not show it.", None, above=0)
    node: str | None = option("The machine a node-local log was taken on.", None)
    pool: str | None = option("The pool its GPUs belong to.", None)
    currency: str | None = option("Currency of a bill whose file names none: USD.", None)
    at: str | None = option("When a snapshot without a time was taken.", None)
    begun: str | None = option("training-log: when the run began, where its log says no time.", None, name="--start")
    gpus: int | None = option("training-log: how many GPUs it ran on, where its log does not say.", None, above=0)
    region: str | None = option("prices: the region of a price sheet whose prices count: US East.", None)
    instance_type: str | None = option(
        "prices: the machine whose prices count, where sizes differ: Standard_ND96isr_H100_v5.", None
    )
    last: str | None = option("prometheus: how far back to ask for: 12h, 30d. [default: 1d]", None)
    start: str | None = option("prometheus: ask from here on.", None, name="--from")
    end: str | None = option("prometheus: ask up to here. [default: now]", None, name="--to")
    match: str | None = option('prometheus: only these series: {cluster="a"}.', None)
    bearer_token_file: Path | None = option("prometheus: file with the token that the server asks for.", None)


@dataclass(frozen=True, kw_only=True)
class ReportRequest(BooksRequest):
    job: str | None = option(
        "The page of this job instead: what it cost and made, where money leaked and why, jobs like it.", None
    )
    why: bool = option(
        "Also why GPUs were not fuller, and what to change: what `diagnose --jobs 3` and `savings` say. Takes a while.",
        False,
    )
    trace: tuple[Path, ...] = option("With --job: traces of it, whose seconds become its money.", ())


@dataclass(frozen=True, kw_only=True)
class ShowRequest(BooksRequest):
    metrics: tuple[str, ...] = option("Names of metrics; all of them when none is given.", (), is_argument=True)
    sort: str | None = option("Order groups by a metric or dimension, smallest first; -NAME: largest first.", None)
    reverse: bool = option("Turn the order round.", False)
    limit: int | None = option("Show at most so many groups.", None, at_least=1)
    without_idle: bool = option("Unit costs without the cost of idle and unobserved time.", False)


@dataclass(frozen=True, kw_only=True)
class SavingsRequest(SpanRequest):
    by: tuple[str, ...] = option("Split by team or user, or both.", ())
    jobs: int = option(
        "How many jobs, those that lose most, are diagnosed for what their code could do.", 5, at_least=0
    )
    spot_price: float | None = option("Price of a spot GPU-hour, for jobs that report checkpoints.", None, above=0)
    spot_hours: float = option("Hours between interruptions of one spot instance.", 24.0, within=WAIT_H)
    commit_price: float | None = option("Price of a committed GPU-hour, for the base of the demand.", None, above=0)


@dataclass(frozen=True, kw_only=True)
class WaitsRequest(WindowRequest):
    by: tuple[str, ...] = option(
        "Split by one or several of size, queue, reason, team, user, project, experiment, purpose, pool.", ("size",)
    )
    job: str | None = option("Estimate how much longer this job will wait.", None)


@dataclass(frozen=True, kw_only=True)
class BudgetRequest(MonthRequest):
    month: str | None = option("Periods that this month lies in: 2026-10. [default: the last one with costs]", None)
    basis: str | None = option(
        "Kind of money of the ledger: effective, contracted, owned, list or estimate. [default: the best there is]",
        None,
    )


@dataclass(frozen=True, kw_only=True)
class ProjectRequest(StoreRequest):
    basis: str | None = option(
        "Kind of money: effective, contracted, owned, list or estimate. [default: the best there is]", None
    )


@dataclass(frozen=True, kw_only=True)
class BillRequest(MonthRequest):
    """Options of `loadfactor bill compare`."""

    month: str | None = option("The month to compare: 2026-10. [default: all that both speak of]", None)


@dataclass(frozen=True, kw_only=True)
class CommitmentsRequest(SpanRequest):
    """Options of `loadfactor bill commitments`."""

    commit_price: float | None = option(
        "Price of a committed or owned GPU-hour: how many to commit to, by the hours that were held.", None, above=0
    )
    rent_price: float | None = option(
        "With --commit-price: price of a rented GPU-hour. [default: what a held one costs in the books]", None, above=0
    )


@dataclass(frozen=True, kw_only=True)
class BridgeRequest(MonthRequest):
    """Options of `loadfactor bill bridge`."""

    ends: tuple[str, ...] = option("Walk from one of its amounts to another: bill statement.", (), is_argument=True)
    team: str | None = option("Walk to what this team is charged. [default: the whole fleet]", None)
    month: str | None = option("The month: 2026-10. [default: the period of its budget, else all that is known]", None)


@dataclass(frozen=True, kw_only=True)
class RunsRequest(SpanRequest):
    """Options of `loadfactor compare`."""

    first: str = option(
        "A job, an experiment, a team, or a week as 2026-W41; team=NAME says which where names are alike.",
        is_argument=True,
    )
    second: str = option("The other one.", is_argument=True)
    basis: str | None = option(
        "Kind of money: effective, contracted, owned, list or estimate. [default: the best there is]", None
    )


@dataclass(frozen=True, kw_only=True)
class WhyChangedRequest(BooksRequest):
    """Options of `loadfactor why-changed`."""

    metric: str = option("Name of the metric: cost, utilization, cost_per_token.", is_argument=True)
    by: tuple[str, ...] = option("Holders by one or several of team, pool, user, project, job. [default: team]", ())
    against: str | None = option(
        "Compare with this window instead of the one before, FROM/TO; with --month also with what it was closed as: closed.",
        None,
    )
    month: str | None = option("This month, 2026-10, against the one before.", None)


@dataclass(frozen=True, kw_only=True)
class ForecastRequest(SpanRequest):
    """Options of `loadfactor forecast`."""

    by: tuple[str, ...] = option("Also by team or pool, or both.", ())
    weeks: int = option("How many weeks.", 4, at_least=1, at_most=52)
    new_team: int | None = option(
        "What a team that keeps so many GPUs busy would do to the queue, simulated on the history.",
        None,
        at_least=1,
        at_most=1_000_000,
    )
    basis: str | None = option(
        "Kind of money: effective, contracted, owned, list or estimate. [default: the best there is]", None
    )
    marginal: bool = option(
        "Say also how much later pools are full with the next 8 GPUs and what the next 10,000 of money a month pay for.",
        False,
    )


@dataclass(frozen=True, kw_only=True)
class SeffRequest(StoreRequest):
    """Options of `loadfactor seff`."""

    job: str = option("The job as Slurm writes it: 4711, 4711_3 of an array, 4711+0 of a het job.", is_argument=True)
    server: str | None = option("Address of a `loadfactor up` to ask: http://127.0.0.1:9417.", None)
    token_file: Path | None = option("File with the token that server asks for.", None)
    notice: bool = option(
        "For the output of the job itself: nothing where its user is in opt_out of [notices], and never a failure.",
        False,
    )
    store: Path | None = option(STORE_HELP, None)


@dataclass(frozen=True, kw_only=True)
class UsersRequest(SpanRequest):
    """Options of `loadfactor users`."""

    wasteful: bool = option("Only users that the rule of [wasteful] names, with what decided.", False)
    basis: str | None = option(
        "Kind of money: effective, contracted, owned, list or estimate. [default: the best there is]", None
    )
    where: tuple[str, ...] = option("Only these: team=vision,pool=h100.", ())
    last: str | None = option("The last part of the window alone: 90min, 12h, 7d, 4w. [default: 7d]", None)


@dataclass(frozen=True, kw_only=True)
class DigestRequest(MonthRequest):
    """Options of `loadfactor digest`."""

    name: str | None = option(
        "A digest of loadfactor.toml. [default: the one of these options]", None, is_argument=True
    )
    daily: bool = option("Of the last whole day.", False)
    weekly: bool = option("Of the last whole week, from Monday; the default.", False)
    monthly: bool = option("Of the last whole month.", False)
    team: str | None = option("For this team.", None)
    user: str | None = option("For this user: their largest jobs, and one thing to change in each.", None)
    basis: str | None = option(
        "Kind of money: effective, contracted, owned, list or estimate. [default: the best there is]", None
    )
    dry_run: bool = option("Print what the digests of loadfactor.toml would send to whom, and send nothing.", False)
    send: bool = option("Send the digest of this name, unless it was sent.", False)


@dataclass(frozen=True, kw_only=True)
class ReplayRequest(SpanRequest):
    """Options of `loadfactor alerts test`."""

    rule: tuple[str, ...] = option("Only these rules, by name.", ())


@dataclass(frozen=True, kw_only=True)
class SilencedRequest(StoreRequest):
    """Options of `loadfactor alerts silence`."""

    rule: str = option("Alerts of this rule.", "", is_argument=True)
    by: tuple[str, ...] = option("Only of these groups, or in these names: job=4711,team=vision.", ())
    length: str | None = option("For how long: 30min, 2h, 7d.", None, name="--for")
    until: str | None = option("Until when, UTC: 2026-10-05T18:00.", None)
    reason: str = option("Why, for those who wonder later.")


@dataclass(frozen=True, kw_only=True)
class LiftedRequest(StoreRequest):
    """Options of `loadfactor alerts unsilence`."""

    id: str = option("Id of the silence.", is_argument=True)


@dataclass(frozen=True, kw_only=True)
class AlertsRequest(StoreRequest):
    rule: tuple[str, ...] = option("Only of these rules, by name.", ())
    team: str | None = option("Only of this team.", None)
    ended: bool = option("Those of the last 30 days that ended, too.", False)


@dataclass(frozen=True, kw_only=True)
class DiagnoseRequest(SpanRequest):
    trace: tuple[Path, ...] = option(
        "Traces: files, folders of them, or a folder that `nsys export` wrote.", (), is_argument=True
    )
    job: str | None = option(
        "Of this job: with traces, their seconds become its money, beside what its books say.", None
    )
    team: str | None = option("Of the jobs of this team.", None)
    jobs: int = option("How many jobs of a team or of the fleet are looked at, those that lost most.", 20, at_least=1)


@dataclass(frozen=True, kw_only=True)
class SourcesRequest(Request):
    """Options of `loadfactor check`."""

    config: Path | None = option("The configuration. [default: loadfactor.toml]", None)
    store: Path | None = option(STORE_HELP, None)


@dataclass(frozen=True, kw_only=True)
class TablesRequest(Request):
    write: Path | None = option("Write an empty CSV of each table into this folder.", None)


@dataclass(frozen=True, kw_only=True)
class CatalogRequest(Request):
    part: Literal["models", "accelerators", "prices", "instances"] = option("Which list.", is_argument=True)


@dataclass(frozen=True, kw_only=True)
class ChargebackRequest(MonthRequest):
    month: str | None = option("The month to charge, 2026-10. [default: all that the books know]", None)
    by: tuple[str, ...] = option(
        "Statements by one or several of team, project, experiment, user, purpose. [default: team]", ()
    )
    currency: str | None = option("Charge only lines of bills in this currency.", None)
    close: bool = option("Keep the statements of the month, in place of those kept before.", False)
    yes: bool = option("With --close: keep a month, too, that the books do not cover whole.", False)
    remark: str | None = option(
        "With --close and --yes: your remark on what is missing, kept with the statements.", None
    )
    diff: bool = option("Show what changed since the month was closed, and why.", False)
    as_closed: bool = option("Print the statements as they were when the month was closed.", False)
    store: Path | None = option(STORE_HELP, None)


@dataclass(frozen=True, kw_only=True)
class StatementRequest(MonthRequest):
    """Options of `loadfactor statement`."""

    month: str = option("The month, 2026-10.")
    team: str | None = option("The statement of this team. [default: all of them]", None)
    currency: str | None = option("Only lines of bills in this currency.", None)
    versions: bool = option("List how the month was closed, one version after another.", False)
    version: int | None = option("Print this version as it was closed.", None, at_least=1)
    against: int | None = option("Compare with this version: what changed since, and why.", None, at_least=1)
    output: Path | None = option(
        "Write it to a file: .html, .pdf, .xlsx, .csv, .json, .md; without --team a folder takes a file of every team.",
        None,
        short="-o",
    )
    files: tuple[str, ...] = option("Kinds of files in a folder.", ("pdf", "xlsx"))
    store: Path | None = option(STORE_HELP, None)


@dataclass(frozen=True, kw_only=True)
class UntaggedRequest(BooksRequest):
    by: tuple[str, ...] = option(
        "List by user, team, project, queue, pool, job, or a tag: namespace, account, job_name, label.NAME.",
        ("user", "team"),
    )


@dataclass(frozen=True, kw_only=True)
class RetagRequest(StoreRequest):
    mapping: Path | None = option("CSV to use in place of the mapping that loadfactor.toml names.", None)
    dry_run: bool = option("Say what would change, and change nothing.", False)


@dataclass(frozen=True, kw_only=True)
class ForgetRequest(StoreRequest):
    number: int = option("Number of the import.", is_argument=True, at_least=1)


@dataclass(frozen=True, kw_only=True)
class RetainRequest(StoreRequest):
    """Options of `loadfactor retain`."""

    dry_run: bool = option("Say what would be dropped, and drop nothing.", False)
    confirm: bool = option(
        "The clock is right: drop, although it is more than a day from the newest time that the store recorded.", False
    )


@dataclass(frozen=True, kw_only=True)
class RepairRequest(StoreRequest):
    """Options of `loadfactor repair`."""

    plan: bool = option("Say which generations of the books are there and what each keeps, and change nothing.", False)
    take: int | None = option("Take this generation, as --plan lists them. [default: the one that --plan says]", None)


@dataclass(frozen=True, kw_only=True)
class MergeRequest(StoreRequest):
    other: Path = option("The other store, a folder or the URL of a bucket; it stays as it is.", is_argument=True)


@dataclass(frozen=True, kw_only=True)
class TokenCreateRequest(StoreRequest):
    """Options of `loadfactor token create`."""

    write: bool = option("It may send samples and upload files; nothing else without --read.", False)
    read: bool = option("It may read everything; with --write it may silence alerts in a browser, too.", False)
    read_team: str | None = option("It may read what concerns this team alone.", None)
    name: str | None = option("What it is for, in your words.", None)


@dataclass(frozen=True, kw_only=True)
class TokenRevokeRequest(StoreRequest):
    """Options of `loadfactor token revoke`."""

    id: str = option("Id of the token.", is_argument=True)


@dataclass(frozen=True, kw_only=True)
class KeyRequest(Request):
    file: Path = option("A file that does not exist yet, outside the books.", is_argument=True)


@dataclass(frozen=True, kw_only=True)
class PseudonymOfRequest(Request):
    names: tuple[str, ...] = option("Users.", is_argument=True)
    key_file: Path | None = option(KEY_HELP, None)


@dataclass(frozen=True, kw_only=True)
class RevealRequest(Request):
    pseudonyms: tuple[str, ...] = option("Pseudonyms, p-….", is_argument=True)
    key_file: Path | None = option(KEY_HELP, None)


@dataclass(frozen=True, kw_only=True)
class BackupRequest(StoreRequest):
    folder: Path = option(
        "A folder that does not exist yet, or is empty; with --verify also a backup.", is_argument=True
    )
    verify: bool = option(
        "Open the copy and compare it with the books; a backup that is there is only verified.", False
    )


@dataclass(frozen=True, kw_only=True)
class RestoreRequest(StoreRequest):
    backup: Path = option("A backup, or the folder or bucket of a schedule: then its newest.", is_argument=True)


@dataclass(frozen=True, kw_only=True)
class GrafanaRequest(Request):
    output: Path = option("Folder to write into; files of these names are replaced.")
    prometheus: str = option("Address under which Grafana reaches Prometheus.", "http://localhost:9090")
    runbooks: str | None = option("Address of these docs where you host them; panels then link to runbooks.", None)
    currency: str | None = option("Currency of the books: EUR. [default: that of the store]", None)
    store: Path | None = option(STORE_HELP, None)


@dataclass(frozen=True, kw_only=True)
class LedgerPlanRequest(StoreRequest):
    all: bool = option("Every day, whether it is stale or not.", default=False)


@dataclass(frozen=True, kw_only=True)
class RebuildRequest(StoreRequest):
    engine: str | None = option(
        "Where tasks run: local:N (processes here), spark, ray, slurm, kubernetes (prints its Job). [default: local:1]",
        None,
    )
    master: str | None = option("Of Spark its master (spark://host:7077), of Ray its address.", None)


@dataclass(frozen=True, kw_only=True)
class BookTasksRequest(RebuildRequest):
    task: tuple[str, ...] = option("Book these tasks alone, in this process; names are of `ledger plan`.", ())
    all: bool = option("Every day, whether it is stale or not.", default=False)
    image: str | None = option("kubernetes: the image of its pods.", None)
    claim: str = option("kubernetes: the claim of the volume that holds the books.", "loadfactor")


@dataclass(frozen=True, kw_only=True)
class ExportRequest(StoreRequest):
    subject: Literal["ledger", "sums", "readings", "statements", "openmetrics"] = option(
        "The ledger with all its measures, its sums by team, GPU and job, every metric by day and team, statements, or the "
        "history of /metrics for a Prometheus.",
        is_argument=True,
    )
    output: str = option(
        "Folder, or s3://, gs:// or az://BUCKET/PREFIX, to write into: a new one, or that of an earlier export; a file of "
        "openmetrics.",
        short="-o",
    )
    last: str | None = option("Of openmetrics, the last part alone: 7d, 4w.", None)
    output_format: Literal["parquet", "csv"] = option("As what.", "parquet", name="--format")


@dataclass(frozen=True, kw_only=True)
class NoRequest(Request):
    """Nothing: a command without options of its own."""
