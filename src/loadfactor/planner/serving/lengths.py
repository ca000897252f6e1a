"""Prompt and output lengths of requests: lognormal, or drawn again from a trace."""

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import PlanError


@dataclass(frozen=True)
class Lengths:
    """Prompt and output tokens of requests: lognormal, or pairs drawn again from `sample`."""

    prompt_mean: float
    output_mean: float
    prompt_cv: float = 1.0
    output_cv: float = 1.0
    longest: int = 131_072
    sample: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def __post_init__(self) -> None:
        if self.prompt_mean < 1 or self.output_mean < 1:
            raise PlanError(f"mean lengths are at least one token, got {self.prompt_mean:g} and {self.output_mean:g}")
        if self.prompt_cv < 0 or self.output_cv < 0:
            raise PlanError("a coefficient of variation is 0 (all alike) or more")

    def draw(self, rng: np.random.Generator, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """`count` prompts and outputs."""
        if self.sample is not None:
            picked = rng.integers(len(self.sample[0]), size=count)
            return self.sample[0][picked], self.sample[1][picked]
        kinds = ((self.prompt_mean, self.prompt_cv), (self.output_mean, self.output_cv))
        first, second = (_lognormal(rng, mean, cv, count, self.longest) for mean, cv in kinds)
        return first, second


def fit_lengths(prompts: NDArray[np.int64], outputs: NDArray[np.int64]) -> Lengths:
    """Lengths fitted to a trace: its means and coefficients of variation, and its own pairs to draw from.

    Requests without a prompt or an output are left out. Raises PlanError when none is left.
    """
    real = (prompts > 0) & (outputs > 0)
    if not real.any():
        raise PlanError("the trace has no request with a prompt and an output")
    p, o = prompts[real], outputs[real]
    return Lengths(
        float(p.mean()),
        float(o.mean()),
        float(p.std() / p.mean()),
        float(o.std() / o.mean()),
        int((p + o).max()),
        (p, o),
    )


def _lognormal(rng: np.random.Generator, mean: float, cv: float, count: int, longest: int) -> NDArray[np.int64]:
    if cv == 0:
        return np.full(count, round(mean), np.int64)
    spread = log(1 + cv * cv)
    drawn = rng.lognormal(log(mean) - spread / 2, sqrt(spread), count)
    return np.clip(np.rint(drawn), 1, longest).astype(np.int64)
