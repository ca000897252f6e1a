"""A log as iterations with the values of their lines, and the attempts of a run that they belong to."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Rows
from loadfactor.sources.training_logs.families import value
from loadfactor.tables.work import JOB_SECTIONS

CHECKPOINT, EVALUATION, GENERATION = "checkpoint", "evaluation", "generation"
SECTIONS: Final = (
    value(CHECKPOINT, r"\bsave-checkpoint \.+: \([\d.]+, ", 1 / MS_PER_S),
    value(CHECKPOINT, r"\| *save-checkpoint: ", 1 / MS_PER_S),
    value(CHECKPOINT, r"\bFinished saving the checkpoint .*?\bin ", after=" seconds"),
    value(EVALUATION, r"\bevaluate \.+: \([\d.]+, ", 1 / MS_PER_S),
    value(EVALUATION, r"'eval_runtime': '?"),
)
SECTION_HINT: Final = re.compile(r"save-checkpoint|Finished saving|evaluate \.|eval_runtime")
"""A line without any of these says of no section."""
Values = dict[str, float]
"""Values of a line, or of the whole run, by the names below.

Of a line: `step_s` seconds a step, `elapsed_s` seconds since a timer was started, `samples` and `tokens` since the run began,
`step_samples` and `step_tokens` of one step, `line_samples` and `line_tokens` of the steps since the line before,
`samples_per_s` and `tokens_per_s` of all GPUs, `gpu_tokens_per_s` of one, `engine_samples_per_s` of all in the time in which an
engine trained, `generation_s`, `evaluation_s` and `checkpoint_s` seconds of the step in which it did that,
`epoch` epochs since the run began, `padded_tokens` tokens with padding since then, `tflops` model TFLOP/s of one GPU,
`megatron_tflops` the same by Megatron's formula with recomputation, `flops` FLOPs of the model since the run began,
`skipped` steps without an update since the line before, `skipped_total` since the run began.

Of the run: `gpus`, `seq` tokens of a sample, `longest` of one that is full, `packs` 1 where samples are full, `step_samples`,
`step_tokens`, `device_samples` of a GPU and `accumulation` such batches of a step, `guessed_samples` of a step by its rate,
`log_interval`, `steps`, `epochs`, `examples` samples of an epoch, `epoch_steps`, and what each family needs besides.
"""


@dataclass(slots=True)
class Pause:
    """Sections of one kind between two iterations, put together."""

    rank: str  # that wrote it: others write the same again
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

    def add_parts(self, values: Values, begin_ms: float, end_ms: float) -> None:
        """Parts of a step: it began with generating, and ended with its tests and its checkpoint."""
        generation, evaluation, checkpoint = (
            min(values.get(f"{kind}_s", 0.0) * MS_PER_S, end_ms - begin_ms)
            for kind in (GENERATION, EVALUATION, CHECKPOINT)
        )
        saving_ms = max(begin_ms, end_ms - checkpoint)
        testing_ms = max(begin_ms, saving_ms - evaluation)
        for kind, from_ms, to_ms in (
            (GENERATION, begin_ms, min(begin_ms + generation, testing_ms)),
            (EVALUATION, testing_ms, saving_ms),
            (CHECKPOINT, saving_ms, end_ms),
        ):
            if round(to_ms) > round(from_ms):
                self.from_ms.append(round(from_ms))
                self.to_ms.append(round(to_ms))
                self.kind.append(kind)

    def rows(self, job: str, where: str) -> Sequence[Rows]:
        """One batch; none where there are no sections."""
        if not self.kind:
            return ()
        cells = {"job_id": [job] * len(self.kind), "from_utc": self.from_ms, "to_utc": self.to_ms, "kind": self.kind}
        made = pa.table({name: pa.array(of, JOB_SECTIONS.schema.field(name).type) for name, of in cells.items()})
        return (Rows(JOB_SECTIONS.name, made, where),)


@dataclass(slots=True)
class Iteration:
    """The state of a run after `step` steps, as one line says it. Times are ms since 1970 UTC."""

    step: int
    values: Values
    of_run: Values  # of the whole run, as far as they were known before this line
    at_ms: int | None = None  # when the line was written, where it says so
    clock_ms: int | None = None  # the last time that a line before it says
    pauses: Pauses = field(default_factory=dict)  # what came between it and the next one


@dataclass(slots=True)
class Attempt:
    """Iterations from a start of the run to its end or to the next start."""

    iterations: list[Iteration] = field(default_factory=list)
    from_step: int | None = None  # of the checkpoint that it began with, where the log says so
    began_ms: int | None = None  # when its training began, where the log says so


@dataclass
class RunLog:
    """One log of a run. `where` is its label for messages."""

    where: str
    family: str
    attempts: list[Attempt]

    @property
    def began_ms(self) -> int | None:
        """The first time that it says."""
        first = self.attempts[0]
        times = (first.began_ms, first.iterations[0].clock_ms, first.iterations[0].at_ms)
        return next((t for t in times if t is not None), None)

    @property
    def ended_ms(self) -> int | None:
        """The last time that a line says."""
        times = [t for a in self.attempts for i in a.iterations[-1:] for t in (i.at_ms, i.clock_ms) if t is not None]
        return max(times, default=None)
