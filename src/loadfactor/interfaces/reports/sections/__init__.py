"""The sections of a report, one function each, in the order a person should read them; None when there is nothing to say."""

from loadfactor.interfaces.reports.sections import (
    budget,
    chargeback,
    data_quality,
    groups,
    job,
    next_steps,
    over_time,
    unit_costs,
    useful,
    waits,
    waterfall,
    why,
)

SECTIONS = (
    waterfall.build_section,
    useful.build_section,
    why.build_section,
    over_time.build_section,
    groups.build_section,
    chargeback.build_section,
    budget.build_section,
    waits.build_section,
    unit_costs.build_section,
    job.build_section,
    data_quality.build_section,
    next_steps.build_section,
)
