"""Spellings of accelerators that papers, clouds and drivers use, read as the features that they state.

"NVIDIA A100-SXM4-80GB", "A100 80GB SXM" and "a100_sxm4_80gb" state the same family, form and memory. A spelling stands for a
product that has every feature it states. A word that is no known feature ("MIG", "Ti") makes another family: another product.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from loadfactor.base.units import BYTES_PER_GB

_VENDORS = ("nvidia", "amd", "intel", "google", "cloud", "tesla", "geforce", "instinct", "habana")
_FILLERS = (*_VENDORS, "gpu", "chip", "tensor", "core", "oam")
_FORMS = re.compile(r"(sxm\d?|hgx|dgx|pcie|pci|nvl\d*)")
_WORDS = re.compile(r"(?P<memory>\d+) ?gi?b?\b|(?P<power>\d+) ?w\b|(?P<kind>hbm\d?e?|gddr\d\w?)\b|(?P<word>[a-z0-9]+)")


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
    """What an accelerator is, in the features that spellings state; families and memory sizes in every way they are written."""

    id: str
    families: frozenset[str]
    form: str
    memory_gb: frozenset[int]
    memory_type: str
    power: str

    def matches(self, wanted: Spelling) -> bool:
        """True when it has every feature stated."""
        return (
            wanted.family in self.families
            and wanted.form in ("", self.form)
            and (not wanted.memory_gb or wanted.memory_gb in self.memory_gb)
            and wanted.memory_type in ("", self.memory_type)
            and wanted.power == self.power
        )


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
    """The product of a catalog entry; an alias adds its family and memory size."""
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
    wanted = read_spelling(name)
    found = [one for one in known if one.matches(wanted)]
    return max(found, key=lambda one: (one.form == "sxm", max(one.memory_gb)), default=None)
