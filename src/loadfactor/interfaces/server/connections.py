"""Connections before a request is there: bounds of heads, of what surrounds bodies, of time and of number, kept as bytes arrive.

A connection waits while no request of it is served: its head is not whole, or the next one has not begun. Where too many wait, the
one that has waited longest is closed, so that who sends a whole request is served beside any number that never do.
"""

import asyncio
import json
import resource
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from loadfactor.interfaces.server.guard import Bounds

LINGER_S: Final = 0.5
"""How long a connection that was refused stays, so that its client reads why."""


class Waiting:
    """The connections that wait, and the bounds of all. For one event loop."""

    def __init__(self, bounds: Bounds, trusts: Callable[[str], bool]) -> None:
        """`trusts`: whether an address is of a proxy, which connects for many."""
        self.bounds, self._trusts = bounds, trusts
        self.most = min(bounds.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 3)
        self.open: set[Connection] = set()
        self._all: dict[Connection, None] = {}  # both in the order in which they began to wait
        self._of_peer: dict[str, dict[Connection, None]] = defaultdict(dict)

    def add(self, connection: "Connection") -> None:
        """Have a connection wait; the oldest of its peer gives way where too many do."""
        own = self._of_peer[connection.peer]
        if len(own) >= self.bounds.waiting_of_peer and not self._trusts(connection.peer):
            next(iter(own)).leave()
        self._all[connection] = self._of_peer[connection.peer][connection] = None

    def remove(self, connection: "Connection") -> None:
        """Have it wait no more."""
        if connection in self._all:
            del self._all[connection]
            own = self._of_peer[connection.peer]
            del own[connection]
            if not own:
                del self._of_peer[connection.peer]

    def give_way(self) -> bool:
        """Close the one that has waited longest; False where none waits."""
        oldest = next(iter(self._all), None)
        if oldest is not None:
            oldest.leave()
        return oldest is not None


class Connection(HttpToolsProtocol):
    """A connection whose every part is bounded before the gate sees a request."""

    def __init__(self, waiting: Waiting, **given: Any) -> None:
        super().__init__(**given)
        self._waiting, self._bounds = waiting, waiting.bounds
        self.peer = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._unread_deadline: asyncio.TimerHandle | None = None
        self._in_head, self._loose_bytes, self._head_bytes, self._head_lines = True, 0, 0, 0
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = self.client[0] if self.client else ""
        if len(self._waiting.open) >= self._waiting.most and not self._waiting.give_way():
            self._refuse(503, "the server has as many connections as it may; connect again a little later")
            return
        self._waiting.open.add(self)
        self._wait()
        self._limit_time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_room()
        self._drop_unread_deadline()
        super().connection_lost(exc)

    def leave(self) -> None:
        """Close at once, as another one needs the place."""
        self._leave_room()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_refused or self.transport.is_closing():
            return
        self._loose_bytes += len(data)
        if self._in_head and self._deadline is None and self.cycle_is_over:
            self._limit_time()
        super().data_received(data)
        if self._loose_bytes > self._bounds.header_bytes:
            if self._in_head and self._head_lines == 0 and len(getattr(self, "url", b"")) > self._bounds.url_bytes:
                self._refuse(414, f"the address is longer than {self._bounds.url_bytes:,} bytes; ask for less at once")
            elif self._in_head:
                self._refuse_head()
            else:
                self._refuse(
                    400, "more stands around the body than belongs there; send it in chunks without extensions"
                )

    @property
    def cycle_is_over(self) -> bool:
        """True where no request is served."""
        return self.cycle is None or self.cycle.response_complete

    # What the parser finds; what is raised here ends its work, and is answered by `send_400_response`.

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes, self._head_lines = True, 0, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        self._head_lines += 1
        if self._head_bytes > self._bounds.header_bytes or self._head_lines > self._bounds.headers:
            self._refuse_head()
            raise ValueError("bounds")
        if self._in_head:  # what trails a body is nobody's header
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._loose_bytes = False, 0
        if len(self.pipeline) >= self._bounds.pipelined:
            self._refuse(429, "more requests at once on one connection than may; wait for an answer")
            raise ValueError("bounds")
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._loose_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._loose_bytes = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle_is_over and not self.transport.is_closing():
            self._wait()
            if not self._in_head:  # answered before its body was there: the rest may come, for a while
                self._limit_time()
        if self.transport.get_write_buffer_size():
            self._limit_unread()

    def send_400_response(self, _msg: str) -> None:
        self._refuse(400, "this is no request of HTTP; speak HTTP/1.1")

    # Answers that nobody reads are given up.

    def pause_writing(self) -> None:
        super().pause_writing()
        self._limit_unread()

    def resume_writing(self) -> None:
        self._drop_unread_deadline()
        super().resume_writing()

    def _limit_unread(self) -> None:
        if self._unread_deadline is None:
            self._unread_deadline = self.loop.call_later(self._bounds.unread_s, self._give_up_unread)

    def _give_up_unread(self) -> None:
        self._unread_deadline = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _drop_unread_deadline(self) -> None:
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
            self._unread_deadline = None

    def _wait(self) -> None:
        self._waiting.remove(self)
        self._waiting.add(self)

    def _stop_waiting(self) -> None:
        self._waiting.remove(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _leave_room(self) -> None:
        self._stop_waiting()
        self._waiting.open.discard(self)

    def _limit_time(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._bounds.head_s, self._refuse_slow)

    def _refuse_slow(self) -> None:
        if self._loose_bytes and self._in_head:
            self._refuse(408, f"no whole request came within {self._bounds.head_s:g} seconds")
        else:
            self.leave()

    def _refuse_head(self) -> None:
        bounds = self._bounds
        self._refuse(431, f"more than {bounds.headers} headers or {bounds.header_bytes:,} bytes of them; send fewer")

    def _refuse(self, status: int, why: str) -> None:
        """Answer, read no more, and close the connection when its client had time to read the answer."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        self._leave_room()
        if self.pipeline or not (self.cycle_is_over or not self.cycle.response_started):
            self.transport.abort()  # the answer to another request has begun, or is due before
            return
        if self.cycle is not None:  # whoever serves it learns that its client is gone
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = json.dumps({"error": why}).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.flow.pause_reading()
        self.loop.call_later(LINGER_S, self.transport.close)
