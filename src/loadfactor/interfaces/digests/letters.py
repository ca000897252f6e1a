"""Letters: the digests of a period as mails, messages of chats and files, each to whom it goes."""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from fnmatch import fnmatchcase
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Final, Literal

from loadfactor.base.errors import InputError
from loadfactor.base.paths import name_file
from loadfactor.base.spelling import spell_out
from loadfactor.base.units import MS_PER_S
from loadfactor.books.snapshot import Snapshot
from loadfactor.insight.alerts.delivery.chats import ChatPart, cut_text, pack_blocks, pack_card
from loadfactor.insight.alerts.delivery.payloads import LONGEST_SUBJECT, escape_markup, quote_markup
from loadfactor.interfaces.digests.digest import Audience, build_digest
from loadfactor.interfaces.digests.period import Period
from loadfactor.interfaces.document import DataTable, Document
from loadfactor.interfaces.formats import UNKNOWN
from loadfactor.interfaces.reach import is_empty
from loadfactor.interfaces.render.html import ADDRESS, render_mail
from loadfactor.interfaces.render.present import write_document
from loadfactor.interfaces.render.terminal import render_text
from loadfactor.settings.config import Settings
from loadfactor.settings.digests import DigestTable, MailServer, is_address

Kind = Literal["mail", "webhook", "file"]
TEXT_WIDTH: Final = 78
MOST_LINES: Final = 8
WEBHOOK: Final = "webhook"
MAILBOX: Final = re.compile(r"[\w.+-]+", re.ASCII)
POLICY: Final = SMTP.clone(max_line_length=900)
"""Of mails: a subject stays in its line, which may have 998 letters; Python's own folding of 78 puts a space before it."""


@dataclass(frozen=True)
class Message:
    """The digest of an audience, and to whom it goes: addresses of e-mail, a webhook, names of files."""

    digest: DigestTable
    period: Period
    audience: Audience
    document: Document
    addresses: tuple[str, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that are written."""
        if self.digest.folder is None:
            return ()
        owners = self.audience.where.values()
        # No word has a space: the names of two digests stay apart, whatever their words.
        name = " ".join((name_file(self.digest.name), self.period.name, *map(name_file, owners)))
        return tuple(self.digest.folder / f"{name}.{kind}" for kind in self.digest.files)

    @property
    def receivers(self) -> str:
        """All of them, in words."""
        return ", ".join((*self.addresses, *([WEBHOOK] if self.has_webhook else []), *map(str, self.files)))

    @property
    def has_webhook(self) -> bool:
        """Whether a chat gets it."""
        return bool(self.digest.webhook or self.digest.webhook_file)


@dataclass(frozen=True)
class Letter:
    """What one receiver gets, as bytes. Its names are one for a period: sent again, it is the same letter."""

    digest: str
    period: str
    of: str
    kind: Kind
    target: str
    payload: bytes

    @property
    def key(self) -> str:
        """Names it: receivers that keep these take each one once."""
        return make_key(self.digest, self.period, self.of, self.kind, self.target)


def make_key(*names: str) -> str:
    """The key of a letter of these names."""
    return sha256(repr(names).encode()).hexdigest()[:24]


def write_messages(books: Snapshot, table: DigestTable, period: Period, settings: Settings) -> Iterator[Message]:
    """A message for each audience that held anything in the period; users who opted out get none. Raises as `build_digest`."""
    if is_empty(books) or books.span[0] >= period.end or books.span[1] <= period.start:
        return
    for audience in _list_audiences(books, table, period):
        if settings.notices.leaves_out(audience.user):
            continue
        document = build_digest(books, period, audience, settings.alerts.link)
        if not document.data.is_empty:
            yield Message(table, period, audience, document, tuple(_list_addresses(table, audience)))


def _list_audiences(books: Snapshot, table: DigestTable, period: Period) -> Iterator[Audience]:
    if table.team is None and table.user is None:
        yield Audience()
        return
    dimension, pattern = ("team", table.team) if table.team is not None else ("user", table.user or "")
    found = books.show("allocated_gpu_hours", dimension, period.start, period.end, period.zone)
    for (name,), hours in zip(found.keys, found.column("allocated_gpu_hours"), strict=True):
        if name is not None and hours and fnmatchcase(name, pattern):
            yield Audience(**{dimension: name})


def _list_addresses(table: DigestTable, audience: Audience) -> Iterator[str]:
    """Each address once, however it is written; none of a name that is no name of a mailbox."""
    name = audience.user or audience.team
    if name is not None and name in table.addresses:
        yield table.addresses[name]
        return
    seen: set[str] = set()
    for written in table.to:
        if name is not None and "{" in written and not MAILBOX.fullmatch(name):
            continue
        address = written if name is None else written.replace("{team}", name).replace("{user}", name)
        if is_address(address) and address.lower() not in seen:
            seen.add(address.lower())
            yield address


def write_letters(message: Message, server: MailServer | None, now_ms: int) -> Iterator[Letter]:
    """A letter for each receiver. Raises InputError where there is no server for mail."""
    names = (message.digest.name, message.period.name, message.audience.name)
    if message.addresses:
        if server is None:
            raise InputError(f"the digest {message.digest.name!r} is mailed, and no [mail] says through which server")
        target = ", ".join(message.addresses)
        key = make_key(*names, "mail", target)
        mail = write_mail(message.document, message.digest.name, server.sender, target, key, now_ms)
        yield Letter(*names, "mail", target, mail.as_bytes())
    if message.has_webhook:
        yield Letter(
            *names, "webhook", WEBHOOK, pack_message(message.document, message.digest.chat, message.document.data.links)
        )
    for path in message.files:
        with tempfile.TemporaryDirectory() as folder:
            written = write_document(message.document, Path(folder) / path.name)
            yield Letter(*names, "file", str(path), written.read_bytes())


def write_mail(document: Document, digest: str, sender: str, to: str, key: str, now_ms: int) -> EmailMessage:
    """The page as text and as HTML with its pictures; sent twice it has one Message-ID, by which mail servers know it."""
    why = f"Sent by [[digest]] {digest} of loadfactor.toml; users in opt_out of [notices] get none of their own."
    mail = EmailMessage(policy=POLICY)
    mail["Subject"] = cut_text(spell_out(document.headline), LONGEST_SUBJECT)
    mail["From"], mail["To"] = sender, to
    mail["Date"] = formatdate(now_ms / MS_PER_S)
    mail["Message-ID"] = f"<digest-{key}@{sender.partition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    plain = replace(document, sections=[replace(section, charts=()) for section in document.sections])
    mail.set_content(f"{render_text(plain, TEXT_WIDTH)}\n\n{why}\n")
    names = [f"chart-{number}-{key}@loadfactor" for number in range(len(document.charts))]
    page = render_mail(replace(document, notes=(why,)), [f"cid:{name}" for name in names])
    mail.add_alternative(page, subtype="html")
    html = mail.get_payload()[1]  # type: ignore[index]
    for name, chart in zip(names, document.charts, strict=True):
        from loadfactor.interfaces.charts.image import save_png  # matplotlib takes a second

        picture = BytesIO()
        save_png((chart,), picture)
        html.add_related(picture.getvalue(), "image", "png", cid=f"<{name}>", disposition="inline")  # type: ignore[union-attr]
    return mail


def pack_message(document: Document, chat: str, links: Mapping[str, str]) -> bytes:
    """A message as Slack and what takes the same, or Teams take it, in which no name from data can act."""
    if chat == "teams":
        tiles = [f"{of.title}: {of.value}{f' ({of.text})' if of.text else ''}" for of in document.tiles]
        parts = [ChatPart("", tiles), *(ChatPart(*of) for of in _list_parts(document, str, str))]
        return pack_card(document.headline, parts, links)
    shown = [
        f"• {escape_markup(of.title)}: {quote_markup(of.value)}{f' ({quote_markup(of.text)})' if of.text else ''}"
        for of in document.tiles
    ]
    listed = [
        [f"*{escape_markup(title)}*" if title else "", *lines]
        for title, lines in _list_parts(document, quote_markup, escape_markup)
    ]
    lines = [f"*{quote_markup(document.headline)}*", *shown, *(line for part in listed for line in ("", *part))]
    return pack_blocks(document.headline, [shown, *listed], "\n".join(lines))


def _list_parts(
    document: Document, mark: Callable[[str], str], mark_own: Callable[[str], str]
) -> Iterator[tuple[str, list[str]]]:
    """Of each section its title, its sentence where it has no table, and rows of the first table; addresses for Slack alone."""
    for section in document.sections:
        rows = [list(_list_rows(of.without_empty_columns(), mark, mark_own)) for of in section.tables[:1]]
        lines = rows[0] if rows else [mark(section.lead)] * bool(section.lead)
        if lines and not (mark is str and any(of.title == ADDRESS for t in section.tables for of in t.columns)):
            yield section.title, lines


def _list_rows(shown: DataTable, mark: Callable[[str], str], mark_own: Callable[[str], str]) -> Iterator[str]:
    """Rows as lines; an address of our own pages is a link, in which names are percent-encoded."""
    marks = [mark_own if column.title == ADDRESS else mark for column in shown.columns]
    for row in shown.text_rows()[:MOST_LINES]:
        cells = zip(marks, row, strict=True)
        yield "• " + " · ".join(mark(cell) for mark, cell in cells if cell not in ("", UNKNOWN))
