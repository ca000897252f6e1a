"""Latency of a load test where some replicas compute prompts and others decode: each half by its own equations.

Decoding has no prompts between its steps. Prompts are served by one station (all replicas for them together), and a request that
has its first token comes back to it after its answer: a closed loop, whose queue follows one customer after another (mean value
analysis) with services that all take as long:

    time at the station(n) = s · (1 + waiting(n − 1) + what is left of the one in service)        s = 1 ÷ prompts per second
"""

from dataclasses import dataclass

from loadfactor.planner.serving.latency import WAVES, ahead_s, decode_s, fill_s, prompt_time
from loadfactor.planner.serving.simulation.fleet import Speculation
from loadfactor.planner.serving.step import Replica, most_sequences


@dataclass(frozen=True)
class ApartLatency:
    """Times of a load test, seconds, and output tokens a second of all replicas that decode."""

    ttft_s: float
    tpot_s: float
    output_tokens_per_s: float


def predict_apart(
    prefill: Replica,
    prefill_replicas: int,
    decode: Replica,
    decode_replicas: int,
    concurrency: float,
    prompt: float,
    output: float,
    speculation: Speculation = Speculation(),
) -> ApartLatency:
    """A load test that keeps `concurrency` requests in the system; what decoding cannot hold waits for its first token."""
    context = prompt + output / 2
    most = max(min(most_sequences(decode, context), decode.engine.max_sequences * decode.layout.attention_dp), 1.0)
    batch = min(concurrency / decode_replicas, most)
    tpot_s = float(decode_s(decode, batch, context, speculation))
    answer_s = tpot_s * max(output - 1, 0.0)
    together = prefill.layout.attention_dp
    prompt_s, each_s = (float(of) for of in prompt_time(prefill, prompt, together=together))
    service_s = each_s / prefill_replicas
    held_s = concurrency / decode_replicas / batch * answer_s - answer_s  # for a place among those that decode
    wait_s = max(wait_in_loop(concurrency, service_s, answer_s) - service_s, held_s)
    wait_s += max((concurrency - 1) / 2 * service_s - wait_s, 0.0) / WAVES  # the first wave comes at once
    step_s = tpot_s * speculation.tokens_per_step
    ahead = float(ahead_s(decode, batch, step_s))
    ttft_s = prefill.engine.request_s + prompt_s + fill_s(prefill, prompt) + wait_s + ahead
    return ApartLatency(ttft_s, tpot_s, concurrency * output / (ttft_s + answer_s))


def wait_in_loop(customers: float, service_s: float, away_s: float) -> float:
    """Seconds at a station whose services all take `service_s`, where each of the customers is back `away_s` after it left.

    >>> wait_in_loop(1, 2.0, 5.0), round(wait_in_loop(100, 1.0, 10.0), 1)      # at saturation 100 · 1 s are a round
    (2.0, 90.0)
    """
    there, busy, time_s = 0.0, 0.0, service_s
    for n in range(1, max(round(customers), 1) + 1):
        time_s = service_s * (1 + max(there - busy / 2, 0.0))
        rate = n / (time_s + away_s)
        there, busy = rate * time_s, min(rate * service_s, 1.0)
    return max(time_s, customers * service_s - away_s)
