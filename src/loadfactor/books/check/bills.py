"""Bills: what they and the books disagree about, in money."""

from collections.abc import Iterator
from shlex import quote

from loadfactor.books.charging.bill_comparison import NEVER_SEEN, PRICE, compare_bills
from loadfactor.books.charging.billed_prices import has_bills
from loadfactor.books.check.finding import SHOWN_NAMES, Examined, Finding, name_some
from loadfactor.errors import InputError


def find_bill_differences(books: Examined) -> Iterator[Finding]:
    """One finding for each kind of difference; hours and cost are those of all of them together, billed less seen."""
    if not has_bills(books.session):
        return
    try:
        compared = compare_bills(books.session)
    except InputError:
        return  # no bill of GPUs, or none of the time that the books know
    kinds: dict[str, list[str]] = {}
    for difference in compared.differences:
        kinds.setdefault(difference.kind, []).append(difference.of)
    for kind, names in kinds.items():
        of = [difference for difference in compared.differences if difference.kind == kind]
        amounts = [difference.amount for difference in of if difference.amount is not None]
        hours = [
            d.billed_gpu_hours
            if kind in (NEVER_SEEN, PRICE)
            else (d.billed_gpu_hours or 0.0) - (d.seen_gpu_hours or 0.0)
            for d in of
        ]
        yield Finding(
            "missing",
            f"{kind}: {len(of):,} ({name_some(names[: SHOWN_NAMES + 1])})",
            f"`loadfactor bill compare --store {quote(str(books.session.folder))}` lists them; {of[0].do}",
            gpu_hours=sum(hour or 0.0 for hour in hours),
            cost=sum(amounts) if amounts and compared.currency == books.session.currency else None,
        )
