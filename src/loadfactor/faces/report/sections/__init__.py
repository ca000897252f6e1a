"""What is in a report? One function a section, listed in the order a person should read them; None when it has nothing to say."""

from loadfactor.faces.report.sections import groups, job, next_steps, over_time, trust, unit_costs, waits, waterfall

SECTIONS = (
    waterfall.section,
    over_time.section,
    groups.section,
    waits.section,
    unit_costs.section,
    job.section,
    trust.section,
    next_steps.section,
)
