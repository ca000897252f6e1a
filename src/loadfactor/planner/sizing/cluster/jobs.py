"""Jobs as plain arrays: when they are submitted, how many GPUs they hold at once, for how long."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loadfactor.base.errors import PlanError
from loadfactor.base.units import S_PER_HOUR

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MILLI = 1000  # a fraction of a GPU is counted in thousandths, as clusters that share GPUs count it


@dataclass(frozen=True)
class Jobs:
    """Jobs in the order they were submitted; one entry each.

    `gpus` is held by the whole gang from start to end; a value below 1 is a share of one GPU. `duration_s` is the work without
    waiting. `limit_s` is what the scheduler knows (the time limit), `duration_s` where nothing else is known. Higher
    `priority` goes first where the policy looks at it.
    """

    submit_s: Floats
    gpus: Floats
    duration_s: Floats
    limit_s: Floats
    priority: Ints

    def __len__(self) -> int:
        return len(self.submit_s)

    @property
    def gpu_s(self) -> Floats:
        return self.gpus * self.duration_s

    @property
    def gpu_hours(self) -> float:
        return float(self.gpu_s.sum()) / S_PER_HOUR

    @property
    def span_s(self) -> float:
        """From the first submission to the last."""
        return float(self.submit_s[-1] - self.submit_s[0])

    @property
    def offered_gpus(self) -> float:
        """GPUs the work would keep busy if it never waited: work over the span of submissions."""
        if self.span_s == 0:
            raise PlanError(
                "all jobs are submitted at once, so there is no rate; size for the work, not for an offered load"
            )
        return float(self.gpu_s.sum()) / self.span_s

    @property
    def service_cv2(self) -> float:
        return _cv2(self.duration_s)

    @property
    def arrival_cv2(self) -> float:
        """Squared coefficient of variation of the time between submissions: 1 for Poisson arrivals, more for bursts."""
        return _cv2(np.diff(self.submit_s))

    def taken(self, which: ArrayLike) -> "Jobs":
        chosen = np.asarray(which)
        return Jobs(
            self.submit_s[chosen],
            self.gpus[chosen],
            self.duration_s[chosen],
            self.limit_s[chosen],
            self.priority[chosen],
        )

    def concurrent_gpus(self, step_s: float) -> Floats:
        """GPUs needed in each interval of `step_s` if nothing waited: the demand series, exact within each interval.

        >>> make_jobs([0, 0], [2, 4], [3600, 1800]).concurrent_gpus(3600).tolist()
        [4.0]
        """
        start = self.submit_s - self.submit_s[0]
        end = start + self.duration_s
        steps = int(np.ceil(end.max() / step_s))
        # ∫ of GPUs in use up to time t, sampled at the interval edges: exact for any job length.
        edges = np.arange(steps + 1) * step_s
        total = np.zeros(steps + 1)
        for points, sign in ((start, 1.0), (end, -1.0)):
            order = np.argsort(points, kind="stable")
            at, weight = points[order], self.gpus[order] * sign
            passed = np.searchsorted(at, edges, side="right")
            gpus_before = np.concatenate(([0.0], np.cumsum(weight)))[passed]
            moment_before = np.concatenate(([0.0], np.cumsum(weight * at)))[passed]
            total += gpus_before * edges - moment_before
        return np.maximum(np.diff(total) / step_s, 0.0)


def make_jobs(
    submit_s: ArrayLike,
    gpus: ArrayLike,
    duration_s: ArrayLike,
    limit_s: ArrayLike | None = None,
    priority: ArrayLike | Sequence[int] | None = None,
) -> Jobs:
    """Jobs from plain arrays, sorted by submission. Raises PlanError naming the first job that cannot be.

    >>> jobs = make_jobs(submit_s=[60, 0], gpus=[8, 0.5], duration_s=[3600, 7200])
    >>> jobs.submit_s.tolist(), jobs.gpu_hours
    ([0.0, 60.0], 9.0)
    """
    submit = np.asarray(submit_s, dtype=np.float64).ravel()
    held = np.asarray(gpus, dtype=np.float64).ravel()
    duration = np.asarray(duration_s, dtype=np.float64).ravel()
    limit = duration if limit_s is None else np.asarray(limit_s, dtype=np.float64).ravel()
    level = np.zeros(len(submit), np.int64) if priority is None else np.asarray(priority, dtype=np.int64).ravel()
    if len(submit) == 0:
        raise PlanError("there are no jobs; give at least one")
    if not len(submit) == len(held) == len(duration) == len(limit) == len(level):
        raise PlanError(
            f"every job needs a submission, GPUs and a duration: got {len(submit)}, {len(held)} and {len(duration)}"
        )
    whole = (held >= 1) & (held == np.round(held))
    for name, bad, hint in (
        ("a submission time", ~np.isfinite(submit), "seconds from any start"),
        ("GPUs", ~(np.isfinite(held) & (held > 0)), "1 or more, or a share below 1"),
        ("GPUs", ~(whole | (held < 1)), "a whole number, or a share below 1"),
        ("a duration", ~(np.isfinite(duration) & (duration > 0)), "seconds above 0"),
        ("a time limit", ~(np.isfinite(limit) & (limit > 0)), "seconds above 0"),
    ):
        if bad.any():
            place = int(np.argmax(bad))
            raise PlanError(
                f"job {place}: {name} must be {hint}, got "
                f"submit {submit[place]:g} s, {held[place]:g} GPUs, {duration[place]:g} s"
            )
    order = np.argsort(submit, kind="stable")
    return Jobs(submit[order], held[order], duration[order], np.maximum(limit, duration)[order], level[order])


def _cv2(values: Floats) -> float:
    mean = float(values.mean()) if len(values) else 0.0
    return float(values.var()) / mean**2 if mean > 0 else 0.0


Service = Literal["exponential", "constant", "hyperexponential", "lognormal"]


def draw_poisson_jobs(
    jobs: int,
    arrivals_per_s: float,
    service_s: float,
    service: Service = "exponential",
    service_cv2: float = 4.0,
    gpus: tuple[int, ...] = (1,),
    gpu_shares: tuple[float, ...] = (1.0,),
    seed: int = 0,
) -> Jobs:
    """`jobs` Poisson arrivals with a mean service time, sizes drawn from `gpus` with probabilities `gpu_shares`.

    `service_cv2` is the squared coefficient of variation of the hyperexponential (two balanced phases) and lognormal families.

    >>> a, b = draw_poisson_jobs(5, 1.0, 2.0, seed=7), draw_poisson_jobs(5, 1.0, 2.0, seed=7)
    >>> bool((a.submit_s == b.submit_s).all())
    True
    """
    if jobs < 1 or arrivals_per_s <= 0 or service_s <= 0:
        raise PlanError(
            f"need jobs, a rate and a service time above 0, got {jobs}, {arrivals_per_s:g} and {service_s:g}"
        )
    random = np.random.default_rng(seed)
    submit = np.cumsum(random.exponential(1 / arrivals_per_s, jobs))
    sizes = (
        random.choice(np.array(gpus), size=jobs, p=np.array(gpu_shares)) if len(gpus) > 1 else np.full(jobs, gpus[0])
    )
    return make_jobs(submit, sizes, _service(random, jobs, service_s, service, service_cv2))


def _service(random: np.random.Generator, jobs: int, mean_s: float, family: Service, cv2: float) -> Floats:
    if family == "constant":
        return np.full(jobs, mean_s)
    if family == "exponential":
        return random.exponential(mean_s, jobs)
    if family == "lognormal":
        variance = np.log1p(cv2)
        return random.lognormal(np.log(mean_s) - variance / 2, np.sqrt(variance), jobs)
    if cv2 < 1:
        raise PlanError(f"a hyperexponential has a squared coefficient of variation of 1 or more, got {cv2:g}")
    share = 0.5 * (1 + np.sqrt((cv2 - 1) / (cv2 + 1)))
    fast = random.random(jobs) < share
    return np.where(
        fast, random.exponential(mean_s / (2 * share), jobs), random.exponential(mean_s / (2 * (1 - share)), jobs)
    )
