"""A serving engine without a model: pages of /metrics shaped as vLLM's are, of one process or of several behind one address."""

import time
from dataclasses import dataclass, field

from tests.live.local_server import LocalServer
from tests.waiting import wait_until

PAGE = """# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{{generation="0"}} 11263.0
{start}# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m/chat"}} 0.0
{cached}# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="m/chat"}} {prompt}.0
# HELP vllm:prompt_tokens_created Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{{engine="0",model_name="m/chat"}} 1.7584368183e+09
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="m/chat"}} {output}.0
# HELP vllm:request_success_total Count of successfully processed requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="m/chat"}} {requests}.0
vllm:request_success_total{{engine="0",finished_reason="abort",model_name="m/chat"}} 7.0
# HELP vllm:e2e_request_latency_seconds Histogram of e2e request latency in seconds.
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{{engine="0",le="0.3",model_name="m/chat"}} 4.0
vllm:e2e_request_latency_seconds_bucket{{engine="0",le="+Inf",model_name="m/chat"}} {requests}.0
"""
CACHED = """# HELP vllm:prefix_cache_hits_total Prefix cache hits, in terms of number of cached tokens.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{{engine="0",model_name="m/chat"}} {cached}.0
"""
START = """# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds {start:.2f}
"""
PER_PAGE = (113, 31, 5, 2)


@dataclass
class EngineProcessTruth:
    """Counts of a process: prompt tokens, answer tokens, tokens from the cache, requests. `start_s`: when it began."""

    prompt: int = 0
    output: int = 0
    cached: int = 0
    requests: int = 0
    start_s: float = field(default_factory=time.time)

    def work(self) -> None:
        """Make some of each."""
        self.prompt, self.output, self.cached, self.requests = (
            made + more
            for made, more in zip((self.prompt, self.output, self.cached, self.requests), PER_PAGE, strict=True)
        )

    def expose(self, says_start: bool, has_cache: bool) -> bytes:
        """Its page."""
        start = START.format(start=self.start_s) if says_start else ""
        cached = CACHED.format(cached=self.cached) if has_cache else ""
        told = {"prompt": self.prompt, "output": self.output, "requests": self.requests}
        return PAGE.format(start=start, cached=cached, **told).encode()


@dataclass
class FakeEngine(LocalServer):
    """Serves the page of one of its processes after another; all of them work before each page while `works`."""

    processes: list[EngineProcessTruth] = field(default_factory=lambda: [EngineProcessTruth(1000, 500, 100, 10)])
    says_start: bool = True
    has_cache: bool = True
    works: bool = False
    pages: int = 0
    port: int = 0

    def respond(self, path: str, _body: str, _headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        """The page of the process whose turn it is."""
        if path != "/metrics":
            return 404, {}, b""
        for process in self.processes if self.works else ():
            process.work()
        process = self.processes[self.pages % len(self.processes)]
        self.pages += 1
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return 200, {"Content-Type": kind}, process.expose(self.says_start, self.has_cache)

    def wait_for_pages(self, count: int = 3) -> None:
        """Until so many more pages were asked for."""
        before = self.pages
        wait_until(lambda: self.pages >= before + count, lambda: "it is not scraped")

    def rest(self) -> None:
        """Work no more, and wait until all that was made was told."""
        self.works = False
        self.wait_for_pages(2 * len(self.processes) + 1)
