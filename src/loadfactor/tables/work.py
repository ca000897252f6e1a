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

SERVED_REQUESTS = Table(
    "served_requests",
    "somebody used a served model",
    ("request_id", "from_utc"),
    (
        Column("request_id", "text", "the request, or the sum of several"),
        Column("from_utc", "instant", "when it began"),
        Column("to_utc", "instant", "when it ended"),
        Column("job_id", "text", "the job that served it, or the model's name where nobody says which", "not known"),
        Column("model", "text", "the model, as its gateway calls it", "not known"),
        Column("team", "text", "the tenant: the team or organization that asked", "not known"),
        Column("user", "text", "who asked", "not known"),
        Column("project", "text", "the project it was for", "not known"),
        Column("feature", "text", "what it was for: an app, a feature, tags of the request", "not known"),
        Column(
            "api_key", "text", "the name of the API key, or the first digits of its hash; never the key", "not known"
        ),
        Column("requests", "count", "how many requests it sums", "1"),
        Column("prompt_tokens", "amount", "tokens of its prompt, those from a cache among them", "not known"),
        Column("cached_prompt_tokens", "amount", "those of them that came from the engine's cache", "not known"),
        Column("output_tokens", "amount", "tokens of its answer", "not known"),
    ),
)
