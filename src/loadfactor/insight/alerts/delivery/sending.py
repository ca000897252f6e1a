"""Sending: a request to a server, or an e-mail to an SMTP server, with what went wrong in a few words and no secret in them."""

import os
import smtplib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, urlsplit

from loadfactor.base.errors import InputError, LoadfactorError, say_why
from loadfactor.base.spelling import spell_out
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.collect.http_fetch import (
    FetchBounds,
    FetchError,
    HttpRequest,
    RequestPool,
    fetch,
    find_proxy,
    read_token,
    write_basic,
)
from loadfactor.collect.prometheus_server import trust_authorities
from loadfactor.settings.alerts import HttpReceiver
from loadfactor.settings.digests import MailServer

_IN_PATHS: Final = "/%:@!$&'()*+,;=~[]?"
_MOST_CHARACTERS: Final = 200
_REFUSED: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)
"""Answers of a server that will not take this payload whenever it comes."""
_FIRST_BAD: Final = 300
_SMTP_PERMANENT: Final = 500


class DeliveryError(LoadfactorError):
    """A receiver did not take what it was sent. `is_final`: it will not take it later either."""

    def __init__(self, message: str, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


@dataclass(frozen=True)
class Sender:
    """A server that is sent requests. The address, which may be a secret, is in no message."""

    receiver: HttpReceiver
    path: str = ""

    async def send(self, body: bytes, headers: Mapping[str, str], pool: RequestPool) -> None:
        """POST a body of JSON. Raises DeliveryError unless the answer is 2xx."""
        timeout_s = self.receiver.timeout.s
        bounds = FetchBounds(BYTES_PER_MIB, timeout_s, timeout_s)
        try:
            answer = await fetch(self._write(body, headers), bounds, pool)
        except (FetchError, InputError) as error:
            raise DeliveryError(str(error)) from error
        if not HTTPStatus.OK <= answer.status < _FIRST_BAD:
            reply = b"" if answer.is_gzip else answer.content
            words = spell_out(" ".join(reply.decode(errors="replace").split()))[:_MOST_CHARACTERS]
            raise DeliveryError(f"answered {answer.status} {words}".strip(), answer.status in _REFUSED)

    def _write(self, body: bytes, headers: Mapping[str, str]) -> HttpRequest:
        """The request. Raises InputError where the address is none, or a file cannot be read."""
        receiver = self.receiver
        try:
            written = receiver.url or (receiver.url_file.read_text().strip() if receiver.url_file else "")
            url = urlsplit(f"{written.rstrip('/')}{self.path}" if self.path else written)
            is_tls = url.scheme == "https"
            port = url.port or (443 if is_tls else 80)
            host = (url.hostname or "").encode("idna").decode()
        except (OSError, ValueError) as error:  # the text of a ValueError may hold the address
            why = f"cannot be read ({say_why(error)})" if isinstance(error, OSError) else "is none"
            raise InputError(f"its address {why}") from error
        if not host or url.scheme not in ("http", "https"):
            raise InputError("its address is none; write https://…")
        all_headers = {"Content-Type": "application/json", **headers, **read_token(receiver.bearer_token_file)}
        if login := write_basic(url):
            all_headers["Authorization"] = login
        path = quote(url.path or "/", safe=_IN_PATHS) + (f"?{quote(url.query, safe=_IN_PATHS)}" if url.query else "")
        tls = _trust(receiver) if is_tls else None
        may_be_local = receiver.allow_local or _names_this_machine(host)
        return HttpRequest(host, port, path, tls, all_headers, body, find_proxy(url), may_be_local)


def _names_this_machine(host: str) -> bool:
    """Whether an address says that it means this machine: whoever wrote it knows, unlike with a name that turns out to be it."""
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def send_email(mail: EmailMessage, receiver: MailServer, password: str | None) -> None:
    """Hand an e-mail to the SMTP server. Raises DeliveryError unless it took it for every reader.

    `password` is that of the environment; the receiver's file comes first.
    """
    try:
        if receiver.password_file is not None:
            password = receiver.password_file.read_text().strip()
        if receiver.user and not password:
            raise DeliveryError("its password is missing; set LOADFACTOR_SMTP_PASSWORD, or password_file")
        with _connect(receiver) as server:
            if receiver.user and password:
                server.login(receiver.user, password)
            refused = server.send_message(mail)
    except smtplib.SMTPResponseException as error:
        reply = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        is_login = isinstance(error, smtplib.SMTPAuthenticationError)
        words = "did not take the password" if is_login else spell_out(" ".join(reply.split()))[:_MOST_CHARACTERS]
        is_final = error.smtp_code >= _SMTP_PERMANENT and isinstance(error, smtplib.SMTPDataError)
        raise DeliveryError(f"answered {error.smtp_code} {words}", is_final) from error
    except smtplib.SMTPRecipientsRefused as error:
        raise DeliveryError(f"does not take mail for {', '.join(map(str, error.recipients))}") from error
    except ssl.SSLError as error:
        raise DeliveryError(f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}") from error
    except OSError as error:
        reply = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise DeliveryError(reply.lower() or "no answer") from error
    except smtplib.SMTPException as error:
        raise DeliveryError(spell_out(str(error))) from error
    if refused:  # the others have it: once more would be twice for them
        raise DeliveryError(f"does not take mail for {', '.join(map(str, refused))}", is_final=True)


def _connect(receiver: MailServer) -> smtplib.SMTP:
    """A connection, encrypted as settings have it."""
    where, timeout_s = (receiver.host, receiver.port), receiver.timeout.s
    if receiver.tls == "tls":
        return smtplib.SMTP_SSL(*where, timeout=timeout_s, context=_trust(receiver))
    server = smtplib.SMTP(*where, timeout=timeout_s)
    if receiver.tls == "starttls":
        try:
            server.starttls(context=_trust(receiver))
        except BaseException:
            server.close()
            raise
    return server


def _trust(receiver: HttpReceiver | MailServer) -> ssl.SSLContext:
    """Whom to believe. Raises InputError where the certificates cannot be read."""
    if receiver.ca_file is None:
        return trust_authorities()
    try:
        return ssl.create_default_context(cafile=receiver.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"its ca_file {receiver.ca_file} cannot be read: {say_why(error)}") from error
