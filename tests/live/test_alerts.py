"""A server judges its books, tells a webhook once over kills, and a backup taken while it runs answers and goes on."""

import json
import os
import random
import shutil
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.commands import Run
from tests.ledger.fleets import Row, add, batches
from tests.live.local_server import LocalServer
from tests.live.scrapes import Fleet
from tests.live.up_process import UpProcess
from tests.waiting import LONGEST_S, wait_until

from loadfactor.base.errors import InputError, StoreError
from loadfactor.base.privacy import make_key
from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.delivery.outbox import Judged, Outbox, add_silence, read_outbox
from loadfactor.insight.alerts.delivery.silence import Silence
from loadfactor.insight.alerts.judge import Judge
from loadfactor.settings.config import read_settings
from loadfactor.store.backup import back_up, compare
from loadfactor.store.folder import Folder
from loadfactor.store.tokens import create_token

MINUTE_MS = 60_000
ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "1"))
RULE = """
[[alert]]
name = "slow job"
metric = "utilization"
by = ["job"]
below = "50 %"
window = "5min"
for = "5min"
severity = "critical"

[alerts]
judge_after = "1s"

[[alerts.receiver]]
kind = "webhook"
rules = ["slow job"]
"""


class Hook(LocalServer):
    """A webhook that fails every other time, after it took what it was sent or before."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self._chance = random.Random(3)

    def respond(self, _path: str, body: str, _headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        fails, takes = self._chance.random() < 0.5, self._chance.random() < 0.5
        if not fails or takes:
            self.told.append(json.loads(body))
        return (503 if fails else 204), {}, b""

    def list_told(self, state: str) -> set[str]:
        """The jobs of whose alerts a state was told."""
        return {one["alert"]["by"]["job"] for one in self.told if one["state"] == state}

    @property
    def states(self) -> dict[str, str]:
        """The state of each job's alert, as told last."""
        return {one["alert"]["by"]["job"]: one["state"] for one in self.told}


def make_fleet(folder: Path, now_ms: int, short_ends_ms: int) -> None:
    """Books of three jobs for 40 minutes: slow, slow and fast. The second ends at an instant, the others in half an hour."""
    start, end = now_ms - 40 * MINUTE_MS, now_ms + 30 * MINUTE_MS
    levels = {"crawl": 0.1, "<b>short*": 0.2, "run": 0.9}
    devices: list[Row] = [
        {
            "device_id": f"g{n}",
            "node": "n0",
            "accelerator": "h100-sxm",
            "from_utc": start,
            "to_utc": end,
            "known_from": "list",
        }
        for n in range(3)
    ]
    allocations: list[Row] = [
        {
            "job_id": job,
            "device_id": f"g{n}",
            "team": f"team-{n}",
            "from_utc": start,
            "to_utc": short_ends_ms if n == 1 else end,
        }
        for n, job in enumerate(levels)
    ]
    samples: list[Row] = [
        {"device_id": f"g{n}", "from_utc": at, "to_utc": at + MINUTE_MS, "sm_active_share": level, "source": "s"}
        for n, level in enumerate(levels.values())
        for at in range(start, now_ms, MINUTE_MS)
    ]
    add(
        Books(folder),
        batches({"devices": devices, "allocations": allocations, "samples": samples}),
        "all",
        folder.parent,
    )


def count_deliveries(folder: Path) -> Counter[str]:
    """The deliveries of the outbox, by their state."""
    with read_outbox(folder) as connection:
        assert connection is not None
        return Counter(state for (state,) in connection.execute("SELECT state FROM deliveries"))


@pytest.mark.long
@pytest.mark.parametrize("until", ["silenced", "resolved"])  # minutes, as jobs end
def test_alerts_outlast_kills(until: str, tmp_path: Path) -> None:
    """Slow jobs fire, the webhook hears it through failures, and kill -9 changes nothing of it; one that ends is resolved.

    Each transition is kept once and reaches the webhook; what comes again, as its answer was lost or noted by nobody, has its key.
    """
    now = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS
    folder, config = tmp_path / "books", tmp_path / "loadfactor.toml"
    with Hook() as hook:
        config.write_text(RULE + f'url = "{hook.url}/in"\n')
        make_fleet(folder, now, now + (1 if until == "resolved" else 25) * MINUTE_MS)
        # As if the server had been away since an instant.
        at_ms = now - 30 * MINUTE_MS
        judge = Judge(configure((), read_settings(config).alert), at_ms)
        with closing(Outbox(folder)) as outbox:
            outbox.keep(Judged(judge.judged_ms, judge.dump(), []), [], (), at_ms)
        up = UpProcess(folder, config=config)
        with up:
            slow = {"crawl", "<b>short*"}
            wait_until(lambda: hook.list_told("firing") == slow, lambda: up.ask("/health"))
            listed = [a for a in up.ask("/api/v1/alerts", state="firing")["alerts"] if a["rule"] == "slow job"]
            assert slow >= {a["by"]["job"] for a in listed} >= (slow if until == "silenced" else {"crawl"})
            crawl = next(a for a in listed if a["by"]["job"] == "crawl")
            assert (crawl["holder"]["team"], crawl["value"], crawl["severity"]) == ("team-0", 0.1, "critical")
            assert "10 %" in crawl["evidence"][0]
            body = {"rule": "slow *", "by": {"job": "crawl"}, "for": "1h", "reason": "known"}
            silence = httpx.post(f"{up.url}/api/v1/silences", json=body, timeout=LONGEST_S).json()
            up.kill()
            up.start()
            (shown,) = [a for a in up.ask("/api/v1/alerts")["alerts"] if a["silenced"]]
            assert (shown["id"], shown["silence"]) == (crawl["id"], silence["id"])
            assert (
                httpx.delete(f"{up.url}/api/v1/silences/{silence['id']}", timeout=LONGEST_S).json()["active"] is False
            )
            chance = random.Random(5)
            for _ in range(ROUNDS if until == "resolved" else 1):
                time.sleep(chance.uniform(0, 2))
                up.kill()
                up.start()
            wait_until(lambda: count_deliveries(folder)["pending"] == 0, lambda: up.ask("/health"))
            if until == "resolved":
                wait_until(lambda: hook.states["<b>short*"] == "resolved", lambda: up.ask("/health"))
                up.kill()
                up.start()
            assert up.ask("/health")["alerts"]["error"] is None
            wait_until(lambda: set(count_deliveries(folder)) == {"done"}, lambda: count_deliveries(folder))
            back_up(Folder(folder), tmp_path / "copy")
            assert up.stop() == 0
        told = Counter(one["key"] for one in hook.told)
        with UpProcess(tmp_path / "copy", config=config) as restored:
            wait_until(lambda: restored.ask("/health")["alerts"]["judged"] is not None, lambda: restored.log)
            assert restored.stop() == 0
        again = Counter(one["key"] for one in hook.told)
        assert {key: again[key] for key in told} == told  # a restore tells nobody twice
    with read_outbox(folder) as connection:
        assert connection is not None
        kept = connection.execute("SELECT key FROM transitions WHERE body LIKE '%slow job%'").fetchall()
    expected = ["firing", "firing", *(["resolved"] if until == "resolved" else [])]
    assert sorted(key.rpartition("-")[2] for (key,) in kept) == expected
    assert count_deliveries(folder) == {"done": len(expected)}
    assert set(told) == {key for (key,) in kept}


SCRAPES, MORE = 12, 24
NO_CONTENT, AGAIN = 204, (429, 503)


def send(up: UpProcess, fleet: Fleet, k: int) -> None:
    """A scrape in one request, again until it is acknowledged: a server that begins asks for patience."""
    for body in fleet.bodies(k, parts=1):
        while (status := up.write(body, LONGEST_S)) in AGAIN:
            time.sleep(0.2)
        assert status == NO_CONTENT


def count(books: Books) -> int:
    """Samples in the books, each once."""
    with books.snapshot() as snapshot:
        return snapshot.fetch(snapshot.view("samples").select("device_id", "to_utc")).num_rows


@pytest.mark.long
def test_a_backup_while_samples_come_in(tmp_path: Path) -> None:
    """Samples acknowledged before are in the copy; a server on the copy goes on from there, and each sample counts once."""
    fleet = Fleet(int(time.time() * 1000) // MS_PER_HOUR * MS_PER_HOUR - MS_PER_HOUR)
    configuration = tmp_path / "often.toml"
    configuration.write_text('[server]\nflush_every = "3s"\n')  # flushes while the copy is taken
    with UpProcess(tmp_path / "books", config=configuration) as up:
        for k in range(SCRAPES):
            send(up, fleet, k)
        up.wait_until_booked()

        def go_on() -> None:
            for k in range(SCRAPES, MORE):
                send(up, fleet, k)

        sending = threading.Thread(target=go_on)
        sending.start()
        back_up(Folder(tmp_path / "books"), tmp_path / "copy")
        sending.join()
        up.wait_until_booked()
        up.stop()
    copied, whole = count(Books(tmp_path / "copy")), count(Books(tmp_path / "books"))
    assert SCRAPES * fleet.gpus <= copied <= whole == MORE * fleet.gpus
    assert Books(tmp_path / "copy").check().balance.holds
    with UpProcess(tmp_path / "copy") as restored:  # senders send again what they were not told of
        for k in range(MORE):
            send(restored, fleet, k)
        restored.wait_until_booked()
        restored.stop()
    assert count(Books(tmp_path / "copy")) == whole
    for metric in ("sm_activity", "energy_kwh", "paid_gpu_hours"):
        copy, original = (Books(tmp_path / name).show(metric)[0].value for name in ("copy", "books"))
        assert copy == pytest.approx(original), metric


def test_a_backup_is_never_half(simulated_books: Books, tmp_path: Path, run: Run) -> None:
    """A folder that is taken and a damaged file are refused; the copy is whole and answers as the books do."""
    folder = simulated_books.store.folder
    with_more = tmp_path / "books"
    shutil.copytree(folder, with_more)
    (with_more / "quarantine").mkdir()
    (with_more / "quarantine" / "body-7.query").write_bytes(b"{}")
    create_token(with_more, "read", None, "", 0)
    key, elsewhere = with_more / "pseudonyms.key", tmp_path / "elsewhere.toml"
    make_key(key)
    elsewhere.touch()
    add_silence(with_more, Silence("a", "gpu_hot", {}, 0, 10**15, "known", "me", None))
    back_up(Folder(with_more), tmp_path / "copy", (key, elsewhere))
    assert (tmp_path / "copy" / key.name).stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "copy" / elsewhere.name).exists()
    assert compare(Folder(with_more), tmp_path / "copy", (key, elsewhere)).differences == ()
    verify = ("backup", tmp_path / "copy", "--verify", "--store", with_more)
    code, said, _ = run(*verify)
    assert code == 0
    assert "is whole: generation 2 with 1 silences, 0 deliveries, 1 tokens; as the books are" in " ".join(said.split())
    create_token(with_more, "read", None, "", 0)
    with closing(sqlite3.connect(tmp_path / "copy" / "alerts.sqlite")) as alerts, alerts:
        alerts.execute("DELETE FROM silences")
    lost = next((tmp_path / "copy").glob("prices-*.parquet"))
    whole = lost.read_bytes()
    lost.unlink()
    code, _, said = run(*verify)
    assert code == 1
    for part in (
        "tokens: 2 in the books, 1 in the copy",
        "silences: 1 in the books, 0",
        f"{lost.name} is not what was copied",
    ):
        assert part in said
    lost.write_bytes(whole)
    assert (tmp_path / "copy" / "quarantine" / "body-7.query").read_bytes() == b"{}"
    assert (tmp_path / "copy" / "tokens.json").stat().st_mode & 0o777 == 0o600
    assert list(Books(tmp_path / "copy").show("cost", by="team")) == list(simulated_books.show("cost", by="team"))
    with pytest.raises(InputError, match="is there already"):
        back_up(Folder(folder), tmp_path / "copy")
    with pytest.raises(InputError, match="there are no books"):
        back_up(Folder(tmp_path / "nothing"), tmp_path / "other")
    damaged = next((tmp_path / "copy").glob("samples-*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"x" * 9)
    with pytest.raises(StoreError, match="is damaged"):
        back_up(Folder(tmp_path / "copy"), tmp_path / "third")
    assert not (tmp_path / "third" / "manifest.json").exists()
