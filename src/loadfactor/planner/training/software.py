"""What training frameworks do, as traits with names: kernels, overlap, widths; by framework and release.

The traits of each framework are data: catalog/constants/frameworks.toml. A release keeps what the one before it did, but for
what it changes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, get_args, get_type_hints

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.quantities import parse_number
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.constants import read_constants

Scales = Literal["tensor", "row", "block"]
UNNAMED = "unnamed"
"""What is trained with, where nobody says it."""
NEWEST = "9999-12"


@dataclass(frozen=True)
class Software:
    """Traits of the software of a training job; without arguments it is what is usual today, fused and overlapped.

    `framework` is the name that they were found under: what is unnamed may have other traits than these.
    """

    framework: str = "megatron"
    attention: Literal["unfused", "first", "second", "native"] = "second"
    """Unfused, FlashAttention of 2022, of 2023, or a kernel written for the accelerator."""
    unfused_softmax: bool = (
        False  # where attention is unfused: scale, mask, softmax and dropout are passes of their own
    )
    tuned: bool = False  # kernels of today's libraries for Hopper and newer, as vendors' recipes have them
    fused: bool = True  # rotations, activations and the loss are one kernel each, by hand or by a compiler
    fused_norms: bool = True  # and so are norms
    scaling: Scales = "tensor"  # what shares a scale where products are narrow
    dropout: bool = False  # masks are kept, and applied in passes of their own
    dp_overlap: bool = True  # gradients and weights are exchanged behind compute
    tp_overlap: bool = True  # tensor-parallel exchange, in pieces behind its own products
    reduces_by_product: bool = False  # tensor ranks sum the gradient of an input once for each product that reads it
    pp_overlap: bool = True  # interleaved stages send behind compute
    sequence_parallel: bool = True  # what tensor ranks would repeat is cut over them along the sequence
    distributed_optimizer: bool = True  # states are cut over data ranks (ZeRO-1)
    optimizer_gathers: Literal["ring", "broadcasts"] = "ring"
    """How data ranks that step a part of the weights each share them: in one ring, or each sends its part to all others in turn."""
    context_by: Literal["ring", "all-to-all"] = "ring"  # how context ranks see each other's tokens; the latter by heads
    recomputes: Literal["as needed", "products", "all or none", "by default"] = "as needed"
    """As few layers as memory needs (with "products" selective recomputation runs every other product again, not attention
    alone); else all or none, and "by default" wherever its recipes are not changed."""
    reruns_whole_layers: bool = False  # recomputation runs the down-projection again, whose output nothing needs
    shards_inside: bool = False  # what is sharded is so inside a scale-up domain, and copied between domains
    sums_at_end: bool = False  # gradients of such copies are summed after the backward pass, as a loop over layers does
    skips_other_documents: bool = False  # attention works on each packed document alone, not on the sequence, masked
    hides_experts: bool = False  # the exchange with experts runs behind another micro-batch's compute (DualPipe)
    expert_sizes: Literal["host", "device", "even"] = "host"
    """Where it is known how many tokens an expert got: on the host, which waits for it; on the GPU alone; or beforehand, as experts
    take no more than their even share and drop the rest."""
    fused_accumulation: bool = True  # weight gradients are summed inside the product that makes them
    gradient_bytes: int = 4  # as they are exchanged
    kept_gradient_bytes: int = 4  # as the sum over micro-batches is kept
    optimizer_bytes: float = 12  # kept for a parameter: Adam in mixed precision, a 32-bit weight and two moments
    optimizer_moved_bytes: float = 38
    """Weight, moments r4 w4 each, gradient r4, its norm and scaling r4 w4, 16-bit copy w2."""
    optimizer_on_host: bool = False  # weights and states lie in the host's memory, where its processors step them
    offloads_inputs: bool = False  # inputs of recomputed layers wait in the host's memory
    logit_bytes: int = 6  # kept for a logit: 16 bits, and a copy of 32 that its gradient overwrites
    gathers_logits: bool = (
        False  # every tensor rank holds the logits of the whole vocabulary, and computes the loss of all
    )
    gathers_to_recompute: bool = False  # sharded weights are gathered once more where layers are recomputed
    gathers_by_all_adapters: bool = True  # sharded weights come in over every adapter of a node at once
    peak_range: tuple[float, float] = (0.82, 1.35)
    """Published peaks over predicted ones, four of five: of 27 of several frameworks (`validate memory`), or of this one."""
    given: tuple[tuple[str, Any], ...] = ()  # traits that are known apart from the framework

    def having(self, traits: Mapping[str, Any]) -> "Software":
        """The same with traits that are known apart from the framework."""
        return replace(self, **traits, given=(*self.given, *traits.items()))

    @property
    def flash_attention(self) -> bool:
        """True where attention is one kernel, of any generation."""
        return self.attention != "unfused"

    @property
    def alternatives(self) -> "tuple[Software, ...]":
        """What it may be as well, where nobody named it: what PyTorch does by itself, and what Megatron does."""
        if self.framework != UNNAMED:
            return ()
        return tuple(find_software(name).having(dict(self.given)) for name in ("pytorch", "megatron"))


TRAITS: Mapping[str, Any] = {
    name: kind
    for name, kind in get_type_hints(Software).items()
    if name not in ("framework", "given", "scaling", "context_by", "peak_range")
}
"""Kinds of the traits that a user may set by name; scaling and context_by have options of their own."""
YES_NO: Mapping[str, bool] = {"yes": True, "no": False, "true": True, "false": False}
MOST_BYTES = 1000  # for a value


@cache
def find_software(framework: str, release: str = NEWEST) -> Software:
    """The traits of a framework as it was released by that month (YYYY-MM); of its first release where it is older.

    Raises InputError for a name that is none.

    >>> find_software("nemo").gradient_bytes, find_software("megatron", "2021-04").dp_overlap
    (2, False)
    """
    known = read_constants("frameworks.toml")
    if framework not in known:
        raise no_such("framework", framework, known)
    found = Software()
    for i, one in enumerate(known[framework]["release"]):
        traits: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in one.items()
        }
        since, like = traits.pop("since"), traits.pop("like", None)
        if i == 0 or since <= release:
            found = replace(find_software(like, since) if like else found, **traits)
    return replace(found, framework=framework)


def describe_framework(name: str) -> str:
    """What the framework is, in a few words of its data file."""
    return str(read_constants("frameworks.toml")[name]["about"])


def read_month(text: str) -> str:
    """A month as YYYY-MM. Raises InputError where it is none.

    >>> read_month("2025-10")
    '2025-10'
    """
    if not re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", text):
        raise InputError(f"--release is a month as 2025-10, got {text!r}")
    return text


def read_trait(text: str) -> tuple[str, Any]:
    """Name and value of a trait that a user gives. Raises InputError that names what there is.

    >>> read_trait("tp_overlap=no"), read_trait("attention=native"), read_trait("gradient_bytes=2")
    (('tp_overlap', False), ('attention', 'native'), ('gradient_bytes', 2))
    """
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if name not in TRAITS:
        raise no_such("trait", name, TRAITS)
    kind, value = TRAITS[name], value.strip()
    if kind is bool:
        if not equals or value not in YES_NO:
            raise InputError(f"--traits: {name} is yes or no, as {name}=no")
        return name, YES_NO[value]
    choices = get_args(kind)
    if choices:
        if value not in choices:
            raise no_such(name, value, choices)
        return name, value
    number = parse_number(value)
    if not 0 <= number <= MOST_BYTES:
        raise InputError(f"--traits: {name} is a number from 0 to {MOST_BYTES}, got {value!r}")
    return name, kind(number)


def choose_software(accelerator: Accelerator, framework: str | None, release: str | None = None) -> Software:
    """The software of this name; what is not named is what is usual on the accelerator: on a TPU XLA's.

    What XLA shards inside a slice of TPUs it shards over all GPUs.

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> choose_software(accelerator("tpu-v5e"), None) == find_software("maxtext")
    True
    """
    on_tpus = accelerator.vendor == "Google"
    name = framework or ("maxtext" if on_tpus else UNNAMED)
    found = find_software(name, release or NEWEST)
    return found if on_tpus else replace(found, shards_inside=False)
