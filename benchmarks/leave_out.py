"""Errors of the training equations on every source that their constants were not fitted to, for `validate train --about`.

    python -m benchmarks.leave_out FOLDER

For each file of measurements the constants are fitted again without it (two steps of least squares from the fit to all, with
its slopes), and its rows are predicted; so for each generation of hardware, and files that are never fitted are predicted as they
are. Each row has a distance from what was then fitted (planner/training/distance.py). The range of a distance is the middle of its
errors, every source counted alike and no narrower than that of a nearer one, as wide as it takes for the ranges of the others to
hold 80 % of a source's rows on average.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.fit_training import LARGE, PRIOR_WEIGHT, WEIGHTS, Case, cases, read_priors, residuals
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.constants import FittedRuns, TrainingConstants, read_training_constants
from loadfactor.planner.training.distance import MEANINGS, describe_runs, find_distance, name_network_kind

FILE = Path("src/loadfactor/catalog/constants/training_errors.toml")
UNFITTED = (
    "internevo_a100.csv", "layouts_a100_13b.csv", "mt_nlg_530b.csv", "megatron_deepspeed_a100.csv", "adapters_eager.csv",
)  # fmt: skip
STEP = 0.01  # of the logarithm of a constant, for slopes
GOOD_LAYOUT = 1.25  # times the seconds of the best one predicted for the job, at most
KINDS = ("dense", "experts")
STATED_SHARE = 0.8  # of rows that lie in a range
TAILS = np.arange(0.1, 0.04, -0.005)
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LeftOut:
    """log(measured ÷ predicted seconds) of a source's rows, fitted with it and without it; what kind of network, how far from
    what was fitted without it.
    """

    name: str
    fitted: Array
    left_out: Array
    groups: Sequence[tuple[str, str]]


def leave_out(rows: Sequence[Case], priors: Mapping[str, float], known: TrainingConstants) -> list[LeftOut]:
    """The errors of each file and each generation of hardware by constants fitted to the others."""
    names = list(priors)
    at_prior = np.log([priors[n] for n in names])
    best = np.log([getattr(known, n) for n in names])

    def build(x: Array) -> TrainingConstants:
        return replace(known, **{n: float(np.exp(v)) for n, v in zip(names, x, strict=True)})

    at_best = residuals(rows, known)
    slope = np.array([(residuals(rows, build(best + STEP * e)) - at_best) / STEP for e in np.eye(len(names))]).T
    files = [c.file for c in rows]
    generations = [name_generation(c) for c in rows]
    weight = np.array([WEIGHTS[f] / files.count(f) for f in files])
    found = []
    for labels in (files, generations):
        for name in dict.fromkeys(labels):
            mine = np.array([one == name for one in labels])
            x, r = best, at_best
            for _ in range(2):
                w = np.where(mine, 0.0, weight * np.minimum(1.0, LARGE / np.maximum(np.abs(r), LARGE)))
                pull = slope.T @ (w * r) + PRIOR_WEIGHT**2 * (x - at_prior)
                stiff = (slope.T * w) @ slope + PRIOR_WEIGHT**2 * np.eye(len(names))
                x = x - np.linalg.solve(stiff, pull).clip(-0.5, 0.5)
                r = residuals(rows, build(x))
            others = describe([c for c, m in zip(rows, mine, strict=True) if not m])
            groups = [group(c, others) for c, m in zip(rows, mine, strict=True) if m]
            found.append(LeftOut(name, at_best[mine], r[mine], groups))
            print(f"{name:40s} fitted {_mean(at_best[mine]):.3f}  left out {_mean(r[mine]):.3f}", flush=True)
    return found


def predict_unfitted(rows: Sequence[Case], fitted: Sequence[FittedRuns], known: TrainingConstants) -> list[LeftOut]:
    """The errors of files that are never fitted."""
    found = []
    for name in dict.fromkeys(c.file for c in rows):
        own = [c for c in rows if c.file == name]
        r = residuals(own, known)
        found.append(LeftOut(name, r, r, [group(c, fitted) for c in own]))
    return found


def name_generation(case: Case) -> str:
    """The generation of a row's hardware; all TPUs are one."""
    one = accelerator(case.measured.job.machine.name)
    return "TPU" if one.vendor == "Google" else one.architecture


def describe(rows: Sequence[Case]) -> list[FittedRuns]:
    """What was fitted, source by source."""
    return [
        one
        for file in dict.fromkeys(c.file for c in rows)
        for one in describe_runs(file, [(c.measured.job, int(c.measured.layout.gpus)) for c in rows if c.file == file])
    ]


def group(case: Case, fitted: Sequence[FittedRuns]) -> tuple[str, str]:
    """The kind of a row's network, and how far it is from what was fitted."""
    job = case.measured.job
    return name_network_kind(job), find_distance(job, int(case.measured.layout.gpus), fitted)


def measure_ranges(sources: Sequence[LeftOut], kind: str, tail: float) -> dict[str, tuple[float, float]]:
    """By distance, factors on predicted seconds between which all but two tails of the errors lie, every source counted alike."""
    ranges: dict[str, tuple[float, float]] = {}
    low, high = 0.0, 0.0
    for distance in MEANINGS:
        values, weights = [], []
        for one in sources:
            own = one.left_out[np.array([g == (kind, distance) for g in one.groups])]
            values.append(own)
            weights.append(np.full(len(own), 1 / max(len(own), 1)))
        v, w = np.concatenate(values), np.concatenate(weights)
        if len(v):
            order = np.argsort(v)
            place = np.cumsum(w[order]) / w.sum()
            ends = [float(v[order][min(int(np.searchsorted(place, q)), len(v) - 1)]) for q in (tail, 1 - tail)]
            low, high = min(low, ends[0]), max(high, ends[1])
        ranges[distance] = float(np.exp(low)), float(np.exp(high))
    return ranges


def choose_tail(sources: Sequence[LeftOut]) -> float:
    """The largest tail with which ranges of the other sources hold 80 % of a source's rows on average: a tenth or less.

    Below a tenth, since a new source differs from the known ones by more than their rows do.
    """
    for tail in TAILS:
        if np.mean([count_covered(s, sources, tail) for s in sources]) >= STATED_SHARE:
            return float(tail)
    return float(TAILS[-1])


def count_covered(one: LeftOut, sources: Sequence[LeftOut], tail: float) -> float:
    """Share of a source's rows inside the ranges of the other sources."""
    others = [s for s in sources if s is not one]
    ranges = {kind: measure_ranges(others, kind, tail) for kind in {kind for kind, _ in one.groups}}
    ends = [ranges[kind][distance] for kind, distance in one.groups]
    inside = [low <= np.exp(r) <= high for (low, high), r in zip(ends, one.left_out, strict=True)]
    return float(np.mean(inside))


def measure_layout_spread(rows: Sequence[Case], known: TrainingConstants) -> float:
    """How far the errors of two good layouts of one job on several nodes lie apart, in four of five pairs.

    A lead below that is no lead.
    """
    jobs: dict[object, list[tuple[float, float]]] = {}
    for case, r in zip(rows, residuals(rows, known), strict=True):
        if not case.measured.free and case.measured.layout.gpus > case.measured.job.machine.fabric.domain_gpus:
            foretold = case.measured.step_s / float(np.exp(r))
            jobs.setdefault((case.measured.job, case.measured.layout.gpus), []).append((foretold, float(r)))
    apart = []
    for found in jobs.values():
        good = [r for s, r in found if s < GOOD_LAYOUT * min(found)[0]]
        apart += [[abs(a - b) for a, b in combinations(good, 2)]] if len(good) > 2 else []
    return float(np.median([np.quantile(pairs, 0.8) for pairs in apart]))


def _mean(r: Array) -> float:
    return float(np.mean(np.abs(np.exp(-r) - 1)))


def write_fitted(one: FittedRuns) -> str:
    """One line of the data file, sizes as whole numbers."""
    values = {f.name: getattr(one, f.name) for f in fields(one)}
    words = (
        f"[{', '.join(f'{v:.0f}' for v in value)}]" if isinstance(value, tuple)
        else str(value).lower() if isinstance(value, bool)
        else f'"{value}"'
        for value in values.values()
    )  # fmt: skip
    return "{ " + ", ".join(f"{name} = {word}" for name, word in zip(values, words, strict=True)) + " },"


def main(arguments: list[str]) -> None:
    """Leave each source of the folder out, and write what that shows."""
    if len(arguments) != 1:
        sys.exit("usage: python -m benchmarks.leave_out FOLDER")
    folder = Path(arguments[0])
    priors, known = read_priors(), read_training_constants()
    rows = cases(folder, WEIGHTS, known)
    fitted = describe(rows)
    sources = leave_out(rows, priors, known) + predict_unfitted(cases(folder, UNFITTED, known), fitted, known)
    tail = choose_tail(sources)
    lines = [
        "# Errors of the training equations, by `python -m benchmarks.leave_out`. Errors are of seconds of a step;",
        "# a range is a pair of factors on predicted seconds, between which four of five rows lie that were not fitted, by how far",
        "# they are from what was; `fitted` says what was.",
        "",
        f"layout_spread = {measure_layout_spread(rows, known):.3g}",
        "fitted = [",
        *(f"    {write_fitted(one)}" for one in fitted),
        "]",
    ]
    for kind in KINDS:
        lines += ["", f"[range.{kind}]"]
        ranges = measure_ranges(sources, kind, tail)
        lines += [f'"{distance}" = [{low:.3g}, {high:.3g}]' for distance, (low, high) in ranges.items()]
    for one in sources:
        fit = [f"fitted_error = {_mean(one.fitted):.3g}"] * (one.name not in UNFITTED)
        lines += [
            "",
            "[[source]]",
            f'file = "{one.name}"',
            f"rows = {len(one.fitted)}",
            *fit,
            f"left_out_error = {_mean(one.left_out):.3g}",
            f"covered_share = {count_covered(one, sources, tail):.3g}",
        ]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
