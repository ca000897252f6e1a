"""Fit of catalog/engines/constants.toml to measured sweeps: `python -m benchmarks.fit_serving CSV…`.

Physical shares are fitted once over all rows, ten times and shares per accelerator and engine; nothing per network or row. Every
network of an accelerator and engine weighs the square root of its rows, so that no network decides alone. `--leave-out MODEL` keeps
a network out of the fit and reports its errors: that is how the fit is checked against networks it has not seen.
The time to the first token is simulated once a round; within it, it is taken to follow the time of one prompt.
The search is a random walk with a fixed seed: the same rows give the same constants.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

import numpy as np

from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.catalog.engines import EngineConstants
from loadfactor.catalog.models import find_network
from loadfactor.planner.serving.latency import ahead_s, predict_latency, predict_tpot, prompt_time
from loadfactor.planner.serving.step import Replica
from loadfactor.planner.validation.serving import SweepRow, build_replica, read_layout, read_sweeps

SHARED = (
    "fp8_matmul_factor",
    "fp4_matmul_factor",
    "matmul_half_dim",
    "cache_share",
    "expert_skew",
)
OWN = (
    "matmul_share",
    "memory_share",
    "kernel_s",
    "link_latency_s",
    "step_s",
    "sequence_s",
    "link_share",
    "expert_half_dim",
    "attention_share",
    "request_s",
)
MOST = {"memory_share": 0.93, "matmul_share": 0.9, "cache_share": 0.93, "attention_share": 0.9, "link_share": 0.9,
        "fp8_matmul_factor": 1.0, "fp4_matmul_factor": 1.0}  # fmt: skip
FIRST_TOKEN_WEIGHT = 1.5  # of an error of TTFT beside one of time per token
PULL = 0.001  # cost of moving a constant by a factor e from where it started
Pair = tuple[str, str]


@dataclass
class Sweep:
    """One sweep over concurrency: everything but the concurrency is the same."""

    pair: Pair
    model: str
    replica: Replica
    prompt: int
    output: int
    ranks: int
    concurrency: np.ndarray
    tpot_s: np.ndarray
    ttft_s: np.ndarray
    tokens_per_s: np.ndarray
    weight: float = 1.0
    prompts_waited: np.ndarray = field(default_factory=lambda: np.zeros(0))  # TTFT over the time of one prompt

    def simulate(self, constants: EngineConstants) -> np.ndarray:
        """TTFT, simulated; remembers how many prompts it is."""
        r = replace(self.replica, engine=constants)
        p = predict_latency(r, self.concurrency, float(self.prompt), float(self.output))
        self.prompts_waited = (p.ttft_s - constants.request_s - ahead_s(r, p.batch, p.tpot_s)) / self._prompt_s(r)
        return np.asarray(p.ttft_s)

    def errors(self, constants: EngineConstants) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """ln(predicted ÷ measured) of time per token and throughput, and the relative error of TTFT."""
        r = replace(self.replica, engine=constants)
        token = predict_tpot(r, self.concurrency, float(self.prompt), float(self.output))
        tpot = token.tpot_s
        ttft = constants.request_s + ahead_s(r, token.batch, tpot) + self.prompts_waited * self._prompt_s(r)
        tokens_per_s = self.concurrency * self.output / (ttft + tpot * (self.output - 1))
        return np.log(tpot / self.tpot_s), np.log(tokens_per_s / self.tokens_per_s), ttft / self.ttft_s - 1

    def _prompt_s(self, r: Replica) -> np.ndarray:
        others = np.maximum(self.concurrency - 1, 0) / 2
        return np.asarray(prompt_time(r, float(self.prompt), others, self.prompt + self.output / 2)[1])


def group_sweeps(paths: Iterable[Path]) -> list[Sweep]:
    """The sweeps of the files whose network and accelerator the catalog knows."""
    groups: dict[tuple[object, ...], list[SweepRow]] = {}
    for path in paths:
        for row in read_sweeps(path):
            if isinstance(row, SweepRow) and row.tpot_s and row.ttft_s:
                key = (
                    row.model,
                    row.system,
                    row.backend,
                    row.version,
                    row.precision,
                    row.prompt_tokens,
                    row.output_tokens,
                )
                groups.setdefault((*key, row.tp, row.moe_ep, row.attention_dp), []).append(row)
    found = []
    for rows in groups.values():
        one = rows[0]
        network, chip = find_network(one.model), find_accelerator(one.system)
        if network is None or chip is None:
            continue
        measured = read_layout(one.tp, one.moe_ep, one.attention_dp, chip.scale_up_gpus, one.pp)
        replica = build_replica(network, chip, one.backend, one.precision, measured.layout)
        rows.sort(key=lambda row: row.concurrency)
        found.append(
            Sweep(
                (chip.id, one.backend),
                one.model,
                replica,
                one.prompt_tokens,
                one.output_tokens,
                measured.ranks,
                np.array([row.concurrency * measured.ranks for row in rows], float),
                np.array([row.tpot_s for row in rows]),
                np.array([row.ttft_s for row in rows]),
                np.array([row.output_tokens_per_s for row in rows]) * measured.ranks,
            )
        )
    rows_of: dict[tuple[Pair, str], int] = {}
    for s in found:
        rows_of[s.pair, s.model] = rows_of.get((s.pair, s.model), 0) + len(s.concurrency)
    for s in found:
        s.weight = rows_of[s.pair, s.model] ** -0.5
    return found


def loss(some: Sequence[Sweep], constants: EngineConstants) -> tuple[float, float]:
    """(weighted sum of capped absolute errors, weight): time per token, half for throughput, and TTFT."""
    total = weight = 0.0
    for s in some:
        tpot, tokens, ttft = s.errors(constants)
        cost = np.minimum(np.abs(tpot), 0.5).sum() + 0.5 * np.minimum(np.abs(tokens), 0.5).sum()
        total += s.weight * (cost + FIRST_TOKEN_WEIGHT * np.minimum(np.abs(ttft), 1.0).sum())
        weight += s.weight * len(tpot)
    return total, weight


def scale_constants(constants: EngineConstants, names: Sequence[str], by: np.ndarray) -> EngineConstants:
    """The constants with some of them multiplied, kept within what is physical."""
    values = {n: min(getattr(constants, n) * float(f), MOST.get(n, inf)) for n, f in zip(names, by, strict=True)}
    return replace(constants, **values)


def fit(all_sweeps: Sequence[Sweep], rounds: int, quick: bool = False) -> dict[Pair, EngineConstants]:
    """Random walks in turn: each accelerator and engine on its own constants, then all together on the shared ones."""
    rng = np.random.default_rng(0)
    by: dict[Pair, list[Sweep]] = {}
    for s in all_sweeps:
        by.setdefault(s.pair, []).append(s)
    now = {pair: some[0].replica.engine for pair, some in by.items()}
    start = dict(now)

    def pull(pair: Pair, constants: EngineConstants, names: Sequence[str]) -> float:
        return PULL * sum(float(np.log(getattr(constants, n) / getattr(start[pair], n)) ** 2) for n in names)

    def total(constants: dict[Pair, EngineConstants], pairs: Iterable[Pair]) -> float:
        sums = [loss(by[p], constants[p]) for p in pairs]
        return sum(a for a, _ in sums) / sum(b for _, b in sums)

    def walk(pairs: list[Pair], names: Sequence[str], steps: int) -> None:
        best = total(now, pairs) + pull(pairs[0], now[pairs[0]], names)
        size = 0.25
        for _ in range(steps):
            by_factor = np.exp(size * rng.normal(size=len(names)) * (rng.random(len(names)) < 0.35))
            tried = {p: scale_constants(now[p], names, by_factor) for p in pairs}
            cost = total(tried, pairs) + pull(pairs[0], tried[pairs[0]], names)
            if cost < best:
                now.update(tried)
                best, size = cost, min(size * 1.4, 0.4)
            else:
                size = max(size * 0.985, 0.02)

    for number in range(rounds):
        for s in all_sweeps:
            s.simulate(now[s.pair])
        for pair in by:
            walk([pair], OWN, 40 if quick else 160)
        walk(list(by), SHARED, 20 if quick else 90)
        print(f"round {number + 1}: cost {total(now, by):.4f}", file=sys.stderr, flush=True)
    return now


def print_errors(all_sweeps: Sequence[Sweep], constants: dict[Pair, EngineConstants]) -> None:
    """Mean absolute errors per accelerator, engine and network."""
    rows: dict[tuple[str, ...], list[np.ndarray]] = {}
    for s in all_sweeps:
        if s.pair not in constants:
            continue
        simulated = s.simulate(constants[s.pair])
        tpot, tokens, _ = (np.expm1(e) for e in s.errors(constants[s.pair]))
        ttft = simulated / s.ttft_s - 1
        first = np.full(len(tpot), np.nan)
        first[0] = ttft[0]
        table = np.stack([tpot, tokens, first, ttft])
        for key in ((*s.pair, s.model), (*s.pair, "all"), ("all", "all", "all")):
            rows.setdefault(key, []).append(table)
    print(f"{'accelerator':10s} {'engine':7s} {'network':36s} {'rows':>5s}  TPOT  tok/s TTFT@low TTFT   signed TPOT")
    for key in sorted(rows):
        t = np.concatenate(rows[key], axis=1)
        e = np.nanmean(np.abs(t), axis=1)
        print(
            f"{key[0]:10s} {key[1]:7s} {key[2]:36s} {t.shape[1]:5d} " + " ".join(f"{x:6.3f}" for x in (*e, t[0].mean()))
        )


def write_toml(constants: dict[Pair, EngineConstants], some: Sequence[Sweep]) -> str:
    """The fitted values as they stand in the data file."""
    one = next(iter(constants.values()))
    lines = [f"{n} = {getattr(one, n):.3g}" for n in SHARED]
    for pair, c in constants.items():
        models = sorted({s.model for s in some if s.pair == pair})
        rows = sum(len(s.concurrency) for s in some if s.pair == pair)
        lines += ["", "[[fitted]]", f'accelerator = "{pair[0]}"', f'engine = "{pair[1]}"']
        lines.append(f'fitted_on = "{rows} rows of the aiconfigurator silicon sample: {", ".join(models)}"')
        lines += [f"{n} = {getattr(c, n):.3g}" for n in OWN]
    lines += ["", "# defaults: the median over the fitted pairs"]
    lines += [f"{n} = {np.median([getattr(c, n) for c in constants.values()]):.3g}" for n in OWN]
    return "\n".join(lines)


def main() -> None:
    """Fit, print the errors and the constants."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("csv", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the search")
    parser.add_argument("--leave-out", default="", help="a network to keep out of the fit")
    parser.add_argument("--only-report", action="store_true", help="errors of the constants as they are")
    given = parser.parse_args()
    every = group_sweeps(given.csv)
    kept = [s for s in every if not given.leave_out or given.leave_out not in s.model]
    constants = {s.pair: s.replica.engine for s in every} if given.only_report else fit(kept, given.rounds, given.quick)
    print_errors(every, constants)
    if not given.only_report:
        print(write_toml(constants, kept))


if __name__ == "__main__":
    main()
