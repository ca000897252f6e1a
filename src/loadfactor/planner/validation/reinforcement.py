"""Steps of reinforcement learning that were published beside what the planner says of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.constants import read_framework_factors
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.measurements import read_published_rows
from loadfactor.catalog.models import read_network
from loadfactor.planner.hardware.distance import share_inside, spread_range
from loadfactor.planner.reinforcement.request import RlRequest
from loadfactor.planner.reinforcement.rl_plan import RlQuestion, RlWay, describe_lengths, find_way
from loadfactor.planner.training.distance import name_network_kind
from loadfactor.planner.training.scaling import TrainingFacts

ROWS = "reinforcement_steps.csv"
Row = Mapping[str, str]


@dataclass(frozen=True)
class ComparedStep:
    """A published step beside the predicted one. `left_out_s`: predicted with the factor of the other networks of its kind.

    `fitted`: whether the factors were fitted to it.
    """

    source: str
    model: str
    accelerator: str
    gpus: int
    rollout_gpus: int | None
    staleness: int
    measured_s: float
    predicted_s: float
    left_out_s: float
    fitted: bool
    way: RlWay = field(repr=False)

    @property
    def error(self) -> float:
        """(predicted − measured) ÷ measured."""
        return self.predicted_s / self.measured_s - 1

    @property
    def left_out_error(self) -> float:
        """The same, of the network left out of the fit."""
        return self.left_out_s / self.measured_s - 1

    @property
    def kind(self) -> str:
        return name_network_kind(self.way.updates.job)


@dataclass(frozen=True)
class RefusedStep:
    """A row that cannot be planned, and why."""

    model: str
    accelerator: str
    gpus: int
    reason: str


@dataclass(frozen=True)
class RlSource:
    """The errors on the rows of a source: `in_fit` with its rows fitted to, `left_out` with each network left out in turn; a source
    that was never fitted has the latter alone.

    `range_coverage`: the share of what was left out inside the stated range.
    """

    source: str
    rows: int
    in_fit: float | None
    left_out: float
    range_coverage: float | None
    bias: float


@dataclass(frozen=True)
class RlValidation:
    """Every row, the refused ones, and the errors by source."""

    rows: Sequence[ComparedStep]
    refused: Sequence[RefusedStep]
    sources: Sequence[RlSource]

    @property
    def mean_error(self) -> float:
        """Mean of absolute errors."""
        return sum(abs(row.error) for row in self.rows) / len(self.rows)

    @property
    def median_error(self) -> float:
        return median(abs(row.error) for row in self.rows)

    @property
    def left_out_error(self) -> float:
        """Mean of absolute errors, each network left out of the fit."""
        return sum(abs(row.left_out_error) for row in self.rows) / len(self.rows)


def read_question(row: Row, framework_factor: float | None = None) -> RlQuestion:
    """What a row ran, as its layout and lengths say."""

    def whole(name: str) -> tuple[int, ...]:
        return (int(row[name]),) if row[name] else ()

    prompt = int(row["prompt_tokens"])
    rollouts = whole("rollout_gpus")
    request = RlRequest(
        model=row["model"],
        accelerator=row["accelerator"],
        gpus=int(row["gpus"]),
        rollout_gpus=rollouts[0] if rollouts else None,
        placement="apart" if rollouts else "colocated",
        staleness=int(row["staleness"]),
        prompts=int(row["prompts"]),
        responses=int(row["responses"]),
        batch=int(row["batch"]),
        prompt_tokens=prompt,
        response_tokens=int(row["response_tokens"]),
        response_most=int(row["most_tokens"]) - prompt,
        rollout_tp=whole("rollout_tp"),
        rollout_ep=whole("rollout_ep"),
        tp=whole("tp"),
        cp=whole("cp"),
        ep=whole("ep"),
        pp=whole("pp"),
        micro_batch=whole("micro_batch"),
        interleave=whole("interleave"),
        zero=whole("zero"),
        recompute=(row["recompute"],) if row["recompute"] else (),  # type: ignore[arg-type]
        framework=row["framework"],  # type: ignore[arg-type]
        engine=row["engine"],  # type: ignore[arg-type]
        forwards=tuple(row["forwards"].split(",")),  # type: ignore[arg-type]
        framework_factor=framework_factor,
    )
    card = accelerator(request.accelerator)
    facts = TrainingFacts(read_network(request.model), card, None, None)
    return RlQuestion(request, facts, read_engine_constants(card, request.engine), describe_lengths(request))


@dataclass(frozen=True)
class _RunRow:
    """A row and the way it ran, predicted with a factor of one."""

    row: Row
    way: RlWay

    @property
    def measured_s(self) -> float:
        return float(self.row["step_s"])

    @property
    def fitted(self) -> bool:
        return self.row["fitted"] == "yes"

    @property
    def factor(self) -> float:
        """What makes the prediction the measured step: on all but switching, which no framework's halves hold up."""
        fixed = self.way.parts["switching_s"]
        return max(self.measured_s - fixed, 0.0) / (self.way.step_s - fixed)

    def predict(self, factor: float) -> float:
        fixed = self.way.parts["switching_s"]
        return fixed + factor * (self.way.step_s - fixed)

    @property
    def kind(self) -> str:
        return name_network_kind(self.way.updates.job)


def _run_rows() -> tuple[list[_RunRow], list[RefusedStep]]:
    found, refused = [], []
    for row in read_published_rows(ROWS):
        try:
            found.append(_RunRow(row, find_way(read_question(row, 1.0))))
        except PlanError as error:
            refused.append(RefusedStep(row["model"], row["accelerator"], int(row["gpus"]), str(error)))
    return found, refused


def _fit(rows: Sequence[_RunRow]) -> float:
    """The factor of rows that are fitted, every network counted alike; 1 for none."""
    by_model: dict[str, list[float]] = {}
    for one in rows:
        if not one.fitted:
            continue
        by_model.setdefault(one.row["model"], []).append(float(np.log(max(one.factor, 0.01))))
    return float(np.exp(np.mean([np.mean(logs) for logs in by_model.values()]))) if by_model else 1.0


def fit_factors() -> Mapping[str, tuple[float, tuple[float, float], float]]:
    """By kind of network: the factor, and the range and mean error of networks that were left out, as the data file has them."""
    rows = [one for one in _run_rows()[0] if one.fitted]
    surprises = {id(one): float(np.log(one.measured_s / one.predict(_fit(_others(rows, one))))) for one in rows}
    reach = spread_range(float(np.mean(np.square(list(surprises.values())))))
    found = {}
    for kind in sorted({one.kind for one in rows}):
        mine = [one for one in rows if one.kind == kind]
        errors = [abs(float(np.exp(-surprises[id(one)])) - 1) for one in mine]
        found[kind] = _fit(mine), reach, sum(errors) / len(errors)
    return found


def _others(rows: Sequence[_RunRow], one: _RunRow) -> list[_RunRow]:
    """Rows of other networks of the same kind."""
    return [other for other in rows if other.kind == one.kind and other.row["model"] != one.row["model"]]


def validate_reinforcement() -> RlValidation:
    """Every published row beside its prediction."""
    rows, refused = _run_rows()
    factors = read_framework_factors()
    compared = [
        ComparedStep(
            one.row["source"],
            one.row["model"],
            one.row["accelerator"],
            int(one.row["gpus"]),
            int(one.row["rollout_gpus"]) if one.row["rollout_gpus"] else None,
            int(one.row["staleness"]),
            one.measured_s,
            one.predict(factors[one.kind].value),
            one.predict(_fit(_others(rows, one)) if one.fitted else factors[one.kind].value),
            one.fitted,
            one.way,
        )
        for one in rows
    ]
    return RlValidation(
        compared, refused, [_judge(name, compared) for name in dict.fromkeys(c.source for c in compared)]
    )


def _judge(source: str, rows: Sequence[ComparedStep]) -> RlSource:
    mine = [row for row in rows if row.source == source]
    factors = read_framework_factors()
    return RlSource(
        source,
        len(mine),
        sum(abs(row.error) for row in mine) / len(mine) if all(row.fitted for row in mine) else None,
        sum(abs(row.left_out_error) for row in mine) / len(mine),
        share_inside((row.measured_s / row.left_out_s, factors[row.kind].range) for row in mine),
        sum(row.error for row in mine) / len(mine),
    )
