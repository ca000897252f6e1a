"""The report for programs: the readings of the whole and of each section. Its JSON is derived from these classes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from loadfactor.books.budgets import BudgetReview
from loadfactor.books.charging.bridge import Chain
from loadfactor.books.charging.fleet_chargeback import FleetChargeback
from loadfactor.books.check import Finding
from loadfactor.books.job_account import AlikeValue, Leak
from loadfactor.books.served_use import ServedUse
from loadfactor.books.targets import TargetStatus
from loadfactor.books.waterfall import FleetWaterfall
from loadfactor.interfaces.document import Section, Suggestion
from loadfactor.metrics.query.reading import Reading

if TYPE_CHECKING:  # which most reports do without
    from loadfactor.insight.diagnosis.finding import FleetDiagnosis
    from loadfactor.insight.savings import FleetSavings
    from loadfactor.insight.traces.report import TraceDiagnosis


@dataclass(frozen=True)
class SectionFacts:
    """One section: its name for programs, the section as people see it, the readings behind it."""

    name: str
    section: Section = field(repr=False)
    readings: Sequence[Reading]

    @property
    def title(self) -> str:
        """The heading."""
        return self.section.title

    @property
    def says(self) -> str:
        """The sentence for a hurried reader."""
        return self.section.lead


@dataclass(frozen=True)
class JobFacts(SectionFacts):
    """Besides, which job was looked into."""

    job: str


@dataclass(frozen=True)
class DataQualityFacts(SectionFacts):
    """Besides, whether the books balance, and what is missing or contradicts itself."""

    balances: bool
    residual_gpu_hours: float
    residual_cost: float | None
    findings: Sequence[Finding]


@dataclass(frozen=True)
class BudgetFacts(SectionFacts):
    """Besides, where each budget stands."""

    review: BudgetReview


@dataclass(frozen=True)
class TargetFacts(SectionFacts):
    """Besides, where each target stands."""

    targets: Sequence[TargetStatus]


@dataclass(frozen=True)
class ChargebackFacts(SectionFacts):
    """Besides, the statements; None where something is missing for them."""

    chargeback: FleetChargeback | None


@dataclass(frozen=True)
class BridgeFacts(SectionFacts):
    """Besides, the amounts from bill to statement of every team."""

    chain: Chain


@dataclass(frozen=True)
class UsefulFacts(SectionFacts):
    """Besides, every step of the way from paid to useful."""

    waterfall: FleetWaterfall


@dataclass(frozen=True)
class WhyFacts(SectionFacts):
    """Besides, why the GPUs were not fuller, and what to change, as `diagnose` and `savings` say it; a job has no savings."""

    diagnosis: "FleetDiagnosis"
    savings: "FleetSavings | None"


@dataclass(frozen=True)
class TraceFacts(SectionFacts):
    """Besides, what traces of the job say, in its money."""

    traced: "TraceDiagnosis"


@dataclass(frozen=True)
class LeaksFacts(SectionFacts):
    """Besides, every loss, the largest first."""

    leaks: Sequence[Leak]


@dataclass(frozen=True)
class UseFacts(SectionFacts):
    """Besides, who used what a serving job makes, and which part of its cost is theirs."""

    use: ServedUse


@dataclass(frozen=True)
class ComparisonFacts(SectionFacts):
    """Besides, how many jobs are like it, and what they have in the middle."""

    alike: int
    compared: Sequence[AlikeValue]


@dataclass(frozen=True)
class NextStepsFacts(SectionFacts):
    """Besides, the commands to type."""

    @property
    def commands(self) -> Sequence[Suggestion]:
        """Each with its reason."""
        return self.section.suggestions


@dataclass(frozen=True)
class ReportFacts:
    """The whole report: [from, to) is its window, `readings` every metric of that window."""

    headline: str
    from_: datetime
    to: datetime
    readings: Sequence[Reading]
    sections: Sequence[SectionFacts]
