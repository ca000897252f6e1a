"""Bodies on their way: how many a sender may have, how much of them may lie in memory, and how slowly one may come."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.types import Message, Receive

from loadfactor.base.errors import BusyError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.interfaces.reach import RefusedError
from loadfactor.interfaces.server.guard import Bounds


class Bodies:
    """The bodies that are on their way now. For one event loop; `clock_s` is monotonic."""

    def __init__(self, bounds: Bounds, clock_s: Callable[[], float]) -> None:
        self._bounds, self._clock_s = bounds, clock_s
        self._under_way: Counter[str] = Counter()
        self._held_bytes: Counter[str] = Counter()

    @contextmanager
    def admit(self, sender: str, is_file: bool, receive: Receive) -> Iterator[Receive]:
        """`receive` for a body of this sender, bounded; a body in memory is over with its last piece, a file with its request.

        Raises BusyError where too many are under way, of the sender or of all. What it gives raises BusyError where too much would
        lie in memory, and RefusedError where the body drips.
        """
        bounds, kind = self._bounds, "files" if is_file else "bodies"
        every, own = (bounds.files, bounds.files_of_token) if is_file else (bounds.bodies, bounds.bodies_of_token)
        names = (kind, f"{kind} of {sender}")
        for name, most in zip(names, (every, own), strict=True):
            if self._under_way[name] >= most:
                raise BusyError(f"{most} {kind} are on their way already; send it again later", bounds.retry_after_s)
        self._under_way.update(names)
        began_s, taken, is_over = self._clock_s(), 0, False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._under_way.subtract(names)
                self._held_bytes.subtract(dict.fromkeys(names, 0 if is_file else taken))
                for counter in (self._under_way, self._held_bytes):
                    if not counter[names[1]]:
                        del counter[names[1]]

        async def receive_piece() -> Message:
            nonlocal taken
            if is_over:
                return await receive()
            end_s = began_s + bounds.write_s + taken / bounds.slowest_bytes_per_s
            try:
                async with asyncio.timeout(end_s - self._clock_s()):
                    message = await receive()
            except TimeoutError:
                slowest = f"{bounds.slowest_bytes_per_s:,} bytes a second"
                raise RefusedError(408, f"the body comes more slowly than {slowest}; send less at once") from None
            size = len(message.get("body", b""))
            taken += size
            if not is_file:
                self._held_bytes.update(dict.fromkeys(names, size))
                for name, most in zip(names, (bounds.held_bytes, bounds.held_bytes_of_token), strict=True):
                    if self._held_bytes[name] > most:
                        held = f"{most // BYTES_PER_MIB:,} MiB of bodies that are not whole"
                        raise BusyError(f"{held} lie in memory; send it again later", bounds.retry_after_s)
                if not message.get("more_body", False):
                    end()
            return message

        try:
            yield receive_piece
        finally:
            end()
