"""Payloads of each kind of receiver: names from data are harmless in all of it, whatever markup or line breaks they hold."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, Final
from urllib.parse import quote

from loadfactor.base.spelling import spell_out
from loadfactor.base.units import MIN_PER_HOUR, MS_PER_MIN, MS_PER_S
from loadfactor.insight.alerts.alert import Alert, Transition
from loadfactor.insight.alerts.delivery.chats import ChatPart, cut_text, pack_blocks, pack_card
from loadfactor.insight.alerts.delivery.pending import Pending
from loadfactor.insight.alerts.rule import Rule, describe_alert
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.reading import iso
from loadfactor.settings.alerts import EmailReceiver

MOST_LISTED: Final = 15
"""Of more alerts in one message the others are counted."""
LONGEST_NAME: Final = 120
RUNBOOKS: Final = "docs/alerts.md"
STATES: Final = ("firing", "resolved")


@dataclass(frozen=True)
class Links:
    """Where links lead: to the address of the server, and to where people read docs/alerts.md; empty where none is known."""

    server: str = ""
    runbooks: str = ""

    def to_alert(self, alert: Alert) -> str:
        """The alert in the list of the server."""
        return f"{self.server.rstrip('/')}/api/v1/alerts?id={quote(alert.fingerprint)}" if self.server else ""

    def to_runbook(self, rule: Rule) -> str:
        """The runbook of a rule: an address, or a place in the documentation."""
        return rule.runbook.replace(RUNBOOKS, self.runbooks, 1) if self.runbooks else rule.runbook


@dataclass(frozen=True)
class Item:
    """One alert of a message: whom it is of, its facts, and where to read on."""

    state: str
    of: str
    when: str
    facts: tuple[str, ...]
    link: str


@dataclass(frozen=True)
class Message:
    """A message about one rule. `counts` is "2 firing, 1 resolved"; `more` says how many are not listed."""

    rule: str
    severity: str
    counts: str
    items: tuple[Item, ...]
    more: str = ""
    meaning: str = ""
    ask_first: str = ""
    look_next: str = ""
    runbook: str = ""


def compose(transitions: Sequence[Transition], rules: Mapping[str, Rule], links: Links) -> Message:
    """The message of transitions of one rule, of which there is at least one."""
    first = transitions[0].alert
    rule = rules.get(first.rule)
    in_order = sorted(transitions, key=lambda t: STATES.index(t.alert.state))
    states = [t.alert.state for t in transitions]
    more = len(transitions) - MOST_LISTED
    return Message(
        first.rule,
        first.severity,
        ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states),
        tuple(_describe(t.alert, links) for t in in_order[:MOST_LISTED]),
        f"and {more:,} more" if more > 0 else "",
        *((rule.meaning, rule.ask_first, rule.look_next, links.to_runbook(rule)) if rule else ()),
    )


def name_alert(alert: Alert) -> str:
    """Whom an alert is of: its group, and in whose name."""
    group = ", ".join(f"{name} {_shorten(value)}" for name, value in alert.by.items()) or "the fleet"
    holder = [f"{name} {_shorten(alert.holder[name])}" for name in ("job", "user", "team") if alert.holder.get(name)]
    return f"{group} ({', '.join(holder)})" if holder else group


def _describe(alert: Alert, links: Links) -> Item:
    if alert.state == "resolved":
        lasted = max((alert.end_ms or 0) - alert.start_ms, 0)
        facts: tuple[str, ...] = (alert.ended_because,) if alert.ended_because else ()
        return Item("resolved", name_alert(alert), f"after {_show_length(lasted)}", facts, links.to_alert(alert))
    when = f"since {instant(alert.start_ms):%Y-%m-%d %H:%M} UTC"
    return Item("firing", name_alert(alert), when, alert.evidence, links.to_alert(alert))


def _show_length(ms: int) -> str:
    """A length of time.

    >>> _show_length(35 * MS_PER_MIN), _show_length(150 * MS_PER_MIN)
    ('35 min', '2 h 30 min')
    """
    hours, minutes = divmod(round(ms / MS_PER_MIN), MIN_PER_HOUR)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _shorten(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


WEBHOOK_VERSION: Final = 1
LONGEST_SUBJECT: Final = 180
_MARKED: Final = re.compile(r"[*_~`\[\]()#|@<>&!\\]|://|\bwww\.")
_TICKS: Final = str.maketrans({"`": "ˋ"})
_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def pack_webhook(item: Pending, rules: Mapping[str, Rule], links: Links) -> bytes:
    """One transition: version, key, state, at, link, runbook and the alert as `GET /api/v1/alerts` lists it."""
    alert = item.alert
    rule = rules.get(alert.rule)
    body = {
        "version": WEBHOOK_VERSION,
        "key": item.key,
        "state": alert.state,
        "at": iso(instant(item.transition.at_ms)),
        "link": links.to_alert(alert),
        "runbook": links.to_runbook(rule) if rule else "",
        "alert": {"id": alert.fingerprint, **describe_alert(alert, rules.values())},
    }
    return json.dumps(body).encode()


def pack_alertmanager(alerts: Sequence[Alert], rules: Mapping[str, Rule], links: Links, valid_ms: int) -> bytes:
    """The body of POST /api/v2/alerts. What fires is valid until `valid_ms`; then Alertmanager resolves it by itself."""
    return json.dumps([_describe_to_alertmanager(alert, rules, links, valid_ms) for alert in alerts]).encode()


def _describe_to_alertmanager(
    alert: Alert, rules: Mapping[str, Rule], links: Links, valid_ms: int
) -> Mapping[str, Any]:
    end_ms = valid_ms if alert.end_ms is None else alert.end_ms
    start_ms = min(
        alert.start_ms if alert.fired_ms is None else alert.fired_ms, end_ms - 1
    )  # the clock may have been ahead
    labels = {**alert.holder, **alert.by, "alertname": alert.rule, "severity": alert.severity, "cause": alert.cause}
    notes = {"summary": f"{alert.rule}: {name_alert(alert)}", "evidence": "; ".join(alert.evidence)}
    if rule := rules.get(alert.rule):
        notes |= {"description": rule.meaning, "ask_first": rule.ask_first, "look_next": rule.look_next}
        notes |= {"runbook_url": links.to_runbook(rule)}
    if alert.value is not None:
        notes["value"] = f"{alert.value:g} {alert.unit}".strip()
    link = links.to_alert(alert)
    return {
        "labels": {name: spell_out(str(value)) for name, value in labels.items() if value},
        "annotations": {name: spell_out(text) for name, text in notes.items() if text},
        "startsAt": iso(instant(start_ms)),
        "endsAt": iso(instant(end_ms)),
        **({"generatorURL": link} if link else {}),
    }


def pack_slack(items: Sequence[Pending], rules: Mapping[str, Rule], links: Links) -> bytes:
    """A message as Slack-compatible webhooks take it: text and blocks in their markup, in which no name from data can act."""
    message = compose([item.transition for item in items], rules, links)
    parts = [_optional(escape_markup(message.meaning))]
    for item in message.items:
        title = f"• {item.state}: {_code(item.of)} {item.when}{_write_link(item)}"
        parts.append([title, *(f"    {quote_markup(fact)}" for fact in item.facts)])
    parts.append(_optional(message.more))
    parts.append([f"*{title}:* {escape_markup(text)}" for title, text in _list_advice(message)])
    first = f"*{message.counts}:* {_code(message.rule)} ({message.severity})"
    text = "\n".join([first, *(line for lines in parts for line in lines)])
    return pack_blocks(_say_headline(message), parts, text)


def pack_teams(items: Sequence[Pending], rules: Mapping[str, Rule], links: Links) -> bytes:
    """A message as an adaptive card, which a Workflow of Teams posts."""
    message = compose([item.transition for item in items], rules, links)
    parts = [ChatPart("", _optional(message.meaning))]
    parts += [ChatPart(f"{item.state}: {item.of} {item.when}", item.facts) for item in message.items]
    parts.append(ChatPart("", _optional(message.more)))
    parts += [ChatPart(title, [text]) for title, text in _list_advice(message)]
    opened = {item.of: item.link for item in message.items if item.link}
    return pack_card(_say_headline(message), parts, opened)


def _say_headline(message: Message) -> str:
    return f"{message.counts}: {message.rule} ({message.severity})"


def _list_advice(message: Message) -> list[tuple[str, str]]:
    """What to ask, what to look at, and where it is written, as far as there is any of it."""
    advice = (
        ("Ask first", message.ask_first),
        ("Look next", message.look_next),
        ("Runbook", message.runbook),
    )
    return [(title, text) for title, text in advice if text]


def write_email(
    items: Sequence[Pending], rules: Mapping[str, Rule], links: Links, receiver: EmailReceiver, now_ms: int
) -> EmailMessage:
    """A message as e-mail, plain text. Sent twice it has one Message-ID, by which mail servers know it."""
    message = compose([item.transition for item in items], rules, links)
    subject = f"[loadfactor] {message.counts}: {message.rule}"
    if len(message.items) == 1:
        subject += f", {message.items[0].of}"
    mail = EmailMessage()
    mail["Subject"] = cut_text(spell_out(subject), LONGEST_SUBJECT)
    mail["From"] = receiver.sender
    mail["To"] = ", ".join(receiver.to)
    mail["Date"] = formatdate(now_ms / MS_PER_S)
    mail["Message-ID"] = f"<{items[0].key}-{items[-1].number}-{len(items)}@{receiver.sender.partition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("\n".join(_write_lines(message)) + "\n", charset="utf-8")
    return mail


def _write_lines(message: Message) -> list[str]:
    lines = [_say_headline(message), *_optional(message.meaning), ""]
    for item in message.items:
        lines.append(f"- {item.state}: {item.of}, {item.when}")
        lines += [f"    {fact}" for fact in (*item.facts, item.link) if fact]
    lines += [*_optional(message.more), ""]
    lines += [f"{title}: {text}" for title, text in _list_advice(message)]
    return [spell_out(line) for line in lines]


def _code(name: str) -> str:
    """A name between backticks, where no markup counts and nobody is called; Slack reads entities there, too.

    >>> _code("*a* <!channel> `b`")
    '`*a* &lt;!channel&gt; ˋbˋ`'
    """
    return f"`{spell_out(name).translate(_TICKS).translate(_ENTITIES)}`"


def quote_markup(text: str) -> str:
    """A sentence as it is, or as code where something in it could act.

    >>> quote_markup("SM activity 3 %, below 5 %"), quote_markup("see <https://evil.example|this>")
    ('SM activity 3 %, below 5 %', '`see &lt;https://evil.example|this&gt;`')
    """
    return _code(text) if _MARKED.search(text) else spell_out(text)


def _write_link(item: Item) -> str:
    """Our own address, in which nothing comes from data but a fingerprint."""
    return f" {escape_markup(item.link)}" if item.link else ""


def escape_markup(text: str) -> str:
    """Text of settings and rules: their own markup counts, as far as it calls nobody."""
    return spell_out(text).translate(_ENTITIES)


def _optional(text: str) -> list[str]:
    return [text] if text else []
