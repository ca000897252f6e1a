"""What accelerators cost in the price list: the prices that hold at an instant, also of models that nobody holds."""

from typing import Final

from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session

OTHER_BASES: Final = ("contracted", "list")
"""What a price is taken from where a model has none in the basis of the books, in this order: none is lower than it would be."""


def list_prices(session: Session, basis: str, at_ms: int) -> dict[str, float]:
    """The lowest price per GPU-hour of each accelerator of the catalog, by its id: in a basis, else contracted, else listed.

    Rows of one GPU, and those in another currency than that of the books, are left out.
    """
    session.view_table("prices", "prices")
    rows = session.raw.execute(
        f"""SELECT basis, accelerator, min(price_per_gpu_hour) FROM prices
            WHERE accelerator IS NOT NULL AND device_id IS NULL AND price_per_gpu_hour IS NOT NULL
              AND coalesce(from_utc < {at_ms}, true) AND coalesce(to_utc >= {at_ms}, true)
              AND coalesce(currency, {quote(session.currency)}) = {quote(session.currency)}
            GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    bases = (basis, *OTHER_BASES)
    found: dict[str, tuple[int, float]] = {}
    for of, name, price in rows:
        known = find_accelerator(name)
        if known is not None and of in bases:
            rank = bases.index(of), price
            found[known.id] = min(rank, found.get(known.id, rank))
    return {name: price for name, (_, price) in found.items()}
