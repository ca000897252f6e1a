"""Whether the books balance, what is missing in them and what contradicts itself, each with what to do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from loadfactor.books.check.balance import (
    Balance,
    add_up,
    find_bill_differences,
    find_billed_gpus,
    find_missing_rates,
    find_unowned_charges,
    find_unpriced,
)
from loadfactor.books.check.clocks import (
    check_files,
    find_differing_clocks,
    find_dropped,
    find_failing_sources,
    find_gaps,
    find_import_gaps,
    find_losses,
    find_unobserved,
)
from loadfactor.books.check.finding import Ask, Examined, Finding
from loadfactor.books.check.holders import (
    find_booked_by_number,
    find_counted_twice,
    find_excess,
    find_inferred_holders,
    find_misnumbered,
    find_unattributed,
    find_uncounted,
    find_unlisted,
)
from loadfactor.books.check.joins import (
    find_split_names,
    find_unheld_gpus,
    find_unlisted_jobs,
    find_unlisted_samples,
    find_unmeasured_jobs,
    find_unscheduled_nodes,
)
from loadfactor.books.known_span import has_only_bills
from loadfactor.store.session import Session

__all__ = ["Balance", "CheckResult", "Finding", "check_books"]

ASKED: Final = (
    *("paid_gpu_hours", "cost", "allocated_gpu_hours", "observed_gpu_hours"),
    *("unattributed_gpu_hours", "unattributed_cost", "unobserved_gpu_hours", "unobserved_cost"),
)

Check = Callable[[Examined], Iterator[Finding]]
CHECKS: Final[tuple[Check, ...]] = (
    find_losses,
    find_excess,
    find_uncounted,
    find_unlisted_samples,
    find_unlisted_jobs,
    find_split_names,
    find_differing_clocks,
    find_counted_twice,
    find_misnumbered,
    find_unheld_gpus,
    find_unmeasured_jobs,
    find_unscheduled_nodes,
    find_unattributed,
    find_unlisted,
    find_missing_rates,
    find_bill_differences,
    find_unobserved,
    find_gaps,
    find_unpriced,
    find_dropped,
    find_import_gaps,
    find_inferred_holders,
    find_booked_by_number,
    find_failing_sources,
)
"""Checks, worst first."""
CHECKS_OF_BILLS: Final[tuple[Check, ...]] = (
    find_losses,
    find_billed_gpus,
    find_unowned_charges,
    find_import_gaps,
    find_failing_sources,
)
"""Checks for books in which no GPU is known."""


@dataclass(frozen=True)
class CheckResult:
    """Both sides of the books, and what is worth knowing of them, worst first."""

    balance: Balance
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        """True when the books balance and nothing in them is wrong."""
        return self.balance.holds and not any(finding.grade == "wrong" for finding in self.findings)


def check_books(session: Session, ask: Ask) -> CheckResult:
    """Check the books of a session; `ask` answers questions of them. Raises DamageError where a file is not what was written."""
    check_files(session)
    if has_only_bills(session):
        bills = Examined(session, {}, ask)
        return CheckResult(Balance(0.0, 0.0, None, None), tuple(f for check in CHECKS_OF_BILLS for f in check(bills)))
    totals = {reading.metric: reading for reading in ask(ASKED, ())}  # all of them in one question
    books = Examined(session, totals, ask)
    return CheckResult(add_up(session, totals), tuple(found for check in CHECKS for found in check(books)))
