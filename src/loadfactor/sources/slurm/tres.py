"""GPUs in what Slurm writes of resources: TRES (`gres/gpu:h100=4,gres/gpu=4`) and GRES (`gpu:h100:4(IDX:0-3)`)."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from loadfactor.base.limits import MOST_GPUS
from loadfactor.sources.gpu_scrapes.known_devices import SLICES, count_slices

MENTIONS: Final = "gpu|shard|mps|7696487"
"""A pattern that every text matches that may speak of GPUs; older sacct writes the number 7696487 for gpu."""

_NOTES: Final = re.compile(r"\([^()]*\)")  # (IDX:0-3), (S:0-1)
_ITEM: Final = re.compile(
    r"(?:gres[/:])?(?P<name>gpu|shard|mps|7696487)(?:[:/](?P<type>(?!\d+(?:=|$))[^:=]+))?"
    r"(?:[:=](?P<count>\d{1,15}(?:\.\d{1,15})?))?",
    re.IGNORECASE,
)
_INDEXED: Final = re.compile(
    r"(?<![^,])(?:gres[/:])?gpu(?::(?P<type>[^:(),=]+))??(?::\d+)?\(IDX:(?P<indices>\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?)*)\)"
)
MOST_ON_NODE: Final = 1000
"""GPUs or MIG instances of a node: more is damage."""
_PROFILE: Final = re.compile(r"(?:^|[._-])(\d+)g\.(\d+)gb", re.IGNORECASE)
_OF_FOUR: Final = {("1", "6"), ("2", "12"), ("4", "24")}  # the profiles of an A30, where no model is named


@dataclass(frozen=True)
class GpuCount:
    """How many GPUs, which part of each, and shards and MPS percentages of GPUs, whose size the text does not say."""

    gpus: float = 0.0
    share: float | None = None  # part of a physical GPU that each of them is; None: whole ones
    shards: float = 0.0
    mps: float = 0.0

    @property
    def whole(self) -> float:
        """GPUs × their share."""
        return self.gpus * (1.0 if self.share is None else self.share)


NO_GPUS: Final = GpuCount()


@lru_cache(maxsize=100_000)
def count_gpus(text: str | None) -> GpuCount:
    """The GPUs of a TRES or GRES text. ValueError where a number of them is none.

    The same GPUs may stand there with and without their type, so these are never added up; GPUs of several types are. A type that
    is a MIG profile is that part of a GPU. What is measured of GPUs (gres/gpumem, gres/gpuutil) is no number of GPUs.

    >>> count_gpus("billing=8,cpu=8,gres/gpu:h100=4,gres/gpu=4,mem=64G").gpus, count_gpus("gres/gpu:a100=2,gres/gpu:v100=1").gpus
    (4.0, 3.0)
    >>> count_gpus("gpu:h100:3(IDX:0-1,5)").gpus, count_gpus("gres/gpumem=80G,gres/gpuutil=97").gpus
    (3.0, 0.0)
    >>> count_gpus("gres/gpu:1g.10gb=2")
    GpuCount(gpus=2.0, share=0.14285714285714285, shards=0.0, mps=0.0)
    """
    if not text:
        return NO_GPUS
    total, typed, others = tally(text)
    gpus, share = _add_types(total, typed)
    return GpuCount(gpus, share, 0.0 if gpus else others["shard"], 0.0 if gpus else others["mps"])


def list_indices(text: str | None) -> tuple[int, ...]:
    """The numbers of the whole GPUs that a GRES text names, as Slurm counts the GPUs of a node; none where it does not say all.

    >>> list_indices("gpu:a100:3(IDX:0-1,5),gpu:v100:1(IDX:7)"), list_indices("gpu:h100:2"), list_indices("gpu:1g.10gb:1(IDX:3)")
    ((0, 1, 5, 7), (), ())
    """
    out: list[int] = []
    for item in _INDEXED.finditer(text or ""):
        if measure_share(item["type"] or "") is not None:
            return ()
        for part in item["indices"].split(","):
            first, _, last = part.partition("-")
            if int(last or first) >= MOST_ON_NODE:
                return ()
            out += range(int(first), int(last or first) + 1)
    return tuple(sorted(out)) if out and len(set(out)) == len(out) == count_gpus(text).gpus else ()


def tally(text: str) -> tuple[float, dict[str, float], dict[str, float]]:
    """GPUs without a type, GPUs by type, and shards and MPS percentages in a text. ValueError where a number of them is none."""
    total, typed = 0.0, dict[str, float]()
    others = {"shard": 0.0, "mps": 0.0}
    for item in _NOTES.sub("", text).split(","):
        found = _ITEM.fullmatch(item.strip())
        if found is None:
            continue
        count = float(found["count"] or 1)
        if count > MOST_GPUS:
            raise ValueError("counts more GPUs than there are")
        name = found["name"].lower()
        if name in others:
            others[name] += count
        elif found["type"]:
            typed[found["type"]] = typed.get(found["type"], 0.0) + count
        else:
            total = max(total, count)
    return total, typed, others


def _add_types(total: float, typed: dict[str, float]) -> tuple[float, float | None]:
    """GPUs and the share of each: of one kind as they are counted, of several kinds as so many whole ones."""
    shares = {name: measure_share(name) for name in typed}
    named = sum(typed.values())
    if not any(shares.values()):
        return max(total, named), None
    if total <= named and len(set(shares.values())) == 1:
        return named, next(iter(shares.values()))
    whole = sum(count * (shares[name] or 1.0) for name, count in typed.items())
    return whole + max(0.0, total - named), None


def measure_share(type_name: str) -> float | None:
    """The part of a GPU that a type is, where it names a MIG profile; None for whole GPUs.

    >>> measure_share("a100_3g.20gb"), measure_share("a30_1g.6gb"), measure_share("h100")
    (0.42857142857142855, 0.25, None)
    """
    profile = _PROFILE.search(type_name)
    if profile is None:
        return None
    model = type_name.replace("_", " ").upper()
    slices = SLICES["A30"] if (profile[1], profile[2]) in _OF_FOUR else count_slices(model)
    return min(1.0, int(profile[1]) / slices)
