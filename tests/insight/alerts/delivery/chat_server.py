"""A chat on loopback: it takes what webhooks of Slack and Workflows of Teams take by published rules, and refuses the rest.

Slack: docs.slack.dev/reference/block-kit (50 blocks, a header of 150, a section of 3,000 characters, 40,000 of text).

Teams: a message of one attachment with a card, 28 kB in all (learn.microsoft.com, "Post a workflow when a webhook request is
received"), of Adaptive Cards 1.4 (adaptivecards.io/explorer) the elements that we use.
"""

import json
from typing import Any

from tests.live.local_server import LocalServer


class ChatServer(LocalServer):
    """Keeps the messages that it took; `kind`: slack or teams."""

    def __init__(self, kind: str = "slack") -> None:
        self.messages: list[Any] = []
        self.keys: list[str | None] = []
        self._check = {"slack": check_slack, "teams": check_teams}[kind]

    def respond(self, _path: str, body: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        try:
            assert headers["content-type"] == "application/json"
            self._check(body)
        except (AssertionError, KeyError, ValueError) as error:
            return 400, {}, f"invalid_payload: {error!r}".encode()
        self.keys.append(headers.get("idempotency-key"))
        self.messages.append(json.loads(body))
        return 200, {}, b"ok"

    @property
    def texts(self) -> list[str]:
        """All that people read of each message."""
        return ["\n".join(list_texts(of)) for of in self.messages]


def list_texts(of: Any) -> list[str]:
    """Every text of a message, in order."""
    if isinstance(of, dict):
        own = [of[name] for name in ("text", "title") if isinstance(of.get(name), str)]
        return own + [text for value in of.values() if isinstance(value, dict | list) for text in list_texts(value)]
    return [text for item in of for text in list_texts(item)] if isinstance(of, list) else []


def check_slack(body: str) -> None:
    """Raise where Slack would answer invalid_payload or invalid_blocks."""
    message = json.loads(body)
    assert set(message) <= {"text", "blocks"}
    assert 0 < len(message["text"]) <= 40_000
    assert 0 < len(message["blocks"]) <= 50
    for block in message["blocks"]:
        text = block["text"]
        kind, most = {"header": ("plain_text", 150), "section": ("mrkdwn", 3_000)}[block["type"]]
        assert (set(block), set(text), text["type"]) == ({"type", "text"}, {"type", "text"}, kind)
        assert 0 < len(text["text"]) <= most
    assert sum(len(block["text"]["text"]) for block in message["blocks"]) < 13_000


def check_teams(body: str) -> None:
    """Raise where the trigger of a Workflow would not read it as a card, or Teams would not post that."""
    assert len(body.encode()) <= 28 * 1024
    message = json.loads(body)
    assert message["type"] == "message"
    (attachment,) = message["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert attachment["contentUrl"] is None
    card = attachment["content"]
    assert (card["type"], card["$schema"]) == ("AdaptiveCard", "http://adaptivecards.io/schemas/adaptive-card.json")
    assert card["version"] in ("1.2", "1.3", "1.4", "1.5")
    assert card["body"]
    for element in card["body"]:
        assert element["type"] == "RichTextBlock"
        assert set(element) <= {"type", "inlines", "spacing", "separator"}
        for run in element["inlines"]:
            assert run["type"] == "TextRun"
            assert run["text"]
            assert set(run) <= {"type", "text", "size", "weight"}
    for action in card.get("actions", ()):
        assert set(action) == {"type", "title", "url"}
        assert action["type"] == "Action.OpenUrl"
        assert action["title"]
        assert action["url"].startswith(("http://", "https://"))
