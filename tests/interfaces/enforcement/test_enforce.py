"""Enforcement: warned by a real mail server, ended after the grace, let go at work, never without a policy, a team or samples."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.books.conftest import write  # noqa: F401 (a fixture)
from tests.commands import Run
from tests.interfaces.digests.mail_server import Mailbox, receive
from tests.interfaces.digests.test_post import write_mail_table
from tests.live.fake_kubernetes import FakeKubernetes
from tests.live.fake_slurm import FakeSlurm, queued

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_S
from loadfactor.books.books import Books
from loadfactor.interfaces.enforcement.enforcement_log import read_log
from loadfactor.interfaces.enforcement.enforcer import Enforcer, Planned
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.settings.config import Settings
from loadfactor.settings.digests import MailServer

BEGAN = datetime(2026, 10, 5, 6, tzinfo=UTC)
NOON = BEGAN + timedelta(hours=6)
RULE = {
    "name": "idle",
    "team": ["vision"],
    "below": 0.01,
    "window": "2h",
    "grace": "1h",
    "act": "scancel",
    "to": ["{user}@here.example"],
    "copy_to": ["ops@here.example"],
}
HELD = {"101": "ann", "102": "bob", "103": "cid", "104": "dan", "105": "eve"}
"""Jobs of a GPU each: idle, at work, unobserved, idle of another team, idle and allowed."""
TEAMS = {"104": "speech"}


class Fleet:
    """Books that go on hour by hour, and what enforces their policies by a clock that stands at their end."""

    def __init__(self, folder: Path, server: MailServer) -> None:
        self.folder, self.server = folder, server
        self.books = Books(folder / "books")
        self.slurm = FakeSlurm(folder)
        scancel = self.slurm.bin / "scancel"
        scancel.write_text(f'#!/bin/sh\necho "$*" >> {folder}/cancelled\n')
        scancel.chmod(0o755)
        self.say_queue(*HELD)
        tags = '"{""namespace"":""vision"",""owner"":""Deployment/chat""}"'
        pods = f"vision/chat-a,pod,fay,vision,{BEGAN.isoformat()},{tags}\n"
        jobs = "".join(
            f"{job},{job},{user},{TEAMS.get(job, 'vision')},{BEGAN.isoformat()},\n" for job, user in HELD.items()
        )
        devices = "".join(f"{name},n1,{BEGAN.isoformat()}\n" for name in (*HELD, "pod"))
        self.add("devices", "device_id,node,from_utc\n" + devices)
        self.add("allocations", "job_id,device_id,user,team,from_utc,tags\n" + jobs + pods)
        self.end = BEGAN
        self.go_on(6)

    def add(self, table: str, text: str) -> None:
        """Import a table."""
        path = self.folder / f"{table}.csv"
        path.write_text(text)
        self.books.add("tables", [path])

    def go_on(self, hours: float, **activity: float) -> None:
        """More hours of samples: 102 works, 103 has none, the others are as given, by default idle."""
        rows, end = [], self.end + timedelta(hours=hours)
        while self.end < end:
            until = self.end + timedelta(minutes=10)
            for job in (*HELD, "pod"):
                if job != "103":
                    share = activity.get(f"job{job}", 0.9 if job == "102" else 0.0)
                    rows.append(f"{job},{self.end.isoformat()},{until.isoformat()},{share}\n")
            self.end = until
        self.add("samples", "device_id,from_utc,to_utc,sm_active_share\n" + "".join(rows))

    def say_queue(self, *jobs: str, began: datetime = BEGAN) -> None:
        """What the controller says runs."""
        start = milliseconds(began) // MS_PER_S
        self.slurm.say("queue", "".join(queued(job, StartTime=start) for job in jobs))

    def make(self, *policies: dict[str, Any], mail: bool = True, **more: Any) -> Enforcer:
        """What enforces policies, by default the one above."""
        given = {
            "enforce": policies or [RULE | {"allow_users": ["ev*"]}],
            "slurm": [{"bin": str(self.slurm.bin)}],
            **({"mail": self.server.model_dump(by_alias=True)} if mail else {}),
            **more,
        }
        return Enforcer(self.books, Settings.model_validate(given), lambda: milliseconds(self.end))

    def run(self, *policies: dict[str, Any], **more: Any) -> dict[str, Planned]:
        """What became of each holder."""
        return {of.judged.holder.name: of for of in self.make(*policies, **more).run()}

    @property
    def cancelled(self) -> list[str]:
        """Arguments of each scancel."""
        path = self.folder / "cancelled"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def steps(self) -> list[tuple[str, str]]:
        """The log: holders and steps."""
        return [(of.holder, of.step) for of in read_log(self.books.store.folder)]


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, MailServer]]:
    """A server that takes mail."""
    with receive() as found:
        yield found


@pytest.fixture
def fleet(tmp_path: Path, mailbox: tuple[Mailbox, MailServer]) -> Fleet:
    """Six hours of six GPUs."""
    return Fleet(tmp_path, mailbox[1])


def test_an_idle_job_is_warned_and_after_the_grace_cancelled_once(
    fleet: Fleet, mailbox: tuple[Mailbox, MailServer]
) -> None:
    """Only it: not what works, what nobody observed, what another team holds, whom the policy allows, nor pods."""
    box = mailbox[0]
    dry = {of.judged.holder.name: (of.judged.verdict, of.step) for of in fleet.make().plan()}
    assert dry == {
        "101": ("idle", "warn"),
        "102": ("at work", "nothing"),
        "103": ("not known", "nothing"),
        "105": ("allowed", "nothing"),
    }
    assert (fleet.steps, box.mails) == ([], [])
    fleet.run()
    fleet.run()
    assert fleet.steps == [("101", "warning"), ("101", "warned")]
    ((to, mail),) = box.mails
    assert sorted(to) == ["ann@here.example", "ops@here.example"]
    text = " ".join(mail.get_content().split())
    assert "101 of ann, team vision, holds 1 GPU since 2026-10-05 06:00 UTC. Its utilization was 0.0 %" in text
    assert "idle for another 1h it is cancelled" in text
    fleet.go_on(0.5)
    assert "grace ends at 2026-10-05 13:00" in fleet.run()["101"].why
    assert fleet.cancelled == []
    fleet.go_on(0.5)
    assert fleet.run()["101"].done == "scancel 101"
    fleet.go_on(1)
    fleet.run()
    assert fleet.cancelled == ["101"]
    assert fleet.steps[2:] == [("101", "acting"), ("101", "acted")]
    assert [mail["Subject"] for _, mail in box.mails[1:]] == ["101 was cancelled"]
    last = read_log(fleet.books.store.folder)[-1]
    assert (last.facts["user"], last.facts["value"], last.facts["did"]) == ("ann", 0.0, "scancel 101")


def test_who_works_again_is_let_go_and_warned_anew(fleet: Fleet, mailbox: tuple[Mailbox, MailServer]) -> None:
    """Half an hour of work within the grace ends it; a later idleness begins with a warning of its own."""
    fleet.run()
    fleet.go_on(0.5, job101=0.8)
    fleet.go_on(0.5)
    assert fleet.run()["101"].step == "let go"
    fleet.go_on(2)
    fleet.run()
    assert fleet.cancelled == []
    assert [step for _, step in fleet.steps] == ["warning", "warned", "let go", "warning", "warned"]
    assert len({mail["Message-ID"] for _, mail in mailbox[0].mails}) == len(mailbox[0].mails) == 2


def test_what_is_not_known_is_never_idle(fleet: Fleet) -> None:
    """Samples that fail after the warning, a run that began anew in Slurm, and books that stand still end nobody."""
    fleet.run()
    fleet.end += timedelta(hours=2)
    assert fleet.run()["101"].why.startswith("the books end at 2026-10-05 12:00")
    fleet.end = NOON
    everybody = tuple(HELD)
    rows = "".join(
        f"102,{(NOON + timedelta(minutes=m)).isoformat()},{(NOON + timedelta(minutes=m + 10)).isoformat()},0.5\n"
        for m in range(0, 120, 10)
    )
    fleet.add("samples", f"device_id,from_utc,to_utc,sm_active_share\n{rows}")
    fleet.end = NOON + timedelta(hours=2)
    assert fleet.run()["101"].judged.verdict == "not known"
    fleet.go_on(2)
    assert fleet.run()["101"].why == "not observed enough since the warning"
    assert fleet.cancelled == []
    again = RULE | {"name": "again", "grace": "10min"}
    fleet.run(again)
    fleet.go_on(0.5)
    fleet.say_queue(*everybody, began=NOON)
    assert fleet.run(again)["101"].done == "nothing: it has begun anew since"
    assert fleet.cancelled == []


def test_nothing_is_done_without_policy_team_mail_or_address(fleet: Fleet, mailbox: tuple[Mailbox, MailServer]) -> None:
    """Each is refused or left, in one line; a warning that the server refuses leads to no act, and is tried again as the same."""
    with pytest.raises(InputError, match="nothing is done without one that names its teams"):
        Enforcer(fleet.books, Settings())
    for team in ([], ["*"], [""]):
        with pytest.raises(ValueError, match="team"):
            Settings.model_validate({"enforce": [RULE | {"team": team}]})
    with pytest.raises(InputError, match=r"no \[mail\]"):
        fleet.make(mail=False)
    nobody = fleet.run(RULE | {"to": ["{user}@here.example"], "team": ["speech"], "pool": ["other"]})
    assert {name: of.step for name, of in nobody.items()} == {"104": "nothing"}
    mailbox[0].answer = "451 later"
    assert "451" in fleet.run()["101"].error
    fleet.go_on(3)
    fleet.run()
    assert [step for _, step in fleet.steps] == ["warning"]
    mailbox[0].answer = "250 OK"
    fleet.run()
    assert [step for _, step in fleet.steps] == ["warning", "warned"]
    assert fleet.cancelled == []


def test_a_failed_act_is_logged_and_tried_again_and_few_at_once(fleet: Fleet) -> None:
    """Without the command nothing is done; of two that are due one is, and the log cannot be changed."""
    both = RULE | {"most": 1}
    fleet.run(both)
    fleet.go_on(1)
    (fleet.slurm.bin / "scancel").rename(fleet.slurm.bin / "away")
    found = fleet.run(both)
    failed = [name for name, of in found.items() if of.error]
    assert [of.why for name, of in found.items() if name in {"101", "105"} - {*failed}] == [
        "idle; no more than 1 at once"
    ]
    (fleet.slurm.bin / "away").rename(fleet.slurm.bin / "scancel")
    fleet.run(both)
    fleet.run(both)
    assert sorted(fleet.cancelled) == ["101", "105"]
    with sqlite3.connect(fleet.books.store.folder / "alerts.sqlite") as database:
        for sql in ("DELETE FROM enforcement", "UPDATE enforcement SET step = 'warned'"):
            with pytest.raises(sqlite3.IntegrityError, match="only added to"):
                database.execute(sql)


def test_the_owner_of_idle_pods_is_scaled_to_zero(fleet: Fleet, tmp_path: Path) -> None:
    """Through the API, with how many there were; a Job is suspended; what the API refuses is said, and tried again."""
    with FakeKubernetes() as api:
        chat = {"kind": "Deployment", "metadata": {"name": "chat", "namespace": "vision"}, "spec": {"replicas": 3}}
        api.objects["deployments"] = {"vision/chat": chat}
        clusters = [{"kubeconfig": str(api.write_kubeconfig(tmp_path / "kubeconfig"))}]
        scale = RULE | {"act": "scale to zero"}
        assert list(fleet.run(scale, kubernetes=clusters)) == ["vision/Deployment/chat"]
        fleet.go_on(1)
        api.forbidden = {"deployments"}
        assert "403" in fleet.run(scale, kubernetes=clusters)["vision/Deployment/chat"].error
        api.forbidden = set()
        done = fleet.run(scale, kubernetes=clusters)["vision/Deployment/chat"].done
        assert done == "scaled Deployment chat from 3 to 0 replicas"
        fleet.run(scale, kubernetes=clusters)
        assert [body for _, body in api.patches] == [{"spec": {"replicas": 0}}]
        assert api.patches[0][0].endswith("/deployments/chat/scale")


def test_the_command_lists_and_logs(fleet: Fleet, run: Run, write: Any) -> None:  # noqa: F811
    """--dry-run does nothing; without it is done what it listed; --log has each step; without a policy it is one line."""
    words = ("enforce", "--store", fleet.books.store.folder)
    write("")
    assert "nothing is done without one" in run(*words)[2]
    write(write_policy(fleet))
    code, out, error = run(*words, "--dry-run")
    assert (code, error) == (0, "")
    assert "Of 4 holders of the teams that policies name, would warn 2; nothing was done." in out
    assert run(*words, "--log")[1].startswith("0 steps")
    assert run(*words)[0] == 0
    assert run(*words, "--log")[1].count("warned") == 2


def write_policy(fleet: Fleet, **more: str) -> str:
    """The policy as loadfactor.toml has it, of books of any age."""
    grace = more.get("grace", "1h")
    return (
        f"{write_mail_table(fleet.server)}[[slurm]]\nbin = '{fleet.slurm.bin}'\n[[enforce]]\nname = 'idle'\nteam = ['vision']\n"
        f"below = 0.01\nwindow = '2h'\ngrace = '{grace}'\nact = 'scancel'\nto = ['{{user}}@here.example']\nstale_after = '5000d'\n"
    )


@pytest.mark.long
def test_kills_repeat_nothing(fleet: Fleet, mailbox: tuple[Mailbox, MailServer]) -> None:
    """Killed anywhere, again and again: each job is warned by one mail (perhaps sent twice under its name) and cancelled once."""
    config = fleet.folder / "loadfactor.toml"
    config.write_text(write_policy(fleet, grace="1s"))
    draw = random.Random(7)
    words = [
        sys.executable,
        "-c",
        "from loadfactor.interfaces.cli import main; main()",
        "enforce",
        "--store",
        str(fleet.books.store.folder),
    ]
    rounds = max(5, int(os.environ.get("TORTURE_ROUNDS", "0")) // 2)
    for _ in ("warnings", "acts"):
        for number in range(rounds + 1):
            process = subprocess.Popen(words, cwd=fleet.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if number < rounds:
                time.sleep(draw.uniform(0.5, 3.0))
                process.kill()
            process.wait()
        fleet.go_on(1)
    steps = fleet.steps
    for job in ("101", "105"):
        assert [step for of, step in steps if of == job] == ["warning", "warned", "acting", "acted"]
        warnings = {mail["Message-ID"] for _, mail in mailbox[0].mails if mail["Subject"].startswith(f"{job} leaves")}
        assert len(warnings) == 1
        assert fleet.cancelled.count(job) in (
            1,
            2,
        )  # a second one of a job that the controller still lists does nothing
    assert {*fleet.cancelled} == {"101", "105"}
