"""What to try next? The question behind each loss, the dearest first, ready to be typed."""

from shlex import quote

from loadfactor.faces.formats import money, number
from loadfactor.faces.report import Section
from loadfactor.faces.report.inquiry import Inquiry

QUESTIONS = (
    ("unallocated", "show unallocated_gpu_hours --by pool,hour", "when and where GPUs stood free"),
    ("down", "show down_gpu_hours --by node", "which nodes fail or are drained most"),
    ("unobserved", "show unobserved_gpu_hours --by node,day", "which exporters fell silent"),
    ("idle", "show idle_cost idle_gpu_hours --by user,purpose", "who holds GPUs and leaves them idle"),
    ("underused", "show underused_cost sm_activity tensor_activity --by purpose,accelerator", "what runs half-empty"),
)
WORTH_ASKING = 3


def section(inquiry: Inquiry) -> Section:
    """The largest losses as questions to ask."""
    hours, dollars = [f"{n}_gpu_hours" for n, _, _ in QUESTIONS], [f"{n}_cost" for n, _, _ in QUESTIONS]
    known = inquiry.whole
    priced = any(known.value(m) for m in dollars)
    ranked = sorted(
        ((known.value(f"{n}_cost" if priced else f"{n}_gpu_hours") or 0.0, n, c, w) for n, c, w in QUESTIONS),
        reverse=True,
    )
    commands = [
        (f"loadfactor {c} {inquiry.options}", f"{w} ({n}: {money(size) if priced else number(size) + ' GPU-hours'})")
        for size, n, c, w in ranked[:WORTH_ASKING]
        if size
    ]
    commands.append((f"loadfactor report --job JOB {inquiry.options}", "the GPUs of one job, side by side"))
    commands.append(
        (
            f"loadfactor doctor --store {quote(str(inquiry.folder))}",
            "what is missing in these books, and what to do about it",
        )
    )
    return Section(
        "next",
        "What to try next",
        "The largest losses first.",
        commands=commands,
        readings=known.some(*hours, *dollars),
    )
