"""Numbers: the kinds of metrics, and the form in which each one is declared.

A `Sum` adds ledger columns; a `Ratio` divides two Sums, last; a `Quantile` orders what cannot be added; `Count` counts waits;
`PerUnit`, `UnitShare`, `Made` and `Speed` speak of units of work. Every answer carries
its coverage: the share of what it speaks of that was known. Unknown is None, never zero.
"""

from dataclasses import dataclass
from typing import Literal

from loadfactor.ledger.columns import HELD, STATES

Better = Literal["higher", "lower", "neither"]
CURRENCY = "currency"
"""Stands in units for the reporting currency of the books."""
COST = "cost"
"""Stands for the cost in the basis of a question."""
UNDERUSED_S = "underused_s"
"""Stands for the seconds of busy GPUs less all activity, so that busy − underused is what was effective."""
UNDERUSED_COST, EFFECTIVE_COST = "underused_cost", "effective_cost"
"""Stand for the cost of those seconds, and of activity: each row of the ledger has one price."""
ESTIMATED_J, METERED_J, CARBON_KG = "estimated_j", "metered_j", "carbon_kg"
"""Stand for energy that was estimated, for all energy with what the building adds, and for its carbon."""
DRAWN_KNOWN_S, METERED_KNOWN_S, CARBON_KNOWN_S = "drawn_known_s", "metered_known_s", "carbon_known_s"
"""Stand for the seconds whose energy, measured or estimated, is known; and that with PUE; and that with the grid's intensity."""
OF_GRID = (ESTIMATED_J, METERED_J, CARBON_KG, DRAWN_KNOWN_S, METERED_KNOWN_S, CARBON_KNOWN_S)
"""What follows from settings and hours, besides the ledger (`query.grid`)."""


@dataclass(frozen=True)
class Part:
    """Ledger columns added up over rows in `states`. `priced`: only rows whose price is known in the basis of the question.

    `holder`: only rows with a known or an unknown holder; of both and of nobody when it is empty.
    """

    columns: tuple[str, ...]
    states: tuple[str, ...] = STATES
    priced: bool = False
    holder: str = ""

    @property
    def rests_on_activity(self) -> bool:
        """True when the number depends on which activity signal was there: effective hours, and idle apart from busy."""
        some = {"idle", "busy"} & set(self.states)
        return (bool(some) and "unobserved" not in self.states) or any(
            c.startswith(("effective_", "hist_")) for c in self.columns
        )


@dataclass(frozen=True)
class Coverage:
    """Known of needed: seconds over seconds."""

    known: Part
    needed: Part


@dataclass(frozen=True)
class Sum:
    """Ledger columns added up, divided by the unit `per`. `each`: one value a column instead of one in all.

    Where it takes `besides` to be known, too, the lesser coverage counts.
    """

    part: Part
    per: float = 1
    coverage: Coverage | None = None
    each: bool = False
    besides: Coverage | None = None

    @property
    def coverages(self) -> tuple[Coverage, ...]:
        """Everything that has to be known for it."""
        return tuple(c for c in (self.coverage, self.besides) if c is not None)


@dataclass(frozen=True)
class Ratio:
    """One Sum over another, divided last, so that the same line answers per job, per team and per year."""

    over: Sum
    under: Sum


@dataclass(frozen=True)
class Quantile:
    """The value below which the share `q` of the rows lies: q = 1 is the peak. `mean`: their mean instead.

    `of` is a ledger column, or "wait_s" for queue waits; `weight` counts each row as often as the column says.
    """

    of: str
    q: float = 0.5
    weight: str | None = None
    mean: bool = False


@dataclass(frozen=True)
class Count:
    """How many jobs wait without having started: censored waits."""


@dataclass(frozen=True)
class PerUnit:
    """Cost of the jobs that worked on `unit`, fully loaded, of `per` of it, over how many of it they made and kept."""

    unit: str
    per: float = 1


@dataclass(frozen=True)
class UnitShare:
    """How many of `unit` were made and kept, ÷ how many of another unit `of` which they are a part."""

    unit: str
    of: str


@dataclass(frozen=True)
class Made:
    """How many of a unit were made, lost ones too unless `is_kept`; or how many were lost to a cause of `work.LOST_TO`."""

    unit: str
    is_kept: bool = False
    lost_to: str | None = None


@dataclass(frozen=True)
class Speed:
    """How many of a unit were made, kept or lost, ÷ the GPU-seconds held by the jobs that made them."""

    unit: str


Kind = Sum | Ratio | Quantile | Count | PerUnit | UnitShare | Made | Speed
OF_WORK = (PerUnit, UnitShare, Made, Speed)
"""Kinds that units of work answer."""


@dataclass(frozen=True)
class Metric:
    """One metric, declared once: every face reads this object, and a formula appears nowhere else."""

    name: str
    unit: str
    title: str
    meaning: str
    better: Better
    kind: Kind
    topic: str = ""

    @property
    def is_money(self) -> bool:
        """True when it is an amount of money, or of money for one of something."""
        return self.unit.startswith(CURRENCY)

    def unit_in(self, currency: str) -> str:
        """The unit in books kept in a currency.

        >>> Metric("cost_per_token", "currency per token", "", "", "lower", Count()).unit_in("EUR")
        'EUR per token'
        """
        return self.unit.replace(CURRENCY, currency, 1) if self.is_money else self.unit

    @property
    def units(self) -> tuple[str, ...]:
        """The units of work it is made of."""
        if isinstance(self.kind, UnitShare):
            return (self.kind.unit, self.kind.of)
        return (self.kind.unit,) if isinstance(self.kind, PerUnit | Made | Speed) else ()

    @property
    def parts(self) -> list[Part]:
        """Every ledger part it is made of, coverage included."""
        kinds = (self.kind.over, self.kind.under) if isinstance(self.kind, Ratio) else (self.kind,)
        parts = []
        for kind in kinds:
            if isinstance(kind, Sum):
                parts.append(kind.part)
                parts += [part for c in kind.coverages for part in (c.known, c.needed)]
        return parts


OBSERVED = Coverage(known=Part(("gpu_s",), ("idle", "busy")), needed=Part(("gpu_s",), HELD))
