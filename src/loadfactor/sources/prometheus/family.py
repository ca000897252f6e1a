"""What is known of one exporter, or of one kind of metrics that a cloud keeps: its fields and the names of its labels."""

from collections.abc import Mapping
from dataclasses import dataclass

from loadfactor.sources.gpu_scrapes.fields import Field


@dataclass(frozen=True)
class Family:
    """One exporter. `labels` are those of LABELS that it calls otherwise; `info` names the metric whose labels tell the model."""

    name: str
    prefixes: tuple[str, ...]
    fields: tuple[Field, ...]
    labels: Mapping[str, tuple[str, ...]]
    info: str = ""
    bare_uuids: bool = False  # without the GPU- that everybody else writes in front
    window_s: float | None = None  # a sample observes so much before its time; None: all since the one before

    @property
    def by_name(self) -> dict[str, Field]:
        """The fields by their whole names."""
        return {prefix + name: field for prefix in self.prefixes for field in self.fields for name in field.names}
