"""Receivers are not reached where only this machine, its link or its cloud should be, unless settings allow it."""

import asyncio
import socket

import pytest
from tests.insight.alerts.delivery.teller import read_receivers
from tests.live.local_server import LocalServer

from loadfactor.collect.http_fetch import RequestPool, is_local
from loadfactor.insight.alerts.delivery.sending import DeliveryError, Sender
from loadfactor.settings.alerts import HttpReceiver

LOCAL = (
    "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "0.1.2.3", "::", "169.254.169.254", "169.254.1.2", "fe80::1", "fe80::1%eth0",
    "224.0.0.1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "fd00:ec2::254",
    "100.100.100.200",
)  # fmt: skip


class Hook(LocalServer):
    """Keeps the paths it was sent; `redirects`: answers with another place."""

    def __init__(self, redirects: str = "") -> None:
        self.paths: list[str] = []
        self._redirects = redirects

    def respond(self, path: str, _body: str, _headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        self.paths.append(path)
        return (307, {"Location": self._redirects}, b"") if self._redirects else (204, {}, b"")


def send(url: str, **more: object) -> str:
    """Send a message; why it was not taken, empty where it was."""
    (receiver,) = read_receivers({"kind": "webhook", "url": url, "timeout": "60s", **more})
    assert isinstance(receiver, HttpReceiver)
    try:
        asyncio.run(Sender(receiver).send(b"{}", {}, RequestPool()))
    except DeliveryError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("address", LOCAL)
def test_addresses_of_this_machine_and_its_link_are_known(address: str) -> None:
    """Also where they stand in an address of the sixth version."""
    assert is_local(address)


@pytest.mark.parametrize(
    "address", ["10.0.0.7", "192.168.1.2", "93.184.216.34", "2606:2800::1", "fd12::7", "100.64.0.1"]
)
def test_addresses_of_a_company_are_not(address: str) -> None:
    """Receivers mostly stand in a network of one's own."""
    assert not is_local(address)


def test_a_name_that_leads_here_is_refused_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at after it was looked up, each time anew; who writes 127.0.0.1 or localhost means it."""
    found = {"hook.example": "127.0.0.1", "cloud.example": "169.254.169.254", "127.1": "127.0.0.1"}
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *of, **more: look_up(found.get(host, host), *of, **more))
    with Hook() as hook:
        for host in ("hook.example", "127.1"):
            assert "allow_local = true" in send(f"http://{host}:{hook.port}/refused")
        assert "169.254.169.254" in send(f"http://cloud.example:{hook.port}/latest")
        assert "allow_local" in send(f"http://169.254.169.254:{hook.port}/latest")
        assert "allow_local" in send(f"http://[::ffff:127.0.0.1]:{hook.port}/mapped")
        assert hook.paths == []
        assert send(f"http://hook.example:{hook.port}/allowed", allow_local=True) == ""
        assert send(f"{hook.url}/literal") == send(f"http://localhost:{hook.port}/named") == ""
        assert hook.paths == ["/allowed", "/literal", "/named"]


def test_the_address_that_was_looked_at_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is looked up once for a message: one that changes between looking and connecting leads nowhere else."""
    answers = ["10.255.255.1", "127.0.0.1"]  # what a name says first, and what it says then
    reached: list[str] = []

    async def connect(host: str, *_of: object, **_more: object) -> None:
        reached.append(host)
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(asyncio, "open_connection", connect)
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *of, **more: look_up(answers.pop(0), *of, **more))
    assert send("http://rebinds.example:8080/") == "connection refused"
    assert reached == ["10.255.255.1"]


def test_redirects_are_not_followed() -> None:
    """A receiver that answers with another place did not take the message."""
    with Hook() as secret, Hook(f"{secret.url}/secret") as hook:
        assert send(f"{hook.url}/").startswith("answered 307")
        assert secret.paths == []
