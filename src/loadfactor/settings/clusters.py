"""Clusters as the configuration names them: of Kubernetes, which are watched, and of Slurm, which are asked."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from loadfactor.base.quantities import parse_duration_s
from loadfactor.settings.asked_source import AskedSource


class WatchedCluster(BaseModel):
    """A Kubernetes cluster that `loadfactor up` watches: a table [[kubernetes]]. By default the one it is a pod of."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="", max_length=100, description="What to call the cluster, where there are several.")
    kubeconfig: Path | None = Field(default=None, description="File that says how to reach it, as kubectl reads it.")
    context: str = Field(default="", description="Which context of that file. By default, its current one.")
    namespace: str = Field(default="", description="Only this namespace. By default, all.")
    labels: str = Field(default="", description="Only pods with these labels: team=vision,tier!=test.")


class AskedSlurm(AskedSource):
    """A Slurm cluster whose jobs and nodes `loadfactor up` asks for: a table [[slurm]]. By default with the commands in PATH."""

    backfill: str = Field(default="1d", description="How far back in accounting to begin the first time: 30d.")
    command: tuple[str, ...] = Field(default=(), description='What comes before each command: ["ssh", "login"].')
    bin: str = Field(default="", description="Folder of the commands: /opt/slurm/bin. By default, PATH.")
    url: str = Field(
        default="",
        pattern=r"^(|https?://[^\s/]+\S*|unix:/\S+)$",
        description="Where slurmrestd listens, asked in place of the commands: http://slurm:6820 or unix:/run/slurmrestd.sock.",
    )
    token_file: Path | None = Field(default=None, description="File with the token that slurmrestd asks for.")
    user: str = Field(default="", description="Whose token that is.")
    timeout: str = Field(default="60s", description="How long an answer may take.")

    @field_validator("every", "backfill", "timeout")
    @classmethod
    def _said(cls, text: str) -> str:
        parse_duration_s(text)
        return text

    @model_validator(mode="after")
    def _asked_one_way(self) -> Self:
        if self.url and (self.command or self.bin):
            raise ValueError("a cluster of Slurm has either url or command and bin")
        return self

    @property
    def timeout_s(self) -> float:
        """Seconds that a command may take."""
        return parse_duration_s(self.timeout)
