"""Which requests would a population of ServeGen clients send? Per client: rate and burstiness per window, and token distributions.

`chunk-N-trace.csv` has no header: window start (s), requests per second, coefficient of variation of the gaps, arrival pattern and
two parameters; an empty pattern means no traffic. `chunk-N-dataset.json` maps window starts to distributions of input_tokens and
output_tokens written as {tokens: probability}. Clients without a dataset draw from the datasets of the others, by their rates.
"""

import ast
import json
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loadfactor.errors import SourceError
from loadfactor.sources.public_traces.requests import RequestChunk
from loadfactor.units import NS_PER_S

NAME = re.compile(r"chunk-(\d+)-(trace\.csv|dataset\.json)$")
Table = tuple[NDArray[np.int64], NDArray[np.float64]]  # values, cumulative probability


def is_population(path: Path) -> bool:
    """Whether this is a folder or tar of client chunks."""
    if path.is_dir():
        return any(NAME.search(p.name) for p in path.iterdir())
    return path.is_file() and ".tar" in path.name and tarfile.is_tarfile(path)


def read(path: Path, scale: float, seed: int) -> Iterator[RequestChunk]:
    """Requests of all clients, window by window, drawn with `seed`; every client's rate is multiplied by `scale`."""
    rng = np.random.default_rng(seed)
    windows, datasets = _load(path)
    if not any(windows.values()):
        raise SourceError(f"{path}: no chunk-N-trace.csv with traffic inside")
    starts = sorted(windows)
    width = float(min(np.diff(starts), default=600)) if len(starts) > 1 else 600.0
    tables = {client: _tables(text) for client, text in datasets.items()}
    if not tables:
        raise SourceError(f"{path}: no chunk-N-dataset.json beside the traces, so no token counts; add at least one")
    none = np.zeros(0, np.int64)
    clients = sorted(tables)
    for start in starts:
        at, prompts, outputs = [], [], []
        for client, rate, cv in windows[start]:
            gaps = _arrivals(rng, rate * scale, cv, width)
            owner = client if client in tables else clients[int(rng.integers(len(clients)))]
            ins, outs = tables[owner]
            at.append(gaps + (start - starts[0]))
            prompts.append(_draw(rng, ins, len(gaps)))
            outputs.append(_draw(rng, outs, len(gaps)))
        joined = np.concatenate([np.zeros(0), *at])
        order = np.argsort(joined, kind="stable")
        if order.size:
            times = (joined[order] * NS_PER_S).astype(np.int64)
            yield RequestChunk(times, np.concatenate(prompts)[order], np.concatenate(outputs)[order], none, none)


def _arrivals(rng: np.random.Generator, rate: float, cv: float, width: float) -> NDArray[np.float64]:
    """Times in a window whose gaps are gamma with this coefficient of variation."""
    if rate <= 0:
        return np.zeros(0)
    shape = 1 / max(cv, 0.05) ** 2
    first = rng.random() / rate
    times = first + np.cumsum(rng.gamma(shape, 1 / (shape * rate), int(rate * width * 1.5 + 20 * cv + 20)))
    return times[times < width]


def _draw(rng: np.random.Generator, table: Table, count: int) -> NDArray[np.int64]:
    values, cumulative = table
    return values[np.minimum(np.searchsorted(cumulative, rng.random(count)), len(values) - 1)]


def _tables(text: str) -> tuple[Table, Table]:
    """The distributions of a client, summed over its windows."""
    sums: dict[str, dict[int, float]] = {"input_tokens": {}, "output_tokens": {}}
    for window in json.loads(text).values():
        for kind, sums_of in sums.items():
            written = window.get(kind) if isinstance(window, dict) else None
            found = ast.literal_eval(written) if isinstance(written, str) else written
            for tokens, chance in (found or {}).items():
                sums_of[int(tokens)] = sums_of.get(int(tokens), 0.0) + float(chance)
    return _table(sums["input_tokens"]), _table(sums["output_tokens"])


def _table(weights: dict[int, float]) -> Table:
    values = np.array(sorted(weights), np.int64)
    if not values.size:
        raise SourceError(
            "a ServeGen dataset without input_tokens or output_tokens; expected {tokens: probability} per window"
        )
    cumulative = np.cumsum([weights[int(v)] for v in values])
    return values, cumulative / cumulative[-1]


def _load(path: Path) -> tuple[dict[float, list[tuple[int, float, float]]], dict[int, str]]:
    windows: dict[float, list[tuple[int, float, float]]] = {}
    datasets: dict[int, str] = {}
    for name, text_of in _files(path):
        match = NAME.search(name)
        if match is None:
            continue
        client = int(match.group(1))
        if match.group(2).startswith("dataset"):
            datasets[client] = text_of()
            continue
        for line, text in enumerate(text_of().splitlines(), start=1):
            cells = text.split(",")
            try:
                start, rate = float(cells[0]), float(cells[1] or 0)
                cv = float(cells[2]) if cells[2] else 1.0
            except (ValueError, IndexError):
                raise SourceError(
                    f"{name}, line {line}: expected window start, rate, variation, pattern, got {text[:60]!r}"
                ) from None
            open_now = windows.setdefault(start, [])
            if len(cells) > 3 and cells[3].strip() and rate > 0:
                open_now.append((client, rate, cv))
    return windows, datasets


def _files(path: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    """Every file of the folder or tar; a tar named …traces… is read together with its sibling …datasets…."""
    if path.is_dir():
        for file in sorted(path.iterdir()):
            yield file.name, lambda file=file: file.read_text(encoding="utf-8")  # type: ignore[misc]
        return
    for tar in (path, path.with_name(path.name.replace("traces", "datasets"))):
        if tar.exists() and (tar == path or tar.name != path.name):
            with tarfile.open(tar) as archive:
                for member in archive:
                    held = archive.extractfile(member) if member.isfile() else None
                    if held is not None:
                        text = held.read().decode("utf-8")
                        yield member.name, lambda text=text: text  # type: ignore[misc]
