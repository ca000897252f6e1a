"""What `loadfactor.toml` says of projects that were planned: the tables [[project]]."""

from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from loadfactor.settings.money import read_amount
from loadfactor.settings.table import SettingsTable

_AMOUNTS = (
    "gpu_hours_per_run",
    "retry_percent",
    "evaluation_gpu_hours",
    "price_per_gpu_hour",
    "storage_cost",
    "staff_cost",
)


class ProjectPlan(SettingsTable):
    """A training or fine-tuning project as it was planned. It is found in the books by project, or by its experiments."""

    name: str = Field(
        min_length=1, description="What it is called; the project of its jobs, where no experiments are named."
    )
    experiments: tuple[str, ...] = Field(default=(), description="Experiments that belong to it, in place of its name.")
    runs: int = Field(ge=1, description="Runs that have to succeed.")
    gpu_hours_per_run: Decimal = Field(gt=0, description="GPU-hours of one run that succeeds.")
    retry_percent: Decimal = Field(
        default=Decimal(0), ge=0, description="GPU-hours of runs that fail, of those that succeed."
    )
    evaluation_gpu_hours: Decimal = Field(default=Decimal(0), ge=0, description="GPU-hours of evaluation.")
    price_per_gpu_hour: Decimal = Field(gt=0, description="Planned price of a held GPU-hour.")
    storage_cost: Decimal = Field(default=Decimal(0), ge=0, description="Storage of the whole project.")
    staff_cost: Decimal = Field(default=Decimal(0), ge=0, description="Staff of the whole project.")

    @field_validator(*_AMOUNTS, mode="before")
    @classmethod
    def _amount(cls, written: Any) -> Decimal:
        return read_amount(written, "it")

    @model_validator(mode="after")
    def _named(self) -> Self:
        if "" in self.experiments:
            raise ValueError("one of the experiments is empty; name it, or leave it out")
        return self


def _tell_apart(plans: tuple[ProjectPlan, ...]) -> tuple[ProjectPlan, ...]:
    names = [plan.name for plan in plans]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two projects are called {name!r}; give each a name of its own")
    return plans


ProjectPlans = Annotated[tuple[ProjectPlan, ...], AfterValidator(_tell_apart)]
"""Projects of different names."""
