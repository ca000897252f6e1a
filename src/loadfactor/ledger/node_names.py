"""One name for a node that some call by its short name and others with its domain: n1 and n1.cluster.local."""

from typing import Any

import ibis

from loadfactor.ledger.columns import NUMBERED

Expr = Any


def pair_names(*tables: Expr) -> Expr:
    """The names with a domain of nodes that others call by the part before the first dot: node, called.

    Only where a single name with a domain begins with that short name, and somebody uses the short one alone. Of n1, n1.a and n1.b
    nobody knows which of the two n1 is: all three stay apart, and so do n1.a and n1.b where nobody says n1.
    """
    names = ibis.union(*(table.select("node") for table in tables), distinct=True)
    full = names.filter(names.node.contains("."))
    full = full.mutate(called=full.node.split(".")[0])
    single = full.group_by("called").aggregate(node=full.node.min(), names=full.node.count())
    single = single.filter(single.names == 1)
    return single.semi_join(names, single.called == names.node).select("node", "called")


def call_nodes(rows: Expr, names: Expr) -> Expr:
    """Rows with their nodes, and GPUs that are known by node and number alone, under one name; `names` as `pair_names`."""
    joined = rows.left_join(names, rows.node == names.node)
    out = joined.select(rows, names.called)
    by_number = out.device_id.startswith(out.node + ibis.literal(NUMBERED))
    number = out.device_id.substr(out.node.length())
    called = {
        "device_id": ibis.ifelse(out.called.notnull() & by_number, out.called + number, out.device_id),
        "node": ibis.coalesce(out.called, out.node),
    }
    return out.mutate(**called).select(*rows.columns)
