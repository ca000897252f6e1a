"""The service that plans are made for: network, hardware, demand and objective, each option and its default declared once."""

from dataclasses import dataclass
from typing import Literal

from loadfactor.base.limits import LATENCY_MS, LATENCY_S, Limits
from loadfactor.base.request import Request, option
from loadfactor.planner.hardware import EngineName

Shape = Literal["office", "daily", "flat"]  # of a day and a week

ACCELERATOR = "h100-sxm"
MODEL = "llama-3.1-70b"
USERS = 20_000.0
TOKENS = Limits(at_least=0, at_most=1e8)  # a fleet needs one of each, what only is priced does not
MARGINAL = "Say also what the next 8 GPUs, the next node and the next 10,000 of money bring."
USER_COUNT = Limits(at_least=1, at_most=1e11)


@dataclass(frozen=True, kw_only=True)
class ServiceRequest(Request):
    """A model, what serves it, what its users send, and how fast they are answered."""

    model: str = option("Model of the catalog, or a path to its config.json.", MODEL, short="-m")
    accelerator: str = option("Accelerator of the catalog.", ACCELERATOR, short="-a")
    engine: EngineName = option("Serving engine.", "vllm")
    release: str | None = option(
        "Release of the engine, as 0.19; what all its releases have in common when left out.", None
    )
    requests_per_user: float = option("Requests of one user on an average day.", 20.0, at_least=0.001, at_most=1e6)
    input_tokens: float = option("Mean input of a request, tokens.", 1500.0, within=TOKENS)
    output_tokens: float = option("Mean output of a request, tokens.", 300.0, within=TOKENS)
    shape: Shape = option("Shape of day and week.", "office")
    ttft: float = option("Objective: time to first token, seconds.", 2.0, within=LATENCY_S)
    tpot: float = option("Objective: time per output token, milliseconds.", 50.0, within=LATENCY_MS)
    attainment: float = option("Share of requests that must meet the objective.", 0.95, at_least=0.01, at_most=1)
    marginal: bool = option(MARGINAL, False)
