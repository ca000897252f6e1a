"""What `loadfactor up` scrapes, as the configuration names it: groups of exporters, and of serving engines."""

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from loadfactor.base.quantities import parse_duration_s
from loadfactor.base.units import S_PER_MIN

SCRAPED_EVERY_S = (1.0, 600.0)
"""Bounds of the time between two scrapes."""
LONGEST_SCRAPE_S = 10.0


class ExporterGroup(BaseModel):
    """Exporters that `loadfactor up` scrapes, of any kind that is understood: a table [[scrape]].

    They are listed, or behind a name in DNS, or in files in the format of Prometheus' file_sd.
    """

    model_config = ConfigDict(extra="forbid")
    kind: ClassVar[str] = "scrape"
    default_port: ClassVar[int] = 0

    name: str = Field(default="", max_length=100, description="What to call the group; the job of its rows.")
    targets: tuple[str, ...] = Field(default=(), description='The exporters: ["node-1:9400", "node-2:9400"].')
    dns: str = Field(
        default="", description="A name whose every address is an exporter, with the port; or of SRV records."
    )
    file_sd: tuple[str, ...] = Field(
        default=(), description='Files that list them, as Prometheus does: ["targets/*.json"].'
    )
    every: str = Field(default="15s", description="How often each is scraped: 15s, 1min.")
    path: str = Field(default="/metrics", pattern=r"^/\S*$", description="What to ask an exporter for.")
    scheme: Literal["http", "https"] = Field(default="http", description="http or https.")
    ca_file: Path | None = Field(
        default=None, description="File with the certificates that theirs are checked against."
    )
    bearer_token_file: Path | None = Field(default=None, description="File with the token they ask for.")

    @field_validator("every")
    @classmethod
    def _sensible(cls, text: str) -> str:
        shortest, longest = SCRAPED_EVERY_S
        if not shortest <= parse_duration_s(text) <= longest:
            raise ValueError(f"{text!r} is not between {shortest:g} s and {longest / S_PER_MIN:g} min")
        return text

    @field_validator("file_sd")
    @classmethod
    def _readable(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if not pattern.endswith((".json", ".yml", ".yaml")):
                raise ValueError(f"{pattern!r} must end in .json, .yml or .yaml")
        return patterns

    @model_validator(mode="after")
    def _found_one_way(self) -> Self:
        if sum(map(bool, (self.targets, self.dns, self.file_sd))) != 1:
            raise ValueError("a group of exporters has either targets or dns or file_sd")
        return self

    @property
    def label(self) -> str:
        """What to call it, with the name of its table in front."""
        return f"{self.kind} {self.name or self.dns or (*self.file_sd, *self.targets)[0]}"

    @property
    def every_s(self) -> float:
        """Seconds between two scrapes of an exporter."""
        return parse_duration_s(self.every)

    @property
    def timeout_s(self) -> float:
        """Seconds that a scrape may take: never more than until the next one."""
        return min(LONGEST_SCRAPE_S, self.every_s)


class DcgmExporters(ExporterGroup):
    """A group of dcgm-exporters, which listen on port 9400 where nothing else is said: a table [[dcgm]]."""

    kind: ClassVar[str] = "dcgm"
    default_port: ClassVar[int] = 9400


class ServingEngines(ExporterGroup):
    """A group of serving engines, the replicas of a job: a table [[serving]]."""

    kind: ClassVar[str] = "serving"

    job: str = Field(
        default="", max_length=200, description="The job they serve. By default that of a target's labels."
    )
