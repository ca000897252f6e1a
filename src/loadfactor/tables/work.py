"""The tables of work: what came out of a job, and what it did instead."""

from typing import Final

from loadfactor.tables.columns import Column, Table

SECTION_KINDS: Final = ("checkpoint", "evaluation", "compile", "data_wait", "start_up", "generation")
"""Kinds of time in which a job's steps wait."""
RATE: Final = "rate"
"""How an amount is known that is an estimate: a rate, of which the log says no more, × time."""

PROGRESS = Table(
    "progress",
    "work came out",
    ("job_id", "replica", "from_utc", "unit", "kept"),
    (
        Column("job_id", "text", "the job"),
        Column("from_utc", "instant", "start of the interval"),
        Column("to_utc", "instant", "end of the interval", apart_without="replica"),
        Column(
            "unit",
            "text",
            "train_sample, train_token, padded_token, epoch, step, model_flop, prompt_token, output_token, request, …",
        ),
        Column("amount", "amount", "how many of the unit"),
        Column("model_flops", "amount", "floating-point operations the model needed for it", "not known"),
        Column("kept", "flag", "false when the work was lost (rolled back after a failure)", "kept", stands_for=True),
        Column(
            "cause", "text", "why it was lost: restart, failed_attempt, preemption, loss_scale, …", "kept, or not known"
        ),
        Column("replica", "text", "which of the processes that make it together", "one alone, or all of them"),
        Column("known_from", "text", "how it is known, where it is estimated", "counted", one_of=(RATE,)),
    ),
)

JOB_SECTIONS = Table(
    "job_sections",
    "it did this instead of advancing",
    ("job_id", "attempt", "from_utc", "kind"),
    (
        Column("job_id", "text", "the job"),
        Column("attempt", "count", "which run of the job this is, after requeues", "not known"),
        Column("from_utc", "instant", "since"),
        Column("to_utc", "instant", "until"),
        Column("kind", "text", "what it did", one_of=SECTION_KINDS),
    ),
)
