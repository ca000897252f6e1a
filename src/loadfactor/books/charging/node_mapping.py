"""Which node a resource of a bill is: rules of the settings, a table of people's own with dates, tags, and the provider's id."""

import csv
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.settings.billing import BillingSettings
from loadfactor.tables.schema import ALWAYS, Span
from loadfactor.tables.tagging_rules import DATES, FROM, TO, read_limit

HEADER: Final = ("resource", "node")


@dataclass(frozen=True)
class MappedNode:
    """A resource, by its id, the last part of it or its name, that was a node in a span."""

    resource: str
    node: str
    span: Span


@dataclass(frozen=True)
class NodeRules:
    """How nodes are found, and the part of an instance's cost that is its GPUs'."""

    tags: tuple[str, ...] = ("Name",)
    mapping: tuple[MappedNode, ...] = ()
    gpu_share: Decimal = Decimal(1)

    @property
    def digest(self) -> str:
        """Another one where the rules are others."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class BilledResource:
    """What a line says of where it ran: the provider's id, its name, and the values of tags in their order."""

    id: str | None
    name: str | None
    tags: tuple[str | None, ...] = ()

    @property
    def short_id(self) -> str | None:
        """The last part of the id.

        >>> BilledResource("arn:aws:ec2:us-east-1:123:instance/i-0abc", None).short_id
        'i-0abc'
        """
        return self.id and self.id.rstrip("/").rsplit("/", 1)[-1].rsplit(":", 1)[-1]

    @property
    def label(self) -> str | None:
        """What to call it where it is no known node."""
        return self.name or self.short_id


def read_rules(settings: BillingSettings) -> NodeRules:
    """The rules of the settings. Raises InputError with file and line of what is wrong in the mapping."""
    mapping: tuple[MappedNode, ...] = ()
    if settings.nodes is not None:
        try:
            text = settings.nodes.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise InputError(f"the mapping {settings.nodes} cannot be read ({why}); see [billing] nodes") from error
        mapping = read_mapping(text, str(settings.nodes))
    return NodeRules(settings.node_tags, mapping, settings.gpu_share)


def read_mapping(text: str, label: str) -> tuple[MappedNode, ...]:
    """Rows of resource, node, from, to; the dates may be left out. Raises InputError with `label` and the line of what is wrong.

    >>> read_mapping("resource,node,from\\ni-0abc,gpu-1,1970-01-02", "nodes.csv")[0].span[0]
    86400000
    """
    lines = csv.DictReader(text.removeprefix("\ufeff").splitlines(), skipinitialspace=True)
    names = [name.strip() for name in lines.fieldnames or ()]
    lines.fieldnames = names
    unknown = [name for name in names if name not in (*HEADER, *DATES)]
    if unknown or not set(HEADER) <= set(names) or len(set(names)) < len(names):
        raise InputError(f"{label}: the header is {','.join(names) or 'missing'}; write resource,node,from,to")
    rows = []
    spans: dict[str, list[Span]] = defaultdict(list)
    for row in lines:
        where = f"{label}: line {lines.line_num}"
        cells = {name: (row.get(name) or "").strip() for name in names}
        if not cells["resource"] or not cells["node"] or None in row:
            raise InputError(f"{where} names no resource and node; write resource,node,from,to")
        start, end = (read_limit(cells.get(name) or None, where, name) for name in DATES)
        span = (ALWAYS[0] if start is None else start, ALWAYS[1] if end is None else end)
        if span[0] >= span[1]:
            raise InputError(f"{where}: `to` {cells[TO]} is not after `from` {cells.get(FROM)}")
        key = cells["resource"].lower()
        if any(since < span[1] and span[0] < until for since, until in spans[key]):
            raise InputError(f"{where}: {cells['resource']} is two nodes at once; end the earlier row with `to`")
        spans[key].append(span)
        rows.append(MappedNode(cells["resource"], cells["node"], span))
    return tuple(rows)


def find_nodes(
    resources: Iterable[BilledResource], rules: NodeRules, known: Iterable[str]
) -> dict[BilledResource, Sequence[tuple[Span, str]]]:
    """The node of each resource, by span; none where there is none.

    The user's mapping comes first. Elsewhere the first of these that the ledger knows a node by, in any case, with or without its
    domain: the tags, the id, its last part, the name.
    """
    spellings = spell_nodes(known)
    mapped: dict[str, list[MappedNode]] = defaultdict(list)
    for row in rules.mapping:
        mapped[row.resource.lower()].append(row)
    return {resource: tuple(_find_node(resource, mapped, spellings)) for resource in resources}


def spell_nodes(known: Iterable[str]) -> dict[str, str]:
    """Nodes by their names in lower case, and by the part before the first dot where only one begins with it.

    >>> spell_nodes(["N1.a.local", "n2.a", "n2.b"])
    {'n1.a.local': 'N1.a.local', 'n2.a': 'n2.a', 'n2.b': 'n2.b', 'n1': 'N1.a.local'}
    """
    nodes = sorted(set(known))
    spelled = {node.lower(): node for node in reversed(nodes)}
    begins: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        begins[node.lower().partition(".")[0]].add(node)
    found = {name: spelled[name] for name in sorted(spelled)}
    return found | {short: min(of) for short, of in begins.items() if len(of) == 1 and short not in found}


def _find_node(
    resource: BilledResource, mapped: Mapping[str, Sequence[MappedNode]], spellings: Mapping[str, str]
) -> list[tuple[Span, str]]:
    own = [(resource.id or "").lower(), (resource.short_id or "").lower(), (resource.name or "").lower()]
    rows: list[tuple[Span, str]] = []
    for key in dict.fromkeys(own):
        rows += [
            (row.span, _match(row.node.lower(), spellings) or row.node)
            for row in mapped.get(key, ())
            if not any(s < row.span[1] and row.span[0] < e for (s, e), _ in rows)
        ]
    names = [(tag or "").lower() for tag in resource.tags] + own
    node = next((_match(name, spellings) for name in names if name and _match(name, spellings)), None)
    if node is not None:
        start = ALWAYS[0]
        for since, until in sorted(span for span, _ in rows):
            if start < since:
                rows.append(((start, since), node))
            start = until
        if start < ALWAYS[1]:
            rows.append(((start, ALWAYS[1]), node))
    return sorted(rows)


def _match(name: str, spellings: Mapping[str, str]) -> str | None:
    """The node of a name, or of the part of it before the first dot where the ledger leaves domains out."""
    found = spellings.get(name)
    if found is None and "." in name:
        short = spellings.get(name.partition(".")[0])
        found = short if short is not None and "." not in short else None
    return found
