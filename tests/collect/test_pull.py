"""Pulling from one server: chunks without a gap, and a turn that no server without an answer takes away."""

import asyncio
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from email.utils import formatdate
from urllib.parse import parse_qs

import pytest
from tests.collect.raw_server import OK, Handler, serve
from tests.waiting import LONGEST_S

from loadfactor.collect.http_fetch import MOST_DOUBTFUL, FetchError, LateError, RequestPools
from loadfactor.collect.prometheus_server import PrometheusServer
from loadfactor.collect.pull import CloudPull, Pull
from loadfactor.sources.clouds.cloud_series import CloudSeries

BEGIN_MS = 1_772_409_600_000
HOUR_MS = 3_600_000
JSON = b'{"status":"success"}'


def respond(answer: Callable[[int, int], bytes | None]) -> Handler:
    """A Prometheus that answers with what is given for a time in ms, and for None not at all."""

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        asked = parse_qs((await reader.readexactly(size)).decode())
        to_ms = round(float(asked["time"][0]) * 1000)
        length = re.search(r"\[(\d+)ms\]$", asked["query"][0])
        assert length
        if (content := answer(to_ms - int(length[1]), to_ms)) is None:
            await asyncio.sleep(3600)
        else:
            writer.write(content)

    return handler


def send_json(content: bytes = JSON, head: bytes = OK) -> bytes:
    """An answer with its length."""
    return head + b"Content-Length: %d\r\n\r\n" % len(content) + content


async def make_pull(
    answer: Callable[[int, int], bytes | None], taken: list[tuple[int, int]], pools: RequestPools | None = None
) -> Pull:
    """A pull of a server that answers so, from `BEGIN_MS` on."""
    server = PrometheusServer("a", f"http://127.0.0.1:{await serve(respond(answer))}", timeout_s=LONGEST_S)

    async def take(_answer: bytes, from_ms: int, to_ms: int) -> None:
        taken.append((from_ms, to_ms))

    return Pull(server, "up", 60.0, BEGIN_MS, take, pools or RequestPools())


@pytest.mark.parametrize("refusal", [b'{"error":"query processing would load too many samples"}', b"[" * 40])
def test_a_server_with_limits(refusal: bytes) -> None:
    """One that gives no more than a minute at once is asked for less, and nothing is left out."""
    taken: list[tuple[int, int]] = []

    def answer(from_ms: int, to_ms: int) -> bytes:
        if to_ms - from_ms <= 120_000:
            return send_json()
        status = b"422 No" if refusal.startswith(b"{") else b"413 Too large"
        return send_json(refusal, b"HTTP/1.1 %s\r\n" % status)

    async def run() -> None:
        pull = await make_pull(answer, taken)
        await pull.catch_up(BEGIN_MS + HOUR_MS)
        assert pull.status.status == "ok"

    asyncio.run(run())
    assert (taken[0][0], taken[-1][1]) == (BEGIN_MS, BEGIN_MS + HOUR_MS)
    assert [end for _, end in taken[:-1]] == [begin for begin, _ in taken[1:]]


@pytest.mark.parametrize("ahead_h", [3, 24 * 365])
def test_pulling_goes_on_when_a_clock_that_was_ahead_is_set_back(ahead_h: int) -> None:
    """What came in the hour before is taken again, and what follows; through a restart, too, which knows nothing of that clock."""
    taken: list[tuple[int, int]] = []

    async def run() -> None:
        pull = await make_pull(lambda _from, _to: send_json(), taken)
        pull.go_on(BEGIN_MS + ahead_h * HOUR_MS)
        await pull.catch_up(BEGIN_MS)
        await pull.catch_up(BEGIN_MS + 60_000)

    asyncio.run(run())
    assert (taken[0][0], taken[-1][1]) == (BEGIN_MS - HOUR_MS, BEGIN_MS + 60_000)
    assert [end for _, end in taken[:-1]] == [begin for begin, _ in taken[1:]]


def test_pulling_waits_while_our_clock_is_behind() -> None:
    """A server that tells the time shows that what was taken is not of the time to come: it is taken from there on, once."""
    taken: list[tuple[int, int]] = []
    date = formatdate((BEGIN_MS + 3 * HOUR_MS) / 1000 + 30, usegmt=True)
    answer = send_json(head=OK + f"Date: {date}\r\n".encode())

    async def run() -> None:
        pull = await make_pull(lambda _from, _to: answer, taken)
        await pull.catch_up(BEGIN_MS + 3 * HOUR_MS)
        before = len(taken)
        with pytest.raises(FetchError, match=r"10,800 seconds ahead of our clock; set it by NTP"):
            await pull.catch_up(BEGIN_MS)
        assert len(taken) == before
        await pull.catch_up(BEGIN_MS + 3 * HOUR_MS + 1000)

    asyncio.run(run())
    assert taken[-1] == (BEGIN_MS + 3 * HOUR_MS, BEGIN_MS + 3 * HOUR_MS + 1000)


def test_a_server_that_takes_too_long() -> None:
    """It is asked for less the next time, until it answers in time."""
    taken: list[tuple[int, int]] = []

    async def run() -> None:
        pull = await make_pull(lambda from_ms, to_ms: send_json() if to_ms - from_ms <= 300_000 else None, taken)
        pull.server = replace(pull.server, timeout_s=0.5)
        with pytest.raises(LateError, match=r"no answer within 0\.5 s"):
            await pull.catch_up(BEGIN_MS + 600_000)
        assert taken == []
        pull.server = replace(pull.server, timeout_s=LONGEST_S)
        goes_on = asyncio.create_task(pull.catch_up(BEGIN_MS + 600_000))
        while not taken:
            assert not goes_on.done()
            await asyncio.sleep(0.01)
        goes_on.cancel()

    asyncio.run(run())
    assert taken[0] == (BEGIN_MS, BEGIN_MS + 300_000)


def test_servers_without_an_answer_keep_no_other_waiting() -> None:
    """While as many as may wait for an answer, a server that answered is asked, and one that did not waits for its turn."""
    good: list[tuple[int, int]] = []
    bad: list[tuple[int, int]] = []

    async def run() -> None:
        pools = RequestPools()
        answers = await make_pull(lambda _from, _to: send_json(), good, pools)
        fails = await make_pull(lambda _from, _to: send_json(b"<html>") if not bad_heals else send_json(), bad, pools)
        await answers.catch_up(BEGIN_MS + 1000)
        with pytest.raises(FetchError, match="no JSON"):
            await fails.catch_up(BEGIN_MS + 1000)
        for _ in range(MOST_DOUBTFUL):
            await pools.choose(answers=False).turns.acquire()
        bad_heals.append(True)
        waits = asyncio.create_task(fails.catch_up(BEGIN_MS + 1000))
        while not pools.choose(answers=False).turns._waiters:
            await asyncio.sleep(0.01)
        await answers.catch_up(BEGIN_MS + 2000)
        assert not bad
        pools.choose(answers=False).turns.release()
        await waits

    bad_heals: list[bool] = []
    asyncio.run(run())
    assert good == [(BEGIN_MS, BEGIN_MS + 1000), (BEGIN_MS + 1000, BEGIN_MS + 2000)]
    assert bad == [(BEGIN_MS, BEGIN_MS + 1000)]


def test_clouds_that_hang_hold_up_nothing_else() -> None:
    """However many of them there are, threads are left for what the server does besides."""
    ends = threading.Event()

    class HangingMetrics:
        settled_s = 0.0
        step_ms = 1000
        lacking = ""

        def read(self, _from_ms: int, _to_ms: int) -> list[CloudSeries]:
            assert ends.wait(LONGEST_S)
            return []

    async def run() -> None:
        async def take(_answer: bytes, _from_ms: int, _to_ms: int) -> None: ...

        pulls = [CloudPull(f"cloud {number}", HangingMetrics(), 60.0, BEGIN_MS, take) for number in range(50)]
        reading = [asyncio.create_task(pull.catch_up(BEGIN_MS + 1000)) for pull in pulls]
        await asyncio.sleep(0)
        assert await asyncio.to_thread(lambda: "done") == "done"
        assert not any(task.done() for task in reading)
        ends.set()
        await asyncio.gather(*reading)
        assert all(pull.status.status == "ok" for pull in pulls)

    asyncio.run(run())
