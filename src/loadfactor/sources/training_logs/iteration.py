"""A log as iterations with the values of their lines, and the attempts of a run that they belong to."""

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
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

    from_ms: "array[int]" = field(default_factory=lambda: array("q"))
    to_ms: "array[int]" = field(default_factory=lambda: array("q"))
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


class Iterations:
    """Iterations in their order, kept as columns: a million of them take as much memory as their numbers.

    What one of them says can be changed as long as it is the last one.
    """

    def __init__(self, some: Iterable[Iteration] = ()) -> None:
        self._step, self._at, self._clock, self._run = (array("q") for _ in range(4))
        self._values: dict[str, array[float]] = {}  # by name, NaN where a line does not say it
        self._of_run: list[Values] = []
        self._pauses: dict[int, Pauses] = {}  # by place, of those that have any
        self._last: Iteration | None = None
        for one in some:
            self.append(one)

    @classmethod
    def of_columns(cls, steps: "array[int]", at_ms: "array[int]", values: "dict[str, array[float]]") -> "Iterations":
        """Iterations by columns, times of -1 and values of NaN where nothing is known."""
        made = cls()
        made._step, made._at, made._values = steps, at_ms, values
        made._clock, made._run, made._of_run = array("q", [_NONE]) * len(steps), array("q", [0]) * len(steps), [{}]
        return made

    def append(self, one: Iteration) -> None:
        """Add an iteration after the others."""
        last, self._last = self._last, one
        if last is None:
            return
        place = len(self._step)
        if not self._of_run or self._of_run[-1] is not last.of_run:
            self._of_run.append(last.of_run)
        for column, of in ((self._step, last.step), (self._at, last.at_ms), (self._clock, last.clock_ms)):
            column.append(_NONE if of is None else of)
        self._run.append(len(self._of_run) - 1)
        for name in last.values.keys() - self._values.keys():
            self._values[name] = array("d", [_NAN]) * place
        for name, numbers in self._values.items():
            numbers.append(last.values.get(name, _NAN))
        if last.pauses:
            self._pauses[place] = last.pauses

    def tell(self, change: Callable[[Values], Values]) -> None:
        """Change what each of them knows of the run."""
        self._of_run = [change(known) for known in self._of_run]
        if self._last is not None:
            self._last.of_run = change(self._last.of_run)

    def pairs(self) -> "Iterator[tuple[Iteration | None, Iteration]]":
        """Each of them with the one before it."""
        return pairwise(_begin_with_none(self))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._step) + (self._last is not None)

    def __iter__(self) -> Iterator[Iteration]:
        return (self[place] for place in range(len(self)))

    def __getitem__(self, place: int) -> Iteration:
        place += len(self) if place < 0 else 0
        if not 0 <= place < len(self):
            raise IndexError(place)
        if place == len(self._step):
            assert self._last is not None
            return self._last
        values = {name: numbers[place] for name, numbers in self._values.items() if numbers[place] == numbers[place]}
        at_ms, clock_ms = (None if of == _NONE else of for of in (self._at[place], self._clock[place]))
        of_run, pauses = self._of_run[self._run[place]], self._pauses.get(place, {})
        return Iteration(self._step[place], values, of_run, at_ms, clock_ms, pauses)


def _begin_with_none(of: Iterations) -> Iterator[Iteration | None]:
    yield None
    yield from of


_NONE: Final = -1
_NAN: Final = float("nan")


@dataclass(slots=True)
class Attempt:
    """Iterations from a start of the run to its end or to the next start."""

    iterations: Iterations = field(default_factory=Iterations)
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
        times = [t for a in self.attempts for i in (a.iterations[-1],) for t in (i.at_ms, i.clock_ms) if t is not None]
        return max(times, default=None)
