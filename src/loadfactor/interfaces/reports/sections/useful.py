"""From paid to useful: what was held, active, the network's FLOPs, kept, and of jobs that did not fail."""

from dataclasses import replace

from loadfactor.interfaces.pages.waterfall import draw_steps, list_unknown, say_useful
from loadfactor.interfaces.reports.facts import UsefulFacts
from loadfactor.interfaces.reports.inquiry import Inquiry


def build_section(inquiry: Inquiry) -> UsefulFacts | None:
    """The waterfall, with a chart where FLOPs of any job are known; None where nothing was paid for."""
    found = inquiry.books.read_waterfall(inquiry.jobs, inquiry.basis)
    hours = found.all.gpu_hours
    if not hours.paid:
        return None
    section = draw_steps(found)
    lead = " ".join((say_useful(found), *list_unknown(found)))
    is_counted = hours.after("math") + hours.not_math > 0
    return UsefulFacts(
        "useful", replace(section, lead=lead, charts=section.charts if is_counted else ()), (), waterfall=found
    )
