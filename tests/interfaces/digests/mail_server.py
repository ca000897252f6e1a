"""A real SMTP server on loopback that keeps what it took, and refuses what it is told to."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

from aiosmtpd.controller import Controller

from loadfactor.settings.digests import MailServer


class Mailbox:
    """Mails in the order in which they came, with the addresses that the server was told; `answer` is to each."""

    def __init__(self) -> None:
        self.mails: list[tuple[tuple[str, ...], EmailMessage]] = []
        self.answer = "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 (aiosmtpd's name)
        if self.answer.startswith("2"):
            mail = message_from_bytes(envelope.content, policy=default)
            assert isinstance(mail, EmailMessage)
            self.mails.append((tuple(envelope.rcpt_tos), mail))
        return self.answer


@contextmanager
def receive(**more: Any) -> Iterator[tuple[Mailbox, MailServer]]:
    """The mailbox of a server that listens meanwhile, and its table [mail]; `more` is what aiosmtpd takes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mailbox = Mailbox()
    controller = Controller(mailbox, hostname="127.0.0.1", port=port, **more)
    controller.start()
    try:
        yield (
            mailbox,
            MailServer.model_validate({"host": "127.0.0.1", "port": port, "tls": "none", "from": "lf@here.example"}),
        )
    finally:
        controller.stop()
