"""Hostlists as Slurm writes them: `n[1-3,7],gpu-a[001-016],rack[1-2]-n[1-4]`."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Final

MOST_NODES: Final = 100_000  # of one list; more is damage
NOWHERE: Final = frozenset(("", "none assigned", "none", "(null)", "null", "n/a", "unknown"))
"""What stands where a node list would, in lower case, as long as there are no nodes."""

_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?")
_PART: Final = re.compile(r"([^\[\],]*)(?:\[([^\[\]]*)\])?")


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
    """The parts between commas outside of brackets."""
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
    """`001-003,7` as its numbers."""
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
