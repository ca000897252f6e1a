"""Tokens and requests of serving engines, from saved pages and from live scrapes: right to the unit, or unknown.

The page of vLLM is of DataDog/integrations-core.
"""

import random
import re
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.serving_engines.totals import Totals, add_up

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.serving_engines.counting import AGAIN, GAP, HELD_PAGES, SEVERAL
from loadfactor.sources.serving_engines.decoder import SINGLE, decode_engines
from loadfactor.sources.serving_engines.live_decoder import LiveServingDecoder, read_scrape

START = 1_790_000_000
Told = tuple[dict[str, float], set[str]]


def page(second: int, started: float | None = None, **values: float) -> str:
    """A page of vLLM: `prompt=5` is a counter of tokens."""
    names = {
        "prompt": 'vllm:prompt_tokens_total{model_name="m",engine="0"}',
        "output": 'vllm:generation_tokens_total{model_name="m",engine="0"}',
        "cached": 'vllm:prefix_cache_hits_total{model_name="m",engine="0"}',
        **{
            r: f'vllm:request_success_total{{model_name="m",finished_reason="{r}"}}'
            for r in ("stop", "length", "abort")
        },
        "running": 'vllm:num_requests_running{model_name="m"}',
    }
    at = (START + second) * 1000
    lines = [f"{names[name]} {value} {at}" for name, value in values.items()]
    return "\n".join([*lines, *([f"process_start_time_seconds {START + started} {at}"] if started is not None else [])])


def tell(*texts: str, options: ReadOptions = ReadOptions(held_by="chat"), name: str = "vllm-0.prom") -> Told:
    """Amounts by unit, and what is unknown."""
    amounts: dict[str, float] = defaultdict(float)
    unknown = set()
    for item in decode_engines([Input(name, [("\n".join(texts) + "\n").encode()], name)], options):
        if isinstance(item, Rows):
            assert item.table == "progress"
            for row in item.data.to_pylist():
                assert row["from_utc"] < row["to_utc"]
                assert row["amount"] >= 0
                amounts[row["unit"]] += row["amount"]
        else:
            assert isinstance(item, Gap)
            unknown.add(item.what)
    return dict(amounts), unknown


def test_counters_of_one_process_are_subtracted() -> None:
    """Of what was made before the first page nothing counts; reasons are added up, and broken-off requests left out."""
    made, unknown = tell(
        page(0, prompt=1000, output=100, cached=0, stop=5, length=1, abort=9, running=2),
        page(15, prompt=1500, output=180, cached=64, stop=6, length=2, abort=20, running=4),
        page(30, prompt=1501, output=180, cached=64, stop=6, length=2, abort=20, running=0),
    )
    wanted = {"prompt_token": 501, "output_token": 80, "cached_prompt_token": 64, "request": 2, "running_request_s": 60}
    assert (made, unknown) == (wanted, set())


def test_a_replica_that_restarts() -> None:
    """What the new process counts was made since; with and without a time at which it began."""
    told = [{"prompt": 1000}, {"prompt": 1500}, {"prompt": 40}, {"prompt": 90}]
    bare = [page(15 * k, **of) for k, of in enumerate(told)]
    assert tell(*bare) == ({"prompt_token": 590}, {AGAIN})
    dated = [page(15 * k, -9 if k < 2 else 20, **of) for k, of in enumerate(told)]
    assert tell(*dated) == ({"prompt_token": 590}, {AGAIN})
    higher = [page(15 * k, -9 if k < 2 else 20, prompt=n) for k, n in enumerate((10, 15, 100, 120))]
    assert tell(*higher) == ({"prompt_token": 125}, {AGAIN})


def test_one_counter_that_fell_says_that_all_began_again() -> None:
    """Prompts grew past what they were before the restart; that outputs fell says that all of them are new."""
    made, unknown = tell(
        page(0, prompt=100, output=900), page(15, prompt=150, output=20), page(30, prompt=160, output=21)
    )
    assert (made, unknown) == ({"prompt_token": 160, "output_token": 21}, {AGAIN})


def test_two_replicas_behind_one_name() -> None:
    """Told apart by when they began they are right to the token; without that, all they made is unknown."""
    turns = [(0, "a", 1000), (15, "b", 20), (30, "a", 1100), (45, "b", 25), (60, "a", 1101)]
    began = {"a": -500, "b": -300}
    assert tell(*(page(at, began[who], prompt=n) for at, who, n in turns)) == ({"prompt_token": 106}, set())
    assert tell(*(page(at, prompt=n) for at, _, n in turns)) == ({}, {SEVERAL, AGAIN})


def test_a_gap_is_unknown_unless_the_process_is_the_same() -> None:
    """After an hour without a page a higher count may be that of another process."""
    pages = [(0, 100), (15, 110), (30, 120), (3600, 900), (3615, 905)]
    assert tell(*(page(at, prompt=n) for at, n in pages)) == ({"prompt_token": 25}, {GAP})
    assert tell(*(page(at, -9, prompt=n) for at, n in pages)) == ({"prompt_token": 805}, set())


def test_a_removed_metric_name_is_unknown() -> None:
    """A counter that a new version no longer has tells nothing; the others go on."""
    made, _ = tell(page(0, prompt=1, cached=1), page(15, prompt=2, cached=1), page(30, prompt=4), page(45, prompt=8))
    assert made == {"prompt_token": 7, "cached_prompt_token": 0}
    assert "cached_prompt_token" not in tell(page(0, prompt=1), page(15, prompt=2))[0]


def test_a_counter_with_a_title_and_no_series_stands_at_nothing() -> None:
    """Series of reasons come up when they are first needed."""
    title = "# TYPE vllm:request_success_total counter\n"
    assert tell(title + page(0, prompt=1), page(15, prompt=1, stop=3))[0]["request"] == 3


OTHERS = {
    "sglang": ("sglang:prompt_tokens_total{m}", "sglang:cached_tokens_total{m}", "sglang:generation_tokens_total{m}"),
    "triton": ('nv_llm_input_token_len_sum{model="l"}', "", 'nv_llm_output_token_len_sum{model="l"}'),
    "trtllm": ("trtllm_prompt_tokens_total{m}", "", "trtllm_generation_tokens_total{m}"),
    "tgi": ("tgi_request_input_length_sum", "", "tgi_request_generated_tokens_sum"),
    "llama.cpp": ("llamacpp:prompt_tokens_total", "", "llamacpp:tokens_predicted_total"),
    "vllm, newest": tuple(
        f"vllm:{what}_total{{m}}" for what in ("prompt_tokens", "prompt_tokens_cached", "generation_tokens")
    ),
    "vllm on Ray": tuple(
        f"ray_vllm:{what}_total{{m}}" for what in ("prompt_tokens", "prompt_tokens_cached", "generation_tokens")
    ),
    "vllm on Ray, colons replaced": ("ray_vllm_prompt_tokens_total{m}", "", "ray_vllm_generation_tokens_total{m}"),
    "vllm, colons replaced": ("vllm_prompt_tokens_total{m}", "", "vllm_generation_tokens_total{m}"),
}


@pytest.mark.parametrize("engine", OTHERS)
def test_every_engine_is_understood(engine: str) -> None:
    """Prompt, cached and output tokens of each engine by its own names."""
    names = [name.replace("{m}", '{model_name="m"}') for name in OTHERS[engine]]
    pages = [
        "\n".join(f"{name} {count} {(START + at) * 1000}" for name, count in zip(names, counts, strict=True) if name)
        for at, counts in ((0, (10, 1, 5)), (15, (30, 4, 6)))
    ]
    made, unknown = tell(*pages)
    expected = (20, 3 if names[1] else None, 1)
    assert (made["prompt_token"], made.get("cached_prompt_token"), made["output_token"]) == expected
    assert unknown == set()


def test_other_ranks_tell_the_same_work() -> None:
    """Of SGLang's ranks of tensor parallelism one counts."""
    lines = [
        f'sglang:prompt_tokens_total{{tp_rank="{rank}"}} {count} {(START + at) * 1000}'
        for at, count in ((0, 10), (15, 30))
        for rank in range(4)
    ]
    assert tell(*lines)[0] == {"prompt_token": 20}


def test_ranks_of_data_parallelism_add_up() -> None:
    """SGLang's ranks of data parallelism run requests of their own, whichever rank of tensor parallelism writes for them."""
    lines = [
        f'sglang:num_running_reqs{{tp_rank="{tp}",pp_rank="{pp}",dp_rank="{tp // 2}"}} {2 + tp // 2} {(START + at) * 1000}'
        for at in (0, 10)
        for tp in range(8)
        for pp in range(2)
    ]
    assert tell(*lines)[0] == {"running_request_s": 10 * (2 + 3 + 4 + 5)}


def test_requests_that_were_broken_off_are_none() -> None:
    """trtllm-serve counts what was cancelled or ran out of time among those that ended."""
    lines = [
        f'trtllm_request_success_total{{model_name="m",finished_reason="{reason}"}} {count * at} {(START + at) * 1000}'
        for at in (0, 15)
        for reason, count in (("stop", 2), ("length", 1), ("cancelled", 5), ("timeout", 7))
    ]
    assert tell(*lines)[0] == {"request": 45}


def test_nim() -> None:
    """NVIDIA's NIM uses names without a prefix; without its label they are somebody else's."""
    names = ("prompt_tokens_total", "generation_tokens_total", "request_success_total")
    lines = [
        f"{name}{{{labels}}} {(number + 1) * at} {(START + at) * 1000}"
        for at in (0, 15)
        for number, name in enumerate(names)
        for labels in ('model_name="m"', 'app="gateway"')
    ]
    assert tell(*lines)[0] == {"prompt_token": 15, "output_token": 30, "request": 45}


def test_pods_that_labels_name_are_jobs_of_their_own() -> None:
    """A page of several pods, as Prometheus federates it, is a job and a replica each; no option is needed."""
    lines = [
        f'vllm:prompt_tokens_total{{namespace="ml",pod="{pod}",instance="10.0.0.1:8000"}} {count} {(START + at) * 1000}'
        for at, a, b in ((0, 1, 100), (15, 3, 101))
        for pod, count in (("a", a), ("b", b))
    ]
    text = Input("f", [("\n".join(lines) + "\n").encode()], "f")
    items = [item for item in decode_engines([text], ReadOptions()) if isinstance(item, Rows)]
    rows = [row for item in items for row in item.data.to_pylist()]
    assert {(row["job_id"], row["replica"], row["amount"]) for row in rows} == {("ml/a", "a", 2), ("ml/b", "b", 1)}


@pytest.mark.parametrize("how", ["stamps", "names", "counted"])
def test_times_that_the_lines_do_not_say(how: str) -> None:
    """Pages without times: a line with a time before each, the names of files, or --at and --step."""
    bare = [re.sub(r" \d{13}$", "", page(0, prompt=n), flags=re.MULTILINE) for n in (1, 5, 6)]
    if how == "stamps":
        told = [f"# 2026-10-05T08:00:{15 * k:02}Z\n{text}" for k, text in enumerate(bare)]
        assert tell(*told)[0] == {"prompt_token": 5}
    elif how == "counted":
        options = ReadOptions(held_by="chat", at_ms=START * 1000, step_s=15)
        assert tell(*bare, options=options)[0] == {"prompt_token": 5}
        with pytest.raises(SourceError, match="--at"):
            tell(*bare)
    else:
        names = ("v-20261005T080000Z.prom", "v-20261005T080015Z.prom")
        files = [Input(name, [(text + "\n").encode()], name) for name, text in zip(names, bare, strict=False)]
        (rows,) = decode_engines(files, ReadOptions(held_by="chat"))
        assert isinstance(rows, Rows)
        assert [(row["replica"], row["amount"]) for row in rows.data.to_pylist()] == [("v", 4)]


def test_a_real_page_of_vllm(shared: Path) -> None:
    """A page that a monitoring project keeps: read twice with more tokens, it gives their difference, of a known process."""
    text = (shared / "data" / "metrics" / "vllm" / "vllm_metrics_datadog_fixture.prom").read_text()
    line = 'vllm:prompt_tokens_total{model_name="facebook/opt-125m"}'
    later = text.replace(f"{line} 5.0", f"{line} 12.0")
    made, unknown = tell(text, later, options=ReadOptions(held_by="opt", at_ms=START * 1000, step_s=15))
    assert made["prompt_token"] == 7
    assert {made[unit] for unit in ("output_token", "request", "preemption", "cached_prompt_token")} == {0}
    assert unknown == set()


def test_what_is_no_engine_is_refused() -> None:
    """A page of another exporter, and a page whose job nobody names, are said in one line."""
    with pytest.raises(SourceError, match="no metrics of vLLM"):
        tell("node_cpu_seconds_total 1")
    with pytest.raises(SourceError, match="--job JOB, and save another page"):
        tell(page(0, prompt=1), options=ReadOptions())
    assert tell(page(0, prompt=1)) == ({}, {SINGLE})


ROUTED = {
    "vLLM's router": (
        'vllm:num_requests_running{server="http://10.0.0.1:8000"} 3',
        'vllm:current_qps{server="http://10.0.0.1:8000"} 1',
    ),
    "SGLang's gateway": ('smg_router_tokens_total{model="m",token_type="output"} 90',),
    "Dynamo": ('dynamo_frontend_output_tokens_total{model="m"} 90',),
    "Triton without tokens": ('nv_inference_request_success{model="m",version="1"} 90',),
}


@pytest.mark.parametrize("router", ROUTED)
def test_what_stands_before_engines_counts_nothing_again(router: str) -> None:
    """Alone it is refused by its name and with what to save; beside its engines only theirs count."""
    lines = [f"{line} {(START + at) * 1000}" for at in (0, 15) for line in ROUTED[router]]
    with pytest.raises(SourceError, match=f"a page of .*{router}.*(save|let it export)"):
        tell(*lines)
    engine = [page(at, prompt=at, running=1) for at in (0, 15)]
    assert tell(*engine, *lines) == ({"prompt_token": 15, "running_request_s": 15}, set())


@pytest.mark.parametrize("label", ["WorkerId", "worker_addr"])
def test_workers_of_one_page_are_replicas(label: str) -> None:
    """Ray's node and SGLang's gateway tell of several engines on one page; one that begins again loses nothing of the other."""
    made, unknown = tell(
        *(
            f'ray_vllm:prompt_tokens_total{{{label}="{worker}",instance="node-1:8080"}} {count} {(START + at) * 1000}'
            for at, counts in ((0, {"a": 100, "b": 900}), (15, {"a": 130, "b": 20}), (30, {"a": 160, "b": 25}))
            for worker, count in counts.items()
        )
    )
    assert (made, unknown) == ({"prompt_token": 85}, {AGAIN})


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


@pytest.mark.long
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


@pytest.mark.long
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
        ("smg_http_requests_total 3\n", LABELS, "SGLang's gateway, .*; scrape its /engine_metrics"),
        ("vllm:prompt_tokens_total 12", LABELS, "middle of a line"),
        ("vllm:prompt_tokens_total 12\n", {"instance": "a:1"}, "job ="),
    ],
)
def test_a_page_of_no_use_is_refused(page: str, labels: dict[str, str], said: str) -> None:
    """In one line, which /health shows of the target."""
    with pytest.raises(SourceError, match=said):
        read_scrape(page.encode(), labels, BEGAN_S * 1000, STEP_S * 1000)
