"""Prices: paid time that has none, and foreign ones without an exchange rate."""

from collections.abc import Iterator
from shlex import quote

from loadfactor.books.check.finding import Examined, Finding
from loadfactor.books.estimated_prices import list_estimates
from loadfactor.books.owned_prices import find_owned_prices
from loadfactor.books.rebuild import default_basis
from loadfactor.tables.schema import ALWAYS


def find_missing_rates(books: Examined) -> Iterator[Finding]:
    """Foreign prices of a time without an exchange rate."""
    session = books.session
    for name in ("prices", "exchange_rates"):
        session.view_table(name, name)
    is_estimated = default_basis(session) == "estimate"
    session.register("estimates", list_estimates() if is_estimated else find_owned_prices(session).table)
    found = session.raw.execute(
        f"""SELECT p.currency FROM (SELECT * FROM prices UNION ALL SELECT * FROM estimates) p LEFT JOIN (
              SELECT currency, min(coalesce(from_utc, {ALWAYS[0]})) AS since FROM exchange_rates GROUP BY currency
            ) r USING (currency)
            WHERE p.currency <> ? AND coalesce(p.to_utc, {ALWAYS[1]}) > {session.span()[0]}
            GROUP BY p.currency HAVING bool_or(since IS NULL OR since > greatest(coalesce(p.from_utc, 0), {session.span()[0]}))
            ORDER BY p.currency""",
        [session.currency],
    ).fetchall()
    for (currency,) in found:
        yield Finding(
            "missing",
            f"prices in {currency} have no exchange rate to {session.currency} for all of their time: there they are unknown",
            "import a table exchange_rates (currency, from_utc, rate): `loadfactor tables exchange_rates`",
        )


def find_unpriced(books: Examined) -> Iterator[Finding]:
    """Paid time without a price, and prices that are estimates."""
    coverage = books.totals["cost"].coverage
    if coverage is not None and coverage < 1:
        do = f"import a price list: `loadfactor import prices FILE --store {quote(str(books.session.folder))}`"
        unpriced = books.total("paid_gpu_hours") * (1 - coverage)
        yield Finding("missing", "not all paid time has a price", do, coverage, gpu_hours=unpriced)
    if default_basis(books.session) == "estimate":
        yield Finding(
            "note",
            "no prices imported: costs are the catalog's dated list prices, estimates",
            "--price-per-gpu-hour X",
        )
