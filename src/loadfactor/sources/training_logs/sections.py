"""Time in which no step advanced, where a line says how long it was: checkpoints and evaluations, as rows of `job_sections`.

Sources: save_checkpoint_and_time() and evaluate() in megatron/training/training.py (NVIDIA/Megatron-LM; its older versions and
Megatron-DeepSpeed write one number); torchtitan/components/checkpoint.py; src/transformers/trainer.py.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Rows
from loadfactor.sources.training_logs.family import value
from loadfactor.tables.work import JOB_SECTIONS

CHECKPOINT, EVALUATION = "checkpoint", "evaluation"
SECTIONS: Final = (
    value(CHECKPOINT, r"\bsave-checkpoint \.+: \([\d.]+, ", 1 / MS_PER_S),
    value(CHECKPOINT, r"\| *save-checkpoint: ", 1 / MS_PER_S),
    value(CHECKPOINT, r"\bFinished saving the checkpoint .*?\bin ", after=" seconds"),
    value(EVALUATION, r"\bevaluate \.+: \([\d.]+, ", 1 / MS_PER_S),
    value(EVALUATION, r"'eval_runtime': '?"),
)
SECTION_HINT: Final = re.compile(r"save-checkpoint|Finished saving|evaluate \.|eval_runtime")
"""A line without any of these says of no section."""


@dataclass(slots=True)
class Pause:
    """Sections of one kind between two iterations, put together."""

    rank: str  # that said so: others say the same again
    length_s: float = 0.0
    at_ms: int | None = None  # when the last of them was over, where its line says so


Pauses = dict[str, Pause]
"""By kind."""


def add_pause(pauses: Pauses, kind: str, length_s: float, rank: str = "", at_ms: int | None = None) -> None:
    """Add a section that a line tells of."""
    pause = pauses.setdefault(kind, Pause(rank))
    if pause.rank == rank:
        pause.length_s += length_s
        pause.at_ms = at_ms


@dataclass(slots=True)
class JobSections:
    """The sections of a job, as columns of `job_sections`."""

    from_ms: list[int] = field(default_factory=list)
    to_ms: list[int] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)

    def add(self, pauses: Pauses, after_ms: float) -> None:
        """Pauses after an iteration that ended at this instant. Where no line says when, they began then."""
        for kind, pause in pauses.items():
            length_ms = pause.length_s * MS_PER_S
            begin_ms = after_ms if pause.at_ms is None else pause.at_ms - length_ms
            if length_ms >= 1:
                self.from_ms.append(round(begin_ms))
                self.to_ms.append(round(begin_ms + length_ms))
                self.kind.append(kind)

    def rows(self, job: str, where: str) -> Sequence[Rows]:
        """One batch; none where there are no sections."""
        if not self.kind:
            return ()
        cells = {"job_id": [job] * len(self.kind), "from_utc": self.from_ms, "to_utc": self.to_ms, "kind": self.kind}
        made = pa.table({name: pa.array(of, JOB_SECTIONS.schema.field(name).type) for name, of in cells.items()})
        return (Rows(JOB_SECTIONS.name, made, where),)
