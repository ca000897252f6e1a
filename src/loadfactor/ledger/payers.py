"""Who pays for listed jobs on known GPUs, as labels of their job say it where the list does not.

A job that is listed by node alone has what labels say of its payers along with its GPUs (`ledger.labels`). One that is listed by
GPU, or holds its whole node, needs no GPUs from labels; only where these tell a payer that the list does not is it joined to them.
"""

from typing import Any

import ibis

from loadfactor.ledger.intervals import covers, cut_at_bounds, intersect, shares_time
from loadfactor.ledger.labels import PAYERS, is_called, list_aliases
from loadfactor.ledger.scope import DAY

_SAID = tuple(f"said_{column}" for column in PAYERS)

Expr = Any


def pick_told(labelled: Expr, listed: Expr) -> Expr:
    """What labels name of jobs whose lists lack a payer that the labels say."""
    said = labelled.filter(ibis.or_(*(labelled[c].notnull() for c in PAYERS)))
    names = list_aliases(listed.select("job_id", "job_number", *PAYERS).distinct())
    lacking = names.group_by("label").aggregate(**{f"lacks_{c}": names[c].isnull().any() for c in PAYERS})
    tells = ibis.or_(*(said[c].notnull() & lacking[f"lacks_{c}"] for c in PAYERS))
    return said.semi_join(lacking, [said.job_id == lacking.label, tells])


def list_payers(labelled: Expr, listed: Expr) -> Expr:
    """Who pays, as labels tell it of claims on known GPUs: label (what they call the job), day, from_utc, to_utc, said_…"""
    told = pick_told(labelled, listed.filter(listed.device_id.notnull()))
    told = told.mutate(label=told.job_id)
    at = ["label", DAY, "from_utc", "to_utc"]
    pieces = cut_at_bounds([told.select(*at)], at[:2])
    joined = pieces.join(told, covers(pieces, told, at[:2])).select(pieces, *(told[c] for c in PAYERS))
    return joined.group_by(at).aggregate(**{f"said_{c}": joined[c].max() for c in PAYERS})


def fill_payers(listed: Expr, payers: Expr) -> Expr:
    """Listed claims by the day, those on known GPUs with who pays as labels tell it then."""
    is_told = listed.device_id.notnull() & is_called(listed, payers)
    others, rows = listed.filter(~is_told), listed.filter(is_told)
    order = [rows[c] for c in ("job_id", "from_utc", "device_id", "node", "pool", "gpus", "to_utc", "attempt")]
    rows = rows.mutate(claim=ibis.row_number().over(ibis.window(order_by=order)))
    aliases = list_aliases(rows)
    found = aliases.join(payers, shares_time(aliases, payers, ["label", DAY]))
    found = found.select(aliases.claim, payers[DAY], *(payers[c] for c in _SAID), **intersect(aliases, payers))
    at = ["claim", DAY, "from_utc", "to_utc"]
    pieces = cut_at_bounds([of.select(*at) for of in (rows, found)], at[:2])
    heard = pieces.join(found, covers(pieces, found, at[:2])).select(pieces, *(found[c] for c in _SAID))
    heard = heard.group_by(at).aggregate(**{c: heard[c].max() for c in _SAID})
    held = pieces.join(rows, covers(pieces, rows, at[:2]))
    held = held.select(pieces, *(rows[c] for c in listed.columns if c not in at))
    filled = held.left_join(heard, at).select(
        *(held[c] for c in held.columns if c not in PAYERS),
        **{c: ibis.coalesce(held[c], heard[f"said_{c}"]) for c in PAYERS},
    )
    return ibis.union(others, filled.select(*listed.columns))
