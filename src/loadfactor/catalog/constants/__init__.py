"""Constants that the planner's equations were fitted to, one data file a topic, each value with what it was fitted on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from loadfactor.catalog.facts import read_toml


@dataclass(frozen=True)
class TrainingConstants:
    """The constants of training.toml by name; meaning, unit and what each was fitted on are written there."""

    matmul_share: float
    matmul_share_capped: float
    matmul_share_systolic: float
    usual_kernel_share: float
    narrow_share: float
    row_scaling_share: float
    grouped_share: float
    grouped_narrow_share: float
    matmul_half_per_ridge: float
    memory_share: float
    flash_share: float
    flash_backward_share: float
    flash2_share: float
    flash2_backward_share: float
    flash2_ported_share: float
    flash3_share: float
    flash3_backward_share: float
    flash3_exponentials_share: float
    flash_systolic_share: float
    attention_half_seq: float
    launch_s: float
    scale_up_share: float
    scale_out_share: float
    scale_up_latency_s: float
    scale_out_latency_s: float
    shard_adapters: float
    tensor_overlap_share: float
    data_overlap_share: float
    step_overhead_s: float
    straggler_share: float
    overlap_slowdown_share: float
    prefetch_miss_share: float
    broadcast_s: float


@cache
def read_training_constants() -> TrainingConstants:
    """The constants of the training equations as the data file gives them."""
    return TrainingConstants(**{name: float(entry["value"]) for name, entry in read_constants("training.toml").items()})


@dataclass(frozen=True)
class FrameworkFactor:
    """Seconds of both halves in a framework of reinforcement learning over those of each alone, for one kind of network.

    `range`: factors on a predicted step between which four of five rows lie whose network was left out; `left_out_error`: their
    mean error.
    """

    value: float
    range: tuple[float, float]
    left_out_error: float


@cache
def read_framework_factors() -> Mapping[str, FrameworkFactor]:
    """The factors of `dense` networks and of those with `experts`, as the data file gives them."""
    return {
        kind: FrameworkFactor(float(one["value"]), tuple(one["range"]), float(one["left_out_error"]))
        for kind, one in read_constants("reinforcement.toml").items()
    }


@dataclass(frozen=True)
class LeftOutSource:
    """Mean error of a file of measurements or a generation of hardware, with its rows fitted to (None where they never are) and
    without; `covered_share` of them lie in the range that the other sources give.
    """

    file: str
    rows: int
    left_out_error: float
    covered_share: float
    fitted_error: float | None = None


@dataclass(frozen=True)
class FittedRuns:
    """Runs of one source that the constants were fitted to: what they have in common, and the ends of what they differ in.

    `stack`: frameworks that share kernels and exchange, by one name; `narrow`: products in fewer than 16 bits.
    """

    file: str
    stack: str
    architecture: str
    attention: str
    experts: bool
    adapters: bool
    narrow: bool
    gpus: tuple[float, float]
    seq: tuple[float, float]
    parameters: tuple[float, float]


@dataclass(frozen=True)
class LeftOutErrors:
    """How wrong the training equations are on what they were not fitted to, by `benchmarks/leave_out.py`.

    `ranges`: by kind of network and distance from what was fitted, the factors on predicted seconds between which four of five
    rows lie. `layout_spread`: how far the errors of two layouts of one job lie apart in four of five pairs.
    """

    layout_spread: float
    ranges: Mapping[str, Mapping[str, tuple[float, float]]]
    sources: Sequence[LeftOutSource]
    fitted: Sequence[FittedRuns] = field(repr=False)

    @property
    def left_out_error(self) -> float:
        """Mean error over the sources, each left out in turn."""
        return sum(s.left_out_error for s in self.sources) / len(self.sources)

    @property
    def covered_share(self) -> float:
        """Share of rows inside the stated range, mean over the sources."""
        return sum(s.covered_share for s in self.sources) / len(self.sources)


@cache
def read_left_out_errors() -> LeftOutErrors:
    """The errors as the data file gives them.

    >>> low, high = read_left_out_errors().ranges["dense"]["same stack"]
    >>> 0.5 < low < 1 < high < 2
    True
    """
    errors: Mapping[str, Any] = read_toml(__name__, "training_errors.toml")
    ranges = {
        kind: {name: (float(low), float(high)) for name, (low, high) in by_distance.items()}
        for kind, by_distance in errors["range"].items()
    }
    names = [f.name for f in fields(FittedRuns)]
    described: list[dict[str, Any]] = [
        {n: tuple(one[n]) if isinstance(one[n], list) else one[n] for n in names} for one in errors["fitted"]
    ]
    fitted = [FittedRuns(**one) for one in described]
    return LeftOutErrors(
        float(errors["layout_spread"]), ranges, [LeftOutSource(**one) for one in errors["source"]], fitted
    )


@dataclass(frozen=True)
class ServingSource:
    """Mean errors on the rows of one source (accelerator, engine and release), by quantity: fitted to, and left out of the fit.

    `range_coverage`: the share of its rows inside the range that other sources give.
    """

    source: str
    networks: Sequence[str]
    rows: int
    in_fit: Mapping[str, float]
    left_out: Mapping[str, float]
    range_coverage: Mapping[str, float]


@dataclass(frozen=True)
class LeftOutServing:
    """How wrong serving plans are on what they were not fitted to, by `benchmarks/fit_serving.py`.

    `ranges`: by how far from home (planner/hardware/distance.py) and quantity (`tpot`, `tokens_per_s`, `ttft`), the factors on the
    prediction between which four of five rows lie; `errors` and `covered_shares` the mean error of what was left out as far, and
    its share inside the range that the others give. `layout_spread`: how far the errors of throughput of two layouts of one network
    lie apart in four of five pairs.
    """

    layout_spread: float
    ranges: Mapping[str, Mapping[str, tuple[float, float]]]
    errors: Mapping[str, Mapping[str, float]]
    covered_shares: Mapping[str, Mapping[str, float]]
    sources: Sequence[ServingSource]


@cache
def read_serving_errors() -> LeftOutServing:
    """The errors as the data file gives them.

    >>> low, high = read_serving_errors().ranges["same stack"]["tpot"]
    >>> 0.5 < low < 1 < high < 2
    True
    """
    file: Mapping[str, Any] = read_toml(__name__, "serving_errors.toml")

    def pick(name: str) -> dict[str, dict[str, float]]:
        return {word: {q: float(r[name]) for q, r in of.items()} for word, of in file["range"].items()}

    low, high = pick("low"), pick("high")
    ranges = {word: {q: (low[word][q], high[word][q]) for q in low[word]} for word in low}
    sources = [ServingSource(**one) for one in file["source"]]
    return LeftOutServing(float(file["layout_spread"]), ranges, pick("error"), pick("covered_share"), sources)


def read_constants(name: str) -> Mapping[str, Mapping[str, Any]]:
    """Every entry of one data file of this package: value, meaning, what it was fitted on."""
    return read_toml(__name__, name)
