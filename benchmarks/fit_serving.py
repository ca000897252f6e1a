"""Fit of the serving constants and their errors on sources left out.

`python -m benchmarks.fit_serving CSV…` writes both data files.

Every constant of catalog/engines/constants.toml is a value with factors for architectures, engines and releases. In
logarithms all are normal about their priors (value: PRIOR_SPREAD, factor: FACTOR_SPREAD), and rows lie about the equations
with long tails (Student's t), so that a run with an option nobody wrote down moves little. The error of the time to the first
token is relative, as `validate serve` prints it: it spreads so far that its logarithm has another middle. The mode is found
by Gauss and Newton with steps that are halved until they come nearer to it, from the priors and never from what the file
holds: the same rows give the same constants. The time to the first token is simulated every other round; within it, it is
taken to follow the time of one prompt. A network of a source weighs its rows to the power 1 + ROWS_POWER.

Then whole sources (accelerator, engine and release) are left out, and what else makes a prediction one far from home: the
network on an accelerator with an engine, the accelerator with the engine, the architecture.
catalog/constants/serving_errors.toml gets the ranges by that distance, and by source the error in the fit and left out, and
the share of its rows inside the range that others give.
"""

import argparse
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.catalog.engines import MOST, EngineConstants, list_conditions, list_engine_constants, list_factors
from loadfactor.catalog.models import find_network
from loadfactor.planner.serving.latency import ahead_s, predict_latency, predict_offline, predict_tpot, prompt_time
from loadfactor.planner.serving.step import Replica
from loadfactor.planner.validation.serving import MeasuredRun, SweepRow, build_run, read_layout, read_sweeps

CONSTANTS = Path("src/loadfactor/catalog/engines/constants.toml")
ERRORS = Path("src/loadfactor/catalog/constants/serving_errors.toml")
FITTED = list_engine_constants()["constant"]
NAMES = tuple(FITTED)
PARAMETERS = [(n, "") for n in NAMES] + [(n, of) for n in NAMES for of in list_factors(FITTED[n])]
PRIOR = np.array([float(np.log(FITTED[n]["prior"])) for n in NAMES])
PRIOR_SPREAD, FACTOR_SPREAD = 0.4, 0.3
SPREAD = np.array([FACTOR_SPREAD if of else PRIOR_SPREAD for _, of in PARAMETERS])
CEILING = np.array([np.inf if of else np.log(MOST.get(n, np.inf) / FITTED[n]["prior"]) for n, of in PARAMETERS])
QUANTITIES = ("tpot", "tokens_per_s", "ttft")
NOISE = np.array([0.1, 0.14, 0.25])  # of a row, by quantity
RELATIVE = np.array([False, False, True])  # whether the error is relative, not of the logarithm
WEIGHT = np.array([1.0, 0.5, 1.6])  # throughput follows from the others
TAIL = 1.0  # noises beyond which a row begins to weigh less
ROWS_POWER = -0.35  # of the rows of a network of a source: their weight, so that no network decides alone
NUDGE = 0.02
ROUNDS = 9
LONGEST_STEP = 0.4
SHORTEST_SHARE = 0.05  # of a step, below which the round moves nothing
STATED_SHARE = 0.8
TAILS = np.arange(0.1, 0.005, -0.005)
Array = npt.NDArray[np.float64]


@dataclass
class Sweep:
    """One sweep over concurrency: everything but the concurrency is the same."""

    source: str
    model: str
    run: MeasuredRun
    release: str
    prompt: int
    output: int
    concurrency: Array
    measured: Array  # a column a quantity; not a number where there is none
    requests: float | None = (
        None  # of a run with all requests there from the start, of which throughput alone is compared
    )
    offline: bool = False
    prompts_waited: Array = field(default_factory=lambda: np.zeros(0))  # TTFT over the time of one prompt

    @property
    def replica(self) -> Replica:
        return self.run.replica

    @property
    def pair(self) -> tuple[str, str]:
        return self.replica.accelerator.id, self.replica.engine.engine

    @property
    def conditions(self) -> tuple[str, ...]:
        return list_conditions(self.replica.accelerator, self.replica.engine.engine, self.release)

    def simulate(self, constants: EngineConstants) -> None:
        """Remember how many prompts the first tokens wait for."""
        if self.offline:
            return
        r = replace(self.replica, engine=constants)
        drafts, alike = self.run.speculate(constants), self.run.alike
        p = predict_latency(
            r, self.concurrency, float(self.prompt), float(self.output), speculation=drafts, alike=alike
        )
        token = predict_tpot(r, self.concurrency, float(self.prompt), float(self.output), speculation=drafts)
        ahead = ahead_s(r, p.batch, token.next_steps_s(drafts, alike))
        self.prompts_waited = (p.ttft_s - constants.request_s - ahead) / self._prompt_s(r)

    def errors(self, constants: EngineConstants) -> Array:
        """ln(predicted ÷ measured), a column a quantity; not a number where none was measured."""
        r = replace(self.replica, engine=constants)
        if self.offline:
            whole = predict_offline(r, self.requests, float(self.prompt), float(self.output))
            return np.array([[np.nan, np.log(whole / self.measured[0, 1]), np.nan]])
        drafts = self.run.speculate(constants)
        token = predict_tpot(r, self.concurrency, float(self.prompt), float(self.output), speculation=drafts)
        tpot = np.asarray(token.tpot_s)
        ahead = ahead_s(r, token.batch, token.next_steps_s(drafts, self.run.alike))
        ttft = constants.request_s + ahead + self.prompts_waited * self._prompt_s(r)
        tokens_per_s = self.concurrency * self.output / (ttft + tpot * (self.output - 1))
        found: Array = np.log(np.stack([tpot, tokens_per_s, ttft], axis=1) / self.measured)
        return found

    def _prompt_s(self, r: Replica) -> Array:
        others = np.maximum(self.concurrency - 1, 0) / 2
        return np.asarray(prompt_time(r, float(self.prompt), others, self.prompt + self.output / 2)[1])


def group_sweeps(paths: Iterable[Path]) -> list[Sweep]:
    """The sweeps of the files whose network and accelerator the catalog knows."""
    groups: dict[tuple[object, ...], list[tuple[SweepRow, MeasuredRun, int]]] = {}
    for path in paths:
        for row in read_sweeps(path):
            if not isinstance(row, SweepRow) or row.halves is not None:
                continue
            if row.concurrency is None or (row.tpot_s and row.ttft_s):
                network, chip = find_network(row.model), find_accelerator(row.system)
                if network is None or chip is None:
                    continue
                where = read_layout(row.tp, row.moe_ep, row.attention_dp, chip.scale_up_gpus, row.pp)
                run = build_run(network, chip, row, where.layout)
                key = (*row.sweep, row.concurrency is None, run.replica.engine, run.drafted)
                groups.setdefault(key, []).append((row, run, where.ranks))
    found = []
    for group in groups.values():
        one, run, ranks = group[0]
        rows = sorted((row for row, _, _ in group), key=lambda row: row.concurrency or 0)
        measured = np.array([[r.tpot_s, (r.output_tokens_per_s or 0) * ranks, r.ttft_s] for r in rows], float)
        about = one.source, one.model, run, one.version, one.prompt_tokens, one.output_tokens
        concurrency = np.array([(r.concurrency or 0) * ranks for r in rows], float)
        found.append(Sweep(*about, concurrency, measured, one.requests, one.concurrency is None))
    return found


@dataclass
class Problem:
    """All rows, how they depend on the parameters, and how much each weighs."""

    sweeps: Sequence[Sweep]
    rows: list[Sweep] = field(init=False)  # the sweep of each row
    holds: Array = field(init=False)  # 1 where a parameter is one of a row's
    weight: Array = field(init=False)

    def __post_init__(self) -> None:
        self.rows = [s for s in self.sweeps for _ in s.concurrency]
        self.holds = np.array([[float(not of or of in s.conditions) for s in self.rows] for _, of in PARAMETERS])
        counts: dict[tuple[str, str], int] = {}
        for s in self.rows:
            counts[s.source, s.model] = counts.get((s.source, s.model), 0) + 1
        weight = np.array([counts[s.source, s.model] ** ROWS_POWER for s in self.rows])
        self.weight = weight / weight.mean()

    def constants(self, s: Sweep, x: Array, nudged: str = "") -> EngineConstants:
        """The constants of a sweep, one of them a little smaller (a larger one may be beyond what is physical)."""
        logs = dict(zip(NAMES, PRIOR, strict=True))
        for (name, of), by in zip(PARAMETERS, x, strict=True):
            if not of or of in s.conditions:
                logs[name] += by
        if nudged:
            logs[nudged] -= NUDGE
        values: dict[str, Any] = {n: min(float(np.exp(v)), MOST.get(n, np.inf)) for n, v in logs.items()}
        return replace(s.replica.engine, **values)

    def errors(self, x: Array, nudged: str = "", of: Callable[[Sweep], bool] | None = None) -> Array:
        return np.concatenate([s.errors(self.constants(s, x, nudged)) for s in self.sweeps if of is None or of(s)])

    def slopes(self, x: Array, at: Array) -> Array:
        """Change of each row's deviations by each parameter, in noises."""
        logs = {n: (at - self.errors(x, n)) / NUDGE for n in NAMES}
        each = {n: np.nan_to_num(by * np.where(RELATIVE, np.exp(at), 1.0) / NOISE) for n, by in logs.items()}
        return np.stack([each[n] * held[:, None] for (n, _), held in zip(PARAMETERS, self.holds, strict=True)])

    def cost(self, x: Array, at: Array, kept: Array) -> float:
        """What kept rows and priors lose at the parameters, where the rows' errors are `at`."""
        lost = TAIL**2 / 2 * np.log1p((deviations(at) / TAIL) ** 2)
        return float(((self.weight * kept)[:, None] * WEIGHT * lost).sum() + ((x / SPREAD) ** 2).sum() / 2)

    def step(self, x: Array, at: Array, slopes: Array, kept: Array) -> Array:
        """The parameters after the longest step of Gauss and Newton that lowers the cost of the kept rows and the priors."""
        z = deviations(at)
        w = (self.weight * kept)[:, None] * WEIGHT / (1 + (z / TAIL) ** 2)
        stiff = np.einsum("pnq,mnq,nq->pm", slopes, slopes, w, optimize=True) + np.diag(SPREAD**-2)
        pull = np.einsum("pnq,nq,nq->p", slopes, z, w) + x / SPREAD**2
        along = np.linalg.solve(stiff, pull).clip(-LONGEST_STEP, LONGEST_STEP)
        before, share = self.cost(x, at, kept), 1.0
        while share > SHORTEST_SHARE:
            moved: Array = np.minimum(x - share * along, CEILING)
            if self.cost(moved, self.errors(moved), kept) < before:
                return moved
            share /= 2
        return x


def deviations(at: Array) -> Array:
    """What rows cost, in noises, where the logarithms of predicted over measured are `at`; 0 where nothing was measured."""
    found: Array = np.nan_to_num(np.where(RELATIVE, np.expm1(at), at) / NOISE)
    return found


def mean_abs(errors: Array) -> Array:
    """Mean absolute error by quantity, as a share of what was measured; of logarithms of predicted over measured."""
    with warnings.catch_warnings(action="ignore"):  # of quantities that no row has
        found: Array = np.nanmean(np.abs(np.expm1(errors)), axis=0)
    return found


def fit(problem: Problem) -> tuple[Array, Array, Array]:
    """The parameters beside their priors, the errors of all rows there, and their slopes."""
    x, all_rows = np.zeros(len(PARAMETERS)), np.ones(len(problem.rows))
    for number in range(ROUNDS + 1):
        if number % 2 == 0 or number == ROUNDS:
            for s in problem.sweeps:
                s.simulate(problem.constants(s, x))
        at = problem.errors(x)
        slopes = problem.slopes(x, at)
        said = ", ".join(f"{q} {e:.4f}" for q, e in zip(QUANTITIES, mean_abs(at), strict=True))
        print(f"round {number}: {said}", file=sys.stderr, flush=True)
        if number < ROUNDS:
            x = problem.step(x, at, slopes, all_rows)
    return x, at, slopes


def leave_out(
    problem: Problem, x: Array, at: Array, slopes: Array, left: Callable[[Sweep], bool]
) -> tuple[Array, Array]:
    """Which rows are left out, and ln(measured ÷ predicted) of theirs with the constants that the others give."""
    mine = np.array([left(s) for s in problem.rows])
    known = (problem.holds * (1.0 - mine)).any(axis=1)  # by rows that are kept; the others are at their priors
    moved = problem.step(np.where(known, x, 0.0), at, slopes, 1.0 - mine)
    for s in problem.sweeps:
        if left(s):
            s.simulate(problem.constants(s, moved))
    return mine, -problem.errors(moved, of=left)


@dataclass(frozen=True)
class LeftOut:
    """ln(measured ÷ predicted) of the rows of one group that was left out."""

    name: str
    model: str
    errors: Array

    def of(self, quantity: int) -> Array:
        """Those of one quantity, of the rows that have it."""
        every = self.errors[:, quantity]
        return every[~np.isnan(every)]


def measure_range(groups: Sequence[LeftOut], quantity: int, tail: float) -> tuple[float, float]:
    """Factors on the prediction between which all but two tails of the errors lie, every group counted alike."""
    v = np.concatenate([one.of(quantity) for one in groups])
    w = np.concatenate([np.full(len(e), 1 / len(e)) for e in (one.of(quantity) for one in groups)])
    order: npt.NDArray[np.intp] = np.argsort(v)
    place = np.cumsum(w[order]) / w.sum()
    low, high = (float(np.exp(v[order][min(int(np.searchsorted(place, q)), len(v) - 1)])) for q in (tail, 1 - tail))
    return low, high


def cover(groups: Sequence[LeftOut], quantity: int, tail: float) -> list[float]:
    """For each group the share of its rows in the range that the others give."""
    shares = []
    for one in groups:
        low, high = measure_range([o for o in groups if o is not one] or groups, quantity, tail)
        factor = np.exp(one.of(quantity))
        shares.append(float(((low <= factor) & (factor <= high)).mean()))
    return shares


def choose_tail(groups: Sequence[LeftOut], quantity: int) -> float:
    return float(next((t for t in TAILS if np.mean(cover(groups, quantity, t)) >= STATED_SHARE), TAILS[-1]))


def measure_layout_spread(problem: Problem, at: Array) -> float:
    """How far the errors of throughput of two layouts of one network lie apart in four of five pairs."""
    jobs: dict[tuple[object, ...], list[float]] = {}
    first = 0
    for s in problem.sweeps:
        rows = at[first : first + len(s.concurrency), 1]
        first += len(rows)
        key = (s.source, s.model, s.replica.precision.name, s.prompt, s.output)
        jobs.setdefault(key, []).append(float(np.median(rows)))
    apart = [abs(a - b) for errors in jobs.values() for a, b in combinations(errors, 2)]
    return float(np.expm1(np.quantile(apart, STATED_SHARE)))


def is_of(key: Callable[[Sweep], tuple[str, ...]], name: tuple[str, ...], s: Sweep) -> bool:
    return key(s) == name


def write_errors(problem: Problem, x: Array, at: Array, slopes: Array) -> None:
    """Write the ranges by distance and the errors by source."""
    lines = [
        "# How wrong serving plans are on what their constants were not fitted to: `python -m benchmarks.fit_serving CSV`.",
        "# Factors are measured over predicted; a range holds four of five rows of a group that was left out of the fit, and the",
        "# range of what is nearer. covered_share: of those rows, in the range that the other groups alone give.",
        "# layout_spread: how far the errors of throughput of two layouts of one network lie apart, in four of five pairs.",
        f"layout_spread = {measure_layout_spread(problem, at):.3f}",
        "",
    ]
    rows = problem.rows
    designs: dict[str, Callable[[Sweep], tuple[str, ...]]] = {
        "same stack": lambda s: (*s.pair, s.model),
        "other stack": lambda s: s.pair,
        "never seen": lambda s: (s.replica.accelerator.architecture,),
    }
    by_source: dict[str, tuple[Array, Array]] = {}
    nearby: list[LeftOut] = []
    for source in dict.fromkeys(s.source for s in problem.sweeps):
        mine, errors = leave_out(problem, x, at, slopes, partial(is_of, lambda s: (s.source,), (source,)))
        by_source[source] = mine, errors
        known = {(s.pair, s.model) for s in problem.sweeps if s.source != source}
        left = [s for s in rows if s.source == source]
        for model in dict.fromkeys(s.model for s in left):
            some = np.array([s.model == model for s in left])
            if (left[0].pair, model) in known:
                nearby.append(LeftOut(source, model, errors[some]))
    found = {"measured nearby": nearby}
    for word, key in designs.items():
        found[word] = []
        for left_out in dict.fromkeys(key(s) for s in problem.sweeps):
            _, errors = leave_out(problem, x, at, slopes, partial(is_of, key, left_out))
            models = [s.model for s in rows if key(s) == left_out]
            for model in dict.fromkeys(models):
                some = np.array([m == model for m in models])
                found[word].append(LeftOut(" ".join(left_out), model, errors[some]))
    nearer = dict.fromkeys(QUANTITIES, (np.inf, 0.0))
    for word, every in found.items():
        for q, name in enumerate(QUANTITIES):
            groups = [g for g in every if len(g.of(q))]
            tail = choose_tail(groups, q)
            ends = measure_range(groups, q, tail)
            low, high = nearer[name] = min(ends[0], nearer[name][0]), max(ends[1], nearer[name][1])
            mean = np.mean([mean_abs(-g.errors)[q] for g in groups])
            lines += [f'[range."{word}".{name}]', f"low = {low:.3f}", f"high = {high:.3f}"]
            lines += [f"error = {mean:.3f}", f"covered_share = {np.mean(cover(groups, q, tail)):.3f}", ""]
    covered: dict[str, dict[str, float]] = {source: {} for source in by_source}
    for q, name in enumerate(QUANTITIES):
        groups = [g for g in (LeftOut(s, "", errors) for s, (_, errors) in by_source.items()) if len(g.of(q))]
        for group, share in zip(groups, cover(groups, q, choose_tail(groups, q)), strict=True):
            covered[group.name][name] = share
    for source, (mine, errors) in by_source.items():
        networks = sorted({s.model for s in rows if s.source == source})
        lines += ["[[source]]", f'source = "{source}"', f"networks = {networks!r}".replace("'", '"')]
        lines.append(f"rows = {int(mine.sum())}")
        means = [dict(zip(QUANTITIES, mean_abs(e), strict=True)) for e in (at[mine], -errors)]
        for label, values in zip(("in_fit", "left_out", "range_coverage"), (*means, covered[source]), strict=True):
            lines.append(f"{label} = {{ {', '.join(f'{q} = {values[q]:.3f}' for q in covered[source])} }}")
        lines.append("")
    ERRORS.write_text("\n".join(lines))


def write_constants(problem: Problem, x: Array) -> None:
    """Write value and factors over those of the data file, and what was measured."""
    text = CONSTANTS.read_text().partition("\n[[measured]]")[0]
    prior = dict(zip(NAMES, PRIOR, strict=True))
    for (name, of), by in zip(PARAMETERS, x, strict=True):
        value = float(np.exp(by + (0.0 if of else prior[name])))
        key = (f'"{of}"' if " " in of else of) or "value"
        text = re.sub(rf"(\[constant\.{name}\]\n(?:[^\[].*\n)*?{re.escape(key)} = ).*", rf"\g<1>{value:.6g}", text)
    lines = [text.rstrip()]
    for pair in dict.fromkeys(s.pair for s in problem.sweeps):
        networks = sorted({s.replica.network.name for s in problem.sweeps if s.pair == pair})
        count = sum(len(s.concurrency) for s in problem.sweeps if s.pair == pair)
        lines += ["", "[[measured]]", f'accelerator = "{pair[0]}"', f'engine = "{pair[1]}"', f"rows = {count}"]
        releases = sorted({s.release for s in problem.sweeps if s.pair == pair} - {""})
        lines += [f"{n} = {v!r}".replace("'", '"') for n, v in (("networks", networks), ("releases", releases))]
    CONSTANTS.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Fit, and write both data files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("csv", nargs="+", type=Path)
    problem = Problem(group_sweeps(parser.parse_args().csv))
    x, at, slopes = fit(problem)
    write_constants(problem, x)
    write_errors(problem, x, at, slopes)


if __name__ == "__main__":
    main()
