"""Padding: a part of all tokens is there only to fill up batches."""

from typing import Final

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, share


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """The job reports padded tokens."""
    if facts.padding is None or facts.padding < limits["share"]:
        return None
    return Claim(
        facts.padding * facts.active_s,
        0.5,
        0.95,
        (f"{share(facts.padding)} of the tokens that were computed are padding",),
        ("attention that skips padding does not compute it",),
        ("lengths of the samples as a histogram",),
    )


PADDING: Final = DiagnosisRule(
    "padding", "padding", "model and batch", (), find,
    "Group samples by length, pack several into one sequence (variable-length FlashAttention), pad to"
    " the batch's longest, not to the limit.",
    {"share": Limit(0.2, "share", "padded of all tokens", 0.01, 1)},
    "economics §5: ≥ 20 % padded",
)  # fmt: skip
