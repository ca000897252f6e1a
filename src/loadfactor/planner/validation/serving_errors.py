"""Errors of predicted serving rows, and their means by system, engine and network."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ComparedRow:
    """One row: what was measured and what is predicted, or why it was skipped. Seconds; tokens per second per attention rank."""

    line: int
    system: str
    backend: str
    model: str
    precision: str | None = None
    layout: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    concurrency: int = 0  # 0: all requests at once
    measured_ttft_s: float | None = None
    measured_tpot_s: float | None = None
    measured_output_tokens_per_s: float | None = None
    predicted_ttft_s: float | None = None
    predicted_tpot_s: float | None = None
    predicted_output_tokens_per_s: float | None = None
    constants: str = ""
    sweep: tuple[object, ...] = field(default=(), repr=False)
    skipped: str | None = None

    @property
    def ttft_error(self) -> float | None:
        """Predicted over measured time to first token, less one."""
        return relative_error(self.predicted_ttft_s, self.measured_ttft_s)

    @property
    def tpot_error(self) -> float | None:
        """Predicted over measured time per output token, less one."""
        return relative_error(self.predicted_tpot_s, self.measured_tpot_s)

    @property
    def throughput_error(self) -> float | None:
        """Predicted over measured output tokens per second, less one."""
        return relative_error(self.predicted_output_tokens_per_s, self.measured_output_tokens_per_s)


@dataclass(frozen=True)
class ServingErrors:
    """Mean absolute errors of a group, as fractions of the measured value; None where nothing was measured."""

    system: str
    backend: str
    model: str
    rows: int
    skipped: int
    tpot_mean_abs_error: float | None
    ttft_mean_abs_error: float | None
    throughput_mean_abs_error: float | None
    speedup_mean_abs_error: float | None
    ttft_at_lowest_concurrency_mean_abs_error: float | None


def relative_error(predicted: float | None, measured: float | None) -> float | None:
    """predicted/measured − 1, None when either is unknown.

    >>> relative_error(11.0, 10.0), relative_error(None, 10.0)
    (0.10000000000000009, None)
    """
    if predicted is None or measured is None:
        return None
    return predicted / measured - 1


def group_errors(rows: Sequence[ComparedRow]) -> tuple[ServingErrors, ...]:
    """Errors by (system, backend, model), in alphabetical order."""
    keys = sorted({(r.system, r.backend, r.model) for r in rows})
    return tuple(summarize_errors(*key, [r for r in rows if (r.system, r.backend, r.model) == key]) for key in keys)


def summarize_errors(system: str, backend: str, model: str, rows: Sequence[ComparedRow]) -> ServingErrors:
    """The errors of these rows under a name."""
    used = [r for r in rows if r.skipped is None]
    sweeps: dict[tuple[object, ...], list[ComparedRow]] = {}
    for row in used:
        sweeps.setdefault(row.sweep, []).append(row)
    ordered = [sorted(sweep, key=lambda r: r.concurrency) for sweep in sweeps.values()]
    return ServingErrors(
        system,
        backend,
        model,
        len(used),
        len(rows) - len(used),
        mean_abs(r.tpot_error for r in used),
        mean_abs(r.ttft_error for r in used),
        mean_abs(r.throughput_error for r in used),
        mean_abs(speedup_error(sweep) for sweep in ordered),
        mean_abs(sweep[0].ttft_error for sweep in ordered),
    )


def speedup_error(sweep: Sequence[ComparedRow]) -> float | None:
    """Predicted over measured speed-up from the lowest to the highest concurrency of a sweep, less one; None for a single row."""
    low, high = sweep[0], sweep[-1]
    ends = [
        (low.measured_output_tokens_per_s, high.measured_output_tokens_per_s),
        (low.predicted_output_tokens_per_s, high.predicted_output_tokens_per_s),
    ]
    if low.concurrency == high.concurrency or any(a is None or b is None for a, b in ends):
        return None
    measured, predicted = (b / a for a, b in ends if a and b)
    return relative_error(predicted, measured)


def mean_abs(values: Iterable[float | None]) -> float | None:
    """Mean of the absolute values that are known."""
    known = [abs(v) for v in values if v is not None]
    return sum(known) / len(known) if known else None
