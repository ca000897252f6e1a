"""Who is said to hold a GPU: somebody, nobody, or nobody says.

An allocation source speaks of a GPU when any allocation of the store, whenever it was, names that GPU, another one of its node,
its node, its pool or the whole fleet (an allocation that names nothing). Where one speaks, a GPU that no allocation covers is
held by nobody, unless it works. Where none speaks, nobody can say who holds it: its holder is unknown.
"""

from typing import Any

import ibis

from loadfactor.ledger.intervals import open_ends

Expr = Any


def list_sources(allocations: Expr, devices: Expr) -> Expr:
    """What the allocations name: `level` (device, node, pool or fleet) and `name`. A GPU that is named speaks for its node."""
    rows = open_ends(allocations)
    columns = {"device": "device_id", "node": "node", "pool": "pool"}
    named = [
        rows.filter(rows[column].notnull()).select(level=ibis.literal(level), name=rows[column])
        for level, column in columns.items()
    ]
    there = open_ends(devices)
    of_node = there.semi_join(rows, "device_id")
    nodes = of_node.filter(of_node.node.notnull()).select(level=ibis.literal("node"), name=of_node.node)
    unnamed = rows.filter(*(rows[column].isnull() for column in columns.values()))
    fleet = unnamed.select(level=ibis.literal("fleet"), name=ibis.literal("fleet"))
    return ibis.union(*named, nodes, fleet, distinct=True)


def mark_sources(rows: Expr, sources: Expr) -> Expr:
    """Rows of GPUs (device_id, node, pool) with the flag `has_source`: an allocation source speaks of the GPU."""
    columns = rows.columns
    out = rows.mutate(fleet=ibis.literal("fleet"))
    levels = (("device", "device_id"), ("node", "node"), ("pool", "pool"), ("fleet", "fleet"))
    for level, column in levels:
        names = sources.filter(sources.level == level).select(name=sources.name, spoken=ibis.literal(True))
        joined = out.left_join(names, out[column] == names.name)
        out = joined.select(out, **{f"by_{level}": ibis.coalesce(names.spoken, False)})
    return out.select(*columns, has_source=ibis.or_(*(out[f"by_{level}"] for level, _ in levels)))
