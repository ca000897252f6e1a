"""Decoder of ServeGen's client populations: per client the rate and burstiness of each window, and token distributions.

`chunk-N-trace.csv` has no header: window start (s), requests per second, coefficient of variation of the gaps, arrival pattern and
two parameters; an empty pattern means no traffic. `chunk-N-dataset.json` maps window starts to distributions of input_tokens and
output_tokens written as {tokens: probability}. Clients without a dataset draw from the datasets of the others, by their rates.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import Limits
from loadfactor.base.units import NS_PER_S, S_PER_DAY
from loadfactor.sources.public_traces.requests.chunk import LONGEST_D, TOKENS, Ints, RequestChunk

NAME = re.compile(r"chunk-(\d+)-(trace\.csv|dataset\.json)$")
WINDOW_S = 600.0  # the width of a window where there is only one
MOST_REQUESTS = 50_000_000  # of a client in a window
START_S = Limits(at_least=0, at_most=LONGEST_D * S_PER_DAY)
RATE_PER_S = Limits(at_least=0, at_most=1e6)
VARIATION = Limits(at_least=0, at_most=1000)
WEIGHT = Limits(at_least=0, at_most=1e12)
TokenTable = tuple[Ints, NDArray[np.float64]]  # values, cumulative probability


def decode_population(files: Iterable[tuple[str, str]], label: str, scale: float, seed: int) -> Iterator[RequestChunk]:
    """Requests of all clients, window by window, drawn with `seed`; every client's rate is multiplied by `scale`.

    `files` are the names and texts of the chunks.
    """
    rng = np.random.default_rng(seed)
    windows, datasets = _parse_files(files)
    if not any(windows.values()):
        raise SourceError(f"{label}: no chunk-N-trace.csv with traffic inside")
    starts = sorted(windows)
    width_s = float(min(np.diff(starts), default=WINDOW_S))
    tables = {client: _parse_dataset(text) for client, text in datasets.items()}
    if not tables:
        raise SourceError(f"{label}: no chunk-N-dataset.json beside the traces, so no token counts; add at least one")
    clients = sorted(tables)
    for start in starts:
        at, prompts, outputs = [], [], []
        for client, rate, cv in windows[start]:
            gaps = _draw_arrivals(rng, rate * scale, cv, width_s)
            owner = client if client in tables else clients[int(rng.integers(len(clients)))]
            ins, outs = tables[owner]
            at.append(gaps + (start - starts[0]))
            prompts.append(_draw_tokens(rng, ins, len(gaps)))
            outputs.append(_draw_tokens(rng, outs, len(gaps)))
        joined = np.concatenate([np.zeros(0), *at])
        order = np.argsort(joined, kind="stable")
        if order.size:
            times = (joined[order] * NS_PER_S).astype(np.int64)
            yield RequestChunk(times, np.concatenate(prompts)[order], np.concatenate(outputs)[order])


def _draw_arrivals(rng: np.random.Generator, rate: float, cv: float, width: float) -> NDArray[np.float64]:
    """Times in a window whose gaps are gamma with this coefficient of variation."""
    if rate <= 0:
        return np.zeros(0)
    if rate * width > MOST_REQUESTS:
        raise SourceError(
            f"a ServeGen client sends {rate * width:,.3g} requests in a window, more than {MOST_REQUESTS:,}; scale it down"
        )
    shape = 1 / max(cv, 0.05) ** 2
    first = rng.random() / rate
    times = first + np.cumsum(rng.gamma(shape, 1 / (shape * rate), int(rate * width * 1.5 + 20 * cv + 20)))
    return times[times < width]


def _draw_tokens(rng: np.random.Generator, table: TokenTable, count: int) -> NDArray[np.int64]:
    values, cumulative = table
    return values[np.minimum(np.searchsorted(cumulative, rng.random(count)), len(values) - 1)]


def _parse_dataset(text: str) -> tuple[TokenTable, TokenTable]:
    """The distributions of a client, summed over its windows."""
    sums: dict[str, dict[int, float]] = {"input_tokens": {}, "output_tokens": {}}
    try:
        for window in json.loads(text).values():
            for kind, sums_of in sums.items():
                written = window.get(kind) if isinstance(window, dict) else None
                found = ast.literal_eval(written) if isinstance(written, str) else written
                for tokens, chance in (found or {}).items():
                    count = int(_read(str(tokens), TOKENS))
                    sums_of[count] = sums_of.get(count, 0.0) + _read(str(chance), WEIGHT)
    except (ValueError, SyntaxError, AttributeError, TypeError, RecursionError, MemoryError) as error:
        raise SourceError(
            f"a ServeGen dataset is not {{tokens: probability}} per window, with tokens {TOKENS.words}: {error or 'out of range'}"
        ) from None
    return _accumulate(sums["input_tokens"]), _accumulate(sums["output_tokens"])


def _accumulate(weights: dict[int, float]) -> TokenTable:
    values = np.array(sorted(weights), np.int64)
    if not sum(weights.values()) > 0:
        raise SourceError(
            "a ServeGen dataset without input_tokens or output_tokens; expected {tokens: probability} per window"
        )
    cumulative = np.cumsum([weights[int(v)] for v in values])
    return values, cumulative / cumulative[-1]


def _read(text: str, limits: Limits) -> float:
    number = float(text)
    if not limits.admit(number):
        raise ValueError
    return number


def _parse_files(
    files: Iterable[tuple[str, str]],
) -> tuple[dict[float, list[tuple[int, float, float]]], dict[int, str]]:
    windows: dict[float, list[tuple[int, float, float]]] = {}
    datasets: dict[int, str] = {}
    for name, content in files:
        match = NAME.search(name)
        if match is None:
            continue
        client = int(match.group(1))
        if match.group(2).startswith("dataset"):
            datasets[client] = content
            continue
        for line, text in enumerate(content.splitlines(), start=1):
            cells = text.split(",")
            try:
                start, rate = _read(cells[0], START_S), _read(cells[1] or "0", RATE_PER_S)
                cv = _read(cells[2], VARIATION) if cells[2] else 1.0
            except (ValueError, IndexError):
                raise SourceError(
                    f"{name}, line {line}: expected window start (s, {START_S.words}), rate (a second, {RATE_PER_S.words}), "
                    f"variation ({VARIATION.words}), pattern, got {text[:60]!r}"
                ) from None
            open_now = windows.setdefault(start, [])
            if len(cells) > 3 and cells[3].strip() and rate > 0:
                open_now.append((client, rate, cv))
    return windows, datasets
