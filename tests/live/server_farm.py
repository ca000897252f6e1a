"""Any number of servers on one port, good and bad as their path says: /good/…, /never/…, /drip/…, /html/…, /wrong/…, /endless/…,
/turns/…. What the good ones answer is for the test to say; `answer_range` is a Prometheus.
"""

import asyncio
import json
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from types import TracebackType
from urllib.parse import parse_qs

STEP_S = 5
PIECE = b"[" * 65_536


Question = dict[str, list[str]]
Answer = Callable[[str, Question], bytes]
"""Given the name behind the kind in the path, and the fields of the body."""


class ServerFarm:
    """Serves until it is left. `asked`: when each path was asked; `healed`: kinds that are good from now on."""

    def __init__(self, answer: Answer) -> None:
        self._good = answer
        self.asked: dict[str, list[float]] = defaultdict(list)
        self.kinds: Counter[str] = Counter()
        self.healed: set[str] = set()
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "ServerFarm":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.1))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                size = re.search(r"content-length: (\d+)", head, re.I)
                question = parse_qs((await reader.readexactly(int(size[1]) if size else 0)).decode())
                _, kind, name, *_ = head.split(" ", 2)[1].split("/")
                self.asked[f"{kind}/{name}"].append(time.monotonic())
                self.kinds[kind] += 1
                await self._answer("good" if kind in self.healed else kind, name, question, writer)
        writer.close()

    async def _answer(self, kind: str, name: str, question: Question, writer: asyncio.StreamWriter) -> None:
        start = f"HTTP/1.1 200 OK\r\nDate: {formatdate(usegmt=True)}\r\n"
        if kind == "never":
            await asyncio.sleep(3600)
        elif kind == "drip":
            writer.write(f"{start}Content-Length: 100000\r\n\r\n".encode())
            while True:
                writer.write(b"{")
                await writer.drain()
                await asyncio.sleep(1)
        elif kind == "endless":
            writer.write(f'{start}Connection: close\r\n\r\n{{"status":"success","data":'.encode())
            while True:
                writer.write(PIECE)
                await writer.drain()
        content = {
            "html": b"<html>no</html>",
            "turns": b"<html>no</html>",
            "wrong": b'{"status":"success","data":[{"a":1}]}',
        }.get(kind)
        if content is None:
            content = self._good(name, question)
        writer.write(f"{start}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        await writer.drain()


def answer_range(name: str, question: Question) -> bytes:
    """The samples that a good server has in the time it is asked for: one GPU, every five seconds."""
    end = float(question["time"][0])
    length = int(re.search(r"\[(\d+)ms\]", question["query"][0])[1]) / 1000  # type: ignore[index]
    first = int((end - length) // STEP_S + 1)
    times = [at for k in range(first, int(end // STEP_S) + 1) if end - length < (at := k * STEP_S) <= end]
    labels = {"gpu": "0", "UUID": f"GPU-{name}", "Hostname": f"node-{name}", "job": "dcgm"}
    result = [
        {"metric": {"__name__": metric, **labels}, "values": [[at, value] for at in times]}
        for metric, value in (("DCGM_FI_DEV_GPU_UTIL", "50"), ("DCGM_FI_DEV_FB_USED", "1000"))
        if times
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
