"""Messages of chats: text with blocks for Slack and what takes the same, cards for Teams; no name from data acts in either."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from loadfactor.base.spelling import spell_out

LONGEST_SLACK: Final = 12_000
"""Characters of a message; Slack cuts a text off at 40,000 and refuses blocks with more than some 13,000, others cut at 16,000."""
LONGEST_HEADER: Final = 150
LONGEST_SECTION: Final = 3_000
MOST_BLOCKS: Final = 50
"""Characters of a header and of a section, and blocks of a message, that Slack takes at most."""
MOST_CARD_BYTES: Final = 27_000
"""Of a message to Teams, which takes some 28 kB."""
MOST_LINKS: Final = 6
"""Buttons of a card; Teams hides more."""
LONGEST_BUTTON: Final = 60
CARD: Final = "application/vnd.microsoft.card.adaptive"
CARD_SCHEMA: Final = "http://adaptivecards.io/schemas/adaptive-card.json"
CARD_VERSION: Final = "1.4"
_ANGLES: Final = str.maketrans("<>", "‹›")
CUT: Final = "The rest is left out: the message would be too long."


@dataclass(frozen=True)
class ChatPart:
    """Lines under a title, either of which may be missing."""

    title: str
    lines: Sequence[str]


def pack_blocks(headline: str, parts: Sequence[Sequence[str]], text: str) -> bytes:
    """A message in Slack's markup: `text` for notifications and for chats without blocks; a header, and a section a part.

    Of `headline` no markup is read; lines of parts are markup already.
    """
    title = cut_text(spell_out(headline).translate(_ANGLES), LONGEST_HEADER)
    blocks: list[dict[str, Any]] = [{"type": "header", "text": {"type": "plain_text", "text": title}}]
    left = LONGEST_SLACK
    for section in (section for lines in parts for section in _divide(lines)):
        left -= len(section)
        if left < 0 or len(blocks) == MOST_BLOCKS - 1:
            section = CUT
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": section}})
        if section is CUT:
            break
    return json.dumps({"text": cut_text(text, LONGEST_SLACK), "blocks": blocks}).encode()


def _divide(lines: Sequence[str]) -> Iterator[str]:
    """Lines as sections that are not too long; a line that is, is cut."""
    section: list[str] = []
    for line in (cut_text(line, LONGEST_SECTION) for line in lines if line):
        if sum(len(of) + 1 for of in section) + len(line) > LONGEST_SECTION:
            yield "\n".join(section)
            section = []
        section.append(line)
    if section:
        yield "\n".join(section)


def pack_card(headline: str, parts: Sequence[ChatPart], links: Mapping[str, str]) -> bytes:
    """A message as Workflows of Teams take it, with one adaptive card: nothing in its runs of text is read as markup.

    `links` are buttons: addresses by what they open.
    """
    body = [_write_run(headline, size="Large", weight="Bolder")]
    actions = [
        {"type": "Action.OpenUrl", "title": cut_text(spell_out(title), LONGEST_BUTTON), "url": url}
        for title, url in list(links.items())[:MOST_LINKS]
    ]
    for part in parts:
        if part.title:
            body.append({**_write_run(part.title, weight="Bolder"), "spacing": "Medium", "separator": True})
        body += [{**_write_run(line), "spacing": "Small"} for line in part.lines if line]
    packed = _write_card(body, actions)
    while len(packed) > MOST_CARD_BYTES:
        body = [*body[: len(body) * 3 // 4], _write_run(CUT)]
        packed = _write_card(body, actions)
    return packed


def _write_run(text: str, **style: str) -> dict[str, Any]:
    run = {"type": "TextRun", "text": spell_out(text), **style}
    return {"type": "RichTextBlock", "inlines": [run]}


def _write_card(body: Sequence[Mapping[str, Any]], actions: Sequence[Mapping[str, str]]) -> bytes:
    card: dict[str, Any] = {"$schema": CARD_SCHEMA, "type": "AdaptiveCard", "version": CARD_VERSION, "body": body}
    card |= {"actions": actions} if actions else {}
    card |= {"msteams": {"width": "Full"}}
    attachment = {"contentType": CARD, "contentUrl": None, "content": card}
    return json.dumps({"type": "message", "attachments": [attachment]}).encode()


def cut_text(text: str, longest: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
