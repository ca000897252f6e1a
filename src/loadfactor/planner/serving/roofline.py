"""Speed-up and compute share against batch size, in the plain roofline where decoding is memory-bound; the batch of a steady load.

Letters: b sequences in a batch, κ = K/W the cache bytes of one sequence over the weight bytes. A step reads W + b·K, so b tokens
cost (1 + bκ)/(1 + κ) of one (reference: economics of batching, arXiv:2211.05102 §2).
"""

from loadfactor.base.errors import PlanError


def cache_to_weights(
    parameters: float, kv_bytes_per_token: float, context: float, bytes_per_weight: float = 2
) -> float:
    """κ: cache bytes of one sequence of `context` tokens over the bytes of the weights.

    >>> round(cache_to_weights(6.738e9, 524288, 512), 5)
    0.01992
    """
    if parameters <= 0:
        raise PlanError(f"parameters must be positive, got {parameters:g}")
    return kv_bytes_per_token * context / (parameters * bytes_per_weight)


def batch_speedup(batch: float, kappa: float) -> float:
    """Throughput of a batch over that of one sequence while memory is the limit: b(1 + κ)/(1 + bκ); at most (1 + κ)/κ.

    >>> batch_speedup(64, 0.0), round(batch_speedup(64, 37 / 1664), 9)
    (64.0, 27.0)
    """
    return batch * (1 + kappa) / (1 + batch * kappa)


def compute_share(
    batch: float, kappa: float, bytes_per_s: float, flops_per_s: float, flops_per_weight_byte: float = 1.0
) -> float:
    """Share of peak FLOP/s used by memory-bound decoding: (BW/peak)·b/(1 + bκ); two FLOPs for two bytes of a 16-bit weight.

    >>> round(compute_share(1, 0.0, 2039e9, 312e12), 6)
    0.006535
    """
    return flops_per_weight_byte * bytes_per_s / flops_per_s * batch / (1 + batch * kappa)


def batch_for_compute_share(
    share: float, kappa: float, bytes_per_s: float, flops_per_s: float, flops_per_weight_byte: float = 1.0
) -> float | None:
    """The batch at which decoding uses `share` of peak; None when the cache forbids it at any batch (κ ≥ BW/(peak·share)).

    >>> round(batch_for_compute_share(0.5, 0.0, 2039e9, 312e12)), batch_for_compute_share(0.5, 0.0222, 2039e9, 312e12)
    (77, None)
    """
    once = flops_per_weight_byte * bytes_per_s / flops_per_s
    if share * kappa >= once:
        return None
    return share / (once - share * kappa)


def steady_batch(step_fixed_s: float, step_per_sequence_s: float, load_share: float) -> float:
    """Sequences in a replica in steady state when a step takes α + βb: b = (α/β)·u/(1 − u), u = λ·n·β (Little's law).

    `load_share` u is the offered tokens per second over the most the replica can make, 1/β.

    >>> round(steady_batch(0.00660912211868563, 0.00014695764326404348, 0.587), 4)
    63.9204
    """
    if not 0 <= load_share < 1:
        raise PlanError(f"the load must be below the replica's capacity, got {load_share:g} of it; add replicas")
    return step_fixed_s / step_per_sequence_s * load_share / (1 - load_share)
