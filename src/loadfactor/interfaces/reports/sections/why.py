"""Why not fuller, and what to change: on request alone, as it takes longer than all the rest of a report.

A job is read minute by minute, and history is replayed.
"""

from loadfactor.interfaces.reports.facts import WhyFacts
from loadfactor.interfaces.reports.inquiry import Inquiry


def build_section(inquiry: Inquiry) -> WhyFacts | None:
    """Causes and levers of the window; None where nobody asked for them."""
    if inquiry.why is None:
        return None
    from loadfactor.interfaces.reports.fleet_why import build_fleet_why  # which most reports do without

    return build_fleet_why(inquiry, inquiry.why)
