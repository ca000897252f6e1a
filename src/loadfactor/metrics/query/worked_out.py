"""Progress with the units that are worked out of it: FLOPs by the network of each job, time at peak, tokens as they are split.

Reads `stored_progress`, `job_flops` (of jobs whose network is known, FLOPs per token and the dense peak of one of their GPUs) and
`section_work`: the GPU-seconds of sections, which come out of a job like its work.
"""

from typing import Any

import ibis

from loadfactor.metrics.work import (
    AT_PEAK,
    CACHED,
    HARDWARE_FLOP,
    MODEL_FLOP,
    PROMPT,
    SERVED,
    SPLIT,
    TRAIN_TOKEN,
    WORKED_OUT,
)
from loadfactor.tables.schema import columns_of

Expr = Any
JOB_FLOPS = {
    "job_id": "string",
    "flops_per_token": "float64",
    "hardware_flops_per_token": "float64",
    "peak_flops": "float64",
}
"""Columns of the table `job_flops`; null where not known."""
SECTION_WORK = {"job_id": "string", "unit": "string", "from_utc": "int64", "to_utc": "int64", "amount": "float64"}
"""Columns of the table `section_work`."""


def list_worked_out() -> Expr:
    """All progress: what is stored, and what follows from it. FLOPs that a job reports come before those of its tokens."""
    stored = ibis.table(columns_of("progress"), name="stored_progress")
    jobs = ibis.table(JOB_FLOPS, name="job_flops")
    reported = {unit: stored.filter(stored.unit == unit) for unit in AT_PEAK}
    beside = _list_beside(stored).anti_join(reported[MODEL_FLOP], "job_id")
    model = ibis.union(reported[MODEL_FLOP], beside)
    flops = {
        MODEL_FLOP: ibis.union(model, _count_tokens(stored, jobs, "flops_per_token", MODEL_FLOP, model)),
        HARDWARE_FLOP: ibis.union(
            reported[HARDWARE_FLOP],
            _count_tokens(stored, jobs, "hardware_flops_per_token", HARDWARE_FLOP, reported[HARDWARE_FLOP]),
        ),
    }
    at_peak = [_list_at_peak(rows, jobs, AT_PEAK[unit]) for unit, rows in flops.items()]
    served = stored.filter(stored.unit.isin(list(SPLIT)))
    weight = ibis.cases(*((served.unit == unit, _weigh(unit)) for unit in SPLIT), else_=0.0)
    served = served.mutate(amount=served.amount * weight, unit=ibis.literal(SERVED))
    rest = stored.filter(~stored.unit.isin(list(WORKED_OUT)))
    sections = ibis.table(SECTION_WORK, name="section_work")
    absent = {name: ibis.null(of) for name, of in stored.schema().items() if name not in SECTION_WORK}
    in_sections = sections.mutate(**absent).select(rest.columns)
    return ibis.union(rest, *flops.values(), *at_peak, served.select(rest.columns), in_sections)


def _weigh(unit: str) -> float:
    """What a token adds to those served: one from a cache is counted among prompt tokens already."""
    return SPLIT[unit] - (SPLIT[PROMPT] if unit == CACHED else 0.0)


def _list_beside(stored: Expr) -> Expr:
    """FLOPs that stand beside amounts of other units, of one unit a job: of its tokens, where these have them."""
    rows = stored.filter(stored.model_flops.notnull(), ~stored.unit.isin(list(WORKED_OUT)))
    rank = ibis.ifelse(rows.unit == TRAIN_TOKEN, "", rows.unit)
    rows = rows.mutate(rank=rank, first=rank.min().over(ibis.window(group_by="job_id")))
    rows = rows.filter(rows.rank == rows.first)
    return rows.mutate(unit=ibis.literal(MODEL_FLOP), amount=rows.model_flops).select(stored.columns)


def _count_tokens(stored: Expr, jobs: Expr, per_token: str, unit: str, reported: Expr) -> Expr:
    """FLOPs of tokens, of jobs that report none."""
    tokens = stored.filter(stored.unit == TRAIN_TOKEN).anti_join(reported, "job_id")
    known = tokens.join(jobs.filter(jobs[per_token].notnull()), "job_id")
    amount = known.amount * known[per_token]
    return known.mutate(unit=ibis.literal(unit), amount=amount).select(stored.columns)


def _list_at_peak(flops: Expr, jobs: Expr, unit: str) -> Expr:
    """FLOPs as seconds of a GPU at its dense peak, of jobs whose peak is known."""
    known = flops.join(jobs.filter(jobs.peak_flops.notnull()), "job_id")
    amount = known.amount / known.peak_flops
    return known.mutate(unit=ibis.literal(unit), amount=amount).select(flops.columns)
