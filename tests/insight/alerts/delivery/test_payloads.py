"""What receivers are sent is harmless whatever jobs are called, and many alerts of a rule are one short message."""

import json
from email import message_from_bytes
from email.policy import default

import pytest
from tests.insight.alerts.delivery.alerts_of_tests import START_MS, fire, read_receivers

from loadfactor.insight.alerts.delivery.payloads import (
    MOST_LISTED,
    Links,
    pack_alertmanager,
    pack_slack,
    pack_webhook,
    write_email,
)
from loadfactor.insight.alerts.delivery.pending import Pending
from loadfactor.settings.alerts import EmailReceiver

HOSTILE = "a\r\nBcc: x@evil.example\x1b[31m <!channel> `*b*` [l](http://evil.example) @here & \u202e"
LINKS = Links("http://here")
MAIL = {"kind": "email", "host": "smtp.example", "from": "lf@smtp.example", "to": ["ops@smtp.example"]}


def owe(*jobs: str) -> list[Pending]:
    """Alerts of jobs that fired in one judgement."""
    return [Pending(n, f"key-{n}", fire(job), "batch", 0, START_MS) for n, job in enumerate(jobs)]


def test_a_chat_calls_nobody() -> None:
    """In Slack's markup a hostile name stands between backticks, with its entities escaped and on one line."""
    text = json.loads(pack_slack(owe(HOSTILE), {}, LINKS))["text"]
    (line,) = [line for line in text.splitlines() if "evil" in line]
    assert "<" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert line.count("`") == 2
    assert all(line.index("`") < line.index(part) < line.rindex("`") for part in ("&lt;!channel&gt;", "*b*", "@here"))


def test_an_email_has_no_other_header() -> None:
    """A line break in a name begins no header, and sent twice a mail has one Message-ID."""
    (receiver,) = read_receivers(MAIL)
    assert isinstance(receiver, EmailReceiver)
    mails = [write_email(owe(HOSTILE), {}, LINKS, receiver, START_MS + n) for n in range(2)]
    read = message_from_bytes(mails[0].as_bytes(), policy=default)
    assert read["Bcc"] is None
    assert read["To"] == "ops@smtp.example"
    assert mails[0]["Message-ID"] == mails[1]["Message-ID"]
    body = read.get_content()
    assert "\x1b" not in body
    assert "\u202e" not in body
    assert sum("evil" in line for line in body.splitlines()) == 1


def test_machines_get_names_as_they_are() -> None:
    """A webhook gets the name itself, in JSON; an Alertmanager gets it on one line, with the times of the alert."""
    (owed,) = owe(HOSTILE)
    assert json.loads(pack_webhook(owed, {}, LINKS))["alert"]["by"] == {"job": HOSTILE}
    (told,) = json.loads(pack_alertmanager([owed.alert], {}, LINKS, START_MS + 3_600_000))
    assert "\n" not in told["labels"]["job"]
    assert "\x1b" not in told["labels"]["job"]
    assert told["labels"]["alertname"] == "job_became_idle"
    assert told["startsAt"] < told["endsAt"]


@pytest.mark.parametrize("more", [0, 37])
def test_many_alerts_are_counted(more: int) -> None:
    """Of more alerts than a person reads the others are counted."""
    text = json.loads(pack_slack(owe(*(f"j{n}" for n in range(MOST_LISTED + more))), {}, LINKS))["text"]
    assert text.count("• firing") == MOST_LISTED
    assert ("and 37 more" in text) == bool(more)
