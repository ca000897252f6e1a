"""Errors of the serving equations on what their constants were not fitted to, for `validate serve --about` and the ranges of plans.

    python -m benchmarks.leave_out_serving CSV…

Two ways of not knowing. `fitted`: the accelerator and engine have constants of their own, and the network is new: each network is
left out in turn, with its constants fitted again without it (two steps of least squares from the fit to all, with its slopes, held
to the medians of the other pairs; the five constants that all pairs share are held to the fit to all).
`borrowed`: nobody measured the accelerator with the engine: each pair is left out in turn, and predicted with the medians of the
others. A range is the middle of these errors, every network counted alike, as wide as it takes to hold 80 % of a network's rows on
average when the range comes from the others.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.fit_serving import OWN, SHARED, Pair, Sweep, group_sweeps
from loadfactor.catalog.engines import EngineConstants

FILE = Path("src/loadfactor/catalog/constants/serving_errors.toml")
QUANTITIES = ("tpot", "tokens_per_s", "ttft")
NAMES = (*SHARED, *OWN)
STEP = 0.02  # of the logarithm of a constant, for slopes
PULL = 1.0  # of a constant that moves by a factor e, in units of one row off by as much
LARGE = 0.3  # log errors beyond it weigh less
STATED_SHARE = 0.8
TAILS = np.arange(0.1, 0.005, -0.005)
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LeftOut:
    """ln(measured ÷ predicted) of a network's rows on an accelerator and engine, by quantity: fitted with it, and without."""

    pair: Pair
    model: str
    fitted: Array
    left_out: Array


def measure(some: Sequence[Sweep], constants: EngineConstants) -> Array:
    """ln(measured ÷ predicted) of every row: a column a quantity."""
    found = []
    for s in some:
        tpot, tokens, ttft = s.errors(constants)
        found.append(np.stack([-tpot, -tokens, -np.log(np.maximum(1 + ttft, 1e-3))], axis=1))
    return np.concatenate(found)


def move(constants: EngineConstants, by: Array) -> EngineConstants:
    """The constants with each multiplied by e to the power of `by`."""
    values = {n: getattr(constants, n) * float(np.exp(v)) for n, v in zip(NAMES, by, strict=True)}
    return replace(constants, **values)


def leave_network_out(
    some: Sequence[Sweep], constants: EngineConstants, others: Sequence[EngineConstants]
) -> list[LeftOut]:
    """The errors on each network of one pair, with constants fitted to its other networks."""
    at_best = measure(some, constants)
    slope = np.stack([(measure(some, move(constants, STEP * e)) - at_best) / STEP for e in np.eye(len(NAMES))])
    own = [n in OWN for n in NAMES]
    middle = np.array([np.median([np.log(getattr(c, n) / getattr(constants, n)) for c in others]) for n in NAMES])
    prior = np.where(own, middle, 0.0)
    models = np.concatenate([[s.model] * len(s.concurrency) for s in some])
    found = []
    for model in dict.fromkeys(models):
        mine = models == model
        counts = np.array([float((models == m).sum()) for m in models])
        x, r = np.zeros(len(NAMES)), at_best
        for _ in range(2):
            w = np.where(mine, 0.0, 1 / np.sqrt(counts))[:, None] * np.minimum(
                1.0, LARGE / np.maximum(np.abs(r), LARGE)
            )
            pull = np.einsum("nrq,rq->n", slope, w * r) + PULL * (x - prior)
            stiff = np.einsum("nrq,mrq->nm", slope, slope * w) + PULL * np.eye(len(NAMES))
            x = x - np.linalg.solve(stiff, pull).clip(-0.5, 0.5)
            r = measure(some, move(constants, x))
        found.append(LeftOut(some[0].pair, str(model), at_best[mine], r[mine]))
    return found


def leave_pair_out(by_pair: dict[Pair, list[Sweep]]) -> list[LeftOut]:
    """The errors on each pair with the medians of the others."""
    found = []
    own = {pair: some[0].replica.engine for pair, some in by_pair.items()}
    for pair, some in by_pair.items():
        others = [c for p, c in own.items() if p != pair]
        borrowed = replace(own[pair], **{n: float(np.median([getattr(c, n) for c in others])) for n in OWN})
        for model in dict.fromkeys(s.model for s in some):
            mine = [s for s in some if s.model == model]
            found.append(LeftOut(pair, model, measure(mine, own[pair]), measure(mine, borrowed)))
    return found


def measure_range(sources: Sequence[LeftOut], quantity: int, tail: float) -> tuple[float, float]:
    """Factors on the prediction between which all but two tails of the errors lie, every network counted alike."""
    v = np.concatenate([one.left_out[:, quantity] for one in sources])
    w = np.concatenate([np.full(len(one.left_out), 1 / len(one.left_out)) for one in sources])
    order = np.argsort(v)
    place = np.cumsum(w[order]) / w.sum()
    ends = (float(np.exp(v[order][min(np.searchsorted(place, q), len(v) - 1)])) for q in (tail, 1 - tail))
    low, high = ends
    return low, high


def cover(sources: Sequence[LeftOut], quantity: int, tail: float) -> list[float]:
    """For each network the share of its rows in the range that the others give."""
    shares = []
    for one in sources:
        low, high = measure_range([o for o in sources if o.model != one.model], quantity, tail)
        factor = np.exp(one.left_out[:, quantity])
        shares.append(float(((low <= factor) & (factor <= high)).mean()))
    return shares


def measure_layout_spread(sweeps: Sequence[Sweep]) -> float:
    """How far the errors of throughput of two layouts of one network lie apart in four of five pairs."""
    jobs: dict[tuple[object, ...], list[float]] = {}
    for s in sweeps:
        _, tokens, _ = s.errors(s.replica.engine)
        key = (s.pair, s.model, s.replica.precision.name, s.prompt, s.output)
        jobs.setdefault(key, []).append(float(np.median(tokens)))
    apart = [abs(a - b) for errors in jobs.values() for a, b in combinations(errors, 2)]
    return float(np.expm1(np.quantile(apart, STATED_SHARE)))


def write(kind: str, sources: Sequence[LeftOut]) -> list[str]:
    """The ranges and the errors of one way of not knowing, as the data file holds them."""
    lines, covered = [], np.zeros((len(sources), len(QUANTITIES)))
    for q, name in enumerate(QUANTITIES):
        tail = next((t for t in TAILS if np.mean(cover(sources, q, t)) >= STATED_SHARE), TAILS[-1])
        low, high = measure_range(sources, q, tail)
        covered[:, q] = cover(sources, q, tail)
        lines += [f"[range.{kind}.{name}]", f"low = {low:.3f}", f"high = {high:.3f}", ""]
    for one, shares in zip(sources, covered, strict=True):
        fitted, left_out = (np.abs(np.expm1(-e)).mean(axis=0) for e in (one.fitted, one.left_out))
        lines += ["[[left_out]]", f'kind = "{kind}"', f'accelerator = "{one.pair[0]}"', f'engine = "{one.pair[1]}"']
        lines += [f'model = "{one.model}"', f"rows = {len(one.fitted)}"]
        for label, values in (("fitted_error", fitted), ("left_out_error", left_out), ("covered_share", shares)):
            said = ", ".join(f"{n} = {v:.3f}" for n, v in zip(QUANTITIES, values, strict=True))
            lines.append(f"{label} = {{ {said} }}")
        lines.append("")
    return lines


def main() -> None:
    """Write the data file."""
    by_pair: dict[Pair, list[Sweep]] = {}
    for s in group_sweeps([Path(p) for p in sys.argv[1:]]):
        s.simulate(s.replica.engine)
        by_pair.setdefault(s.pair, []).append(s)
    own = {pair: some[0].replica.engine for pair, some in by_pair.items()}
    fitted = [
        one
        for pair, some in by_pair.items()
        for one in leave_network_out(some, own[pair], [c for p, c in own.items() if p != pair])
    ]
    spread = measure_layout_spread([s for some in by_pair.values() for s in some])
    head = [
        "# How wrong serving plans are on what their constants were not fitted to: `python -m benchmarks.leave_out_serving CSV`.",
        "# Factors are measured over predicted; a range holds four of five rows of a network that was left out.",
        "# layout_spread: how far the errors of throughput of two layouts of one network lie apart, in four of five pairs.",
        f"layout_spread = {spread:.3f}",
        "",
    ]
    FILE.write_text("\n".join([*head, *write("fitted", fitted), *write("borrowed", leave_pair_out(by_pair))]))


if __name__ == "__main__":
    main()
