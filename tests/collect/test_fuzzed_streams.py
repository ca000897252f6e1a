"""Requests of remote_write and answers of queries in disorder, with repeats, odd series, steps of the clock and restarts.

An oracle knows what must be kept: nothing that was acknowledged is lost or counted twice, and all that was skipped is counted.
"""

import asyncio
import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from tests.long import rest_long
from tests.sources.prometheus.sender import SentSeries, pack_request
from tests.sources.prometheus.test_remote_write import STALE

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.collect.collector import LiveCollector
from loadfactor.collect.payloads import QUERY, pack_answer
from loadfactor.sources.prometheus.remote_write import compile_scanner
from loadfactor.store.live import LiveLog

ROUNDS = max(int(os.environ.get("TORTURE_ROUNDS", "0")), 20)
QUICK = 2
NOW_MS = 1_772_409_600_000
GPUS, SCRAPES, STEP_MS = 4, 24, 15_000
NOT_KEPT = {"NaN": float("nan"), "infinite": float("inf"), "negative": -5.0, "above": 250.0}
Labels = list[tuple[str, str]]


def name_gpu(gpu: int) -> Labels:
    """Labels of its utilization, sorted."""
    labels = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "UUID": f"GPU-{gpu}", "gpu": str(gpu), "Hostname": "n", "job": "dcgm"}
    return sorted(labels.items())


@pytest.fixture(autouse=True, scope="module")
def _ready() -> None:
    """On a busy machine requests are refused for a while where the code that scans them is compiled first."""
    compile_scanner()


class Oracle:
    """What is sent, what must come of it, and how much must be counted as skipped."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kept: dict[tuple[str, int], float] = {}
        self.skipped: Counter[str] = Counter()

    def value(self, gpu: int, k: int) -> float:
        """A value, or what is none."""
        way = random.Random(f"{gpu} {k}").randrange(12)
        odd = [*NOT_KEPT.values(), float(STALE)]
        return odd[way] if way < len(odd) else float((gpu + k) % 90 + 5)

    def send_scrape(self, k: int) -> tuple[list[SentSeries], Counter[str], dict[tuple[str, int], float]]:
        """The series of a scrape with odd ones between them; what is to be counted of them, and kept."""
        at_ms, counted, kept = NOW_MS - (SCRAPES - k) * STEP_MS, Counter[str](), {}
        series = []
        for gpu in range(GPUS):
            value = self.value(gpu, k)
            series.append(SentSeries(name_gpu(gpu), [(at_ms, value)]))
            if 0 <= value <= 100:
                kept[f"GPU-{gpu}", at_ms] = value / 100
        odd = {
            "no_name": [("job", "x")],
            "label_twice": [*name_gpu(0), ("gpu", "7")],
            "no_label_name": [*name_gpu(1), ("", "x")],
            "many_labels": [*name_gpu(2), *((f"l{i}", "v") for i in range(1000))],
            "long_labels": [*name_gpu(3), ("x", "y" * 300_000)],
            "": [("__name__", "kube_node_labels"), *((f"label_{i}", "v") for i in range(self.chance.randrange(400)))],
        }
        for reason in self.chance.choices(sorted(odd), k=self.chance.randrange(4)):
            series.append(SentSeries(self.chance.sample(odd[reason], len(odd[reason])), [(at_ms, 1.0)]))
            counted[reason] += 1
        if self.chance.random() < 0.3:
            bad_ms = self.chance.choice((0, -at_ms, at_ms // 1000, 2**62))
            series.append(SentSeries(name_gpu(0), [(bad_ms, 1.0)], histograms=1))
            counted += Counter(no_instant=1, histogram=1)
        self.chance.shuffle(series)
        del counted[""]
        return series, counted, kept


def check(folder: Path, oracle: Oracle, skipped: Counter[str]) -> None:
    """The books hold what must be kept, each once, and the counts what must not."""
    rows = Books.open(folder, create=True).table("samples").execute()
    found = [
        ((device, at), busy)
        for device, at, busy in zip(rows["device_id"], rows["to_utc"].tolist(), rows["busy_share"], strict=True)
        if busy == busy  # a sample of which nothing is left says nothing
    ]
    assert len(dict(found)) == len(found)
    assert dict(found) == pytest.approx(oracle.kept)
    values = {"impossible", "not_finite"}  # are counted when they are decoded, after a restart perhaps again
    assert {r: n for r, n in skipped.items() if r not in values} == {
        r: n for r, n in oracle.skipped.items() if n and r not in values
    }


def run_round(folder: Path, seed: int) -> None:
    """Requests in disorder, some twice; the clock steps, and the process ends and begins again without a word."""
    oracle, clock, skipped = Oracle(seed), [NOW_MS], Counter[str]()
    order = [k for k in range(SCRAPES) for _ in range(oracle.chance.choice((1, 1, 1, 2)))]
    for i in range(len(order)):  # late by some places, as retries are
        j = min(len(order) - 1, i + oracle.chance.choice((0, 0, 0, 1, 5)))
        order[i], order[j] = order[j], order[i]
    while order:
        with LiveLog.open(folder) as log:
            collector = LiveCollector(log, lambda: clock[0])
            for _ in range(oracle.chance.randrange(1, 16)):
                if not order:
                    break
                series, counted, kept = oracle.send_scrape(order.pop(0))
                asyncio.run(collector.write(pack_request(series)))
                oracle.skipped += counted
                oracle.kept |= kept
                if oracle.chance.random() < 0.3:
                    collector.ingest(everything=oracle.chance.random() < 0.5)
                if oracle.chance.random() < 0.2:
                    clock[0] = NOW_MS + oracle.chance.choice((0, 1, -3, -24, 9_000, -400_000)) * MS_PER_HOUR
            skipped += collector.skipped
            assert not collector.quarantined
            collector.close()
    clock[0] = NOW_MS
    with LiveLog.open(folder) as log:
        collector = LiveCollector(log, lambda: clock[0])
        collector.ingest(everything=True)
        collector.ingest(everything=True)
        assert log.received_bytes == 0
        assert not collector.quarantined
        collector.close()
    check(folder, oracle, skipped)


@pytest.mark.parametrize("seed", rest_long(range(ROUNDS), QUICK))
def test_any_requests_are_kept_or_counted(tmp_path: Path, seed: int) -> None:
    """Whatever is sent, however often and however late."""
    run_round(tmp_path, seed)


@pytest.mark.parametrize("seed", rest_long(range(ROUNDS), QUICK))
def test_any_answers_are_kept_or_counted(tmp_path: Path, seed: int) -> None:
    """Answers of a server that overlap, with odd samples and series between, through restarts and steps of our clock."""
    oracle, skipped, k = Oracle(seed), Counter[str](), 0
    stream = "prometheus p"
    clock = [NOW_MS]
    while k < SCRAPES:
        with LiveLog.open(tmp_path) as log:
            collector = LiveCollector(log, lambda: clock[0])
            for _ in range(oracle.chance.randrange(1, 6)):
                begin = max(0, k - oracle.chance.randrange(3))
                end = min(SCRAPES, k + oracle.chance.randrange(1, 5))
                result: list[object] = []
                for gpu in range(GPUS):
                    values: list[list[object]] = []
                    for scrape in range(begin, end):
                        at_ms, value = NOW_MS - (SCRAPES - scrape) * STEP_MS, oracle.value(gpu, scrape)
                        if value == value or scrape % 2:  # a stale mark is no sample of an answer
                            values.append([at_ms / 1000, repr(value).replace("inf", "+Inf").replace("nan", "NaN")])
                        if 0 <= value <= 100:
                            oracle.kept[f"GPU-{gpu}", at_ms] = value / 100
                    for time, reason in (("x", "unreadable"), (0, "no_instant")):
                        if oracle.chance.random() < 0.2:
                            values.insert(oracle.chance.randrange(len(values) + 1), [time, "1"])
                            oracle.skipped[reason] += 1
                    result.append({"metric": dict(name_gpu(gpu)), "values": values})
                if oracle.chance.random() < 0.2:
                    result.insert(0, 7)
                    oracle.skipped["unreadable"] += 1
                answer = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
                after_ms, to_ms = (NOW_MS - (SCRAPES - n + 1) * STEP_MS for n in (k, end))
                asyncio.run(collector.write(pack_answer(answer, after_ms, to_ms), stream, QUERY))
                k = end
                if oracle.chance.random() < 0.4:
                    collector.ingest()
                if oracle.chance.random() < 0.2:
                    clock[0] = NOW_MS + oracle.chance.choice((0, 1, -3, 9_000)) * MS_PER_HOUR
            skipped += collector.skipped
            assert not collector.quarantined
            collector.close()
    clock[0] = NOW_MS
    with LiveLog.open(tmp_path) as log:
        collector = LiveCollector(log, lambda: clock[0])
        collector.ingest()
        collector.ingest()
        assert log.received_bytes == 0
        collector.close()
    check(tmp_path, oracle, skipped)
