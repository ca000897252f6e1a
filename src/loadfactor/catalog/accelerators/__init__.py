"""Accelerators and what each can do: one TOML file each, each value with its source. Adding one means adding a file.

Keys of `[facts]` end in their unit. Peaks are dense (no sparsity). `scale_up_*` is the domain in which accelerators reach
each other at full link speed (8 on an HGX board, 72 in an NVL72 rack), per accelerator and per direction; `scale_out_*` is
the network between domains, per accelerator and direction; `pcie_bytes_per_s` the link to the host, per direction.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from loadfactor.base.errors import CatalogError, InputError, no_such
from loadfactor.base.units import BYTES_PER_GB, BYTES_PER_GIB
from loadfactor.catalog.facts import Fact, fact, read_folder

# Datasheets print gigabytes of memory and mean binary ones: an "80 GB" H100 shows 81,559 MiB, a "180 GB" B200 183,359 MiB.
DRIVER_BYTES_PER_DATASHEET_BYTE = BYTES_PER_GIB / BYTES_PER_GB * 0.995
_VENDORS = ("nvidia", "amd", "intel", "google", "cloud", "tesla", "geforce", "instinct", "habana", "aws", "huawei")
_FILLERS = (*_VENDORS, "gpu", "chip", "tensor", "core", "oam")
_FORMS = re.compile(r"(sxm\d?|hgx|dgx|pcie|pci|nvl\d*)")
_WORDS = re.compile(r"(?P<memory>\d+) ?gi?b?\b|(?P<power>\d+) ?w\b|(?P<kind>hbm\d?e?|gddr\d\w?)\b|(?P<word>[a-z0-9]+)")


@dataclass(frozen=True)
class Accelerator:
    """One accelerator of the catalog. `facts` maps a name with its unit to the value and its source."""

    id: str
    name: str
    vendor: str
    architecture: str
    form_factor: str
    memory_type: str
    interconnect: str
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
    def driver_memory_bytes(self) -> float:
        """Memory as the driver reports it, bytes. Where nobody saw it, as most report: datasheets mean binary gigabytes.

        >>> accelerator("h100-sxm").driver_memory_bytes / 2**20, accelerator("h100-pcie").driver_memory_bytes / 2**20
        (81559.0, 81510.4)
        """
        return self.get("driver_memory_bytes") or self.memory_bytes * DRIVER_BYTES_PER_DATASHEET_BYTE

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

    @property
    def nvlink_bytes_per_s(self) -> float | None:
        """NVLink in both directions together, bytes/s; None where its scale-up domain is no NVLink."""
        return 2 * self.scale_up_bytes_per_s if self.interconnect.startswith("NVLink") else None

    @property
    def reduces_in_switch(self) -> bool:
        """Whether the switches between them add up what passes (NVLink SHARP: from NVLink 4 on).

        >>> accelerator("h100-sxm").reduces_in_switch, accelerator("a100-sxm").reduces_in_switch
        (True, False)
        """
        return re.match(r"NVLink ?[4-9]", self.interconnect) is not None


@cache
def accelerators() -> Mapping[str, Accelerator]:
    """Every accelerator of the catalog by id, in the order of their ids."""
    found = {}
    for row in read_folder(__name__):
        facts = {k: fact(v, row, f"{row['id']}: {k}") for k, v in row["facts"].items()}
        texts = {
            k: row[k] for k in ("id", "name", "vendor", "architecture", "form_factor", "memory_type", "interconnect")
        }
        found[row["id"]] = Accelerator(**texts, aliases=tuple(row["aliases"]), note=row.get("note", ""), facts=facts)
    return found


@dataclass(frozen=True)
class Spelling:
    """The features one spelling states; an empty one is not stated. `power` sets a part apart from its plain version."""

    family: str
    form: str = ""
    memory_gb: int = 0
    memory_type: str = ""
    power: str = ""


@dataclass(frozen=True)
class Product:
    """An accelerator by the features that spellings state; families and memory sizes in every way they are written."""

    id: str
    families: frozenset[str]
    form: str
    memory_gb: frozenset[int]
    memory_type: str
    power: str

    def matches(self, spelling: Spelling) -> bool:
        """True when it has every feature stated."""
        return (
            spelling.family in self.families
            and spelling.form in ("", self.form)
            and (not spelling.memory_gb or spelling.memory_gb in self.memory_gb)
            and spelling.memory_type in ("", self.memory_type)
            and spelling.power == self.power
        )


@cache
def _products() -> Mapping[str, Product]:
    """Products by the id of their accelerator."""
    return {
        item.id: describe_product(item.id, item.aliases, item.form_factor, item.memory_type, item.memory_bytes)
        for item in accelerators().values()
    }


@cache
def find_accelerator(name: str) -> Accelerator | None:
    """The accelerator with this id, name or alias, or that has every feature the name states; None when there is none.

    >>> [find_accelerator(name).id for name in ("H100-80GB", "A100 SXM4 80GB", "b200_sxm", "NVIDIA H100 80GB HBM3")]
    ['h100-sxm', 'a100-sxm', 'b200-sxm', 'h100-sxm']
    >>> find_accelerator("H100 PCIe").id, find_accelerator("A100-40GB").id, find_accelerator("V100-16GB")
    ('h100-pcie', 'a100-sxm-40gb', None)
    """
    spelling = name.strip().lower()
    for item in accelerators().values():
        if spelling in (item.id, item.name.lower(), *(alias.lower() for alias in item.aliases)):
            return item
    found = match_spelling(name, _products().values())
    return accelerators()[found.id] if found else None


def accelerator(name: str) -> Accelerator:
    """Like `find_accelerator`, but raises InputError with the nearest names when it is not in the catalog.

    >>> accelerator("V100 16GB")
    Traceback (most recent call last):
    loadfactor.base.errors.InputError: no accelerator called 'V100 16GB'; did you mean 'v100-pcie' or 'v100-sxm'?
    """
    found = find_accelerator(name)
    if found is None:
        family = read_spelling(name).family
        same = [product.id for product in _products().values() if family in product.families]
        if same:
            raise InputError(f"no accelerator called {name!r}; did you mean {' or '.join(map(repr, same))}?")
        raise no_such("accelerator", name, accelerators(), "`loadfactor catalog accelerators` lists the known ones")
    return found


def read_spelling(name: str) -> Spelling:
    """The features a name states; the family keeps every word that is no other feature.

    >>> read_spelling("NVIDIA H100 80GB HBM3")
    Spelling(family='h100', form='', memory_gb=80, memory_type='hbm3', power='')
    >>> read_spelling("A100-SXM4-40GB MIG 3g.20gb").family, read_spelling("RTX 3090 Ti").family
    ('a100mig', 'rtx3090ti')
    """
    family = form = memory_type = power = ""
    memory_gb = 0
    for piece in _WORDS.finditer(_FORMS.sub(r" \1 ", re.sub(r"[-_(),.]", " ", name.lower()))):
        word = piece["word"]
        if piece["memory"]:
            memory_gb = int(piece["memory"])
        elif piece["power"]:
            power = piece["power"]
        elif piece["kind"]:
            memory_type = piece["kind"]
        elif _FORMS.fullmatch(word):
            form = word if word.startswith("nvl") else "pcie" if word.startswith("pci") else "sxm"
        elif word not in _FILLERS:
            family += word
    return Spelling(family, form, memory_gb, memory_type, power)


def describe_product(
    id: str, aliases: Iterable[str], form_factor: str, memory_type: str, memory_bytes: float
) -> Product:
    own, others = read_spelling(id), [read_spelling(alias) for alias in aliases]
    return Product(
        id,
        frozenset(one.family for one in (own, *others)),
        own.form or read_spelling(form_factor).form,
        frozenset({round(memory_bytes / BYTES_PER_GB), *(one.memory_gb for one in others)}),
        memory_type.lower(),
        own.power,
    )


def match_spelling(name: str, known: Iterable[Product]) -> Product | None:
    """The product that a name stands for, or None.

    Of several that have all that is stated it is the board part (SXM) with most memory: what "A100" means in papers.
    """
    spelling = read_spelling(name)
    found = [one for one in known if one.matches(spelling)]
    return max(found, key=lambda one: (one.form == "sxm", max(one.memory_gb)), default=None)
