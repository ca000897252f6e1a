"""Which accelerators exist, and what can each do? One TOML file each; adding one means adding a file.

Keys of `[facts]` end in their unit. Peaks are dense (no sparsity). `scale_up_*` is the domain in which accelerators reach
each other at full link speed (8 on an HGX board, 72 in an NVL72 rack), per accelerator and per direction; `scale_out_*` is
the network between domains, per accelerator and direction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from loadfactor.catalog.facts import Fact, fact, read_toml
from loadfactor.errors import CatalogError, InputError


@dataclass(frozen=True)
class Accelerator:
    """One accelerator of the catalog. `facts` maps a name with its unit to the value and its source."""

    id: str
    name: str
    vendor: str
    architecture: str
    form_factor: str
    aliases: tuple[str, ...]
    note: str
    facts: Mapping[str, Fact]

    def value(self, name: str) -> float:
        """The value of one fact; raises CatalogError when the catalog does not know it."""
        if name not in self.facts:
            raise CatalogError(
                f"the catalog does not know {name} of {self.id}; add it to catalog/accelerators/{self.id}.toml"
            )
        return self.facts[name].value

    def get(self, name: str) -> float | None:
        """The value of one fact, or None when the catalog does not know it."""
        return self.facts[name].value if name in self.facts else None

    def peak_flops(self, datatype: str) -> float:
        """Dense peak FLOP/s of a datatype: fp32, tf32, fp16, bf16, fp8, int8, fp4.

        >>> accelerator("h100-sxm").peak_flops("bf16") / 1e12
        989.4
        """
        return self.value(f"peak_{datatype}_flops")

    @property
    def memory_bytes(self) -> float:
        """Memory as the datasheet prints it, bytes."""
        return self.value("memory_bytes")

    @property
    def memory_bandwidth_bytes_per_s(self) -> float:
        """Peak memory bandwidth, bytes/s."""
        return self.value("memory_bandwidth_bytes_per_s")

    @property
    def scale_up_gpus(self) -> int:
        """How many accelerators share one scale-up domain."""
        return int(self.value("scale_up_gpus"))

    @property
    def scale_up_bytes_per_s(self) -> float:
        """Link speed inside the scale-up domain, bytes/s per accelerator and direction."""
        return self.value("scale_up_bytes_per_s")


@cache
def accelerators() -> Mapping[str, Accelerator]:
    """Every accelerator of the catalog by id, in the order of their ids."""
    found = {}
    for entry in sorted(files(__name__).iterdir(), key=lambda e: e.name):
        if not entry.name.endswith(".toml"):
            continue
        row = read_toml(__name__, entry.name)
        facts = {k: fact(v, row, f"{entry.name}: {k}") for k, v in row["facts"].items()}
        found[row["id"]] = Accelerator(
            row["id"],
            row["name"],
            row["vendor"],
            row["architecture"],
            row["form_factor"],
            tuple(row["aliases"]),
            row.get("note", ""),
            facts,
        )
    return found


def find_accelerator(name: str) -> Accelerator | None:
    """The accelerator with this id, name or alias (as drivers and papers write it), or None; case does not matter."""
    wanted = name.strip().lower()
    for item in accelerators().values():
        if wanted in (item.id, item.name.lower(), *(alias.lower() for alias in item.aliases)):
            return item
    return None


def accelerator(name: str) -> Accelerator:
    """Like `find_accelerator`, but raises InputError, naming what there is, when it is not in the catalog."""
    found = find_accelerator(name)
    if found is None:
        raise InputError(f"no accelerator called {name!r} in the catalog; it knows {', '.join(accelerators())}")
    return found
