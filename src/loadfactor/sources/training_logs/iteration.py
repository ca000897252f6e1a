"""What a log says: iterations with the values of their lines, and the attempts of a run that they belong to."""

from dataclasses import dataclass, field

from loadfactor.sources.training_logs.sections import Pauses

Values = dict[str, float]
"""Values of a line, or of the whole run, by the names below.

Of a line: `step_s` seconds a step, `elapsed_s` seconds since a timer was started, `samples` and `tokens` since the run began,
`step_samples` and `step_tokens` of one step, `samples_per_s` and `tokens_per_s` of all GPUs, `gpu_tokens_per_s` of one,
`epoch` epochs since the run began, `padded_tokens` tokens with padding since then, `tflops` model TFLOP/s of one GPU,
`megatron_tflops` the same by Megatron's formula with recomputation, `flops` FLOPs of the model since the run began,
`skipped` steps without an update since the line before, `skipped_total` since the run began.

Of the run: `gpus`, `seq` tokens of a sample, `step_samples`, `step_tokens`, `log_interval`, `steps`, `epochs`, `examples` samples
of an epoch, and what each family needs besides.
"""


@dataclass(slots=True)
class Iteration:
    """The state of a run after `step` steps, as one line says it. Times are ms since 1970 UTC."""

    step: int
    values: Values
    said: Values  # what was said of the run before this line
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
