"""How wrong are the predictions? Every measured row beside its prediction, and the errors of a file of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import TrainingLayout
from loadfactor.planner.training.memory import estimate_memory
from loadfactor.planner.training.search import search_layouts
from loadfactor.planner.training.step import estimate_step
from loadfactor.validation.training_rows import MeasuredRun

SMALLEST_SWEEP = 3  # layouts of one job that make choosing one a question


@dataclass(frozen=True)
class Comparison:
    """One row: measured and predicted in the row's own quantity, and the layout the prediction is for."""

    row: int
    measured: MeasuredRun
    layout: TrainingLayout
    predicted: float
    fits: bool

    @property
    def error(self) -> float:
        """(predicted − measured) ÷ measured."""
        return self.predicted / self.measured.value - 1


@dataclass(frozen=True)
class TrainingErrors:
    """The errors of a file, as shares of the measured values; regret and rank are None where no job has several layouts."""

    mean_abs_error: float | None
    median_abs_error: float | None
    max_abs_error: float | None
    bias: float | None
    regret_mean: float | None
    regret_max: float | None
    rank_correlation: float | None


def compare_runs(measured: Sequence[tuple[int, MeasuredRun]]) -> list[Comparison]:
    """The prediction of every row; rows of one job are scored together."""
    together: dict[TrainingJob, list[tuple[int, MeasuredRun]]] = {}
    results = []
    for number, one in measured:
        if one.free:
            results.append(_with_free_knobs(number, one))
        else:
            together.setdefault(one.job, []).append((number, one))
    for job, rows in together.items():
        layouts = TrainingLayout.join([m.layout for _, m in rows])
        seconds, fits = estimate_step(job, layouts).step_s, estimate_memory(job, layouts).fits
        for (number, one), s, f in zip(rows, seconds, fits, strict=True):
            results.append(Comparison(number, one, one.layout, one.predicted(float(s)), bool(f)))
    return sorted(results, key=lambda r: r.row)


def _with_free_knobs(number: int, one: MeasuredRun) -> Comparison:
    """SearchSpace the row does not give are set as a user would: to the fastest that fits, or to the leanest when nothing does."""
    x = one.layout
    found = search_layouts(one.job, x.gpus, one.space)
    if not len(found):
        s = float(estimate_step(one.job, x).step_s[0])
        return Comparison(number, one, x, one.predicted(s), bool(estimate_memory(one.job, x).fits[0]))
    best = 0 if found.fits[0] else int(np.argmin(found.memory_bytes))
    return Comparison(
        number, one, found.layouts.pick(best), one.predicted(float(found.step_s[best])), bool(found.fits[best])
    )


def summarize_errors(results: Sequence[Comparison]) -> TrainingErrors:
    """Mean, median and largest absolute error, bias, and for sweeps over layouts the regret and the rank correlation.

    The regret of a sweep is how much slower the layout predicted fastest was measured than the one measured fastest.
    """
    if not results:
        return TrainingErrors(None, None, None, None, None, None, None)
    e = np.array([r.error for r in results])
    sweeps: dict[tuple[TrainingJob, int], list[Comparison]] = {}
    for r in results:
        if r.measured.quantity.endswith("_gib"):
            continue
        sweeps.setdefault((r.measured.job, r.measured.layout.gpus), []).append(r)
    regrets, ranks = [], []
    for rows in sweeps.values():
        if len({r.measured.layout for r in rows}) < SMALLEST_SWEEP:
            continue
        real = np.array([r.measured.step_s for r in rows])
        foretold = np.array(
            [r.measured.step_s * (r.predicted / r.measured.value) ** (1 if r.measured.is_time else -1) for r in rows]
        )
        regrets.append(float(real[np.argmin(foretold)] / real.min() - 1))
        ranks.append(rank_correlation(real, foretold))
    return TrainingErrors(
        float(np.abs(e).mean()),
        float(np.median(np.abs(e))),
        float(np.abs(e).max()),
        float(e.mean()),
        float(np.mean(regrets)) if regrets else None,
        float(np.max(regrets)) if regrets else None,
        float(np.mean(ranks)) if ranks else None,
    )


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation, ties sharing their mean rank.

    >>> round(rank_correlation(np.array([1.0, 2, 3, 4]), np.array([10.0, 20, 40, 30])), 2)
    0.8
    """
    ra, rb = _ranks(a), _ranks(b)
    if ra.std() == 0 or rb.std() == 0:
        return 0.0
    return float(np.corrcoef(ra, rb)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    result: np.ndarray = (ends - (counts - 1) / 2)[inverse]
    return result
