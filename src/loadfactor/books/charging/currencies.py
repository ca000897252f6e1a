"""The currency of statements: that of the bills; of bills in several, that of the books, by the dated rates that they hold."""

from datetime import UTC, datetime

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S
from loadfactor.store.session import Session
from loadfactor.tables.schema import ALWAYS

ONE_CURRENCY, CONVERTED = "charges_of_one_currency", "converted_charges"


def choose_currency(session: Session, asked: str | None) -> tuple[str, str, tuple[str, ...]]:
    """The currency to charge in, the relation of rows to charge (with columns `rate` and `is_gpu`), and what is to be said of it.

    With a currency asked for only its rows. Raises InputError where there are none, or a rate is missing, naming both.
    """
    found = dict(
        session.raw.execute(
            "SELECT BillingCurrency, count(*) FROM asked_charges WHERE BillingCurrency IS NOT NULL GROUP BY 1 ORDER BY 1"
        ).fetchall()
    )
    if asked is not None or len(found) <= 1:
        currency = asked or next(iter(found), session.currency)
        if asked is not None and asked not in found:
            raise InputError(f"no bill is in {asked}; there are bills in {', '.join(found) or 'no currency'}")
        within = f"WHERE BillingCurrency IS NULL OR BillingCurrency = '{currency}'"
        session.create_view(
            ONE_CURRENCY, f"SELECT *, NULL::VARCHAR AS rate, false AS is_gpu FROM asked_charges {within}"
        )
        left = {other: rows for other, rows in found.items() if other != currency}
        said = ", ".join(f"{rows:,} in {other}" for other, rows in left.items())
        return currency, ONE_CURRENCY, (f"lines of bills in other currencies are left out: {said}",) if left else ()
    _view_converted(session)
    missing = session.raw.execute(
        f"SELECT BillingCurrency, min(ChargePeriodStart) FROM {CONVERTED}"
        f" WHERE rate IS NULL AND BillingCurrency <> '{session.currency}' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    if missing:
        currency, at_ms = missing[0]
        day = datetime.fromtimestamp(at_ms / MS_PER_S, UTC).date()
        raise InputError(
            f"bills are in {', '.join(found)}, and no rate of {currency} in {session.currency} is known for {day}; import"
            f" exchange_rates (`loadfactor tables` says how), or charge one of them with --currency {currency}"
        )
    foreign = ", ".join(other for other in found if other != session.currency)
    return session.currency, CONVERTED, (f"{foreign} converted at the dated rates that the books hold",)


def _view_converted(session: Session) -> None:
    """Rows with the rate of the day their charge period starts; a rate holds until its end, else until the next one."""
    session.view_table("exchange_rates", "exchange_rates")
    session.materialize(
        "dated_rates",
        f"SELECT currency, coalesce(from_utc, {ALWAYS[0]}) AS start_ms, rate::VARCHAR AS rate, least(coalesce(to_utc,"
        f" {ALWAYS[1]}), lead(coalesce(from_utc, {ALWAYS[0]}), 1, {ALWAYS[1]}) OVER (PARTITION BY currency ORDER BY from_utc"
        " NULLS FIRST)) AS end_ms FROM exchange_rates",
    )
    session.create_view(
        CONVERTED,
        "SELECT c.*, r.rate, false AS is_gpu FROM asked_charges c LEFT JOIN dated_rates r ON r.currency = c.BillingCurrency"
        " AND c.ChargePeriodStart >= r.start_ms AND c.ChargePeriodStart < r.end_ms"
        f" AND c.BillingCurrency <> '{session.currency}'",
    )
