"""Equations of what the books of a fleet take: rows, bytes, cores and money, and where one machine ends.

    samples a day = GPUs × 86,400 s ÷ interval
    ledger rows a day = GPUs × 24 h × rows a GPU-hour
    cores = samples a second × (receive + store + book) + GPUs × alerts a minute ÷ 60

A sample is a row with all signals of a GPU at one time. Rates are measured (`catalog/constants/books.toml`).
"""

from dataclasses import dataclass
from typing import Final

from loadfactor.base.units import BYTES_PER_GB, H_PER_DAY, H_PER_MONTH, S_PER_DAY, S_PER_HOUR, S_PER_MIN

LOADED_SHARE: Final = 0.5
"""A machine is full at half of its cores: questions, reports and what is booked again need the rest."""
LONGEST_JUDGE_S: Final = 10.0
"""Alerts of a minute that take longer come late."""


@dataclass(frozen=True)
class BookRates:
    """What rows cost: seconds of a core, bytes, and rows of the ledger for each hour of a GPU."""

    receive_s_per_sample: float
    store_s_per_sample: float
    book_s_per_sample: float
    alert_s_per_minute_gpu: float
    bytes_per_sample: float
    ledger_rows_per_gpu_hour: float
    bytes_per_ledger_row: float
    sums_share: float


@dataclass(frozen=True)
class BooksQuestion:
    """A fleet and how it is watched: GPUs, seconds between samples, days that samples and the ledger are kept, and prices.

    `cores` are those of one machine; `price_per_core_hour` and `price_per_gb_month` what they and stored bytes cost.
    """

    gpus: int
    interval_s: float
    sample_days: float
    ledger_days: float
    cores: int
    price_per_core_hour: float
    price_per_gb_month: float


@dataclass(frozen=True)
class BooksLimit:
    """Where one machine ends for one reason: at how many GPUs, and which knob is next."""

    reason: str
    gpus: int
    knob: str


@dataclass(frozen=True)
class BooksPlan:
    """What the books take. Cores are used all day long; `rebook_core_hours` is all that is kept, booked again."""

    samples_per_day: float
    ledger_rows_per_day: float
    sample_bytes_per_day: float
    ledger_bytes_per_day: float
    kept_bytes: float
    receive_cores: float
    store_cores: float
    book_cores: float
    alert_cores: float
    alert_s_per_minute: float
    book_s_per_day: float
    rebook_core_hours: float
    compute_cost_per_month: float
    storage_cost_per_month: float
    machines: float
    limits: tuple[BooksLimit, ...]

    @property
    def cores(self) -> float:
        """Cores in use."""
        return self.receive_cores + self.store_cores + self.book_cores + self.alert_cores

    @property
    def cost_per_month(self) -> float:
        """Cores and bytes."""
        return self.compute_cost_per_month + self.storage_cost_per_month


def plan_books(question: BooksQuestion, rates: BookRates) -> BooksPlan:
    """Work it out.

    >>> rates = BookRates(5e-7, 1e-6, 1e-6, 1e-5, 10.0, 8.0, 80.0, 0.1)
    >>> plan = plan_books(BooksQuestion(100_000, 10.0, 30, 365, 16, 0.05, 0.02), rates)
    >>> plan.samples_per_day, plan.ledger_rows_per_day, round(plan.cores, 4), round(plan.kept_bytes / 1e9)
    (864000000.0, 19200000.0, 0.0417, 876)
    """
    q, r = question, rates
    per_second = q.gpus / q.interval_s
    samples, rows = per_second * S_PER_DAY, q.gpus * H_PER_DAY * r.ledger_rows_per_gpu_hour
    sample_bytes = samples * r.bytes_per_sample
    ledger_bytes = rows * r.bytes_per_ledger_row * (1 + r.sums_share)
    kept = sample_bytes * q.sample_days + ledger_bytes * q.ledger_days
    receive, store, book = (per_second * s for s in (r.receive_s_per_sample, r.store_s_per_sample, r.book_s_per_sample))
    judged_s = q.gpus * r.alert_s_per_minute_gpu
    cores = receive + store + book + judged_s / S_PER_MIN
    book_s = samples * r.book_s_per_sample
    return BooksPlan(
        samples,
        rows,
        sample_bytes,
        ledger_bytes,
        kept,
        receive,
        store,
        book,
        judged_s / S_PER_MIN,
        judged_s,
        book_s,
        book_s * q.sample_days / S_PER_HOUR,
        cores * H_PER_MONTH * q.price_per_core_hour,
        kept / BYTES_PER_GB * q.price_per_gb_month,
        cores / (q.cores * LOADED_SHARE),
        _list_limits(q, r, cores / q.gpus),
    )


def _list_limits(q: BooksQuestion, r: BookRates, cores_per_gpu: float) -> tuple[BooksLimit, ...]:
    """The reasons for which one machine is not enough, the first to come first."""
    night_s = S_PER_DAY / 3
    book_s_per_gpu = S_PER_DAY / q.interval_s * r.book_s_per_sample
    limits = (
        BooksLimit(
            "alerts of a minute take longer than 10 s of a core",
            int(LONGEST_JUDGE_S / r.alert_s_per_minute_gpu),
            "a server a cluster, each with its own books and alerts",
        ),
        BooksLimit(
            f"half of {q.cores} cores are in use all day",
            int(q.cores * LOADED_SHARE / cores_per_gpu),
            "a server a region, or a longer interval",
        ),
        BooksLimit(
            f"booking {q.sample_days:g} days again takes a night on {q.cores} cores",
            int(q.cores * night_s / (book_s_per_gpu * q.sample_days)),
            "ledger book --engine slurm, spark or kubernetes: days as tasks on more machines",
        ),
    )
    return tuple(sorted(limits, key=lambda limit: limit.gpus))
