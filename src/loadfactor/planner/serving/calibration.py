"""A replica that was measured moves the constants of its engine by Bayes' rule (planner/hardware/distance.py).

The measurements are results of load generators: what `vllm bench serve --save-result` writes, and the lines of SGLang's
bench_serving; or what a running engine counted between two scrapes. Times per token move constants, and what is left of them the
whole engine: every share and every time alike. Times to the first token, which hang on who arrives with whom, move constants less.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import Any

import numpy as np

from loadfactor.base.errors import InputError, PlanError, SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.catalog.constants import read_serving_errors
from loadfactor.catalog.engines import EngineConstants, list_engine_constants
from loadfactor.catalog.models import Network, find_network
from loadfactor.planner.hardware.distance import (
    TENTH,
    WORTH_SAYING,
    Distance,
    MovedConstant,
    name_distance,
    read_spread,
    spread_range,
    weigh_measurements,
)
from loadfactor.planner.serving.latency import predict_latency
from loadfactor.planner.serving.layouts import ReplicaLayout
from loadfactor.planner.serving.step import Replica

CONSTANT_SPREAD = 0.15  # of the logarithm of a constant: about what fitted ones lie from their priors
FIRST_TOKEN_SPREAD = 0.2  # of the logarithm of a time to the first token, between two runs alike
NUDGE = 0.03
SHARES = ("matmul_share", "memory_share", "cache_share", "attention_share", "link_share")
TIMES = ("kernel_s", "step_s", "sequence_s", "link_latency_s")
TPOT, TTFT = 0, 1


@dataclass(frozen=True)
class LoadTestResult:
    """What one run of a load generator measured on one replica; times are means."""

    concurrency: float
    prompt_tokens: float
    output_tokens: float
    ttft_s: float
    tpot_s: float
    model: str | None = None
    gpus: int | None = None


def read_load_tests(text: str, name: str) -> tuple[LoadTestResult, ...]:
    """The runs of a file: one JSON object, or one a line. Raises SourceError where one lacks what every run has.

    The concurrency is the limit of the run where there was one, else what Little's law says.
    """
    try:
        whole = json.loads(text)
        found = whole if isinstance(whole, list) else [whole]
    except json.JSONDecodeError:
        try:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        except json.JSONDecodeError:
            found = []
    if not found or not all(isinstance(one, dict) for one in found):
        raise SourceError(
            f"{name} is no result of a load test; give the JSON of vllm bench serve --save-result or the lines of bench_serving"
        )
    return tuple(_read_load_test(one, name) for one in found)


def _read_load_test(one: Mapping[str, Any], name: str) -> LoadTestResult:
    def read(key: str) -> float:
        value = one.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e15:
            raise SourceError(f"{name}: {key} is {value!r}, and a load test that can be used has it above 0")
        return float(value)

    completed = read("completed")
    prompt, output = read("total_input_tokens") / completed, read("total_output_tokens") / completed
    ttft_s, tpot_s = read("mean_ttft_ms") / MS_PER_S, read("mean_tpot_ms") / MS_PER_S
    limit = one.get("max_concurrency")
    if isinstance(limit, int | float) and limit and not isinstance(limit, bool):
        concurrency = min(float(limit), completed)
    else:
        concurrency = read("request_throughput") * (ttft_s + tpot_s * max(output - 1, 0))
    model = one.get("model_id") or one.get("model")
    gpus = str(one.get("tensor_parallel_size"))
    return LoadTestResult(
        max(concurrency, 1.0),
        prompt,
        output,
        ttft_s,
        tpot_s,
        model if isinstance(model, str) else None,
        int(gpus) if gpus.isdigit() and int(gpus) > 0 else None,
    )


WORD = re.compile(r"(tp|pp|ep|dp)[ -]?(\d{1,6})")


def read_replica_layout(text: str) -> ReplicaLayout:
    """The layout of a replica as tp4/ep4, dp8/ep8 or tp8/pp2: `dp` are ranks with a copy of the attention each.

    >>> str(read_replica_layout("tp4/ep4")), str(read_replica_layout("dp8/ep8"))
    ('4 GPUs, TP 4, EP 4', '8 GPUs, attention DP 8, EP 8')
    """
    found: dict[str, int] = {}
    for word in re.split(r"[/·+, ]+", text.lower().strip()):
        token = WORD.fullmatch(word)
        if token is None or not int(token[2]):
            raise InputError(f"--measured: a replica's layout is written as tp4/ep4, dp8/ep8 or tp8/pp2, got {text!r}")
        found[token[1]] = int(token[2])
    tp, dp, pp = (found.get(n, 1) for n in ("tp", "dp", "pp"))
    return ReplicaLayout(tp * dp * pp, dp, found.get("ep", 1), pp)


def split_measured(words: Sequence[str]) -> tuple[tuple[str, ...], ReplicaLayout | None]:
    """All but the layout, and the layout, of `--measured result.json --measured layout=tp4/ep4`."""
    layouts = [word.removeprefix("layout=") for word in words if word.startswith("layout=")]
    files = tuple(word for word in words if not word.startswith("layout="))
    if len(layouts) > 1 or (layouts and not files):
        raise InputError(
            "--measured is files of results or an engine's address, and one layout=tp4/ep4 of the replica that was measured"
        )
    return files, read_replica_layout(layouts[0]) if layouts else None


def tell_distance(engine: EngineConstants, network: Network) -> Distance:
    """How far a plan is from what its engine's constants were fitted to; a release that nobody measured was never seen."""
    if engine.is_of_new_release:
        return "never seen"
    return name_distance(network.name in engine.networks, bool(engine.networks), engine.kin)


Ranges = Mapping[str, tuple[float, float]]


def read_ranges(engine: EngineConstants, network: Network) -> Ranges:
    """Factors on what is predicted between which four of five rows lie that were left out of the fit, as far from it as this."""
    return read_serving_errors().ranges[tell_distance(engine, network)]


@dataclass(frozen=True)
class ComparedLoadTest:
    """One run beside what was predicted of it before and after."""

    concurrency: float
    prompt_tokens: float
    output_tokens: float
    measured_tpot_s: float
    tpot_s_before: float
    tpot_s_after: float
    measured_ttft_s: float
    ttft_s_before: float
    ttft_s_after: float


@dataclass(frozen=True)
class ServingCalibration:
    """What measurements changed. `stack_factor`: on every time of the engine, beside what moved constants do.

    `ranges_before`, `ranges_after`: by quantity, factors on predictions between which four of five runs lie.
    """

    layout: str
    engine: EngineConstants = field(repr=False)
    distance_before: Distance
    stack_factor: float
    constants: tuple[MovedConstant, ...]
    runs: tuple[ComparedLoadTest, ...]
    ranges_before: Ranges
    ranges_after: Ranges


def calibrate(r: Replica, measured: Sequence[LoadTestResult]) -> ServingCalibration:
    """The engine as it is known after the runs on this replica. Raises InputError for runs of another network."""
    for one in measured:
        other = find_network(one.model) if one.model else None
        if other is not None and other.name != r.network.name:
            raise InputError(
                f"--measured is of {one.model}, and the plan is for {r.network.name}; give --model that was measured"
            )
        if one.gpus is not None and one.gpus != r.layout.attention_tp:
            raise InputError(
                f"--measured ran on {one.gpus} tensor-parallel ranks, not {r.layout}; say --measured layout=tp{one.gpus}"
            )
    before, ranges = _predict(r, measured), read_ranges(r.engine, r.network)
    names = tuple(list_engine_constants()["constant"])
    slopes = np.stack([(_predict(_nudge(r, name), measured) - before) / np.log1p(NUDGE) for name in names], axis=-1)
    seen = np.log([[one.tpot_s, one.ttft_s] for one in measured])
    alike = (log(1 + read_serving_errors().layout_spread) / TENTH) ** 2 / 2, FIRST_TOKEN_SPREAD**2
    known = weigh_measurements(
        (seen - before).ravel().tolist(),
        slopes.reshape(-1, len(names)).tolist(),
        [TPOT, TTFT] * len(measured),
        CONSTANT_SPREAD,
        [read_spread(*ranges["tpot"]), read_spread(*ranges["ttft"])],
        alike,
    )
    moved = {n: getattr(r.engine, n) * float(np.exp(by)) for n, by in zip(names, known.moves, strict=True)}
    factor = float(np.exp(known.stack_mean[TPOT]))
    constants = tuple(
        MovedConstant(n, getattr(r.engine, n), v)
        for n, v in sorted(moved.items(), key=lambda item: -abs(log(item[1] / getattr(r.engine, item[0]))))
        if abs(v / getattr(r.engine, n) - 1) > WORTH_SAYING
    )
    scaled = moved | {n: moved[n] / factor for n in SHARES} | {n: moved[n] * factor for n in TIMES}
    engine = replace(r.engine, **scaled)
    after = _predict(replace(r, engine=engine), measured)
    slow, fast = spread_range(float(known.stack_variance[TPOT]) + alike[TPOT])
    first = spread_range(
        float(known.stack_variance[TTFT]) + alike[TTFT], float(known.stack_mean[TTFT] - known.stack_mean[TPOT])
    )
    runs = tuple(
        ComparedLoadTest(
            one.concurrency,
            one.prompt_tokens,
            one.output_tokens,
            *(one.tpot_s, float(np.exp(b[TPOT])), float(np.exp(a[TPOT]))),
            *(one.ttft_s, float(np.exp(b[TTFT])), float(np.exp(a[TTFT]))),
        )
        for one, b, a in zip(measured, before, after, strict=True)
    )
    return ServingCalibration(
        str(r.layout),
        engine,
        tell_distance(r.engine, r.network),
        factor,
        constants,
        runs,
        ranges,
        {"tpot": (slow, fast), "tokens_per_s": (1 / fast, 1 / slow), "ttft": first},
    )


def _nudge(r: Replica, name: str) -> Replica:
    return replace(r, engine=replace(r.engine, **{name: getattr(r.engine, name) * (1 + NUDGE)}))


def _predict(r: Replica, measured: Sequence[LoadTestResult]) -> np.ndarray:
    """Logarithms of the time per token and to the first one, a row a run."""
    found = []
    for one in measured:
        if one.concurrency > r.engine.max_sequences * r.layout.attention_dp * 8:
            raise PlanError(
                f"--measured: {one.concurrency:,.0f} requests at once are more than a replica of {r.layout} queues"
            )
        p = predict_latency(r, one.concurrency, one.prompt_tokens, one.output_tokens)
        found.append([float(p.tpot_s), float(p.ttft_s)])
    return np.log(found)
