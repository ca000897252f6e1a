"""Both sides of the books: what was installed, and what was booked."""

from collections.abc import Mapping
from dataclasses import dataclass

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.booking import book
from loadfactor.books.check.finding import ROUNDING
from loadfactor.books.rebuild import default_basis
from loadfactor.metrics.query.reading import Reading
from loadfactor.store.session import Session


@dataclass(frozen=True)
class Balance:
    """Both sides of the book: what was installed, worked out from the device list and the prices, and what was booked."""

    installed_gpu_hours: float
    booked_gpu_hours: float
    installed_cost: float | None
    booked_cost: float | None

    @property
    def residual_gpu_hours(self) -> float:
        """Booked less installed: zero but for rounding."""
        return self.booked_gpu_hours - self.installed_gpu_hours

    @property
    def residual_cost(self) -> float | None:
        """Booked less price × installed; None where there is no price at all."""
        return (
            None if self.booked_cost is None or self.installed_cost is None else self.booked_cost - self.installed_cost
        )

    @property
    def holds(self) -> bool:
        """True when both sides agree to a billionth."""
        hours = abs(self.residual_gpu_hours) <= ROUNDING * max(1.0, self.installed_gpu_hours)
        cost = self.residual_cost is None or abs(self.residual_cost) <= ROUNDING * max(
            1.0, abs(self.installed_cost or 0)
        )
        return hours and cost


def add_up(session: Session, totals: Mapping[str, Reading]) -> Balance:
    """Add up both sides over the whole span. Costs in the default basis, over the hours that have a price."""
    basis = default_basis(session)
    start, end = session.span()
    book(session, ((start, end),), until="segments")
    ask = session.raw.execute(
        f"SELECT coalesce(sum(share * (to_utc - from_utc)), 0) / {MS_PER_HOUR},"
        f" sum(share * (to_utc - from_utc) * price_per_gpu_hour_{basis}) / {MS_PER_HOUR} FROM segments"
    ).fetchone()
    installed_gpu_hours, installed_cost = ask or (0.0, None)
    booked = [r.value if isinstance(r.value, float) else None for r in (totals["paid_gpu_hours"], totals["cost"])]
    return Balance(installed_gpu_hours, booked[0] or 0.0, installed_cost, booked[1])
