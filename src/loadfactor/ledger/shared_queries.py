"""Queries in parts: what a query of the ledger names more than once, worked out once, for engines that would do so each time.

Ibis writes what an expression uses twice twice, and common table expressions are written out by Spark wherever they are named: a
step of nine becomes hundreds of joins that take minutes to plan. Cut into parts, each reads only tables.
"""

from sqlglot import exp, parse_one

DIALECT = "databricks"
"""Of Spark, as sqlglot names it."""
_WORK = (exp.Join, exp.Group, exp.Distinct, exp.Window, exp.SetOperation, exp.Explode)
"""What makes a query dearer than reading its table again."""


def list_parts(sql: str, name: str) -> dict[str, str]:
    """The parts of a query of Spark in the order in which they are to be worked out; the last, `name`, is the query.

    >>> one = "SELECT a, COUNT(*) AS n FROM t GROUP BY a"
    >>> for part, text in list_parts(f"SELECT x.a FROM ({one}) AS x JOIN ({one}) AS y ON x.n = y.n", "q").items():
    ...     print(part, "=", text)
    q_1 = SELECT a, COUNT(*) AS n FROM t GROUP BY a
    q = SELECT x.a FROM q_1 AS x JOIN q_1 AS y ON x.n = y.n
    """
    whole = parse_one(sql, read=DIALECT)
    parts: dict[str, exp.Expression] = {cte.alias: cte.this for cte in whole.find_all(exp.CTE)}
    whole.set("with_", None)
    parts[name] = whole
    number = 0
    while found := _find_shared(parts):
        number += 1
        part = f"{name}_{number}"
        parts[part] = found[0].this.copy()
        for query in found:
            query.replace(
                exp.alias_(exp.to_table(part), query.alias, table=True) if query.alias else exp.to_table(part)
            )
    ordered: dict[str, str] = {}
    _order(name, parts, ordered)
    return ordered


def _find_shared(parts: dict[str, exp.Expression]) -> list[exp.Subquery]:
    """The places of the longest query that is written more than once; none where there is none."""
    places: dict[str, list[exp.Subquery]] = {}
    for tree in parts.values():
        for query in tree.find_all(exp.Subquery):
            if query.this.find(*_WORK):
                places.setdefault(query.this.sql(DIALECT), []).append(query)
    shared = [text for text, queries in places.items() if len(queries) > 1]
    return places[max(shared, key=len)] if shared else []


def _order(name: str, parts: dict[str, exp.Expression], ordered: dict[str, str]) -> None:
    """Add a part after those that it reads."""
    for read in sorted(
        {table.name for table in parts[name].find_all(exp.Table)} & parts.keys() - ordered.keys() - {name}
    ):
        _order(read, parts, ordered)
    ordered[name] = parts[name].sql(DIALECT)
