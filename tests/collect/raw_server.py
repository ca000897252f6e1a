"""A server of a test that sends bytes as they stand, right or wrong."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

OK = b"HTTP/1.1 200 OK\r\n"
Handler = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def serve(handler: Handler, tls: ssl.SSLContext | None = None) -> int:
    """The port of a server that hands each request's head to `handler`; it ends with the loop."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await handler(await reader.readuntil(b"\r\n\r\n"), reader, writer)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    port: int = server.sockets[0].getsockname()[1]
    return port


def send(*pieces: bytes, ends: bool = True) -> Handler:
    """Answers everything with these bytes, and ends or waits."""

    async def handler(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if not ends:
            await asyncio.sleep(60)

    return handler
