"""Errors of the training equations on every source that their constants were not fitted to, for `validate train --about`.

    python -m benchmarks.leave_out FOLDER

For each file of measurements the constants are fitted again without it (two steps of least squares from the fit to all, with
its slopes), and its rows are predicted. The ranges that plans show are the middle of these errors, every
source counted alike, as wide as it takes for the range of the others to hold 80 % of a source's rows on average.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.fit_training import LARGE, PRIOR_WEIGHT, WEIGHTS, Case, cases, residuals
from loadfactor.catalog.constants import TrainingConstants, read_constants, read_training_constants

FILE = Path("src/loadfactor/catalog/constants/training_errors.toml")
STEP = 0.01  # of the logarithm of a constant, for slopes
GOOD_LAYOUT = 1.25  # times the seconds of the best one predicted for the job, at most
KINDS = ("dense", "experts")
STATED_SHARE = 0.8  # of rows that lie in a range
TAILS = np.arange(0.1, 0.04, -0.005)
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LeftOut:
    """log(measured ÷ predicted seconds) of a file's rows: fitted with it, and without it."""

    file: str
    fitted: Array
    left_out: Array
    kinds: Sequence[str]


def leave_out(rows: Sequence[Case], priors: Mapping[str, float], known: TrainingConstants) -> list[LeftOut]:
    """Each file's errors by constants fitted to the other files."""
    names = list(priors)
    at_prior = np.log([priors[n] for n in names])
    best = np.log([getattr(known, n) for n in names])

    def build(x: Array) -> TrainingConstants:
        return replace(known, **{n: float(np.exp(v)) for n, v in zip(names, x, strict=True)})

    at_best = residuals(rows, known)
    slope = np.array([(residuals(rows, build(best + STEP * e)) - at_best) / STEP for e in np.eye(len(names))]).T
    files = [c.file for c in rows]
    weight = np.array([WEIGHTS[f] / files.count(f) for f in files])
    found = []
    for file in dict.fromkeys(files):
        mine = np.array([f == file for f in files])
        x, r = best, at_best
        for _ in range(2):
            w = np.where(mine, 0.0, weight * np.minimum(1.0, LARGE / np.maximum(np.abs(r), LARGE)))
            pull = slope.T @ (w * r) + PRIOR_WEIGHT**2 * (x - at_prior)
            stiff = (slope.T * w) @ slope + PRIOR_WEIGHT**2 * np.eye(len(names))
            x = x - np.linalg.solve(stiff, pull).clip(-0.5, 0.5)
            r = residuals(rows, build(x))
        kinds = [KINDS[int(c.measured.job.network.experts is not None)] for c in rows if c.file == file]
        found.append(LeftOut(file, at_best[mine], r[mine], kinds))
        print(f"{file:40s} fitted {_mean(at_best[mine]):.3f}  left out {_mean(r[mine]):.3f}", flush=True)
    return found


def measure_range(sources: Sequence[LeftOut], kind: str, tail: float) -> tuple[float, float]:
    """Factors on predicted seconds between which all but two tails of the errors lie, every source counted alike."""
    values, weights = [], []
    for one in sources:
        own = one.left_out[[k == kind for k in one.kinds]]
        values.append(own)
        weights.append(np.full(len(own), 1 / max(len(own), 1)))
    v, w = np.concatenate(values), np.concatenate(weights)
    order = np.argsort(v)
    place = np.cumsum(w[order]) / w.sum()
    low, high = (float(np.exp(v[order][min(np.searchsorted(place, q), len(v) - 1)])) for q in (tail, 1 - tail))
    return low, high


def choose_tail(sources: Sequence[LeftOut]) -> float:
    """The largest tail with which ranges of the other files hold 80 % of a file's rows on average: a tenth or less.

    Below a tenth, since a new source differs from the known ones by more than their rows do.
    """
    for tail in TAILS:
        if np.mean([count_covered(s, sources, tail) for s in sources]) >= STATED_SHARE:
            return float(tail)
    return float(TAILS[-1])


def count_covered(one: LeftOut, sources: Sequence[LeftOut], tail: float) -> float:
    """Share of a file's rows inside the range of the other files."""
    others = [s for s in sources if s is not one]
    ranges = {k: measure_range(others, k, tail) for k in set(one.kinds)}
    inside = [ranges[k][0] <= np.exp(r) <= ranges[k][1] for k, r in zip(one.kinds, one.left_out, strict=True)]
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


def main(arguments: list[str]) -> None:
    """Leave each file of the folder out, and write what that shows."""
    if len(arguments) != 1:
        sys.exit("usage: python -m benchmarks.leave_out FOLDER")
    rows = cases(Path(arguments[0]))
    priors = {n: float(str(e["prior"])) for n, e in read_constants("training.toml").items() if "prior" in e}
    known = read_training_constants()
    sources = leave_out(rows, priors, known)
    tail = choose_tail(sources)
    lines = [
        "# Errors of the training equations, by `python -m benchmarks.leave_out`. Errors are of seconds of a step;",
        "# a range is a pair of factors on predicted seconds, between which four of five rows lie that were not fitted.",
        "",
        f"layout_spread = {measure_layout_spread(rows, known):.3g}",
    ]
    for kind in KINDS:
        low, high = measure_range(sources, kind, tail)
        lines += ["", f"[range.{kind}]", f"low = {low:.3g}", f"high = {high:.3g}"]
    for one in sources:
        lines += [
            "",
            "[[source]]",
            f'file = "{one.file}"',
            f"rows = {len(one.fitted)}",
            f"fitted_error = {_mean(one.fitted):.3g}",
            f"left_out_error = {_mean(one.left_out):.3g}",
            f"covered_share = {count_covered(one, sources, tail):.3g}",
        ]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
