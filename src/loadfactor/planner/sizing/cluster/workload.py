"""Synthetic jobs: Poisson arrivals and a few families of service times, all from one seed."""

from typing import Literal

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.planner.sizing.cluster.jobs import Floats, Jobs, make_jobs

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
