"""Networks known by name and the shape of each: one TOML file each. Adding one means adding a file.

`network(name)` looks one up, `from_hf_config` reads any Hugging Face config.json, `read_network` takes either.
The keys of a data file are the fields of `Network`; lists of layer numbers may be written `"0-2"` or `"0-58/2"` (every other).
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from typing import Any

from loadfactor.base.errors import InputError
from loadfactor.base.paths import read_path
from loadfactor.catalog.facts import read_folder
from loadfactor.catalog.models.hf_config import from_hf_config
from loadfactor.catalog.models.network import (
    Experts,
    GlobalAttention,
    LatentAttention,
    LinearAttention,
    Network,
    Quantization,
    SparseIndexer,
)

__all__ = [
    "Experts",
    "GlobalAttention",
    "LatentAttention",
    "LinearAttention",
    "Network",
    "Quantization",
    "SparseIndexer",
    "find_network",
    "from_hf_config",
    "network",
    "networks",
    "read_network",
]
PIECES = {
    "experts": Experts,
    "latent": LatentAttention,
    "indexer": SparseIndexer,
    "linear": LinearAttention,
    "full": GlobalAttention,
    "quantization": Quantization,
}
SAME_SHAPE = ("meta", "instruct", "chat", "base", "it", "hf")  # words of a name that do not change the network
STATES_SIZE = re.compile(
    r"\d[bt]\b"
)  # "70b": without it, names are too short to be read loosely ("gpt2" is not "gpt-2")
NOT_SHAPE = ("id", "aliases", "status", "retrieved_on", "published_parameters", "published_active_parameters", "note")


def layer_numbers(written: str | list[int]) -> tuple[int, ...]:
    """The layer numbers of a data file: a list, or ranges like "0-2,5" and "0-34/2".

    >>> layer_numbers("0-2,5"), layer_numbers("0-6/3")
    ((0, 1, 2, 5), (0, 3, 6))
    """
    if not isinstance(written, str):
        return tuple(written)
    found: list[int] = []
    for piece in filter(None, written.split(",")):
        span, _, step = piece.partition("/")
        first, _, last = span.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return tuple(found)


def _network(row: Mapping[str, Any]) -> Network:
    shape = {k: v for k, v in row.items() if k not in NOT_SHAPE}
    for key, piece in PIECES.items():
        if key in shape:
            inner = {k: layer_numbers(v) if k in ("layers", "dense_layers") else v for k, v in shape[key].items()}
            inner = {k: tuple(v) if isinstance(v, list) else v for k, v in inner.items()}
            inner = {k: None if v == "none" else v for k, v in inner.items()}
            shape[key] = piece(**inner)
    if "sliding_layers" in shape:
        shape["sliding_layers"] = layer_numbers(shape["sliding_layers"])
    shape.setdefault("kv_heads", shape["heads"])
    shape.setdefault("head_dim", shape["hidden"] // shape["heads"])
    return Network(**{"name": row["id"], **shape})


@cache
def catalog_rows() -> Mapping[str, Mapping[str, Any]]:
    """The data files as they are written, by id: also says what parameter counts were published."""
    return {row["id"]: row for row in read_folder(__name__)}


@cache
def networks() -> Mapping[str, Network]:
    """Every network of the catalog by id, in the order of their ids."""
    return {key: _network(row) for key, row in catalog_rows().items()}


@cache
def find_network(name: str) -> Network | None:
    """The network with this id or alias (its Hugging Face name, say), or None; case, separators and organisation do not matter.

    >>> [find_network(name).name for name in ("meta-llama/Llama-3.1-70B", "Llama 3.1 70B", "llama3.1_70b-instruct")]
    ['llama-3.1-70b', 'llama-3.1-70b', 'llama-3.1-70b']
    """
    spelling = name.strip().lower().replace("_", "-")
    for key, row in catalog_rows().items():
        spelled = {key, *(alias.lower() for alias in row.get("aliases", ()))}
        spelled |= {alias.rpartition("/")[2] for alias in spelled}
        if {spelling, spelling.rpartition("/")[2]} & spelled:
            return networks()[key]
        if STATES_SIZE.search(spelling) and _squeeze(spelling) in map(_squeeze, spelled):
            return networks()[key]
    return None


def _squeeze(name: str) -> str:
    """A name without its organisation, separators, and words for versions that have the same shape."""
    words = re.findall(r"[a-z0-9.]+", name.rpartition("/")[2])
    return "".join(word for word in words if word not in SAME_SHAPE)


def network(name: str) -> Network:
    """Like `find_network`, but raises InputError with the nearest names when it is not in the catalog.

    >>> network("llama-3.1-70b").kv_heads
    8
    """
    found = find_network(name)
    if found is None:
        near = get_close_matches(name.lower().replace(" ", "-"), networks(), n=3, cutoff=0.4)
        hint = (
            f"did you mean {' or '.join(map(repr, near))}?"
            if near
            else "`loadfactor catalog models` lists the known ones."
        )
        raise InputError(f"no network called {name!r}; {hint} A path to a Hugging Face config.json works too")
    return found


def read_network(name_or_path: str) -> Network:
    """A network of the catalog by name, or the one a config.json (or a folder with one) describes."""
    path = read_path(name_or_path)
    if path.suffix == ".json" or (path / "config.json").is_file():
        return from_hf_config(path)
    return replace(network(name_or_path))
