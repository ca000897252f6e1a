"""Traces at another rate: requests dropped or repeated at random."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from loadfactor.base.units import NS_PER_S
from loadfactor.sources.public_traces.requests.chunk import Ints, RequestChunk

SPREAD_NS: Final = 30 * NS_PER_S  # a request repeated to scale a trace up comes again within half a minute


def scale_requests(stream: Iterator[RequestChunk], scale: float, seed: int) -> Iterator[RequestChunk]:
    """The chunks with requests dropped or repeated, so that the rate is multiplied by `scale`; `seed` draws which.

    Repetitions come a little later, so that they are no burst of their own.
    """
    rng = np.random.default_rng(seed)
    later: RequestChunk | None = None
    for chunk in stream:
        copies = (np.floor(scale) + (rng.random(chunk.at_ns.size) < scale % 1.0)).astype(np.int64)
        picked = np.repeat(np.arange(copies.size), copies)
        repeated = np.diff(picked, prepend=-1) == 0
        at = chunk.at_ns[picked] + np.where(repeated, rng.integers(1, SPREAD_NS, picked.size), 0)
        upto = int(chunk.at_ns[-1]) if chunk.at_ns.size else 0
        chunk = _pick(chunk, picked, at)
        chunk = chunk if later is None else _join(later, chunk)
        order = np.argsort(chunk.at_ns, kind="stable")
        now = chunk.at_ns[order] <= upto
        later = _pick(chunk, order[~now], chunk.at_ns[order[~now]])
        yield _pick(chunk, order[now], chunk.at_ns[order[now]])
    if later is not None and later.at_ns.size:
        yield later


def _pick(chunk: RequestChunk, picked: Ints, at_ns: Ints) -> RequestChunk:
    """These requests of a chunk, at other times."""
    prompts, outputs = chunk.prompt_tokens[picked], chunk.output_tokens[picked]
    if not chunk.offsets.size:
        return RequestChunk(at_ns, prompts, outputs, chunk.offsets, chunk.hashes)
    lengths = np.diff(chunk.offsets)[picked]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    hashes = chunk.hashes[np.repeat(chunk.offsets[:-1][picked], lengths) + within]
    return RequestChunk(at_ns, prompts, outputs, offsets, hashes)


def _join(first: RequestChunk, second: RequestChunk) -> RequestChunk:
    offsets = first.offsets
    if second.offsets.size:
        offsets = np.concatenate([first.offsets, second.offsets[1:] + (first.offsets[-1] if first.offsets.size else 0)])
    return RequestChunk(
        np.concatenate([first.at_ns, second.at_ns]),
        np.concatenate([first.prompt_tokens, second.prompt_tokens]),
        np.concatenate([first.output_tokens, second.output_tokens]),
        offsets,
        np.concatenate([first.hashes, second.hashes]),
    )
