"""The page of `loadfactor digest`: the digest of the last day, week or month, or what would be sent to whom."""

from dataclasses import replace

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import InputError
from loadfactor.interfaces.digests.digest import Audience, build_digest
from loadfactor.interfaces.digests.period import Every, find_last
from loadfactor.interfaces.document import Document, Section
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.requests import DigestRequest
from loadfactor.metrics.query.calendar import instant
from loadfactor.settings.config import settings


def build_page(request: DigestRequest) -> Document:
    """The digest that a request names. Raises InputError for options that do not go together."""
    audience = Audience(request.team, request.user)
    with request.books.snapshot() as snapshot:
        period = find_last(choose_every(request), snapshot.span, instant(now_ms()), request.zone)
        page = build_digest(snapshot, period, audience, settings().alerts.link, request.basis)
    return _say_unsent(page) if request.dry_run else page


def choose_every(request: DigestRequest) -> Every:
    """The length of the period; a week where none is named. Raises InputError where several are."""
    given = {"day": request.daily, "week": request.weekly, "month": request.monthly}
    named: list[Every] = [every for every, is_given in given.items() if is_given]  # type: ignore[misc]
    if len(named) > 1:
        raise InputError("--daily, --weekly and --monthly are three digests; give one of them")
    return named[0] if named else "week"


def _say_unsent(page: Document) -> Document:
    """The page under a sentence that nobody would be sent it."""
    return replace(page, sections=[Section("To whom", NOBODY), *page.sections])


NOBODY = "Nobody: no [[digest]] in loadfactor.toml names a receiver."

digest = make_function("digest", DigestRequest, build_page, "The answer of `loadfactor digest` as a page.")
