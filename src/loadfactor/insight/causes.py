"""The classes of causes: every alert and every finding carries one, the answer to the question to ask first."""

from typing import Final, Literal

Cause = Literal[
    "I/O",
    "model and batch",
    "precision and kernels",
    "communication",
    "scheduling",
    "hardware",
    "telemetry",
    "money",
    "user error",
    "open",
]
"""`open`: the condition alone does not tell which; its rule says what to ask first."""
CAUSES: Final[dict[Cause, str]] = {
    "I/O": "the GPU waits for data or for files",
    "model and batch": "the work given to the GPU is too small, or does not fit its memory",
    "precision and kernels": "the GPU works, in a slow way",
    "communication": "GPUs wait for each other or for a link",
    "scheduling": "GPUs are held, kept free or queued for without use",
    "hardware": "a GPU or a node does less than it should, or nothing",
    "telemetry": "what the fleet does is not known",
    "money": "what is spent, or planned to be spent",
    "user error": "a job asks for what it does not use, or dies again and again",
    "open": "several of these fit",
}
