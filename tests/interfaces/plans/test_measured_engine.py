"""`plan serve --measured` of an engine that runs: two pages of a server on loopback, read as those of saved pages are."""

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import loadfactor
from loadfactor.base.errors import InputError, SourceError
from loadfactor.interfaces.plans.measured_replica import read_measured
from loadfactor.interfaces.web.plans import find_kind, read_forms

SGLANG = """\
# HELP sglang:prompt_tokens_total Number of prefill tokens processed.
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{{model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0"}} {prompts}
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{{model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0"}} {outputs}
# TYPE sglang:num_requests_total counter
sglang:num_requests_total{{model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0"}} {requests}
# TYPE sglang:time_to_first_token_seconds histogram
sglang:time_to_first_token_seconds_sum{{model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0"}} {first}
sglang:time_to_first_token_seconds_bucket{{le="+Inf",model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0"}} {requests}
sglang:time_to_first_token_seconds_count{{model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0"}} {requests}
# TYPE sglang:inter_token_latency_seconds histogram
sglang:inter_token_latency_seconds_sum{{model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0"}} {later}
sglang:inter_token_latency_seconds_count{{model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0"}} {outputs}
"""


def sglang(times: int) -> str:
    """A page after five times as many requests of 1,000 tokens in and 200 out: 0.1 s to the first token, 8 ms between tokens."""
    n = 5 * times
    return SGLANG.format(prompts=1000 * n, outputs=200 * n, requests=n, first=0.1 * n, later=0.008 * 200 * n)


@contextmanager
def engine(pages: Sequence[str]) -> Iterator[str]:
    """The address of a server that tells these pages one after the other, and the last one again."""
    left = list(pages)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = (left.pop(0) if len(left) > 1 else left[0]).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def watch(*pages: str) -> list[float]:
    """Lengths and times of what the engine served between its pages."""
    with engine(pages) as address:
        (seen,) = read_measured((address, "seconds=0.05"), lambda _: None)
    return [seen.prompt_tokens, seen.output_tokens, seen.ttft_s, seen.tpot_s]


@pytest.mark.long
def test_two_pages_of_a_running_engine_are_a_load_test() -> None:
    """Of SGLang: what its counters and histograms grew by, over the requests that ended; and the plan says what it changed."""
    assert watch(sglang(1), sglang(4)) == pytest.approx([1000, 200, 0.1, 0.008])
    with engine([sglang(1), sglang(4)]) as address:
        page = loadfactor.plan_serving(
            model="llama-3.1-8b",
            accelerator="h100-sxm",
            engine="sglang",
            users=500,
            measured=(address, "seconds=0.05", "layout=tp1"),
        )
    (run,) = page.data.calibration.runs
    assert (run.measured_tpot_s, run.measured_ttft_s) == pytest.approx((0.008, 0.1))
    assert "(measured nearby)" in page.document.headline


def test_a_saved_page_of_vllm_is_read(shared: Path) -> None:
    """Datadog's saved page, and the same one later: tokens, requests and both histograms by vLLM's own names."""
    first = (shared / "data/metrics/vllm/vllm_metrics_datadog_fixture.prom").read_text()
    grown = {
        "prompt_tokens_total": 5 + 20 * 512,
        "generation_tokens_total": 7 + 20 * 64,
        "request_success_total": 1 + 20,
        "time_to_first_token_seconds_sum": 0.31326723098754883 + 20 * 0.25,
        "time_to_first_token_seconds_count": 1 + 20,
        "request_time_per_output_token_seconds_sum": 0.02554149661946724 + 20 * 0.011,
        "request_time_per_output_token_seconds_count": 6 + 20,
    }
    last = first
    for name, value in grown.items():
        last, changed = re.subn(rf"(?m)^(vllm:{name}\{{[^}}]*\}}) .*$", rf"\g<1> {value}", last)
        assert changed == 1
    assert watch(first, last) == pytest.approx([512, 64, 0.25, 0.011])


@pytest.mark.parametrize(
    ("pages", "why"),
    [
        (["up 1\n"], "no metrics of vLLM"),
        ([sglang(4), sglang(1)], "began again"),
        ([sglang(1)], "0 requests ended"),
        ([re.sub("(?m)^.*_seconds_.*\n", "", sglang(n)) for n in (1, 4)], "tells no time to the first token"),
    ],
)
def test_what_tells_nothing_is_refused_in_one_line(pages: list[str], why: str) -> None:
    """No engine, one that began again, one without load, one without times."""
    with pytest.raises(SourceError, match=why):
        watch(*pages)


def test_addresses_are_nobody_elses_to_read() -> None:
    """No server there, seconds of nothing; and the pages of a server read no engine or file for who looks at them."""
    with pytest.raises(SourceError, match="cannot be read"):
        read_measured(("http://127.0.0.1:9/metrics",), lambda _: None)
    for words in (("seconds=5",), ("a.json", "seconds=5"), ("http://127.0.0.1:9/", "seconds=soon")):
        with pytest.raises(InputError, match="seconds"):
            read_measured(words, lambda _: None)
    (form,) = read_forms(find_kind("/plan/serve"), {"measured": ["http://127.0.0.1:9/metrics"]}, None)
    assert "measured" in form.error
