"""What `loadfactor.toml` says of how bills become GPUs: the table [billing]."""

from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from loadfactor.base.paths import read_path

ALL: Final = "all"


class BillingSettings(BaseModel):
    """Which node a line of a bill is of, and which part of its cost its GPUs'."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: Path | None = Field(default=None, description="CSV that says, with dates, which resource was which node.")
    node_tags: tuple[str, ...] = Field(default=("Name",), description="Tags of a bill that hold the name of a node.")
    gpu_share: Decimal = Field(
        default=Decimal(1),
        gt=0,
        le=1,
        description="Part of an instance's cost that is its GPUs': \"all\", or a number like 0.9.",
    )

    @field_validator("nodes")
    @classmethod
    def _at_home(cls, path: Path | None) -> Path | None:
        return path and read_path(path)

    @field_validator("gpu_share", mode="before")
    @classmethod
    def _written(cls, written: Any) -> Any:
        if written == ALL:
            return Decimal(1)
        if isinstance(written, bool) or not isinstance(written, (int, float, Decimal)):
            raise ValueError(f'{written!r} is no share; write "all" or a number like 0.9')
        return Decimal(str(written))

    @property
    def share_words(self) -> str:
        """The policy as it is printed with answers.

        >>> BillingSettings(gpu_share=0.9).share_words
        'GPUs bear 0.9 of what an instance costs; of GPUs that are billed apart, all'
        """
        if self.gpu_share == 1:
            return "GPUs bear all that an instance costs"
        return f"GPUs bear {self.gpu_share} of what an instance costs; of GPUs that are billed apart, all"
