"""Digests are sent once: mails through a real SMTP server, chats, files; what is not taken is tried again, kills lose nothing."""

import json
import os
import random
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import AuthResult
from tests.commands import Run
from tests.insight.alerts.delivery.chat_server import ChatServer
from tests.interfaces.digests.mail_server import Mailbox, receive
from tests.interfaces.digests.test_digest import WEEKS
from tests.waiting import LONGEST_S

from loadfactor.base.errors import InputError
from loadfactor.base.paths import name_file
from loadfactor.base.units import MS_PER_DAY, MS_PER_MIN, MS_PER_S
from loadfactor.books.books import Books
from loadfactor.interfaces.digests.post import Post, find_due, list_sent
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.settings import config
from loadfactor.settings.config import Settings, read_settings
from loadfactor.settings.digests import DigestTable, MailServer

TUESDAY = milliseconds(datetime(2026, 10, 13, 12, tzinfo=UTC))
"""A day after the first week's digest was due; that of the second week is due six days later."""
NEXT = TUESDAY + 6 * MS_PER_DAY
SECOND = find_due(DigestTable(name="a", to=("a@b.example",)), datetime(2026, 10, 20, tzinfo=UTC), UTC)
TABLES = """[[digest]]
name = "monday"
to = ["cto@here.example"]
[[digest]]
name = "users"
user = "*"
to = ["{user}@here.example"]
"""
ROOT = Path(__file__).resolve().parents[3]
KILLS = max(10, int(os.environ.get("TORTURE_ROUNDS", "0")))


@pytest.fixture
def books(tmp_path: Path) -> Books:
    """Books of two weeks of their own, in which digests are kept."""
    for name, text in WEEKS.items():
        (tmp_path / f"{name}.csv").write_text(text)
    books = Books(tmp_path / "books")
    books.add("tables", [tmp_path / f"{name}.csv" for name in WEEKS])
    return books


@pytest.fixture
def mail() -> Iterator[tuple[Mailbox, MailServer]]:
    """A server that takes mail."""
    with receive() as found:
        yield found


def make_settings(server: MailServer | None, *digests: dict[str, Any], **more: Any) -> Settings:
    """Settings with these digests."""
    mail = {} if server is None else {"mail": server.model_dump(by_alias=True)}
    return Settings.model_validate({**mail, "digest": digests, **more})


def write_mail_table(server: MailServer) -> str:
    """A server for mail as loadfactor.toml has it."""
    return f'[mail]\nhost = "{server.host}"\nport = {server.port}\ntls = "none"\nfrom = "{server.sender}"\n'


FLEET = {"name": "monday", "at": "Monday 08:00", "to": ["cto@here.example", "CTO@here.example"]}
USERS = {"name": "users", "user": "*", "to": ["{user}@here.example"], "addresses": {"ann": "ann.k@here.example"}}


@pytest.mark.long
def test_a_mail_holds_text_html_and_pictures(books: Books, mail: tuple[Mailbox, MailServer]) -> None:
    """One mail to one address, whose HTML shows a picture that it carries; links lead to the server."""
    post = Post(books, make_settings(mail[1], FLEET, alerts={"link": "https://gpus.example"}), lambda: NEXT)
    (sent,) = post.send_now(DigestTable(**FLEET), SECOND)
    ((addresses, found),) = mail[0].mails
    assert (sent.state, addresses, found["To"]) == ("sent", ("cto@here.example",), "cto@here.example")
    assert found["Subject"] == "2026-W42: the fleet was 4.96 % full and cost $1,008, $220.00 of it idle."
    text, html = (found.get_body((kind,)) for kind in ("plain", "html"))
    assert text is not None
    assert html is not None
    assert "$688.00" in text.get_content()
    pictures = [part for part in found.walk() if part.get_content_type() == "image/png"]
    assert pictures[0].get_content()[:4] == b"\x89PNG"
    assert f'src="cid:{pictures[0]["Content-ID"][1:-1]}"' in html.get_content()
    assert 'href="https://gpus.example/jobs/4?from=2026-10-12&amp;to=2026-10-19"' in html.get_content()
    assert "<style" not in html.get_content()
    assert "<svg" not in html.get_content()


@pytest.mark.long
def test_each_is_sent_once_a_period(books: Books, mail: tuple[Mailbox, MailServer]) -> None:
    """What was over when a digest was first seen is not sent; the next period is, once, whoever looks and however often."""
    settings = make_settings(mail[1], FLEET, USERS, notices={"opt_out": ["bob"]})

    def look(now: int) -> list[str]:
        return sorted(of.target for of in Post(books, settings, lambda: now).look())

    assert look(TUESDAY) == look(NEXT - 2 * MS_PER_DAY) == []
    assert look(NEXT) == ["ann.k@here.example", "cto@here.example"]
    assert look(NEXT) == look(NEXT + MS_PER_DAY) == []
    assert [of.state for of in Post(books, settings, lambda: NEXT).send_now(settings.digest[0], SECOND)] == ["sent"]
    assert Counter(to for to, _ in mail[0].mails) == {("cto@here.example",): 1, ("ann.k@here.example",): 1}
    assert look(NEXT + 7 * MS_PER_DAY) == []  # nobody held anything in a week that the books do not know


@pytest.mark.long
def test_what_is_not_taken_is_tried_again(books: Books, mail: tuple[Mailbox, MailServer]) -> None:
    """A server that is busy gets the same letter later; one that will not take it does not get it again."""
    now = TUESDAY
    settings = make_settings(mail[1], FLEET)
    post = Post(books, settings, lambda: now)
    post.look()
    now, mail[0].answer = NEXT, "451 busy"
    (sent,) = post.look()
    assert (sent.state, sent.why) == ("pending", "answered 451 busy")
    assert post.look() == []
    now, mail[0].answer = NEXT + 60 * MS_PER_S, "554 never"
    (sent,) = post.look()
    assert (sent.state, sent.why) == ("refused", "answered 554 never")
    now += MS_PER_DAY
    assert post.look() == []
    assert [of.state for of in list_sent(books.store.folder)] == ["refused"]


@pytest.mark.long
def test_one_that_cannot_be_made_holds_up_no_other(
    books: Books, mail: tuple[Mailbox, MailServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a target of a metric that is none the fleet has no digest; users have theirs, the fleet its own when that is mended."""
    monkeypatch.chdir(tmp_path)
    written = write_mail_table(mail[1]) + TABLES
    wrong = f'{written}[[target]]\nmetric = "nonsense"\nat_least = 1\ndue = 2027-01-01\n'
    for text, error, came in (
        (written, "", []),
        (wrong, "monday: no metric", ["ann@here.example", "bob@here.example"]),
        (written, "", ["cto@here.example"]),
    ):
        chosen = tmp_path / "loadfactor.toml"
        chosen.write_text(text)
        post = Post(books, config.choose_file(chosen), lambda now=NEXT if error or came else TUESDAY: now)
        assert sorted(of.target for of in post.look()) == came
        assert post.error.startswith(error)
    with pytest.raises(InputError, match="no time zone"):
        make_settings(mail[1], FLEET | {"timezone": "Berlin"})


@pytest.mark.long
def test_mail_is_encrypted_and_logs_in(
    books: Books, certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By STARTTLS to a server whose certificate is trusted, with the password of a file; another one is not taken, and not said."""
    monkeypatch.delenv("LOADFACTOR_SMTP_PASSWORD", raising=False)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*certificate)

    def admit(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> AuthResult:
        return AuthResult(success=(given.login, given.password) == (b"lf", b"right"), handled=False)

    password = tmp_path / "password"
    with receive(tls_context=tls, require_starttls=True, auth_required=True, authenticator=admit) as (mailbox, server):
        given = server.model_dump(by_alias=True) | {"tls": "starttls", "user": "lf", "password_file": password}

        def send(**more: object) -> tuple[str, str]:
            settings = make_settings(MailServer.model_validate(given | more), FLEET)
            (found,) = Post(books, settings, clock.__next__).send_now(settings.digest[0], SECOND)
            return found.state, found.why

        clock = iter(range(NEXT, NEXT + 10 * MS_PER_DAY, MS_PER_MIN * 10))
        password.write_text("wrong\n")
        assert send(ca_file=certificate[0]) == ("pending", "answered 535 did not take the password")
        password.write_text("right\n")
        assert send()[1].startswith("TLS: ")
        assert send(ca_file=certificate[0]) == ("sent", "")
        assert len(mailbox.mails) == 1


@pytest.mark.long
@pytest.mark.parametrize("kind", ["slack", "teams"])
def test_chats_and_folders_get_it(kind: str, books: Books, tmp_path: Path) -> None:
    """A message that a chat takes, and files whose names say digest, period and team; no server for mail is needed."""
    with ChatServer(kind) as chat:
        table = {
            "name": "vision's",
            "team": "v*",
            "webhook": f"{chat.url}/x",
            "chat": kind,
            "folder": tmp_path,
            "files": ["html", "pdf"],
        }
        post = Post(books, make_settings(None, table, alerts={"link": "https://gpus.example"}), lambda: NEXT)
        due = SECOND
        assert [of.state for of in post.send_now(DigestTable(**table), due)] == ["sent"] * 3
    (text,), (key,) = chat.texts, chat.keys
    assert key
    assert "team vision was" in text
    assert "ann / vision · underused · $50.00 · 2" in text
    assert "of the held time was observed" in text
    if kind == "teams":
        first, *_ = chat.messages[0]["attachments"][0]["content"]["actions"]
        assert first == {
            "type": "Action.OpenUrl",
            "title": "team vision",
            "url": "https://gpus.example/teams/vision?from=2026-10-12&to=2026-10-19",
        }
    assert (tmp_path / f"{name_file(table['name'])} 2026-W42 vision.pdf").read_bytes()[:4] == b"%PDF"
    assert "team vision" in (tmp_path / f"{name_file(table['name'])} 2026-W42 vision.html").read_text()


@pytest.mark.long
def test_teams_with_like_names_get_a_file_each(tmp_path: Path) -> None:
    """The digests of vision/a, vision a, Vision_a and vision_a are four files, and each speaks of its own team."""
    teams = ("vision/a", "vision a", "Vision_a", "vision_a")
    held = "".join(f"{n},g{n},{team},2026-10-12T00:00Z,2026-10-13T00:00Z\n" for n, team in enumerate(teams))
    (tmp_path / "devices.csv").write_text(WEEKS["devices"] + "g3,n3,2026-10-05T00:00Z,2026-10-19T00:00Z\n")
    (tmp_path / "allocations.csv").write_text(f"job_id,device_id,team,from_utc,to_utc\n{held}")
    books = Books(tmp_path / "books")
    books.add("tables", [tmp_path / "devices.csv", tmp_path / "allocations.csv"])
    table = {"name": "weekly", "team": "*", "folder": tmp_path / "out", "files": ["txt"]}
    (tmp_path / "out").mkdir()
    letters = Post(books, make_settings(None, table), lambda: NEXT).send_now(DigestTable(**table), SECOND)
    assert [of.state for of in letters] == ["sent"] * 4
    assert len(list((tmp_path / "out").iterdir())) == 4
    for team in teams:
        assert f"team {team} was" in (tmp_path / "out" / f"weekly 2026-W42 {name_file(team)}.txt").read_text()


@pytest.mark.long
def test_names_from_data_reach_nobody_and_are_no_markup(mail: tuple[Mailbox, MailServer], tmp_path: Path) -> None:
    """A user called like two addresses gets no mail, a job called like markup is text in the mail and in a chat."""
    for name, text in WEEKS.items():
        rows = text.replace("4,g2,bob", '"<img src=x> <!channel>",g2,"b@evil.example,c"')
        (tmp_path / f"{name}.csv").write_text(rows)
    books = Books(tmp_path / "books")
    books.add("tables", [tmp_path / f"{name}.csv" for name in WEEKS])
    with ChatServer() as chat:
        settings = make_settings(mail[1], FLEET, USERS | {"webhook": f"{chat.url}/x"})
        for table in settings.digest:
            Post(books, settings, lambda: NEXT).send_now(table, SECOND)
    assert sorted(to for to, _ in mail[0].mails) == [("ann.k@here.example",), ("cto@here.example",)]
    assert len(chat.texts) == 2
    assert not any("<" in text for text in chat.texts)
    html = next(of for to, of in mail[0].mails if to == ("cto@here.example",)).get_body(("html",))
    assert html is not None
    assert "&lt;img src=x&gt;" in html.get_content()
    assert "<img src=x" not in html.get_content()


@pytest.mark.long
def test_the_command_sends_and_says_what_would_be_sent(
    books: Books, mail: tuple[Mailbox, MailServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """A dry run names addresses and sends nothing; --send sends once; a name that is none is refused."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loadfactor.toml").write_text(write_mail_table(mail[1]) + TABLES)
    config.settings.cache_clear()
    code, out, _ = run("digest", "--weekly", "--dry-run", "--store", books.store.folder)
    assert code == 0
    assert all(f"{name}@here.example" in out for name in ("cto", "ann", "bob"))
    assert mail[0].mails == []
    assert run("digest", "users", "--send", "--store", books.store.folder)[0] == 0
    assert run("digest", "users", "--send", "--store", books.store.folder)[0] == 0
    assert [to for to, _ in mail[0].mails] == [("ann@here.example",), ("bob@here.example",)]
    unsent = json.loads(run("digest", "--dry-run", "--json", "--store", books.store.folder)[1])
    out = run("digest", "users", "--dry-run", "--store", books.store.folder)[1]
    assert out.startswith("0 messages of 1 digest would be sent (2 made before)")
    assert [(of["of"], of["already"]) for of in unsent] == [("the fleet", None), ("ann", "sent"), ("bob", "sent")]
    assert "monday" in run("digest", "munday", "--send", "--store", books.store.folder)[2]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"name": "a"}, "reaches nobody"),
        ({"name": "a", "to": ["ops"]}, "no address"),
        ({"name": "a", "to": ["a@b"], "at": "8 o'clock"}, "is no time"),
        ({"name": "a", "to": ["a@b"], "every": "month", "at": "Monday 08:00"}, "a day up to 28"),
        ({"name": "a", "to": ["a@b"], "team": "x", "user": "y"}, "of a team or of a user"),
    ],
)
def test_what_cannot_be_is_refused(table: dict[str, Any], words: str) -> None:
    """In the words of the setting, when it is read."""
    with pytest.raises(ValueError, match=words):
        DigestTable(**table)


def test_times_are_those_of_the_zone() -> None:
    """Of a week on Wednesday at 8, of a month on the 3rd; until then that of the period before is the last."""
    at = datetime(2026, 10, 14, 7, 59, tzinfo=UTC)
    table = DigestTable(name="a", to=("a@b.example",), at="Wednesday 08:00")
    assert [find_due(table, at.replace(hour=hour), UTC).name for hour in (7, 8)] == ["2026-W40", "2026-W41"]
    monthly = DigestTable(name="a", to=("a@b.example",), every="month", at="3 09:30")
    assert [find_due(monthly, datetime(2026, 10, day, 12, tzinfo=UTC), UTC).name for day in (2, 3)] == [
        "2026-08",
        "2026-09",
    ]


def test_mail_needs_a_server(books: Books) -> None:
    """A digest that is mailed without [mail] is refused before anything is made."""
    with pytest.raises(InputError, match=r"no \[mail\]"):
        Post(books, make_settings(None, FLEET))


@pytest.mark.long
def test_kills_lose_and_repeat_nothing(books: Books, tmp_path: Path) -> None:
    """After kills around its hour each letter has come; one that was under way came again at most with its Message-ID."""
    chance = random.Random(3)
    with receive() as (mailbox, server):
        written = tmp_path / "loadfactor.toml"
        written.write_text(write_mail_table(server) + TABLES)
        post = Post(books, read_settings(written), lambda: TUESDAY)
        post.look()
        command = [
            sys.executable,
            "-m",
            "tests.interfaces.digests.poster",
            str(books.store.folder),
            str(written),
            str(NEXT),
        ]
        for _ in range(KILLS):
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
                time.sleep(chance.uniform(0.5, 4.0))
                process.kill()
        assert (
            subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=LONGEST_S).stdout
            == "done\n"
        )
    ids: dict[tuple[str, ...], set[str]] = {}
    for to, mail in mailbox.mails:
        ids.setdefault(to, set()).add(mail["Message-ID"])
    assert {to: len(of) for to, of in ids.items()} == {(f"{name}@here.example",): 1 for name in ("cto", "ann", "bob")}
    assert len(mailbox.mails) <= 3 + KILLS
