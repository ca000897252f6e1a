"""Serving engines that a Prometheus scrapes: counted as their pages are, right to the unit or unknown."""

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.prometheus.streams import Sample, put
from tests.sources.serving_engines.totals import Totals, add_up

from loadfactor.books.books import Books
from loadfactor.collect import pull
from loadfactor.collect.history import read_history
from loadfactor.collect.http_fetch import HttpAnswer
from loadfactor.collect.prometheus_server import PrometheusServer
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.engine_source import LATE
from loadfactor.sources.serving_engines.counting import HELD_PAGES
from loadfactor.sources.serving_engines.decoder import decode_engines

BEGAN_MS = 1_790_000_000_000
STEP_MS = 15_000


def scrape(at_ms: int, of: dict[str, float], **labels: str) -> list[Sample]:
    """The samples of one scrape; the job is that of Prometheus where no label says another."""
    said = {"job": "chat", "instance": "n1:8000", **labels}
    return [({"__name__": name, **said}, at_ms, value) for name, value in of.items()]


class Counted:
    """What comes of samples, in bodies of any size; rows with one key replace each other."""

    def __init__(self) -> None:
        self.decoder = PrometheusDecoder()
        self.bodies = 0
        self.rows: dict[tuple[str, str, str, int], tuple[int, float]] = {}
        self.unknown: dict[str, int] = defaultdict(int)

    def put(self, samples: Iterable[Sample], restarts: bool = False) -> "Counted":
        """A body, all of it taken; then, where it `restarts`, another process goes on from the state."""
        self.bodies += 1
        put(self.decoder, self.bodies, samples)
        self.note(self.decoder.drain(None))
        self.note(self.decoder.drain_progress())
        if restarts:
            self.decoder = PrometheusDecoder(self.decoder.state())
        return self

    def note(self, items: Iterable[Rows | Gap]) -> None:
        """Keep these rows, and count what is unknown."""
        for item in items:
            if isinstance(item, Gap):
                self.unknown[item.what] += item.count
                continue
            for row in item.data.to_pylist():
                self.rows[row["job_id"], row["replica"], row["unit"], row["from_utc"]] = row["to_utc"], row["amount"]

    def end(self) -> "Counted":
        """Nothing more is to come."""
        self.note(self.decoder.end())
        return self

    @property
    def totals(self) -> Totals:
        return add_up(self.rows)


@pytest.mark.long
@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_samples_are_counted_as_pages(seed: int) -> None:
    """Restarts of either side, gaps, several processes behind a name, and a metric that goes: as from the same saved pages."""
    chance = random.Random(seed)
    says_start, at_ms = chance.random() < 0.5, BEGAN_MS
    processes = [[chance.randrange(5000), BEGAN_MS / 1000 - chance.randrange(900)] for _ in "ab"]
    live, text, body = Counted(), "", list[Sample]()
    for page in range(chance.randrange(10, 120)):
        if page > 9 and chance.random() < 0.05:
            processes[chance.randrange(2)] = [0, at_ms / 1000]
        for process in processes:
            process[0] += chance.randrange(300)
        at_ms += STEP_MS * (1 if page < 9 or chance.random() < 0.95 else chance.randrange(2, 9))
        prompt, start = chance.choice(processes) if seed % 3 == 0 else processes[0]
        of = {
            "vllm:prompt_tokens_total": prompt,
            "process_start_time_seconds": start,
            "vllm:num_preemptions_total": 0.0,
        }
        if not says_start:
            del of["process_start_time_seconds"]
        if chance.random() < 0.05:
            del of["vllm:num_preemptions_total"]
        samples = scrape(at_ms, of)
        body += samples
        if chance.random() < 0.3:
            live.put(body, restarts=chance.random() < 0.3)
            body = []
        text += "".join(
            f'{labels["__name__"]}{{instance="n1:8000",job="chat"}} {v} {at}\n' for labels, at, v in samples
        )
    live.put(body)
    saved = Counted()
    saved.note(decode_engines([Input("page", [text.encode()])], ReadOptions(held_by="chat", step_s=STEP_MS / 1000)))
    assert (live.end().totals, dict(live.unknown)) == (saved.totals, dict(saved.unknown))


@pytest.mark.parametrize(
    ("prompt", "output", "request_"),
    [
        ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total"),
        ("sglang:prompt_tokens_total", "sglang:generation_tokens_total", "sglang:num_requests_total"),
        ("nv_llm_input_token_len_sum", "nv_llm_output_token_len_sum", "nv_llm_output_token_len_count"),
        ("tgi_request_input_length_sum", "tgi_request_generated_tokens_sum", "tgi_request_success"),
        ("llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total", ""),
    ],
)
def test_every_engine(prompt: str, output: str, request_: str) -> None:
    """Tokens and requests of each engine, of two pods that one job of Prometheus scrapes."""
    live = Counted()
    for page in range(HELD_PAGES + 3):
        for pod in "ab":
            of = {prompt: 100.0 * page, output: 7.0 * page, "process_start_time_seconds": 1.79e9 - 60}
            of |= {request_: 2.0 * page} if request_ else {}
            live.put(scrape(BEGAN_MS + page * STEP_MS, of, pod=pod, namespace="ml", instance=f"{pod}:1"))
    n = HELD_PAGES + 2
    expected = {"prompt_token": 100 * n, "output_token": 7 * n} | ({"request": 2 * n} if request_ else {})
    assert live.totals == {(f"ml/{pod}", pod, unit): amount for pod in "ab" for unit, amount in expected.items()}


def test_two_prometheus_servers_that_scrape_the_same_count_once() -> None:
    """Their own labels tell no replicas apart."""
    live = Counted()
    for page in range(20):
        for number, server in enumerate("ab"):
            of = {"vllm:prompt_tokens_total": 10.0 * page + number, "process_start_time_seconds": 1.79e9 - 60}
            live.put(scrape(BEGAN_MS + page * STEP_MS + number, of, prometheus_replica=server))
    assert live.totals == {("chat", "n1:8000", "prompt_token"): 191}


def test_what_comes_late_is_not_counted() -> None:
    """A scrape that comes after a later one is said, and changes nothing; so is one that nothing gives a job."""
    live = Counted()
    for page in (0, 2, 1, 3):
        of = {"vllm:prompt_tokens_total": 10.0 * page, "process_start_time_seconds": 1.79e9 - 60}
        live.put(scrape(BEGAN_MS + page * STEP_MS, of))
    assert live.totals == {("chat", "n1:8000", "prompt_token"): 30}
    assert live.unknown == {LATE: 2}
    live.put(scrape(BEGAN_MS, {"vllm:prompt_tokens_total": 1.0}, job=""))
    assert live.decoder.not_understood == {"vllm:prompt_tokens_total": 1}


class KeptSeries:
    """A Prometheus with these samples, asked by range selectors."""

    def __init__(self, samples: list[Sample]) -> None:
        self.samples = samples

    async def fetch(self, _server: object, selector: str, from_ms: int, to_ms: int, _pool: object) -> HttpAnswer:
        """As `fetch_range`."""
        names = re.fullmatch(r'\{__name__=~"(.*)"\}', selector)
        assert names is not None
        series: dict[str, list[list[float | str]]] = defaultdict(list)
        for labels, at_ms, value in self.samples:
            if from_ms < at_ms <= to_ms and re.fullmatch(names[1], labels["__name__"]):
                series[json.dumps(labels)].append([at_ms / 1000, str(value)])
        return HttpAnswer(200, {}, write_answer(series), False, 0.0, 0.0)


def write_answer(series: dict[str, list[list[float | str]]]) -> bytes:
    """The answer with these samples, by labels as JSON."""
    result = [{"metric": json.loads(labels), "values": values} for labels, values in series.items()]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def test_windows_of_the_past_that_overlap_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever windows are asked for, rows have the same keys, and the later ones the same amounts; midnight loses nothing."""
    samples: list[Sample] = []
    for page in range(240):
        counted = {"vllm:prompt_tokens_total": 3.0 * page * page, "process_start_time_seconds": 1.79e9 - 60}
        samples += scrape(BEGAN_MS + page * STEP_MS, counted)
    monkeypatch.setattr(pull, "fetch_range", KeptSeries(samples).fetch)
    whole, parts = Counted(), Counted()
    server, end_ms = PrometheusServer("prometheus", "http://p:9090"), BEGAN_MS + 239 * STEP_MS
    whole.note(read_history(server, "", (BEGAN_MS - 1, end_ms), lambda _share: None))
    for from_ms, to_ms in ((0, 1_000_000), (900_000, 2_000_000), (1_987_654, 239 * STEP_MS)):
        parts.note(read_history(server, "", (BEGAN_MS + from_ms - 1, BEGAN_MS + to_ms), lambda _share: None))
    assert whole.totals == {("chat", "n1:8000", "prompt_token"): 3.0 * 239 * 239}
    assert parts.rows == whole.rows


def test_saved_answers_are_imported(tmp_path: Path) -> None:
    """What `curl …/api/v1/query` saved, in two files that overlap, one after the other: tokens of the job that is named."""
    series: dict[str, list[list[float | str]]] = defaultdict(list)
    paths = []
    for page in range(60):
        for labels, at_ms, value in scrape(
            BEGAN_MS + page * STEP_MS, {"vllm_prompt_tokens_total": 5.0 * page, "process_start_time_seconds": 1.79e9}
        ):
            series[json.dumps(dict(labels))].append([at_ms / 1000, str(value)])
        if page in (40, 59):
            paths.append(tmp_path / f"answer-{page}.json")
            paths[-1].write_bytes(write_answer(series))
    books = Books(tmp_path / "books")
    books.add("prometheus", paths[:1], ReadOptions(held_by="bot"))
    books.add("prometheus", paths, ReadOptions(held_by="bot"))
    rows = books.table("progress").to_pyarrow().to_pylist()
    assert {row["job_id"] for row in rows} == {"bot"}
    assert sum(row["amount"] for row in rows) == 5 * 59
