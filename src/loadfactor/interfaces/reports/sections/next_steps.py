"""What to try next: a command for each of the largest losses, ready to be typed."""

from shlex import quote

from loadfactor.interfaces.document import Section, Suggestion
from loadfactor.interfaces.formats import number
from loadfactor.interfaces.reports.facts import NextStepsFacts
from loadfactor.interfaces.reports.inquiry import Inquiry
from loadfactor.metrics.query.reading import rank

COMMANDS = (
    ("unattributed", "show unattributed_gpu_hours --by node,day", "which GPUs have no known holder"),
    ("unallocated", "show unallocated_gpu_hours --by pool,hour", "when and where GPUs were unallocated"),
    ("down", "show down_gpu_hours --by node", "which nodes fail or are drained most"),
    ("unobserved", "show unobserved_gpu_hours --by node,day", "which exporters fell silent"),
    ("idle", "show idle_cost idle_gpu_hours --by user,purpose", "who holds GPUs and leaves them idle"),
    (
        "underused",
        "show underused_cost sm_activity tensor_activity --by purpose,accelerator",
        "which work leaves GPUs underused",
    ),
)
MOST = 3


def build_section(inquiry: Inquiry) -> NextStepsFacts:
    """The largest losses as commands; by cost where there are prices, else by GPU-hours."""
    totals = inquiry.totals
    hours, costs = [f"{name}_gpu_hours" for name, _, _ in COMMANDS], [f"{name}_cost" for name, _, _ in COMMANDS]
    unit = "cost" if any(totals.value(metric) for metric in costs) else "gpu_hours"
    ranked = sorted(COMMANDS, key=lambda c: (-rank(totals.value(f"{c[0]}_{unit}")), c[0]))
    suggestions = []
    for name, command, why in ranked[:MOST]:
        size = totals.value(f"{name}_{unit}")
        if size:
            amount = totals.money(f"{name}_cost") if unit == "cost" else f"{number(size)} GPU-hours"
            suggestions.append(Suggestion(f"loadfactor {command} {inquiry.options}", f"{why} ({name}: {amount})"))
    there = quote(str(inquiry.folder))
    if inquiry.why is None and list(inquiry.where) in ([], ["team"]):
        whose = f"--team {quote(inquiry.where['team'])} " if inquiry.where else ""
        split = "--by team " if inquiry.where else ""
        suggestions += (
            Suggestion(
                f"loadfactor diagnose {whose}{inquiry.span_options}", "why GPUs were not fuller: causes, how sure"
            ),
            Suggestion(
                f"loadfactor savings {split}{inquiry.span_options}", "what to change, and what that would have saved"
            ),
        )
    suggestions += (
        Suggestion(
            f"loadfactor report --job JOB {inquiry.options}", "what one job cost and made, and where its money leaked"
        ),
        Suggestion(f"loadfactor doctor --store {there}", "what is missing in these books, and what to do about it"),
    )
    section = Section("What to try next", "The largest losses first.", suggestions=suggestions)
    return NextStepsFacts("next", section, totals.some(*hours, *costs))
