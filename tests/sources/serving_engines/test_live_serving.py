"""Engines that are scraped: the same counts as from saved pages, right to the unit or unknown, over restarts of the collector."""

import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.serving_engines.totals import Totals, add_up

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.serving_engines.counting import GAP, HELD_PAGES, SEVERAL
from loadfactor.sources.serving_engines.decoder import decode_engines
from loadfactor.sources.serving_engines.live_decoder import LiveServingDecoder, read_scrape

BEGAN_S = 1_790_000_000
STEP_S = 15
LABELS = {"instance": "node-1:8000", "job": "chat"}


def write_page(prompt: float, requests: float | None = None, start_s: float | None = None) -> str:
    """A page of vLLM without times."""
    lines = [f'vllm:prompt_tokens_total{{engine="0",model_name="m"}} {prompt}']
    if requests is not None:
        lines.append(f'vllm:request_success_total{{finished_reason="stop"}} {requests}')
    if start_s is not None:
        lines.append(f"process_start_time_seconds {start_s}")
    return "\n".join([*lines, ""])


class Collected:
    """What a collector makes of pages; rows with one key replace each other, as the books hold them."""

    def __init__(self) -> None:
        self.decoder = LiveServingDecoder("chat")
        self.rows: dict[tuple[str, str, str, int], tuple[int, float]] = {}
        self.unknown: defaultdict[str, int] = defaultdict(int)

    def put(self, second: float, page: str, labels: dict[str, str] = LABELS, restarts: bool = True) -> None:
        """Scrape a page; the collector is another process each time where it `restarts`."""
        events = read_scrape(page.encode(), labels, round((BEGAN_S + second) * 1000), STEP_S * 1000)
        self.decoder.feed(events)
        for item in self.decoder.drain():
            if isinstance(item, Gap):
                self.unknown[item.what] += item.count
                continue
            for row in item.data.to_pylist():
                key = (row["job_id"], row["replica"], row["unit"], row["from_utc"])
                before = self.rows.get(key)
                assert before is None or (before[0] < row["to_utc"] and before[1] <= row["amount"])
                self.rows[key] = (row["to_utc"], row["amount"])
        if restarts:
            self.decoder = LiveServingDecoder("chat", self.decoder.state())

    def end(self, second: float) -> "Collected":
        """So long later a page of another replica comes: nothing more is to come of those before."""
        self.put(second + (HELD_PAGES + 1) * STEP_S, write_page(1), {"instance": "other", "job": "other"})
        return self

    @property
    def totals(self) -> Totals:
        """By job, replica and unit."""
        return add_up(self.rows)


def read_saved(pages: list[tuple[float, str]]) -> tuple[Totals, dict[str, int]]:
    """The same pages, saved and imported: totals, and what is unknown."""
    text = ""
    for second, page in pages:
        at_ms = round((BEGAN_S + second) * 1000)
        text += "".join(f"{line} {at_ms}\n" for line in page.splitlines())
    totals: Totals = defaultdict(float)
    unknown: dict[str, int] = {}
    for item in decode_engines([Input("node-1:8000", [text.encode()])], ReadOptions(held_by="chat", step_s=STEP_S)):
        if isinstance(item, Rows):
            for row in item.data.to_pylist():
                totals[row["job_id"], row["replica"], row["unit"]] += row["amount"]
        elif "single page" not in item.what:
            unknown[item.what] = item.count
    return dict(totals), unknown


@given(st.integers(0, 10_000))
def test_scraped_pages_are_counted_as_saved_ones(seed: int) -> None:
    """Restarts, gaps, several processes behind the name, with and without starts, and a counter that goes and comes."""
    chance = random.Random(seed)
    says_start, processes = chance.random() < 0.5, [[chance.randrange(5000), 0, -chance.random() * 900] for _ in "ab"]
    if chance.random() < 0.5:
        processes.pop()
    pages: list[tuple[float, str]] = []
    second = 0.0
    for _ in range(chance.randrange(2, 120)):
        if chance.random() < 0.05:
            processes[chance.randrange(len(processes))] = [0, 0, second]
        for process in processes:
            process[0] += chance.randrange(300)
            process[1] += chance.randrange(3)
        second += STEP_S * (1 if chance.random() < 0.95 else chance.randrange(2, 9))
        prompt, requests, start = chance.choice(processes)
        has_requests = chance.random() < 0.97
        page = write_page(prompt, requests if has_requests else None, BEGAN_S + start if says_start else None)
        pages.append((second, page))
    live = Collected()
    for at, page in pages:
        live.put(at, page, restarts=chance.random() < 0.2)
    assert (live.end(second).totals, dict(live.unknown)) == read_saved(pages)


@given(st.integers(0, 10_000), st.integers(2, 4))
def test_replicas_that_nothing_tells_apart_tell_nothing(seed: int, replicas: int) -> None:
    """Whichever answers, and whatever they count: not one token counts."""
    chance = random.Random(seed)
    counts = [chance.randrange(1_000_000) for _ in range(replicas)]
    live = Collected()
    for page in range(3 * HELD_PAGES):
        counts = [count + chance.randrange(50) for count in counts]
        live.put(page * STEP_S, write_page(chance.choice(counts)), restarts=False)
    assert (live.totals, live.unknown[SEVERAL]) == ({}, 1)


def test_what_says_no_start_is_told_when_nothing_can_speak_against_it() -> None:
    """One replica without a start: its tokens come some pages later, exactly, and a gap is unknown and counted."""
    live = Collected()
    for page in range(HELD_PAGES + 11):
        live.put(page * STEP_S, write_page(100 + 7 * page))
    assert live.totals == {("chat", "node-1:8000", "prompt_token"): 70}
    last_s = (HELD_PAGES + 10) * STEP_S
    live.put(last_s + 4 * STEP_S, write_page(9000))
    assert live.unknown == {GAP: 1}
    assert live.end(last_s + 4 * STEP_S).totals == {("chat", "node-1:8000", "prompt_token"): 7 * (HELD_PAGES + 10)}


def test_pages_of_several_replicas_with_times() -> None:
    """What a Prometheus federates: lines with times and pods, the same scrape again and again, no job configured."""
    live = Collected()
    for second, scraped, counts in ((20, 15, (5, 100)), (28, 15, (5, 100)), (35, 30, (9, 101))):
        lines = [
            f'vllm:prompt_tokens_total{{namespace="ml",pod="{pod}"}} {count} {(BEGAN_S + scraped) * 1000}\n'
            f'process_start_time_seconds{{namespace="ml",pod="{pod}"}} {BEGAN_S - 60} {(BEGAN_S + scraped) * 1000}\n'
            for pod, count in zip("ab", counts, strict=True)
        ]
        live.put(second, "".join(lines), {"instance": "prometheus:9090"})
    assert live.totals == {("ml/a", "a", "prompt_token"): 4, ("ml/b", "b", "prompt_token"): 1}


@pytest.mark.parametrize(
    ("page", "labels", "said"),
    [
        ("node_load1 1\n", LABELS, "no metrics of vLLM"),
        ("<html>\n", LABELS, "no metrics of vLLM"),
        ("vllm:prompt_tokens_total 12", LABELS, "middle of a line"),
        ("vllm:prompt_tokens_total 12\n", {"instance": "a:1"}, "job ="),
    ],
)
def test_a_page_of_no_use_is_refused(page: str, labels: dict[str, str], said: str) -> None:
    """In one line, which /health shows of the target."""
    with pytest.raises(SourceError, match=said):
        read_scrape(page.encode(), labels, BEGAN_S * 1000, STEP_S * 1000)
