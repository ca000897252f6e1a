"""What a running engine did between two of its pages: requests, tokens, and how long first and later tokens took.

Times are of the engine's own histograms; between two pages of one process their sums and counts grew by what was served meanwhile.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.exposition import find_head_end, list_labels, read_sample, split_head
from loadfactor.sources.serving_engines.engines import COUNTED, ENGINES, OUTPUT, PROMPT, REQUEST, Labels, spell
from loadfactor.sources.serving_engines.pages import read_pages

FIRST: Final = "first"
LATER: Final = ("per_request", "between", "per_token")
"""Times per token, the best one first: of requests, between tokens as they were sent, and as older releases call the latter."""
_TIMED: Final = re.compile(
    r"(?:ray_)?(?:vllm|sglang|trtllm)_(?:(?P<first>time_to_first_token)|(?P<per_request>request_time_per_output_token)"
    r"|(?P<between>inter_token_latency)|(?P<per_token>time_per_output_token))_seconds_(?P<part>sum|count)"
)
_COPIES: Final = frozenset(label for engine in ENGINES for label in engine.copies)
FEWEST_REQUESTS: Final = 10
"""With fewer that ended, lengths are those of whoever happened to end."""


@dataclass(frozen=True)
class LoadBetween:
    """What one engine served in `span_s` seconds; times are means, in seconds. `model` is the name it serves, where it tells."""

    span_s: float
    requests: float
    prompt_tokens: float
    output_tokens: float
    ttft_s: float
    tpot_s: float
    model: str | None


def measure_between(first: bytes, last: bytes, span_s: float, where: str) -> LoadBetween:
    """What the engine of two pages served between them, `span_s` seconds apart.

    Raises SourceError of one line: no engine's pages, one that began again meanwhile, no times, or too few requests.
    """
    grown = _subtract(_read_counts(first, where), _read_counts(last, where), where)
    requests, prompts, outputs = (grown.get(unit, 0.0) for unit in (REQUEST, PROMPT, OUTPUT))
    if requests < FEWEST_REQUESTS or not prompts or not outputs:
        raise SourceError(
            f"{where}: {requests:.0f} requests ended in {span_s:g} s, too few to learn from; measure under load, or for longer"
        )
    timed = _subtract(_read_times(first), _read_times(last), where)
    ttft_s = _divide(timed, FIRST)
    tpot_s = next((found for kind in LATER if (found := _divide(timed, kind)) is not None), None)
    if ttft_s is None or tpot_s is None:
        raise SourceError(
            f"{where} tells no time to the first token or between tokens; vLLM, SGLang and TensorRT-LLM do, with their metrics on"
        )
    return LoadBetween(span_s, requests, prompts, outputs, ttft_s, tpot_s, _find_model(last, where))


def _divide(timed: Mapping[str, float], kind: str) -> float | None:
    count = timed.get(f"{kind} count", 0.0)
    return timed.get(f"{kind} sum", 0.0) / count if count > 0 else None


def _subtract(before: Mapping[str, float], after: Mapping[str, float], where: str) -> dict[str, float]:
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    if any(value < 0 for value in grown.values()) or before.keys() - after.keys():
        raise SourceError(f"{where}: its counters fell between the two pages, so it began again; measure once more")
    return grown


def _read_counts(page: bytes, where: str) -> dict[str, float]:
    """Tokens and requests by unit, of all engines of a page together."""
    found: dict[str, float] = defaultdict(float)
    for one in read_pages(Input(where, [page]), where, []):
        for unit in (REQUEST, PROMPT, OUTPUT):
            name = next((name for name in COUNTED[unit] if name in one.counters), None)
            if name is not None:
                found[unit] += sum(one.counters[name].values())
    if not found:
        raise SourceError(
            f"{where} has no metrics of vLLM, SGLang or TensorRT-LLM; give the address of an engine's /metrics"
        )
    return found


def _list_series(page: bytes) -> dict[tuple[str, Labels], float]:
    """The values of a page by name, as it is compared, and labels; ranks of the same work once."""
    found: dict[tuple[str, Labels], float] = {}
    for line in page.decode(errors="replace").splitlines():
        if not line or line.startswith("#"):
            continue
        cut = find_head_end(line)
        sample, parts = read_sample(line[cut:]), split_head(line[:cut])
        if sample is not None and parts is not None:
            labels = tuple(sorted((n, v) for n, v in list_labels(parts[1]).items() if n not in _COPIES))
            found.setdefault((spell(parts[0]), labels), sample[0])
    return found


def _read_times(page: bytes) -> dict[str, float]:
    """Sums and counts of the histograms of times, of all engines of a page together."""
    found: dict[str, float] = defaultdict(float)
    for (name, _), value in _list_series(page).items():
        timed = _TIMED.fullmatch(name)
        if timed is not None:
            kind = next(kind for kind in (FIRST, *LATER) if timed[kind])
            found[f"{kind} {timed['part']}"] += value
    return found


def _find_model(page: bytes, where: str) -> str | None:
    """The name of the network that a page's engines serve; None where they tell several, or none."""
    names = {
        value
        for one in read_pages(Input(where, [page]), where, [])
        for series in one.counters.values()
        for labels in series
        for label, value in labels
        if label == "model_name"
    }
    return names.pop() if len(names) == 1 else None
