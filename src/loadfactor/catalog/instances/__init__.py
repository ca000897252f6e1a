"""Types of instances with GPUs that clouds rent out: how many GPUs of which model each has. One TOML file a provider.

A type that is not here has an unknown number of GPUs where its name is spelled as the provider's types with GPUs are; any other
type has none. `share` is the part of a physical GPU that each of a type's GPUs is. Google bills the GPUs of a machine as a SKU of
their own: `skus` maps what that SKU calls them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any, Final

from loadfactor.catalog.facts import fact, read_folder

_SKU: Final = re.compile(r"\bnvidia (?:tesla )?([a-z]{1,2}\d+[a-z]?(?: \d+gb)?)\b.*\bgpus?\b", re.I)
_PREFIXES: Final = ("ml.", "standard_")


@dataclass(frozen=True)
class RentedType:
    """A type of instance. `accelerator` is an id of the catalog or, where the catalog lacks it, its name; memory in GiB."""

    name: str
    provider: str
    gpus: int
    accelerator: str
    share: float
    vcpus: int | None
    memory_gib: float | None
    source: str
    status: str
    retrieved_on: date

    @property
    def whole_gpus(self) -> float:
        """Its GPUs as physical ones."""
        return self.gpus * self.share


@cache
def rented_types() -> Mapping[str, RentedType]:
    """Every type of the catalog, by its name in lower case without what providers put before it."""
    found = {}
    for row in _files():
        for name, item in row["types"].items():
            gpus = fact(item["gpus"], row, f"{row['provider']}: {name}")
            found[_fold(name)] = RentedType(
                name,
                row["provider"],
                int(gpus.value),
                item["accelerator"],
                float(item.get("share", 1.0)),
                item.get("vcpus"),
                item.get("memory_gib"),
                gpus.source,
                gpus.status,
                gpus.retrieved_on,
            )
    return found


def find_rented_type(name: str) -> RentedType | None:
    """The type of this name, as bills write it; None where the catalog has none.

    >>> find_rented_type("ml.p4d.24xlarge").gpus, find_rented_type("Standard_NV18ads_A10_v5").whole_gpus
    (8, 0.5)
    >>> find_rented_type("trn1.32xlarge"), find_rented_type("p99.48xlarge")
    (None, None)
    """
    return rented_types().get(_fold(name))


def may_have_gpus(name: str) -> bool:
    """True where a name is spelled as providers spell their types with GPUs, known or not.

    >>> [may_have_gpus(name) for name in ("p99.48xlarge", "Standard_ND512_X_v9", "m5.large", "trn1.32xlarge", "n2-standard-4")]
    [True, True, False, False, False]
    """
    return any(re.match(row["spelling"], name.strip().lower()) for row in _files())


def find_gpu_sku(sku: str) -> str | None:
    """The accelerator whose hours a SKU sells apart from the machine: an id of the catalog, else its name. None for other SKUs.

    >>> find_gpu_sku("Nvidia Tesla A100 GPU attached to Spot Preemptible VMs running in Americas")
    'a100-sxm-40gb'
    >>> find_gpu_sku("Nvidia H100 80GB Mega GPU running in Iowa"), find_gpu_sku("A2 Instance Ram running in Americas")
    ('h100-sxm', None)
    """
    found = _SKU.search(sku)
    if found is None:
        return None
    known: dict[str, str] = {}
    for row in _files():
        known |= row.get("skus", {})
    return known.get(found[1].lower(), f"NVIDIA {found[1].upper()}")


def sells_gpus_apart(kind: RentedType) -> bool:
    """True where the provider bills the GPUs of a machine as a SKU of their own.

    >>> [sells_gpus_apart(find_rented_type(name)) for name in ("a2-highgpu-1g", "p4d.24xlarge")]
    [True, False]
    """
    return any(row["provider"] == kind.provider and "skus" in row for row in _files())


@cache
def type_pattern() -> str:
    """A regular expression of types that bills name among other words: those of providers whose bills have no column for them."""
    return "|".join(row["in_text"] for row in _files() if "in_text" in row)


@cache
def _files() -> tuple[dict[str, Any], ...]:
    return tuple(read_folder(__name__))


def _fold(name: str) -> str:
    folded = name.strip().lower()
    for prefix in _PREFIXES:
        folded = folded.removeprefix(prefix)
    return folded
