"""Which lines of bills are GPUs: of which node, how many GPU-hours, and which part of their cost is the GPUs'.

A line is looked at by its instance type, or by the SKU of an accelerator that is billed apart from its machine. What it says of
that and of where it ran is worked out once for each different text, and joined to the lines in SQL.
"""

import csv
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Final

from loadfactor.base.errors import InputError, say_why
from loadfactor.base.units import S_PER_HOUR, S_PER_MIN
from loadfactor.books.compiled_sql import ledger_steps, recall
from loadfactor.catalog.instances import find_gpu_sku, find_rented_type, may_have_gpus, sells_gpus_apart, type_pattern
from loadfactor.settings.money import BillingSettings
from loadfactor.store.manifest import subtract
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.schema import ALWAYS, Span
from loadfactor.tables.tagging_rules import DATES, FROM, TO, read_limit

if TYPE_CHECKING:
    import pyarrow as pa


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
    """The resource that a line names: the provider's id, its name, and the values of tags in their order."""

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
        """Its name, or the end of its id, where it is no known node."""
        return self.name or self.short_id


def read_rules(settings: BillingSettings) -> NodeRules:
    """The rules of the settings. Raises InputError with file and line of what is wrong in the mapping."""
    mapping: tuple[MappedNode, ...] = ()
    if settings.nodes is not None:
        try:
            text = settings.nodes.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = say_why(error) if isinstance(error, OSError) else "it is not UTF-8"
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


MACHINE, GPU, REST, UNKNOWN = "machine", "gpu", "rest", "unknown"
"""Kinds of lines: GPUs with their machine, GPUs apart, what is left of a machine, a type whose GPUs nobody knows."""
_OF_USE: Final = ("Usage", "Credit", "Adjustment")
_NOT_MACHINES: Final = r"(?i)licen[cs]e|software|marketplace|ebsoptimized|cpucredits|unused(box|ded)|\breservation:"
"""Types that name a machine and are none: software on it, credits of it, reservations of it that are billed apart."""
_OF_MACHINE: Final = r"(?i)\b(core|ram|memory|vcpu)\b"
_HOUR: Final = r"(?i)^\s*([0-9]+ )?\s*((instance|virtual machine|vm|machine|node)[ -]?)?(hours?|hrs?|h)(/month)?\s*$"
_GPU_HOUR: Final = r"(?i)^\s*(gpu|accelerator)[ -]?(hours?|hrs?|h)\s*$"
_BESIDE: Final = "concat_ws(' ', SkuMeter, ResourceType, SkuId, SkuPriceDetails)"
_NAMED: Final = "coalesce(x_InstanceType, nullif(regexp_extract({beside}, {pattern}), ''))"
_SKU: Final = (
    "CASE WHEN SkuMeter ILIKE '%nvidia%gpu%' THEN SkuMeter"
    " WHEN ChargeDescription ILIKE '%nvidia%gpu%' THEN ChargeDescription END"
)
_TELLING: Final = (
    *(
        "x_InstanceType",
        "SkuMeter",
        "ResourceType",
        "SkuId",
        "SkuPriceDetails",
        "gpu_sku",
        "ServiceName",
        "ServiceSubcategory",
    ),
    *("ChargeCategory", "CommitmentDiscountStatus", "CapacityReservationStatus"),
)
"""Columns that decide what a line sells; few combinations of their texts occur."""
SOLD: Final = "sold_lines"
_KEY: Final = "concat_ws(chr(31), {cells})"


@dataclass(frozen=True)
class SoldKind:
    """The GPUs that lines of an instance type and a SKU sell: of a machine (`gpus`, as whole ones), of which model."""

    sold: str
    gpus: float | None
    accelerator: str | None


def view_sold(session: Session, relation: str) -> bool:
    """Name the rows of a relation of charges, with what they sell, `SOLD`; False where none of them sells GPUs.

    Every row once, with these columns more: billed_type, sold, accelerator, gpus (whole ones); null where it sells no GPUs.
    """
    lines = f"SELECT *, {_SKU} AS gpu_sku FROM {relation}"
    named = _NAMED.format(beside=_BESIDE, pattern=quote(type_pattern()))
    session.materialize(
        "billed_texts", f"SELECT *, {named} AS billed_type FROM (SELECT DISTINCT {', '.join(_TELLING)} FROM ({lines}))"
    )
    _register_types(session)
    session.materialize(
        "sold_texts",
        f"""SELECT x.*, t.sold, t.accelerator, t.gpus FROM billed_texts x JOIN billed_types t
          ON x.billed_type IS NOT DISTINCT FROM t.billed_type AND x.gpu_sku IS NOT DISTINCT FROM t.gpu_sku
        WHERE coalesce(ChargeCategory, 'Usage') IN ({", ".join(map(quote, _OF_USE))})
          AND CommitmentDiscountStatus IS DISTINCT FROM 'Unused' AND CapacityReservationStatus IS DISTINCT FROM 'Unused'
          AND NOT regexp_matches(concat_ws(' ', ServiceName, ServiceSubcategory, SkuMeter), {quote(_NOT_MACHINES)})
          AND (t.sold <> '{REST}' OR coalesce(regexp_matches(SkuMeter, {quote(_OF_MACHINE)}), false))""",
    )
    same = " AND ".join(f"l.{text} IS NOT DISTINCT FROM s.{text}" for text in _TELLING)
    stated = "s.billed_type, s.sold, s.accelerator, s.gpus"
    session.create_view(
        SOLD, f"SELECT l.* EXCLUDE (gpu_sku), {stated} FROM ({lines}) l LEFT JOIN sold_texts s ON {same}"
    )
    return bool(session.fetch_one("SELECT count(*) FROM sold_texts")[0])


def view_bill_gpus(session: Session, rules: NodeRules, name: str = "bill_gpus") -> None:
    """Give the rows of `SOLD` a name, with where their GPUs ran; every row once, with these columns more.

    node (as the ledger calls it; null: not known), resource (what to call it), gpu_hours (null: the line does not say how long;
    0: a discount or the rest of a machine), gpu_share.
    """
    tags = [f"json_extract_string(l.Tags, {quote(_path(tag))})" for tag in rules.tags]
    cells = ", ".join(f"coalesce({cell}, '')" for cell in ("l.ResourceId", "l.ResourceName", *tags))
    key = _KEY.format(cells=cells)
    _register_nodes(session, f"SELECT DISTINCT {_list_cells(rules)} FROM {SOLD} WHERE sold IS NOT NULL", rules)
    share = f"CASE sold WHEN '{MACHINE}' THEN {rules.gpu_share} WHEN '{GPU}' THEN 1 WHEN '{REST}' THEN {int(rules.gpu_share)} END"
    session.create_view(
        name,
        f"""SELECT l.*, n.node, if(l.sold IS NULL, NULL, coalesce(n.node, n.label)) AS resource,
          {_write_hours()} AS gpu_hours, ({share})::DECIMAL(18, 9) AS gpu_share
        FROM {SOLD} l LEFT JOIN billed_nodes n ON l.sold IS NOT NULL AND {key} = n.key
          AND l.ChargePeriodStart >= n.from_ms AND l.ChargePeriodStart < n.to_ms""",
    )


def list_nodes(session: Session) -> dict[str, str]:
    """The nodes with GPUs of the books, and what the ledger calls each."""
    name_nodes(session)
    called = dict(session.raw.execute("SELECT node, called FROM node_names").fetchall())
    found = session.raw.execute("SELECT DISTINCT node FROM devices WHERE node IS NOT NULL").fetchall()
    return {node: called.get(node, node) for (node,) in found}


@cache
def find_kind(billed_type: str | None, sku: str | None) -> SoldKind | None:
    """Look up what lines of this instance type and this SKU sell; None where it has no GPUs.

    >>> find_kind("p4d.24xlarge", None), find_kind("m5.large", None)
    (SoldKind(sold='machine', gpus=8.0, accelerator='a100-sxm-40gb'), None)
    >>> find_kind("g2-standard-24", "Nvidia L4 GPU running in Iowa").sold, find_kind("p99.large", None).sold
    ('gpu', 'unknown')
    """
    model = find_gpu_sku(sku) if sku else None
    if model is not None:
        return SoldKind(GPU, 1.0, model)
    kind = find_rented_type(billed_type) if billed_type else None
    if kind is not None:
        return SoldKind(REST if sells_gpus_apart(kind) else MACHINE, kind.whole_gpus, kind.accelerator)
    return SoldKind(UNKNOWN, None, None) if billed_type and may_have_gpus(billed_type) else None


def _register_types(session: Session) -> None:
    """Put what each different type and SKU sells into the table `billed_types`."""
    rows = []
    for billed_type, sku in session.raw.execute("SELECT DISTINCT billed_type, gpu_sku FROM billed_texts").fetchall():
        kind = find_kind(billed_type, sku)
        if kind is not None:
            rows.append((billed_type, sku, kind.sold, kind.gpus, kind.accelerator))
    names = {"billed_type": "string", "gpu_sku": "string", "sold": "string", "gpus": "double", "accelerator": "string"}
    session.register("billed_types", _make_table(names, rows))


def _register_nodes(session: Session, resources: str, rules: NodeRules) -> None:
    """Put the nodes of each different resource into the table `billed_nodes`, one row a span; without a node a row for ever."""
    nodes = list_nodes(session)
    cells = session.raw.execute(resources).fetchall()
    found = find_nodes((BilledResource(row[0], row[1], row[2:]) for row in cells), rules, nodes)
    rows = []
    for resource, spans in found.items():
        key = "\x1f".join(cell or "" for cell in (resource.id, resource.name, *resource.tags))
        edges = [(span, nodes.get(node, node)) for span, node in spans]
        rows += [(key, span[0], span[1], node, resource.label) for span, node in [*edges, *_fill(edges)]]
    names = {"key": "string", "from_ms": "int64", "to_ms": "int64", "node": "string", "label": "string"}
    session.register("billed_nodes", _make_table(names, rows))


def _fill(edges: list[tuple[Span, str]]) -> list[tuple[Span, None]]:
    """The time between spans, in which a resource is no node."""
    return [(span, None) for span in subtract((ALWAYS,), tuple(sorted(span for span, _ in edges)))]


def _list_cells(rules: NodeRules) -> str:
    tags = [f"json_extract_string(Tags, {quote(_path(tag))}) AS tag_{n}" for n, tag in enumerate(rules.tags)]
    return ", ".join(["ResourceId", "ResourceName", *tags])


def _path(tag: str) -> str:
    escaped = tag.replace("\\", "\\\\").replace('"', '\\"')
    return f'$."{escaped}"'


def _write_hours() -> str:
    """SQL: GPU-hours of a line. A quantity consumed is in units of one, whatever block it is priced in (100 Hours)."""
    consumed, priced = _write_unit("ConsumedUnit"), _write_unit("PricingUnit")
    block = "coalesce(try_cast(regexp_extract(PricingUnit, '^\\s*([0-9]+) ', 1) AS DOUBLE), 1)"
    hours = (
        f"CASE WHEN ConsumedQuantity IS NOT NULL AND {consumed} IS NOT NULL THEN ConsumedQuantity::DOUBLE * {consumed}"
        f" ELSE PricingQuantity::DOUBLE * {priced} * {block} END"
    )
    return (
        f"CASE WHEN sold IS NULL OR sold = '{UNKNOWN}' THEN NULL WHEN sold = '{REST}' OR ChargeCategory <> 'Usage' THEN 0"
        f" ELSE {hours} END"
    )


def _write_unit(unit: str) -> str:
    """SQL: GPU-hours in one of a unit; null where it is none of time."""
    return (
        f"CASE WHEN regexp_matches({unit}, {quote(_GPU_HOUR)}) THEN 1.0 WHEN regexp_matches({unit}, {quote(_HOUR)}) THEN gpus"
        f" WHEN regexp_matches({unit}, '(?i)^\\s*(seconds?|secs?|s)\\s*$') THEN gpus / {S_PER_HOUR}"
        f" WHEN regexp_matches({unit}, '(?i)^\\s*(minutes?|mins?)\\s*$') THEN gpus * {S_PER_MIN} / {S_PER_HOUR} END"
    )


def _make_table(names: dict[str, str], rows: Iterable[tuple[object, ...]]) -> "pa.Table":
    import pyarrow as pa  # takes longer to import than most answers

    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in names.items()])
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema)


def name_nodes(session: Session) -> None:
    """Put nodes that go by two names, and what the books call each, into the table `node_names` (node, called)."""
    for name in ("allocations", "devices", "outages"):
        session.view_table(name, name)
    queries = recall("node names", lambda: ledger_steps().compile_steps(ledger_steps().Facts(), ("node_names",)))
    session.materialize("node_names", queries["node_names"])
