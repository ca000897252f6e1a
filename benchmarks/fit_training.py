"""Fit of the constants of the training equations, all at once, to measurements; rewrites their file.

    python -m benchmarks.fit_training FOLDER [--check]

FOLDER has the tables that do not come with the program. Least squares on log(measured ÷ predicted) with every file weighted as in
WEIGHTS, large residuals counted linearly, and each constant held to its physical prior. It starts from the priors and reads no
fitted value, so the same tables give the same constants; `--check` writes nothing, and fails where one differs from the file's by
more than 1e-6 of itself. `benchmarks/leave_out.py` then says how wrong it is on what it was not fitted to.
"""

import sys
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

import numpy as np

from loadfactor.catalog.constants import TrainingConstants, read_constants, read_training_constants
from loadfactor.planner.training.calibration import with_constants
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import TrainingLayout
from loadfactor.planner.training.memory import estimate_memory
from loadfactor.planner.training.search import search_layouts
from loadfactor.planner.training.step import estimate_step
from loadfactor.planner.validation.measurement_files import RowRefused, read_measurement_files
from loadfactor.planner.validation.training_rows import MeasuredRun, read_row

WEIGHTS = {
    "megatron_sc21_table1.csv": 20,
    "megatron_sc21_table2_zero3_vs_ptd.csv": 5,
    "korthikanti2022_table5.csv": 18,
    "megatron_h100_weak_scaling.csv": 4,
    "mosaic_mpt_training.csv": 5,
    "mosaic_mpt_h100.csv": 5,
    "vtrain_a100_multi.csv": 6,
    "vtrain_a100_single.csv": 4,
    "nemo_performance.csv": 5,
    "dgx_cloud_h100.csv": 5,
    "megatron_bridge_2025.csv": 5,
    "tpu_maxtext.csv": 5,
    "torchtitan_llama31_8b.csv": 4,
    "full_finetune_torchtune.csv": 2,
    "lora.csv": 4,
}
LARGE = 0.08  # beyond this a residual counts linearly: outliers are not explained by any constant
PRIOR_WEIGHT = 0.1
MOST_LAYOUTS = 40  # of a row that leaves its layout open: the fastest by the priors
ENOUGH = 1e-6  # of the objective: rounds that bring less are left out
STEP = 0.01  # of the logarithm of a constant, for slopes
SAME = 1e-6
FILE = Path("src/loadfactor/catalog/constants/training.toml")
PUBLISHED = Path("src/loadfactor/catalog/measurements")  # tables that come with the program


@dataclass(frozen=True)
class Case:
    """One measured row and every layout it allows."""

    file: str
    measured: MeasuredRun
    layouts: Sequence[TrainingLayout]


def cases(folder: Path, names: Container[str], known: TrainingConstants) -> list[Case]:
    """The usable rows of these files, of the folder or of what comes with the program; what ran out of memory has no time.

    Layouts that a row leaves open are ordered by the constants given.
    """
    found = []
    files = {file.name: file for file in read_measurement_files([PUBLISHED, folder])}
    for name in sorted(files):
        file = files[name]
        for row in file.rows if name in names else ():
            try:
                one = read_row(row)
            except RowRefused:
                continue
            if not isfinite(one.value):
                continue
            layouts = [one.layout]
            if one.free:
                free = search_layouts(with_constants(one.job, known), one.layout.gpus, one.space).layouts
                layouts = [free.pick(i) for i in range(min(len(free), MOST_LAYOUTS))] or layouts
            found.append(Case(file.name, one, layouts))
    return found


def residuals(rows: Sequence[Case], known: TrainingConstants) -> np.ndarray:
    """log(measured ÷ predicted seconds) of each case; free fields of the layout take the fastest that fits."""
    together: dict[TrainingJob, list[int]] = {}
    for i, case in enumerate(rows):
        together.setdefault(case.measured.job, []).append(i)
    result = np.zeros(len(rows))
    for job, members in together.items():
        now = with_constants(job, known)
        layouts = TrainingLayout.join([x for i in members for x in rows[i].layouts])
        owner = np.repeat(members, [len(rows[i].layouts) for i in members])
        seconds, fits = estimate_step(now, layouts).step_s, estimate_memory(now, layouts).fits
        for i in members:
            mine = owner == i
            good = mine & fits if (mine & fits).any() and mine.sum() > 1 else mine
            result[i] = np.log(rows[i].measured.step_s / seconds[good].min())
    return result


def fit(
    rows: Sequence[Case], priors: Mapping[str, float], start: TrainingConstants, rounds: int = 12
) -> TrainingConstants:
    """Levenberg-Marquardt over the logarithms of the constants that have a prior."""
    names = list(priors)
    at_prior = np.log([priors[n] for n in names])
    count = {name: sum(c.file == name for c in rows) for name in WEIGHTS}
    weight = np.array([np.sqrt(WEIGHTS[c.file] / count[c.file]) for c in rows])

    def build(x: np.ndarray) -> TrainingConstants:
        return replace(start, **{n: float(np.exp(v)) for n, v in zip(names, x, strict=True)})

    def objective(x: np.ndarray) -> np.ndarray:
        r = residuals(rows, build(x))
        size = np.abs(r)
        soft = np.where(size < LARGE, size, LARGE * np.sqrt(2 * np.maximum(size, LARGE) / LARGE - 1))
        return np.concatenate([weight * np.sign(r) * soft, PRIOR_WEIGHT * (x - at_prior)])

    x, damping = at_prior.copy(), 1e-2
    r = objective(x)
    for _ in range(rounds):
        slope = np.array([(objective(x + STEP * e) - r) / STEP for e in np.eye(len(x))]).T
        before = r @ r
        while damping < 1e4:
            move = np.linalg.solve(slope.T @ slope + damping * np.eye(len(x)), -slope.T @ r).clip(-0.4, 0.4)
            trial = objective(x + move)
            if trial @ trial < before:
                x, r, damping = x + move, trial, damping / 3
                break
            damping *= 4
        print(f"  objective {r @ r:.4f}", file=sys.stderr, flush=True)
        if before - r @ r < ENOUGH:
            break
    return build(x)


def report(rows: Sequence[Case], known: TrainingConstants) -> None:
    """Mean, median and largest absolute error of the predicted seconds, by file."""
    e = np.exp(-residuals(rows, known)) - 1
    for name in dict.fromkeys(c.file for c in rows):
        x = np.abs(e[[c.file == name for c in rows]])
        print(
            f"{name:40s} {len(x):4d} rows  mean {x.mean():.3f}  median {np.median(x):.3f}  max {x.max():.3f}",
            flush=True,
        )


def write(known: TrainingConstants) -> None:
    """Replace the values in the constants' file, leaving every other line as it is."""
    lines, section = [], ""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        if line.startswith("value ="):
            line = f"value = {getattr(known, section):.9g}"
        lines.append(line)
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_priors() -> dict[str, float]:
    """The physical guess of each constant that is fitted."""
    return {
        name: float(str(entry["prior"])) for name, entry in read_constants("training.toml").items() if "prior" in entry
    }


def main(arguments: list[str]) -> None:
    """Fit to the folder named."""
    folders = [a for a in arguments if not a.startswith("-")]
    if len(folders) != 1:
        sys.exit("usage: python -m benchmarks.fit_training FOLDER [--check]")
    priors, kept = read_priors(), read_training_constants()
    start = replace(kept, **priors)
    rows = cases(Path(folders[0]), WEIGHTS, start)
    known = fit(rows, priors, start)
    report(rows, known)
    if "--check" not in arguments:
        write(known)
        return
    apart = {n: getattr(known, n) / getattr(kept, n) - 1 for n in priors}
    worst = max(apart, key=lambda n: abs(apart[n]))
    print(f"{worst} is the furthest from the file: {apart[worst]:+.1e} of itself")
    if abs(apart[worst]) > SAME:
        sys.exit(f"{FILE} is not what these tables give; run this without --check, then benchmarks.leave_out")


if __name__ == "__main__":
    main(sys.argv[1:])
