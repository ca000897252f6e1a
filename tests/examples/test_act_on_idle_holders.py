"""The example that acts on idle holders, beside a server on loopback: dry by default, only what is due of the teams it names."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread

import pytest
import uvicorn
from tests.insight.alerts.delivery.teller import fire

from loadfactor.base.units import MS_PER_HOUR, MS_PER_S
from loadfactor.books.books import Books
from loadfactor.insight.alerts.alert import Transition
from loadfactor.insight.alerts.delivery.outbox import Judged, Outbox, add_silence
from loadfactor.insight.alerts.delivery.silence import Silence
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.guard import Guard
from loadfactor.interfaces.server.run import AtRest
from loadfactor.store.tokens import TokenFile, create_token

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "act_on_idle_holders.py"


@dataclass
class Site:
    """A server with alerts, a token of it, and a `scancel` that writes down what it is asked."""

    folder: Path
    url: str

    def keep(self, *alerts: Transition, judged_ms: int) -> None:
        """Have these fire, as judged up to an instant."""
        outbox = Outbox(self.folder / "books")
        outbox.begin((), judged_ms)
        outbox.keep(Judged(judged_ms, {"judged_ms": judged_ms}, [t.alert for t in alerts]), alerts, (), judged_ms)
        outbox.close()

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run the script with a command that it may run: exit code, standard output, standard error."""
        command = [sys.executable, str(SCRIPT), "--server", self.url, "--command", f"{self.folder}/scancel {{job}}"]
        token = ["--token-file", str(self.folder / "token")]
        done = subprocess.run([*command, *token, *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.replace(f"{self.folder}/", ""), done.stderr

    @property
    def cancelled(self) -> list[str]:
        """The jobs that were cancelled."""
        path = self.folder / "cancelled"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A server over empty books that asks for a token."""
    store = tmp_path / "books"
    tokens = TokenFile(store)
    (tmp_path / "token").write_text(create_token(store, "read", None, "timer", now_ms())[1])
    scancel = tmp_path / "scancel"
    scancel.write_text(f'#!/bin/sh\n[ "$1" != 13 ] && echo "$1" >> {tmp_path}/cancelled\n')
    scancel.chmod(0o755)
    listening = socket.create_server(("127.0.0.1", 0))
    app = make_app(Books(store), AtRest(), Guard(tokens))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield Site(tmp_path, f"http://127.0.0.1:{listening.getsockname()[1]}")
    server.should_exit = True
    thread.join()
    listening.close()


def fire_h_ago(
    hours: float, job: str, user: str = "ann", team: str = "vision", rule: str = "job_became_idle"
) -> Transition:
    """A job's alert that fired so many hours ago."""
    alert = fire(job, rule, user=user, team=team).alert
    fired_ms = now_ms() - round(hours * MS_PER_HOUR)
    return Transition(replace(alert, start_ms=fired_ms - MS_PER_HOUR // 2, fired_ms=fired_ms), fired_ms)


def now_ms() -> int:
    """The time, as the script sees it."""
    return int(time.time() * MS_PER_S)


def test_dry_run_prints_and_run_cancels_the_same_jobs(site: Site) -> None:
    """Of six idle jobs only 101 is due: of the team, not allowed, not silenced, fired 3 h ago, by a rule of idle jobs."""
    add_silence(
        site.folder / "books", Silence("s", "", {"job": "104"}, now_ms(), now_ms() + MS_PER_HOUR, "debugging", "ann")
    )
    site.keep(
        fire_h_ago(3, "101"),
        fire_h_ago(3, "102", team="speech"),
        fire_h_ago(3, "103", user="svc-1"),
        fire_h_ago(3, "104"),
        fire_h_ago(1, "105"),
        fire_h_ago(3, "106", rule="job_utilization_low"),
        judged_ms=now_ms(),
    )
    words = ("--team", "vision", "--allow", "svc-*", "--after", "2h")
    code, out, err = site.run(*words)
    assert (code, err, site.cancelled) == (0, "", [])
    assert out.startswith("would run: scancel 101  (job_became_idle since ")
    assert out.count("\n") == 1
    code, out, err = site.run(*words, "--run")
    assert (code, err, site.cancelled) == (0, "", ["101"])
    assert out.startswith("run: scancel 101 ")


def test_at_most_so_many_and_a_failure_is_said(site: Site) -> None:
    """Of three due jobs two are tried, the one that fires longest first; the failed one makes exit code 1."""
    site.keep(fire_h_ago(5, "13"), fire_h_ago(4, "14"), fire_h_ago(3, "15"), judged_ms=now_ms())
    code, out, err = site.run("--team", "vision", "--most", "2", "--run")
    assert (code, site.cancelled) == (1, ["14"])
    assert "1 more wait for the next run (--most 2)" in out
    assert err.startswith("failed: ")


def test_names_that_are_no_names_are_in_no_command(site: Site) -> None:
    """A job called `--state=RUNNING` is not given to scancel."""
    site.keep(fire_h_ago(3, "--state=RUNNING"), judged_ms=now_ms())
    code, _, err = site.run("--team", "vision", "--run")
    assert (code, site.cancelled) == (1, [])
    assert "the job '--state=RUNNING' is not put into a command" in err


@pytest.mark.parametrize("age_h", [None, 1])
def test_nothing_is_done_on_old_judgements(site: Site, age_h: int | None) -> None:
    """Alerts that were judged an hour ago, or never, say nothing of now."""
    if age_h is not None:
        site.keep(fire_h_ago(3, "101"), judged_ms=now_ms() - age_h * MS_PER_HOUR)
    code, out, err = site.run("--team", "vision", "--run")
    assert (code, out, site.cancelled) == (1, "", [])
    assert err.startswith("nothing is done: alerts were judged up to ")


def test_wrong_token_is_said_in_one_line(site: Site) -> None:
    """A token that was revoked is answered with 401."""
    site.keep(judged_ms=now_ms())
    assert site.run("--team", "vision")[:2] == (0, "no job is due\n")
    (site.folder / "token").write_text("lf_nobody")
    code, _, err = site.run("--team", "vision")
    assert (code, err.count("\n")) == (1, 1)
    assert " answers 401: " in err
