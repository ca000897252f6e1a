"""The outbox keeps every transition once and in order, over kills, and sends harmless text; many alerts are one message."""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from threading import Lock

import pytest
from tests.insight.alerts.delivery.chat_server import ChatServer
from tests.insight.alerts.delivery.teller import MINUTE_MS, START_MS, end, fire, list_keys, read_receivers
from tests.live.local_server import LocalServer

from loadfactor.insight.alerts.alert import Transition
from loadfactor.insight.alerts.delivery.dispatcher import WebhookChannel
from loadfactor.insight.alerts.delivery.outbox import (
    GONE,
    LONGEST_PAUSE_MS,
    Judged,
    Outbox,
    add_silence,
    lift_silence,
    read_outbox,
)
from loadfactor.insight.alerts.delivery.payloads import (
    MOST_LISTED,
    Links,
    pack_alertmanager,
    pack_slack,
    pack_webhook,
    write_email,
)
from loadfactor.insight.alerts.delivery.pending import (
    Backlog,
    Pending,
    count_backlogs,
    give_up,
    list_delivered,
    put_off,
    refuse,
    settle,
    take,
)
from loadfactor.insight.alerts.delivery.silence import Silence
from loadfactor.insight.alerts.rules import RULES
from loadfactor.settings.alerts import EmailReceiver, Receiver

HOOK, CHAT = read_receivers(
    {"kind": "webhook", "url": "http://127.0.0.1:1/"}, {"kind": "slack", "url": "http://127.0.0.1:1/"}
)


def keep(
    outbox: Outbox, *told: Transition, alive: tuple[Transition, ...] = (), receivers: tuple[Receiver, ...] = (HOOK, CHAT),
    now_ms: int = START_MS,
) -> int:  # fmt: skip
    """Keep what a judge told; `alive` fires still."""
    return outbox.keep(Judged(now_ms, {"judged_ms": now_ms}, [t.alert for t in alive]), told, receivers, now_ms)


def test_a_transition_is_kept_once(tmp_path: Path) -> None:
    """What a judge tells twice is one transition; what it no longer knows of is resolved, saying so."""
    outbox, fired = Outbox(tmp_path), fire()
    assert keep(outbox, fired, alive=(fired,)) == 1
    assert keep(outbox, fired, alive=(fired,)) == 0
    assert keep(outbox, alive=(fired,)) == 0
    assert keep(outbox) == 1
    owed = take(outbox, HOOK.label, START_MS)
    assert [one.alert.state for one in owed] == ["firing"]
    settle(outbox, HOOK.label, owed, START_MS)
    (ended,) = take(outbox, HOOK.label, START_MS)
    assert (ended.alert.state, ended.alert.ended_because) == ("resolved", GONE)
    assert ended.key == f"{fired.alert.fingerprint}-resolved"
    assert keep(outbox, end(fire("never told"))) == 0


def test_an_alert_that_fires_again_has_another_key(tmp_path: Path) -> None:
    """Where late data makes an alert fire that was resolved, receivers that keep keys take it as another transition."""
    outbox, fired = Outbox(tmp_path), fire()
    for _ in range(2):
        keep(outbox, fired, alive=(fired,))
        keep(outbox, end(fired))
    with read_outbox(tmp_path) as connection:
        assert connection is not None
        keys = [key for (key,) in connection.execute("SELECT key FROM transitions ORDER BY number")]
    mark = fired.alert.fingerprint
    assert keys == [f"{mark}-firing", f"{mark}-resolved", f"{mark}-firing-2", f"{mark}-resolved-2"]


def test_the_state_of_the_judge_comes_back(tmp_path: Path) -> None:
    """What was kept is there when the outbox is opened anew."""
    keep(Outbox(tmp_path))
    assert Outbox(tmp_path).read_state() == {"judged_ms": START_MS}


def test_people_get_one_message_for_a_rule(tmp_path: Path) -> None:
    """Transitions of a rule in one judgement are one batch for a chat, and one each for a webhook."""
    outbox = Outbox(tmp_path)
    told = [fire("a"), fire("b"), fire("", "fleet_utilization_low"), fire("c")]
    keep(outbox, *told, alive=tuple(told))
    assert [one.alert.by.get("job") for one in take(outbox, CHAT.label, START_MS)] == ["a", "b", "c"]
    assert len(take(outbox, HOOK.label, START_MS)) == 1


def test_an_end_waits_for_its_beginning(tmp_path: Path) -> None:
    """While a receiver does not take that an alert fired, it is not told that it ended; once that is given up, it is."""
    outbox, fired = Outbox(tmp_path), fire()
    keep(outbox, fired, alive=(fired,))
    (owed,) = take(outbox, HOOK.label, START_MS)
    put_off(outbox, HOOK.label, [owed], "no answer", START_MS + MINUTE_MS)
    keep(outbox, end(fired))
    assert take(outbox, HOOK.label, START_MS) == []
    (owed,) = take(outbox, HOOK.label, START_MS + MINUTE_MS)
    assert (owed.alert.state, owed.attempts) == ("firing", 1)
    give_up(outbox, HOOK.label, [owed], "too late", START_MS + MINUTE_MS)
    assert [one.alert.state for one in take(outbox, HOOK.label, START_MS + MINUTE_MS)] == ["resolved"]


def test_a_receiver_is_reminded_of_what_was_given_up(tmp_path: Path) -> None:
    """An Alertmanager that did not take a beginning in time is sent the state again, while the alert fires."""
    outbox, fired = Outbox(tmp_path), fire()
    keep(outbox, fired, alive=(fired,))
    assert list_delivered(outbox, HOOK.label) == []
    give_up(outbox, HOOK.label, take(outbox, HOOK.label, START_MS), "too late", START_MS)
    assert [alert.fingerprint for alert in list_delivered(outbox, HOOK.label)] == [fired.alert.fingerprint]
    keep(outbox, end(fired))
    assert list_delivered(outbox, HOOK.label) == []


@pytest.mark.parametrize("comes_back", ["by itself", "with something new"])
def test_a_receiver_that_was_away_for_long_hears_what_is_still_news(tmp_path: Path, comes_back: str) -> None:
    """After longer than it is tried: what fires still is sent, what it knew and ended is resolved, each once, and nothing else."""
    outbox, knew, still, over = Outbox(tmp_path), fire("knew"), fire("still"), fire("over")
    keep(outbox, knew, alive=(knew,))
    settle(outbox, HOOK.label, take(outbox, HOOK.label, START_MS), START_MS)
    keep(outbox, still, over, alive=(knew, still, over))
    given_up = []
    for told in ((), (end(knew), end(over))):
        keep(outbox, *told, alive=(still,) if told else (knew, still, over))
        while owed := take(outbox, HOOK.label, START_MS):
            given_up += owed
            give_up(outbox, HOOK.label, owed, "no answer within 10 s", START_MS)
    assert len(given_up) == 4  # of both that fired, and of both that ended
    later = START_MS + MINUTE_MS
    if comes_back == "by itself":  # tried again now and then
        assert take(outbox, HOOK.label, later) == []
        later = START_MS + LONGEST_PAUSE_MS
    else:
        keep(outbox, fire("new"), alive=(still, fire("new")), now_ms=later)
        settle(outbox, HOOK.label, take(outbox, HOOK.label, later), later)
    sent = []
    while owed := take(outbox, HOOK.label, later):
        sent += [(one.alert.by["job"], one.alert.state) for one in owed]
        settle(outbox, HOOK.label, owed, later)
    assert sent == [("still", "firing"), ("knew", "resolved")]


def test_what_a_receiver_refuses_is_not_sent_again(tmp_path: Path) -> None:
    """A payload that it will not take whenever it comes."""
    outbox, fired = Outbox(tmp_path), fire()
    keep(outbox, fired, alive=(fired,))
    refuse(outbox, HOOK.label, take(outbox, HOOK.label, START_MS), "answered 400")
    assert take(outbox, HOOK.label, START_MS + 2 * LONGEST_PAUSE_MS) == []
    with read_outbox(tmp_path) as connection:
        assert connection is not None
        assert count_backlogs(connection)[HOOK.label] == Backlog(given_up=1, why="answered 400")


@pytest.mark.parametrize("ahead", [3 * 60, 365 * 24 * 60])
def test_times_of_a_clock_that_was_ahead_hold_nothing_back(tmp_path: Path, ahead: int) -> None:
    """A delivery that was put off is due, and is tried as long as any other; a silence lasts the hour it was made for."""
    outbox, told, later = Outbox(tmp_path), [fire("a"), fire("b")], START_MS + ahead * MINUTE_MS
    keep(outbox, *told, alive=tuple(told), now_ms=later)
    owed = take(outbox, HOOK.label, later)
    put_off(outbox, HOOK.label, owed, "no answer", later + MINUTE_MS)
    add_silence(tmp_path, replace(silence(job="b"), created_ms=later, until_ms=later + 60 * MINUTE_MS))
    outbox.mend_times(START_MS)
    (again,) = take(outbox, HOOK.label, START_MS)
    assert (again.number, again.since_ms) == (owed[0].number, START_MS)
    settle(outbox, HOOK.label, [again], START_MS)
    assert take(outbox, HOOK.label, START_MS + 59 * MINUTE_MS) == []
    assert [one.alert.by["job"] for one in take(outbox, HOOK.label, START_MS + 60 * MINUTE_MS)] == ["b"]


def silence(**by: str) -> Silence:
    """A silence of an hour."""
    return Silence("s1", "", by, START_MS, START_MS + 60 * MINUTE_MS, "maintenance", "ann")


def test_a_silence_holds_back_what_fires(tmp_path: Path) -> None:
    """What is silenced is told when the silence ends, if it fires still."""
    outbox, told = Outbox(tmp_path), [fire("train[1]"), fire("eval")]
    add_silence(tmp_path, silence(job="train[1]"))
    keep(outbox, *told, alive=tuple(told))
    assert [one.alert.by["job"] for one in take(outbox, CHAT.label, START_MS)] == ["eval"]
    later = START_MS + 10 * MINUTE_MS
    lift_silence(tmp_path, "s1", later, later)
    told_later = []
    for _ in told:
        (owed,) = take(outbox, CHAT.label, later)
        settle(outbox, CHAT.label, [owed], later)
        told_later.append(owed.alert.by["job"])
    assert sorted(told_later) == ["eval", "train[1]"]


def test_what_ends_under_a_silence_is_not_told(tmp_path: Path) -> None:
    """Neither that it fired nor that it ended; what was told before the silence began has its end told."""
    outbox, told, hidden = Outbox(tmp_path), fire("a"), fire("b")
    keep(outbox, told, alive=(told,))
    settle(outbox, HOOK.label, take(outbox, HOOK.label, START_MS), START_MS)
    add_silence(tmp_path, silence(job="?"))
    keep(outbox, hidden, alive=(told, hidden))
    assert take(outbox, HOOK.label, START_MS) == []
    assert [alert.by["job"] for alert in list_delivered(outbox, HOOK.label)] == ["a"]
    keep(outbox, end(told), end(hidden))
    assert [(one.alert.by["job"], one.alert.state) for one in take(outbox, HOOK.label, START_MS)] == [("a", "resolved")]
    settle(outbox, HOOK.label, take(outbox, HOOK.label, START_MS), START_MS)
    assert take(outbox, HOOK.label, START_MS + 100 * MINUTE_MS) == []


def test_a_new_receiver_hears_what_fires(tmp_path: Path) -> None:
    """One that is added is owed what fires; one that is taken away is owed nothing; a filter counts for both."""
    outbox, told = Outbox(tmp_path), [fire("a"), fire("b", team="blue"), fire("c")]
    keep(outbox, *told, alive=tuple(told), receivers=(HOOK,))
    keep(outbox, end(told[2]), alive=tuple(told[:2]), receivers=(HOOK,))
    (blue,) = read_receivers({"kind": "slack", "url": "http://127.0.0.1:1/", "teams": ["blue"]})
    outbox.begin([blue], START_MS)
    assert [one.alert.by["job"] for one in take(outbox, blue.label, START_MS)] == ["b"]
    assert take(outbox, HOOK.label, START_MS) == []


def test_old_alerts_are_forgotten(tmp_path: Path) -> None:
    """A month after its end an alert is gone, with what was told of it."""
    outbox, fired = Outbox(tmp_path), fire()
    keep(outbox, fired, end(fired))
    outbox.forget_old(START_MS + 31 * 24 * 60 * MINUTE_MS)
    with read_outbox(tmp_path) as connection:
        assert connection is not None
        for table in ("alerts", "transitions", "deliveries"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table


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


@pytest.mark.parametrize("kind", ["slack", "teams"])
def test_a_chat_takes_what_it_is_sent(kind: str) -> None:
    """Slack's blocks and cards of Teams keep to their published rules, whoever an alert is of and however many there are."""
    few, many = owe(HOSTILE), owe(*(f"{n} {HOSTILE * 40}" for n in range(500)))
    rules = {of.name: of for of in RULES}
    facts = ("*x* " * 900,) * 3
    long = [replace(of, transition=Transition(replace(of.alert, evidence=facts), START_MS)) for of in many[:40]]
    with ChatServer(kind) as chat:
        (receiver,) = read_receivers({"kind": kind, "url": f"{chat.url}/hook"})
        channel = WebhookChannel(receiver, rules, LINKS)
        for owed in (few, many, long):
            asyncio.run(channel.send(owed))
    assert "1 firing: job_became_idle" in chat.texts[0]
    assert not any("<" in text for text in chat.texts) or kind == "teams"
    assert all("\x1b" not in text for text in chat.texts)
    if kind == "teams":
        (button,) = chat.messages[0]["attachments"][0]["content"]["actions"]
        assert button["url"].startswith("http://here/api/v1/alerts?id=")


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


ROOT = Path(__file__).resolve().parents[4]
KILLS = max(12, int(os.environ.get("TORTURE_ROUNDS", "0")))
STEPS = 5 * KILLS
LONGEST_S = 20.0 * KILLS


class Hook(LocalServer):
    """A webhook that keeps the states it was told; of requests it fails some, half of these after it took them."""

    def __init__(self, failing: float = 0.0, delay_s: float = 0.0) -> None:
        self.failing, self.delay_s = failing, delay_s
        self.states: dict[str, str] = {}
        self.keys: Counter[str] = Counter()
        self._chance, self._lock = random.Random(1), Lock()

    def respond(self, _path: str, body: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        told = json.loads(body)
        assert headers["idempotency-key"] == told["key"]
        with self._lock:
            fails, takes = self._chance.random() < self.failing, self._chance.random() < 0.5
            if not fails or takes:
                self.keys[told["key"]] += 1
                self.states[told["alert"]["id"]] = told["state"]
        return (500 if fails else 204), {}, b""


@pytest.mark.long
def test_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """After a dozen kills, or `TORTURE_ROUNDS`, the outbox has each transition once, and each of three webhooks heard all: one that
    answers at once, one that fails half of the time, one that is late."""
    folder, config = tmp_path / "books", tmp_path / "loadfactor.toml"
    folder.mkdir()
    chance = random.Random(7)
    with Hook() as good, Hook(failing=0.5) as bad, Hook(delay_s=0.05) as late:
        hooks = {"good": good, "bad": bad, "late": late}
        tables = [f'[[alerts.receiver]]\nkind = "webhook"\nname = "{n}"\nurl = "{h.url}/x"\n' for n, h in hooks.items()]
        config.write_text("".join(tables))
        command = [sys.executable, "-m", "tests.insight.alerts.delivery.teller", str(folder), str(config), str(STEPS)]
        for _ in range(KILLS):
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
                time.sleep(chance.uniform(0.6, 1.6))
                process.kill()
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"
            process.kill()
    keys = list_keys(STEPS)
    with read_outbox(folder) as connection:
        assert connection is not None
        with closing(connection.execute("SELECT key FROM transitions ORDER BY number")) as rows:
            assert sorted(key for (key,) in rows) == sorted(keys)
    for name, hook in hooks.items():
        assert set(hook.keys) == set(keys), name
        assert hook.states == good.states, name
    assert set(good.states.values()) == {"firing", "resolved"}
    assert sum(good.keys.values()) <= len(keys) + KILLS  # at most what was under way at a kill came twice
