"""What a model says of itself, by its attributes alone: nothing is imported, and what it lacks is left out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

_DATATYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8_e4m3fn": "fp8"}
_WRAPPED: Final = ("module", "_orig_mod")
"""Where DistributedDataParallel and torch.compile keep the model that they were given."""
_LONGEST_CONFIG: Final = 16_000


def describe_network(model: Any, modules: Mapping[str, Any] = sys.modules) -> dict[str, Any]:
    """The configuration of a transformers model, its matrix parameters, and the datatype of its products.

    Parameters of look-ups (embeddings) count nothing, unless the products of the output use them too.

    >>> class Weight:
    ...     dtype = "torch.bfloat16"
    ...     def numel(self): return 600
    ...     def dim(self): return 2
    >>> class Model:
    ...     def parameters(self): return iter([Weight(), Weight()])
    ...     def modules(self): return iter([self])
    >>> describe_network(Model(), {})
    {'parameters': 1200, 'datatype': 'bf16'}
    """
    model = _unwrap(model)
    found: dict[str, Any] = {}
    for name, read in _FACTS.items():
        try:
            value = read(model, modules)
        except Exception:  # somebody else's code: then nobody says it
            value = None
        if value is not None:
            found[name] = value
    return found


def _unwrap(model: Any) -> Any:
    for name in _WRAPPED:
        model = getattr(model, name, model)
    return model


def _read_config(model: Any, _modules: Mapping[str, Any]) -> dict[str, Any] | None:
    config: Any = getattr(model, "config", None)
    if not hasattr(config, "to_dict"):
        return None
    kept = {
        name: value
        for name, value in config.to_dict().items()
        if isinstance(value, (int, float, dict, list)) or name in ("model_type", "_name_or_path")
    }
    plain = json.loads(json.dumps(kept, default=str))
    return plain if len(json.dumps(plain)) <= _LONGEST_CONFIG else None


def _count_parameters(model: Any, _modules: Mapping[str, Any]) -> int | None:
    """Of matrices. Quantized ones hold several in a number: then nobody counts them."""
    weights = {id(weight): weight for weight in model.parameters()}
    if any(hasattr(weight, "quant_state") for weight in weights.values()):
        return None
    tables = [part.weight for part in model.modules() if "Embedding" in type(part).__name__ and hasattr(part, "weight")]
    products = {id(part.weight) for part in model.modules() if type(part).__name__ == "Linear"}
    looked_up = {id(table) for table in tables} - products
    return sum(int(w.numel()) for key, w in weights.items() if w.dim() > 1 and key not in looked_up) or None


def _read_datatype(model: Any, modules: Mapping[str, Any]) -> str | None:
    """The datatype of products: that of autocast where it is on now, else of the weights; fp32 weights leave it open."""
    torch = modules.get("torch")
    if torch is not None and torch.is_autocast_enabled():
        return name_datatype(torch.get_autocast_gpu_dtype())
    datatype = name_datatype(next(iter(model.parameters())).dtype)
    return None if datatype == "fp32" else datatype


def name_datatype(datatype: Any) -> str | None:
    """The short name of a torch datatype.

    >>> name_datatype("torch.bfloat16"), name_datatype("torch.int8")
    ('bf16', None)
    """
    return _DATATYPES.get(str(datatype).rpartition(".")[2])


_FACTS: Final[dict[str, Callable[[Any, Mapping[str, Any]], Any]]] = {
    "config": _read_config,
    "parameters": _count_parameters,
    "datatype": _read_datatype,
}


def watch_datatype(model: Any, report: Callable[[str], None], modules: Mapping[str, Any] = sys.modules) -> None:
    """Report the datatype of a model with fp32 weights when it is called first: autocast, TF32 or fp32 as torch has them then."""
    torch, model = modules.get("torch"), _unwrap(model)
    if torch is None or not hasattr(model, "register_forward_pre_hook"):
        return
    handles: list[Any] = []

    def look(*_: Any) -> None:
        while handles:
            handles.pop().remove()
        try:
            if torch.is_autocast_enabled():
                found = name_datatype(torch.get_autocast_gpu_dtype())
            else:
                found = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "fp32"
            if found is not None:
                report(found)
        except Exception:  # somebody else's code: then nobody says it
            return

    handles.append(model.register_forward_pre_hook(look))
