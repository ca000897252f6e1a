"""Page of `plan books`: what keeping the books of a fleet takes, where one machine ends, and which knob is next."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadfactor.base.quantities import parse_duration_s
from loadfactor.base.request import Request, option
from loadfactor.base.units import BYTES_PER_GB, S_PER_DAY, S_PER_HOUR
from loadfactor.catalog.facts import read_toml
from loadfactor.interfaces.document import Assumption, Document, Section
from loadfactor.interfaces.formats import duration, money, number, percent
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.sizing.books_plan import BookRates, BooksPlan, BooksQuestion, plan_books

CONSTANTS = "loadfactor.catalog.constants"


@dataclass(frozen=True, kw_only=True)
class BooksPlanRequest(Request):
    """A fleet, how it is watched and for how long that is kept."""

    gpus: int = option("How many GPUs.", at_least=1, at_most=100_000_000)
    interval: str = option("Time between samples of a GPU.", "30s")
    samples: str = option("How long samples are kept, as in [retention].", "90d")
    ledger: str = option("How long the ledger is kept, as in [retention].", "3y")
    cores: int = option("Cores of one machine.", 16, at_least=1, at_most=1024)
    core_price: float = option("What an hour of a core costs.", 0.045, above=0)
    gb_price: float = option("What a stored GB costs a month.", 0.023, above=0)


def build_document(request: BooksPlanRequest) -> Document:
    """What it takes, part by part."""
    rates: Mapping[str, Mapping[str, Any]] = read_toml(CONSTANTS, "books.toml")["rate"]
    question = BooksQuestion(
        request.gpus,
        parse_duration_s(request.interval),
        parse_duration_s(request.samples) / S_PER_DAY,
        parse_duration_s(request.ledger) / S_PER_DAY,
        request.cores,
        request.core_price,
        request.gb_price,
    )
    plan = plan_books(question, BookRates(**{name: float(rate["value"]) for name, rate in rates.items()}))
    first = plan.limits[0]
    room = f"one machine of {request.cores} cores does, up to {number(first.gpus)} GPUs"
    if request.gpus > first.gpus:
        room = (
            f"more than one machine of {request.cores} cores, which ends at {number(first.gpus)} GPUs: {first.reason}"
        )
    headline = (
        f"{number(plan.cores, 2)} cores and {number(plan.kept_bytes / BYTES_PER_GB)} GB keep the books of {number(request.gpus)}"
        f" GPUs, {money(plan.cost_per_month)} a month; {room}."
    )
    return Document(headline, (_draw_rows(plan, question), _draw_cores(plan), _draw_limits(plan)), assumptions=[
        Assumption(name.replace("_", " "), f"{rate['value']:g}", f"{rate['meaning']}: {rate['command']}", rate["as_of"])
        for name, rate in rates.items()
    ], data=plan)  # fmt: skip


def _draw_rows(plan: BooksPlan, question: BooksQuestion) -> Section:
    sums = plan.ledger_bytes_per_day * question.ledger_days
    kept = (
        ("samples", plan.samples_per_day, plan.sample_bytes_per_day, plan.sample_bytes_per_day * question.sample_days),
        ("ledger and its sums", plan.ledger_rows_per_day, plan.ledger_bytes_per_day, sums),
    )
    shown = table(
        kept,
        col("table", lambda row: row[0]),
        col("rows a day", lambda row: row[1], "number"),
        col("GB a day", lambda row: row[2] / BYTES_PER_GB, "number"),
        col("GB kept", lambda row: row[3] / BYTES_PER_GB, "number"),
        note=f"Storage costs {money(plan.storage_cost_per_month)} a month.",
    )
    return Section("Rows and bytes", tables=(shown,))


def _draw_cores(plan: BooksPlan) -> Section:
    parts = (
        ("receive and acknowledge", plan.receive_cores),
        ("make files", plan.store_cores),
        ("book the ledger", plan.book_cores),
        ("judge alerts each minute", plan.alert_cores),
    )
    shown = table(
        parts,
        col("what", lambda row: row[0]),
        col("cores, all day", lambda row: row[1], "number"),
        col("of all", lambda row: row[1] / plan.cores, "percent"),
        note=(
            f"Booking a day takes {duration(plan.book_s_per_day)} of a core, booking all samples that are kept again"
            f" {duration(plan.rebook_core_hours * S_PER_HOUR)}; a minute of alerts {duration(plan.alert_s_per_minute)}."
            f" {percent(plan.machines)} of a machine used to half of its cores; {money(plan.compute_cost_per_month)} a month."
        ),
    )
    return Section("Cores", tables=(shown,))


def _draw_limits(plan: BooksPlan) -> Section:
    shown = table(
        plan.limits,
        col("one machine ends where", "reason"),
        col("GPUs", "gpus", "number"),
        col("the next knob", "knob"),
    )
    return Section("Where one machine ends", tables=(shown,))
