"""GPUs in what Slurm writes of resources: TRES (`gres/gpu:h100=4,gres/gpu=4`) and GRES (`gpu:h100:4(IDX:0-3)`)."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import product
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import MOST_GPUS
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Gap
from loadfactor.sources.gpu_scrapes.known_devices import SLICES, count_slices
from loadfactor.sources.parsing.cells import quote
from loadfactor.tables.schema import KNOWN_FROM

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
BREAKS_OFF: Final = "the last line breaks off: left out"
STILL_RAN: Final = "jobs that still ran when Slurm was queried: held until then,"
UNSIZED: Final = (
    "jobs hold shards or MPS percentages of GPUs, and no node list says how many make a GPU: not booked; import"
    " `scontrol show node` with them"
)
Numbers = NDArray[np.float64]
MOST_NODES: Final = 100_000  # of one list; more is damage
NOWHERE: Final = frozenset(("", "none assigned", "none", "(null)", "null", "n/a", "unknown"))
"""Words in the place of a node list, in lower case, as long as there are no nodes."""
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?")
_PART: Final = re.compile(r"([^\[\],]*)(?:\[([^\[\]]*)\])?")
EVEN_SPLIT: Final = KNOWN_FROM[1]
MOST_PLACES: Final = 50_000_000  # nodes of all jobs of a batch


class Notes:
    """Notes of one import; `make_gaps` hands them over and starts again."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._lines: dict[tuple[str, str], int] = {}
        self.open_until: dict[str, tuple[int, int]] = {}
        """By label: how many jobs still ran, and until when that is known (ms)."""

    def keep_open(self, label: str, count: int, until_ms: int) -> None:
        """`count` more jobs still ran at that instant; nothing when it is 0."""
        if count:
            known, latest_ms = self.open_until.get(label, (0, until_ms))
            self.open_until[label] = known + count, max(latest_ms, until_ms)

    def add(self, label: str, what: str, count: int = 1, line: int | None = None) -> None:
        """`count` more of this kind, the first of them in `line`; nothing when it is 0."""
        if count:
            self._counts[label, what] = self._counts.get((label, what), 0) + int(count)
            if line is not None:
                self._lines.setdefault((label, what), int(line))

    def make_gaps(self) -> Iterator[Gap]:
        """Every kind once."""
        counts, self._counts = self._counts, {}
        lines, self._lines = self._lines, {}
        still, self.open_until = self.open_until, {}
        for label, (count, until_ms) in still.items():
            yield Gap(label, f"{STILL_RAN} {write_instant(until_ms)}", count)
        for (label, what), count in counts.items():
            line = lines.get((label, what))
            yield Gap(label, what if line is None else f"{what} (first in line {line})", count)


def write_instant(at_ms: int) -> str:
    """An instant in UTC, to the second.

    >>> write_instant(0)
    '1970-01-01 00:00:00 UTC'
    """
    return f"{datetime.fromtimestamp(at_ms / MS_PER_S, UTC):%Y-%m-%d %H:%M:%S} UTC"


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


@lru_cache(maxsize=100_000)
def name_model(text: str | None) -> str | None:
    """The model of all GPUs of a TRES or GRES text as the site calls it; None where it names none, or several.

    >>> name_model("cpu=8,gres/gpu:a100=8,gres/gpu=8"), name_model("gpu:a100_3g.20gb:1"), name_model("gres/gpu=2,gres/gpu:a100=1")
    ('a100', 'a100', None)
    """
    try:
        total, typed, _ = tally(text or "")
    except ValueError:
        return None
    names = {_strip_profile(name) for name in typed}
    return names.pop() if len(names) == 1 and sum(typed.values()) >= total else None


def _strip_profile(type_name: str) -> str | None:
    """The model in the type of a GPU or of a MIG instance; None where a profile names none."""
    profile = _PROFILE.search(type_name)
    return (type_name if profile is None else type_name[: profile.start()].strip("._-:")) or None


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


@dataclass(frozen=True)
class ShardSizes:
    """Shards, and MPS percentages, that make a GPU, by what they are called; empty where no node list says it."""

    per_gpu: Mapping[str, float] = field(default_factory=dict)

    def size(self, name: str, count: float) -> float:
        """GPUs of so many shards; NaN where nobody says how many make one."""
        return count / self.per_gpu[name] if self.per_gpu.get(name) else float("nan")


@dataclass(frozen=True)
class JobGpus:
    """By row of a table of jobs. `share` is NaN for whole GPUs, `held` NaN for shards of unknown size."""

    held: Numbers
    share: Numbers
    requested: Numbers  # whole GPUs


def measure_gpus(jobs: pa.Table, sizes: ShardSizes, label: str) -> JobGpus:
    """The GPUs of each job. SourceError names the line of a text that counts none."""

    def read(name: str, number: Callable[[GpuCount], float]) -> Numbers:
        return _spread(jobs, name, number, label)

    def gpus(count: GpuCount) -> float:
        if count.gpus or not (count.shards or count.mps):
            return count.gpus
        return sizes.size("shard", count.shards) if count.shards else sizes.size("mps", count.mps)

    def whole(count: GpuCount) -> float:
        return count.whole if count.gpus else gpus(count)

    def share(count: GpuCount) -> float:
        return float("nan") if count.share is None else count.share

    return JobGpus(read("held", gpus), read("held", share), read("requested", whole))


def _spread(jobs: pa.Table, name: str, number: Callable[[GpuCount], float], label: str) -> Numbers:
    encoded = jobs[name].combine_chunks().dictionary_encode()
    numbers = np.zeros(len(encoded.dictionary) + 1)
    for at, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            numbers[at] = number(count_gpus(text))
        except ValueError as error:
            raise refuse(jobs, name, text, label, str(error)) from None
    out: Numbers = numbers[encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)]
    return out


def refuse(jobs: pa.Table, name: str, text: str, label: str, why: str) -> SourceError:
    """The error about a text of a column, naming the first line that has it."""
    line = jobs["line"][jobs[name].to_pylist().index(text)].as_py()
    at = label if line is None else f"{label}, line {line}"
    return SourceError(f"{at}: {quote(text)} {why}")


def note_unsized(notes: Notes, label: str, gpus: JobGpus, lines: Any) -> None:
    """Say how many jobs hold shards of unknown size."""
    unsized = np.isnan(gpus.held) | np.isnan(gpus.requested)
    if unsized.any():
        notes.add(label, UNSIZED, int(unsized.sum()), lines[int(unsized.argmax())].as_py())


def find_grant(tres: str | None, placed: Mapping[str, float], per_node: str | None, nodes: int) -> str | None:
    """GPUs of a job of scontrol and slurmrestd as one text: TRES, else GPUs by node, else so many a node.

    ValueError where a text counts none.

    >>> find_grant("cpu=8", {}, "gres/gpu:h100:4", 2), find_grant("cpu=8,gres/gpu=1", {}, None, 1), find_grant("cpu=1", {}, None, 1)
    ('gres/gpu=8.0', 'cpu=8,gres/gpu=1', 'cpu=1')
    """
    if count_gpus(tres) != NO_GPUS:
        return tres
    total = sum(placed.values()) or count_gpus(per_node).whole * nodes
    return f"gres/gpu={total}" if total else tres


def expand_hostlist(text: str) -> tuple[str, ...]:
    """The nodes of a hostlist in its order, each once; none where Slurm says that there are none.

    Numbers keep their leading zeros; brackets may come several times in a name. ValueError where it is no hostlist, or names more
    than 100,000 nodes.

    >>> expand_hostlist("n[1-3,7],gpu-a[08-10]")
    ('n1', 'n2', 'n3', 'n7', 'gpu-a08', 'gpu-a09', 'gpu-a10')
    >>> expand_hostlist("r[1-2]n[1-2]-ib"), expand_hostlist("None assigned")
    (('r1n1-ib', 'r1n2-ib', 'r2n1-ib', 'r2n2-ib'), ())
    """
    if text.strip().lower() in NOWHERE:
        return ()
    nodes: dict[str, None] = {}
    for name in _split_names(text.strip()):
        for node in _expand_name(name):
            nodes[node] = None
            if len(nodes) > MOST_NODES:
                raise ValueError("names more than 100,000 nodes")
    return tuple(nodes)


def _split_names(text: str) -> Iterator[str]:
    depth = start = 0
    for at, mark in enumerate(text):
        depth += (mark == "[") - (mark == "]")
        if depth not in (0, 1):
            raise ValueError("has brackets that do not match")
        if mark == "," and not depth:
            yield text[start:at]
            start = at + 1
    if depth:
        raise ValueError("has brackets that do not match")
    yield text[start:]


def _expand_name(name: str) -> Iterator[str]:
    if not name or any(mark.isspace() for mark in name):
        raise ValueError("is no list of nodes")
    choices: list[tuple[str, ...]] = []
    total = 1
    for plain, ranges in _PART.findall(name):
        for choice in ((plain,) if plain else (), _expand_ranges(ranges) if ranges else ()):
            if choice:
                choices.append(choice)
                total *= len(choice)
                if total > MOST_NODES:
                    raise ValueError("names more than 100,000 nodes")
    return ("".join(parts) for parts in product(*choices))


def _expand_ranges(text: str) -> tuple[str, ...]:
    out: list[str] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None or len(part) > 2 * len(str(2**64)):
            raise ValueError("has a range that is none")
        first, last = int(found[1]), int(found[2] or found[1])
        if not 0 <= last - first < MOST_NODES:
            raise ValueError("has a range that is none")
        out += [str(number).zfill(len(found[1])) for number in range(first, last + 1)]
    return tuple(out)


@dataclass(frozen=True)
class Places:
    """One entry a job and node: the job's row, the node (null: not known), GPUs there, what that is known from, which they are."""

    row: pa.Array
    node: pa.Array
    gpus: pa.Array
    known_from: pa.Array
    indices: pa.Array

    def slice(self, first: int, count: int) -> "Places":
        """So many entries from the first on."""
        return Places(
            *(of.slice(first, count) for of in (self.row, self.node, self.gpus, self.known_from, self.indices))
        )


def place_jobs(jobs: pa.Table, gpus: NDArray[np.float64], label: str) -> Places:
    """Where the GPUs of each job are. SourceError names the line of a text that is no list of nodes.

    GPUs on one node are known to be there; on several they are split evenly, as a fraction where that does not come out even.
    """
    encoded = jobs["nodes"].combine_chunks().dictionary_encode()
    names: list[tuple[str | None, ...]] = []
    for text in encoded.dictionary.to_pylist():
        try:
            names.append(expand_hostlist(text) or (None,))
        except ValueError as error:
            raise refuse(jobs, "nodes", text, label, str(error)) from None
    names.append((None,))
    codes = encoded.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False)
    counts = np.array([len(nodes) for nodes in names], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    each = counts[codes]
    if each.sum() > MOST_PLACES:
        raise refuse(
            jobs, "nodes", jobs["nodes"][int(each.argmax())].as_py(), label, "and the others name too many nodes"
        )
    row = np.repeat(np.arange(len(codes)), each)
    within = np.arange(len(row)) - np.repeat(np.cumsum(each) - each, each)
    flat = pa.array([node for nodes in names for node in nodes], pa.string())
    node = flat.take(pa.array(starts[codes][row] + within))
    shared = (gpus / each)[row]
    known = pa.array(np.where(each[row] > 1, EVEN_SPLIT, ""), pa.string())
    places = Places(
        pa.array(row),
        node,
        pa.array(shared),
        pc.if_else(pc.equal(known, ""), pa.scalar(None, pa.string()), known),
        pa.nulls(len(row), pa.string()),
    )
    return _take_counted(jobs, places) if jobs["placed"].null_count < jobs.num_rows else places


def _take_counted(jobs: pa.Table, places: Places) -> Places:
    """The same with the GPUs by node of jobs of which Slurm says them (`placed`, `indices`), whose other nodes have none."""
    counted = {at: parse_placed(text) for at, text in enumerate(jobs["placed"].to_pylist()) if text}
    named = {at: parse_indices(jobs["indices"][at].as_py()) for at in counted}
    rows = [
        entry
        for entry in zip(
            places.row.to_pylist(),
            places.node.to_pylist(),
            places.gpus.to_pylist(),
            places.known_from.to_pylist(),
            places.indices.to_pylist(),
            strict=True,
        )
        if entry[0] not in counted
    ]
    rows += [
        (at, node, gpus, None, named[at].get(node)) for at, nodes in counted.items() for node, gpus in nodes.items()
    ]
    columns = list(zip(*rows, strict=True))
    types = (pa.int64(), pa.string(), pa.float64(), pa.string(), pa.string())
    return Places(*(pa.array(values, of) for values, of in zip(columns, types, strict=True)))


def parse_placed(text: str) -> dict[str, float]:
    """GPUs by node, as `placed` of a job has them.

    >>> parse_placed("n1=3,n2=1")
    {'n1': 3.0, 'n2': 1.0}
    """
    pairs = (item.rpartition("=") for item in text.split(","))
    return {node: float(count) for node, _, count in pairs if float(count) > 0}


def parse_indices(text: str | None) -> dict[str, str]:
    """Numbers of GPUs by node, as `indices` of a job has them.

    >>> parse_indices("n1=0 1 2,n2=5")
    {'n1': '0,1,2', 'n2': '5'}
    """
    pairs = (item.rpartition("=") for item in (text or "").split(",") if item)
    return {node: numbers.replace(" ", ",") for node, _, numbers in pairs}


def count_placed(gres: Mapping[str, str]) -> dict[str, float]:
    """GPUs by node, of what each node gave as GRES. ValueError where a number of them is none."""
    return {node: count for node, text in gres.items() if (count := count_gpus(text).gpus)}


def write_indices(gres: Mapping[str, str]) -> str | None:
    """Numbers of GPUs by node as one text; None where none are known.

    >>> write_indices({"n1": "gpu:h100:3(IDX:0-2)", "n2": "gpu:h100:1(IDX:5)", "n3": "gpu:h100:1"})
    'n1=0 1 2,n2=5'
    """
    found = {node: list_indices(text) for node, text in gres.items()}
    return ",".join(f"{node}={' '.join(map(str, numbers))}" for node, numbers in found.items() if numbers) or None


def write_placed(gpus: dict[str, float]) -> str | None:
    """GPUs by node as one text; None where there are none."""
    return ",".join(f"{node}={count}" for node, count in gpus.items() if count) or None
