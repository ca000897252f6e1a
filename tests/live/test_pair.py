"""Two servers that receive the same: each makes up for what it missed, and one of them tells, the other when that is gone."""

import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx
import pytest
from tests.ledger.test_books_balance import assert_same_ledger, ledger_of
from tests.live.scrapes import STEP_MS, Fleet, read_samples
from tests.live.test_alerts import MINUTE_MS, NO_CONTENT, RULE, Hook, make_fleet, send
from tests.live.up_process import UpProcess, free_port
from tests.waiting import LONGEST_S, wait_until

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.delivery.outbox import Judged, Outbox
from loadfactor.insight.alerts.judge import Judge
from loadfactor.interfaces.server.pair import Standing, decide
from loadfactor.settings.config import read_settings

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "2"))
SCRAPES_A_ROUND = 4
OFTEN = """
[server]
flush_every = "1s"

[pair]
peer = "http://127.0.0.1:{port}"
every = "1s"
take_over_after = "4s"
"""


def make_pair(folder: Path, more: str = "") -> tuple[UpProcess, UpProcess]:
    """Two servers that know of each other, not started yet."""
    ports = (free_port(), free_port())
    pair = []
    for name, port, other in zip("ab", ports, reversed(ports), strict=True):
        config = folder / f"{name}.toml"
        config.write_text(OFTEN.format(port=other) + more)
        pair.append(UpProcess(folder / name, port, config))
    return pair[0], pair[1]


@pytest.mark.parametrize("seed", range(20))
def test_one_of_two_leads(seed: int) -> None:
    """However they lose sight of each other: while they see each other one leads, and one alone leads in time."""
    rnd = random.Random(seed)
    names = ("x", "y")
    leads, since, silent = dict.fromkeys(names, False), dict.fromkeys(names, 0), dict.fromkeys(names, 0.0)
    sees, calm = True, 0
    for now in range(300):
        if rnd.random() < 0.03:
            sees, calm = not sees, 0
        for name, other in (names, names[::-1]):
            asked = Standing(other, leads[other], since[other]) if sees else None
            silent[name] = 0 if sees else silent[name] + 2
            now_leads = decide(Standing(name, leads[name], since[name]), asked, silent[name], 30)
            if now_leads != leads[name]:
                leads[name], since[name] = now_leads, now
        calm += 1
        if sees and calm > 2:
            assert Counter(leads.values()) == {True: 1, False: 1}
        elif not sees and calm > 15:
            assert all(leads.values())


@pytest.mark.long
def test_each_makes_up_for_what_it_missed(tmp_path: Path) -> None:
    """Both receive a fleet, each away for a while: in the end both have the books of a server that was never away."""
    fleet = Fleet(int(time.time() * 1000) // MS_PER_HOUR * MS_PER_HOUR - MS_PER_HOUR)
    away = {"a": range(6, 16), "b": range(20, 30)}
    whole = UpProcess(tmp_path / "whole")
    pair = make_pair(tmp_path)
    with ExitStack() as started:
        for up in (whole, *pair):
            started.enter_context(up)
        for k in range(36):
            for up in pair:
                if k == away[up.store.name].start:
                    up.kill()
                if k == away[up.store.name].stop:
                    up.start()
            for up in (whole, *pair):
                if k not in away.get(up.store.name, ()):
                    send(up, fleet, k)
        for up in (whole, *pair):
            up.wait_until_booked()
        expected = whole.readings("sm_activity", "device")
        for up in pair:
            up.wait_until(lambda up=up: up.readings("sm_activity", "device") == pytest.approx(expected))
            up.wait_until(lambda up=up: {s["status"] for s in up.ask("/health")["sources"]} == {"ok"})
        for up in (whole, *pair):
            assert up.stop() == 0
    books = [Books(up.store) for up in pair]
    for one, other in itertools.permutations(books):
        one.merge(other)  # what was flushed as they ended
    for one in books:
        assert_same_ledger(ledger_of(one), ledger_of(Books(whole.store)))


@pytest.mark.long
def test_the_other_one_goes_on_telling(tmp_path: Path) -> None:
    """The one that leads tells; killed, the other one goes on where it was, with its silences; back again, it follows."""
    now = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS
    with Hook() as hook, ExitStack() as started:
        pair = make_pair(tmp_path, RULE + f'url = "{hook.url}/in"\n')
        at_ms = now - 30 * MINUTE_MS
        for up in pair:
            make_fleet(up.store, now, now + 25 * MINUTE_MS)
            judge = Judge(configure((), read_settings(tmp_path / f"{up.store.name}.toml").alert), at_ms)
            with closing(Outbox(up.store)) as outbox:
                outbox.keep(Judged(judge.judged_ms, judge.dump(), []), [], (), at_ms)
            started.enter_context(up)
        wait_until(lambda: sorted(up.ask("/health")["leads"] for up in pair) == [False, True])
        first, second = sorted(pair, key=lambda up: not up.ask("/health")["leads"])
        slow = {"crawl", "<b>short*"}
        first.wait_until(lambda: hook.list_told("firing") == slow)
        first.wait_until(lambda: first.ask("/health")["alerts"]["receivers"][0]["pending"] == 0)
        body = {"rule": "gpu_hot", "by": {}, "for": "1h", "reason": "known"}
        for up in pair:  # on either side
            httpx.post(f"{up.url}/api/v1/silences", json=body, timeout=LONGEST_S).raise_for_status()
        for up in pair:
            up.wait_until(lambda up=up: len(up.ask("/api/v1/silences")["silences"]) == 2)
        second.wait_until(lambda: {a["by"].get("job") for a in second.ask("/api/v1/alerts")["alerts"]} >= slow)
        told = Counter(one["key"] for one in hook.told)
        first.kill()
        second.wait_until(lambda: second.ask("/health")["leads"])
        second.wait_until(lambda: second.ask("/health")["alerts"]["judged"] is not None)
        first.start()
        first.wait_until(lambda: not first.ask("/health")["leads"])
        assert second.ask("/health")["leads"]
        assert len(second.ask("/api/v1/silences")["silences"]) == 2
        assert Counter(one["key"] for one in hook.told) == told
        for up in pair:
            assert up.stop() == 0


def send_to_any(pair: Iterable[UpProcess], fleet: Fleet, scrapes: Iterable[int]) -> None:
    """Each scrape to both servers once, and again to both while neither acknowledges it: who was away is not sent it again."""
    for k in scrapes:
        for body in fleet.bodies(k, parts=1):
            acknowledged = False
            while not acknowledged:
                for up in pair:
                    with suppress(httpx.HTTPError):
                        acknowledged |= up.write(body, timeout_s=10) == NO_CONTENT
                time.sleep(0.05)


def check_samples(store: Path, fleet: Fleet, scrapes: int) -> None:
    """Every sample that was sent is there once, as it was sent."""
    rows = read_samples(store)
    rows = rows[rows["device_id"].str.startswith("GPU-")].reset_index(drop=True)
    expected = [
        (f"GPU-{gpu:08x}-0000-4000-8000-000000000000", gpu, k) for gpu in range(fleet.gpus) for k in range(scrapes)
    ]
    assert list(zip(rows["device_id"], rows["to_utc"], strict=True)) == [(d, fleet.at_ms(k)) for d, _, k in expected]
    assert rows["sm_active_share"].to_numpy() == pytest.approx([fleet.sm_active(gpu, k) for _, gpu, k in expected])
    assert rows["mem_used_bytes"].to_numpy() == pytest.approx(
        [fleet.memory_mib(gpu, k) * 2.0**20 for _, gpu, k in expected]
    )
    assert Books(store).check().balance.holds


@pytest.mark.long
def test_a_pair_outlasts_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of two is killed at random, again and again: what either acknowledged is in both books once, and nobody is told twice.

    What the webhook hears again, as its answer was lost, has the key that it had.
    """
    now, chance = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS, random.Random(7)
    scrapes = ROUNDS * SCRAPES_A_ROUND
    fleet = Fleet((now - scrapes * STEP_MS) // MS_PER_HOUR * MS_PER_HOUR - MS_PER_HOUR, gpus=2)
    kills: Counter[str] = Counter()
    with Hook() as hook, ExitStack() as started:
        pair = make_pair(tmp_path, RULE + f'url = "{hook.url}/in"\n')
        at_ms = now - 30 * MINUTE_MS
        for up in pair:
            make_fleet(up.store, now, now + MINUTE_MS)
            judge = Judge(configure((), read_settings(tmp_path / f"{up.store.name}.toml").alert), at_ms)
            with closing(Outbox(up.store)) as outbox:
                outbox.keep(Judged(judge.judged_ms, judge.dump(), []), [], (), at_ms)
            started.enter_context(up)
        for round_ in range(ROUNDS):
            of_round = range(round_ * SCRAPES_A_ROUND, (round_ + 1) * SCRAPES_A_ROUND)
            sending = threading.Thread(target=send_to_any, args=(pair, fleet, of_round))
            sending.start()
            time.sleep(chance.choice((chance.uniform(0, 0.2), chance.uniform(0.2, 3))))
            victim = chance.choice(pair)
            is_leading = victim.ask("/health")["leads"]
            victim.kill()
            kills["of the one that leads" if is_leading else "of the other"] += 1
            if chance.random() < 0.5:
                sending.join()  # it misses the rest of the round
            victim.start()
            sending.join()
        hours = fleet.gpus * scrapes * STEP_MS / MS_PER_HOUR
        for up in pair:
            up.wait_until_booked()
            up.wait_until(lambda up=up: up.readings("observed_gpu_hours", "node").get("node-0") == pytest.approx(hours))
        slow = {"crawl", "<b>short*"}
        wait_until(
            lambda: hook.list_told("firing") >= slow and hook.states["<b>short*"] == "resolved", lambda: hook.told
        )
        leader = next(up for up in pair if up.ask("/health")["leads"])
        leader.wait_until(lambda: leader.ask("/health")["alerts"]["receivers"][0]["pending"] == 0)
        for up in pair:
            assert up.stop() == 0
    for up in pair:
        check_samples(up.store, fleet, scrapes)
    told = {(one["alert"]["by"]["job"], one["state"], one["key"]) for one in hook.told}
    told = {of for of in told if of[0] in slow}
    assert Counter((job, state) for job, state, _ in told).most_common(1)[0][1] == 1, told
    with capsys.disabled():
        in_both = f"{fleet.gpus * scrapes} samples in both books, each once"
        print(f"\npair: {dict(kills)}; {in_both}; {len(told)} transitions told in {len(hook.told)} calls")
