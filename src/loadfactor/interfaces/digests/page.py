"""The page of `loadfactor digest`: the digest of the last day, week or month, or what is sent to whom."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from loadfactor.base.clock import now_ms
from loadfactor.base.errors import InputError, no_such
from loadfactor.interfaces.digests.digest import Audience, Digest, build_digest
from loadfactor.interfaces.digests.letters import Message, write_messages
from loadfactor.interfaces.digests.period import Every, find_last
from loadfactor.interfaces.digests.post import Post, Sent, list_sent
from loadfactor.interfaces.document import Document, Section
from loadfactor.interfaces.formats import counted
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.requests import DigestRequest, read_zone
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics.query.calendar import instant
from loadfactor.settings.config import settings
from loadfactor.settings.digests import DigestTable

MOST_SHOWN: Final = 3
"""Of more messages the contents are left out."""


@dataclass(frozen=True)
class UnsentMessage:
    """A message as it would be sent: to which addresses, whether to a webhook, into which files, and what it says.

    `already` is the state of the one of that period that was made before; such a message is not sent again.
    """

    digest: str
    period: str
    of: str
    addresses: tuple[str, ...]
    has_webhook: bool
    files: tuple[str, ...]
    already: str | None
    subject: str
    says: Digest


def build_page(request: DigestRequest) -> Document:
    """The digest that a request names. Raises InputError for options that do not go together."""
    every, books = choose_every(request), request.books
    if request.name is not None or request.send:
        if request.team or request.user or (request.send and request.dry_run):
            raise InputError(
                "a digest of loadfactor.toml says whose it is; leave --team and --user out, and give --send or --dry-run"
            )
        chosen = [of for of in settings().digest if of.name == request.name]
        if not chosen:
            raise no_such("digest in loadfactor.toml", request.name or "", [of.name for of in settings().digest])
    else:
        is_own = request.dry_run and not (request.team or request.user)
        chosen = [of for of in settings().digest if is_own and every in (None, of.every)]
    now = instant(now_ms())
    if request.send:
        (of,) = chosen
        period = find_last(of.every, books.span, now, read_zone(of.timezone or request.timezone))
        return _say_sent(Post(books, settings()).send_now(of, period))
    with books.snapshot() as snapshot:
        if not chosen:
            period = find_last(every or "week", snapshot.span, now, request.zone)
            audience = Audience(request.team, request.user)
            page = build_digest(snapshot, period, audience, settings().alerts.link, request.basis)
            if not request.dry_run:
                return page
            of_this = f" of a {every}" if every and settings().digest else ""
            nobody = f"Nobody: no [[digest]]{of_this} in loadfactor.toml names a receiver."
            return replace(page, sections=[Section("To whom", nobody), *page.sections])
        messages: list[Message] = []
        for of in chosen:
            period = find_last(of.every, snapshot.span, now, read_zone(of.timezone or request.timezone))
            messages += write_messages(snapshot, of, period, settings())
    return _say_unsent(messages, chosen, list_sent(books.store.folder))


def choose_every(request: DigestRequest) -> Every | None:
    """The length of the period; None where none is named. Raises InputError where several are."""
    given = {"day": request.daily, "week": request.weekly, "month": request.monthly}
    named: list[Every] = [every for every, is_given in given.items() if is_given]  # type: ignore[misc]
    if len(named) > 1:
        raise InputError("--daily, --weekly and --monthly are three digests; give one of them")
    return named[0] if named else None


def _say_unsent(messages: Sequence[Message], chosen: Sequence[DigestTable], sent: Sequence[Sent]) -> Document:
    """To whom each message would go, but for those that were made before, and what the first of them say."""
    made = {(of.digest, of.period, of.of): of.state for of in sent}
    states = [made.get((of.digest.name, of.period.name, of.audience.name)) for of in messages]
    listed = table(
        zip(messages, states, strict=True),
        col("digest", lambda row: row[0].digest.name),
        col("of", lambda row: row[0].audience.name),
        col("period", lambda row: row[0].period.name),
        col("to", lambda row: row[0].receivers),
        col("already", lambda row: row[1]),
    )
    sections = [Section("To whom", tables=(listed,) if messages else ())]
    for of in messages[:MOST_SHOWN]:
        page = of.document
        tiles = table(page.tiles, col("number", "title"), col("value", "value"), col("course", "note"))
        sections += [Section(page.headline, page.subtitle, tables=(tiles,)), *page.sections]
    left = len(messages) - MOST_SHOWN
    if left > 0:
        sections.append(Section("", f"{counted(left, 'more message')} are not shown; --json has what they say."))
    unsent = [
        UnsentMessage(
            of.digest.name, of.period.name, of.audience.name, of.addresses, of.has_webhook, tuple(map(str, of.files)),
            state, of.document.headline, of.document.data,
        )
        for of, state in zip(messages, states, strict=True)
    ]  # fmt: skip
    digests, new = counted(len(chosen), "digest"), states.count(None)
    before = f" ({len(messages) - new} made before)" if new < len(messages) else ""
    return Document(
        f"{counted(new, 'message')} of {digests} would be sent{before}; nothing was.", sections, data=unsent
    )


def _say_sent(found: Sequence[Sent]) -> Document:
    """What became of each letter; the answer is no where one was not taken."""
    listed = table(
        found,
        col("digest", "digest"),
        col("period", "period"),
        col("of", "of"),
        col("to", "target"),
        col("state", "state"),
        col("why", "why"),
    )
    sent = sum(of.state == "sent" for of in found)
    words = (
        f"{sent} of {counted(len(found), 'letter')} sent."
        if found
        else "Nobody held anything in that period: nothing was sent."
    )
    return Document(words, (Section(tables=(listed,)),), data=list(found), is_no=sent < len(found))


digest = make_function("digest", DigestRequest, build_page, "The answer of `loadfactor digest` as a page.")
