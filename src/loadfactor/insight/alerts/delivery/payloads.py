"""What each kind of receiver is sent: names from data are harmless in all of it, whatever markup or line breaks they hold."""

import json
import re
from collections.abc import Mapping, Sequence
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, Final

from loadfactor.base.spelling import spell_out
from loadfactor.base.units import MS_PER_S
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.delivery.deliveries import Owed
from loadfactor.insight.alerts.delivery.message import Item, Links, Message, compose, name_alert
from loadfactor.insight.alerts.described import describe_alert
from loadfactor.insight.alerts.rule import Rule
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.reading import iso
from loadfactor.settings.alerts import EmailReceiver

WEBHOOK_VERSION: Final = 1
LONGEST_SUBJECT: Final = 180
LONGEST_SLACK: Final = 12_000
"""Characters; Slack cuts a text off at 40,000, others at 16,000."""
_MARKED: Final = re.compile(r"[*_~`\[\]()#|@<>&!\\]|://|\bwww\.")
_TICKS: Final = str.maketrans({"`": "ˋ"})
_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def pack_webhook(owed: Owed, rules: Mapping[str, Rule], links: Links) -> bytes:
    """One transition: version, key, state, at, link, runbook and the alert as `GET /api/v1/alerts` lists it."""
    alert = owed.alert
    rule = rules.get(alert.rule)
    body = {
        "version": WEBHOOK_VERSION,
        "key": owed.key,
        "state": alert.state,
        "at": iso(instant(owed.transition.at_ms)),
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
    start_ms = alert.start_ms if alert.fired_ms is None else alert.fired_ms
    end_ms = valid_ms if alert.end_ms is None else max(alert.end_ms, start_ms + 1)
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


def pack_slack(owed: Sequence[Owed], rules: Mapping[str, Rule], links: Links) -> bytes:
    """A message as Slack-compatible webhooks take it: `text` in their markup, in which no name from data can act."""
    told = compose([one.transition for one in owed], rules, links)
    lines = [f"*{told.counts}:* {_code(told.rule)} ({told.severity})", *_optional(_place(told.meaning))]
    for item in told.items:
        lines.append(f"• {item.state}: {_code(item.of)} {item.when}{_write_link(item)}")
        lines += [f"    {_quote(fact)}" for fact in item.facts]
    lines += [*_optional(told.more)]
    for title, said in (("Ask first", told.ask_first), ("Look next", told.look_next), ("Runbook", told.runbook)):
        lines += [f"*{title}:* {_place(said)}"] if said else []
    return json.dumps({"text": _cut("\n".join(lines), LONGEST_SLACK)}).encode()


def write_email(
    owed: Sequence[Owed], rules: Mapping[str, Rule], links: Links, receiver: EmailReceiver, now_ms: int
) -> EmailMessage:
    """A message as e-mail, plain text. Sent twice it has one Message-ID, by which mail servers know it."""
    told = compose([one.transition for one in owed], rules, links)
    subject = f"[loadfactor] {told.counts}: {told.rule}"
    if len(told.items) == 1:
        subject += f", {told.items[0].of}"
    mail = EmailMessage()
    mail["Subject"] = _cut(spell_out(subject), LONGEST_SUBJECT)
    mail["From"] = receiver.sender
    mail["To"] = ", ".join(receiver.to)
    mail["Date"] = formatdate(now_ms / MS_PER_S)
    mail["Message-ID"] = f"<{owed[0].key}-{owed[-1].number}-{len(owed)}@{receiver.sender.partition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("\n".join(_write_lines(told)) + "\n", charset="utf-8")
    return mail


def _write_lines(told: Message) -> list[str]:
    """A message as lines of plain text."""
    lines = [f"{told.counts}: {told.rule} ({told.severity})", *_optional(told.meaning), ""]
    for item in told.items:
        lines.append(f"- {item.state}: {item.of}, {item.when}")
        lines += [f"    {fact}" for fact in (*item.facts, item.link) if fact]
    lines += [*_optional(told.more), ""]
    for title, said in (("Ask first", told.ask_first), ("Look next", told.look_next), ("Runbook", told.runbook)):
        lines += [f"{title}: {said}"] if said else []
    return [spell_out(line) for line in lines]


def _code(name: str) -> str:
    """A name between backticks, where no markup counts and nobody is called; Slack reads entities there, too.

    >>> _code("*a* <!channel> `b`")
    '`*a* &lt;!channel&gt; ˋbˋ`'
    """
    return f"`{spell_out(name).translate(_TICKS).translate(_ENTITIES)}`"


def _quote(text: str) -> str:
    """A sentence as it is, or as code where something in it could act.

    >>> _quote("SM activity 3 %, below 5 %"), _quote("see <https://evil.example|this>")
    ('SM activity 3 %, below 5 %', '`see &lt;https://evil.example|this&gt;`')
    """
    return _code(text) if _MARKED.search(text) else spell_out(text)


def _write_link(item: Item) -> str:
    """Our own address, in which nothing comes from data but a fingerprint."""
    return f" {_place(item.link)}" if item.link else ""


def _place(text: str) -> str:
    """What settings and rules say: their own markup counts, as far as it calls nobody."""
    return spell_out(text).translate(_ENTITIES)


def _optional(text: str) -> list[str]:
    return [text] if text else []


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
