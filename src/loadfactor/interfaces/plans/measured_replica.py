"""The load tests that `plan serve --measured` names: files of results, and engines that run, scraped twice."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from loadfactor.base.errors import InputError, SourceError
from loadfactor.base.limits import Limits, shorten
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.planner.serving.calibration import LoadTestResult, read_load_tests
from loadfactor.sources.files import read_file
from loadfactor.sources.serving_engines.load_between import measure_between

MOST_MEASURED_BYTES = 256 * BYTES_PER_MIB  # of a file of results, which may list every request
PAGE_BYTES = 64 * BYTES_PER_MIB
ANSWER_S = 30.0  # until an engine's page is there
BETWEEN_S = 60.0  # from one page of an engine to the next, where nothing is given
SECONDS = Limits(at_least=0.01, at_most=3600)


def read_measured(words: Sequence[str], progress: Callable[[str], None]) -> tuple[LoadTestResult, ...]:
    """The runs of these files, and what engines at these addresses serve while they are watched (`seconds=60`).

    Raises InputError, or SourceError, of one line for what cannot be read.
    """
    given = [word.removeprefix("seconds=") for word in words if word.startswith("seconds=")]
    places = [word for word in words if not word.startswith("seconds=")]
    if len(given) > 1 or (given and not any(map(is_address, places))):
        raise InputError(
            "--measured seconds=60 says once for how long an engine is watched; give its http://NODE:PORT/metrics"
        )
    span_s = _read_seconds(given[0]) if given else BETWEEN_S
    found: list[LoadTestResult] = []
    for place in places:
        if is_address(place):
            found.append(watch_engine(place, span_s, progress))
        else:
            found.extend(read_load_tests(_read_text(Path(place)), place))
    return tuple(found)


def is_address(word: str) -> bool:
    """Whether it is an engine's address, and no file."""
    return word.startswith(("http://", "https://"))


def watch_engine(address: str, span_s: float, progress: Callable[[str], None]) -> LoadTestResult:
    """What the engine at an address serves between two pages, `span_s` seconds apart; its concurrency by Little's law."""
    first, began = _fetch(address), time.monotonic()
    progress(f"watching {address} for {span_s:g} s")
    time.sleep(span_s)
    last = _fetch(address)
    load = measure_between(first, last, time.monotonic() - began, address)
    output = load.output_tokens / load.requests
    together = load.requests / load.span_s * (load.ttft_s + load.tpot_s * max(output - 1, 0.0))
    return LoadTestResult(
        max(together, 1.0), load.prompt_tokens / load.requests, output, load.ttft_s, load.tpot_s, load.model
    )


def _read_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SECONDS.admit(seconds):
        raise InputError(f"--measured seconds is a number {SECONDS.words}, got {shorten(text)}")
    return seconds


def _fetch(address: str) -> bytes:
    content = b""
    try:
        with httpx.stream("GET", address, timeout=ANSWER_S, follow_redirects=True) as answer:
            answer.raise_for_status()
            for piece in answer.iter_bytes():
                content += piece
                if len(content) > PAGE_BYTES:
                    raise SourceError(
                        f"{address}: its page is longer than {PAGE_BYTES:,} bytes; give an engine's /metrics"
                    )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SourceError(
            f"{address} cannot be read: {error or type(error).__name__}; give a running engine's /metrics"
        ) from None
    return content


def _read_text(path: Path) -> str:
    try:
        return read_file(path, MOST_MEASURED_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(f"{path} is no text; --measured takes the JSON of a load test") from None
