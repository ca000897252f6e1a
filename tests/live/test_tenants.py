"""A server of many tenants: each sees its own, none learns of the others, and what one does or suffers stops no other."""

import json
import random
import re
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.live.scrapes import Fleet
from tests.live.up_process import UpProcess
from tests.small_disk import mounted_disk
from tests.waiting import LONGEST_S, wait_until

from loadfactor.store.tokens import Right, create_token
from loadfactor_agent.notices import Notices
from loadfactor_agent.sender import Sender
from loadfactor_agent.spool import Spool
from loadfactor_track.sender import post_records

HTML = {"Accept": "text/html"}
WRITE = "/api/v1/write"
PACKED = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
CONFIG = """
store = "{folder}/administrators"

[[tenant]]
name = "acme"
store = "{folder}/acme"
config = "{folder}/acme.toml"

[[tenant]]
name = "globex"
store = "{folder}/globex"
rows_per_s = 10
series = 40
questions = 1

[[tenant]]
name = "broken"
store = "{folder}/broken"
"""


class Tenants(UpProcess):
    """The server, and a client of each tenant's tokens."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, folder / "loadfactor.toml"
        self.config.write_text(CONFIG.format(folder=folder))
        (folder / "acme.toml").write_text('timezone = "Asia/Tokyo"\n')
        (folder / "broken").mkdir()
        (folder / "broken" / "manifest.json").write_text("{")
        self.tokens = {name: self.make_token(name) for name in ("administrators", "acme", "globex", "broken")}
        super().__init__(folder / "server", config=self.config, names_store=False)

    def make_token(self, name: str, right: Right = "everything") -> str:
        """A token of a tenant."""
        (self.folder / name).mkdir(exist_ok=True)
        return create_token(self.folder / name, right, None, "", 0)[1]

    def call(self, path: str, token: str = "", method: str = "GET", **given: Any) -> httpx.Response:
        """An answer to who has a tenant's token, or none."""
        headers = dict(given.pop("headers", {}))
        headers |= {"Authorization": f"Bearer {self.tokens.get(token, token)}"} if token else {}
        return self._client.request(method, f"{self.url}{path}", headers=headers, timeout=LONGEST_S, **given)

    def send(self, tenant: str, fleet: Fleet, k: int, token: str = "") -> httpx.Response:
        """Send a scrape to a tenant."""
        (body,) = fleet.bodies(k, 1)
        return self.call(f"/t/{tenant}{WRITE}", token or tenant, "POST", content=body, headers=dict(PACKED))

    def reload(self) -> dict[str, Any]:
        """SIGHUP; the line that the server, not a tenant, logs of it."""
        assert self.process
        before = len(self.log.read_text())
        self.process.send_signal(signal.SIGHUP)

        def read() -> list[dict[str, Any]]:
            lines = [
                json.loads(one) for one in self.log.read_text()[before:].splitlines(keepends=True) if one.endswith("\n")
            ]
            return [
                one for one in lines if one.get("event", "").startswith("the configuration") and "tenant" not in one
            ]

        wait_until(read)
        return read()[-1]

    def is_served(self, tenant: str) -> bool:
        """Whether its books are open."""
        return self.call(f"/t/{tenant}/health", tenant).status_code == httpx.codes.OK


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    """The server of three tenants, one of whose books are damaged."""
    with Tenants(tmp_path_factory.mktemp("tenants")) as server:
        wait_until(lambda: server.is_served("acme") and server.is_served("globex"))
        yield server


def test_each_sees_its_own(up: Tenants) -> None:
    """What one sends it reads, and another does not; pages lead to its own pages alone, and its configuration holds."""
    fleet = Fleet(int(time.time() * 1000) - 600_000, gpus=2)
    assert [up.send("acme", fleet, k).status_code for k in range(20)] == [204] * 20
    up.wait_until(lambda: up.call("/t/acme/health", "acme").json()["lag_s"] <= 0)
    wait_until(lambda: len(up.call("/t/acme/api/v1/devices", "acme").json()["devices"]) == 2)
    assert up.call("/t/globex/api/v1/devices", "globex").json()["devices"] == []
    page = up.call("/t/acme/", "acme", headers=HTML).text
    addresses = set(re.findall(r' (?:href|action|src)="(/[^"]*)"', page))
    assert "/t/acme/teams" in addresses
    assert all(one.startswith(("/t/acme/", "/static/")) for one in addresses), addresses
    assert all(up.call(one, "acme").status_code == httpx.codes.OK for one in addresses if one.startswith("/static/"))
    assert 'placeholder="Asia/Tokyo"' in page
    assert 'placeholder="UTC"' in up.call("/t/globex/", "globex", headers=HTML).text
    assert up.call("/t/acme").headers["location"] == "/t/acme/"
    metrics = up.call("/t/acme/metrics", "acme").text
    assert "loadfactor_server_rows_received_total 160" in metrics
    assert "globex" not in metrics
    silence = {"rule": "gpu_idle", "for": "1h", "reason": "x"}
    assert up.call("/t/acme/api/v1/silences", "acme", "POST", json=silence).status_code in (200, 201, 400)


def test_senders_need_the_longer_address_alone(up: Tenants, tmp_path: Path) -> None:
    """The agent's sender, the tracker's and a file that is imported come to the tenant whose address and token they have."""
    url, at_ms = f"{up.url}/t/acme", int(time.time() * 1000)
    begin = {
        "kind": "begin",
        "format": 1,
        "id": "f",
        "job": "j",
        "at": at_ms,
        "run": "r",
        "host": "h",
        "pid": 4,
        "rank": 0,
        "n": 0,
    }
    assert post_records(url, up.tokens["acme"], json.dumps(begin).encode())[0] == 204
    assert post_records(url, up.tokens["globex"], json.dumps(begin).encode())[0] == 404
    price = "basis,price_per_gpu_hour,currency\ncontracted,1,USD\n"
    imports = "/t/acme/api/v1/imports?source=tables&filename=prices.csv"
    assert up.call(imports, "acme", "POST", content=price).status_code == 201
    (tmp_path / "token").write_text(up.tokens["acme"])
    spool = Spool(tmp_path / "spool", 10**8)
    (body,) = Fleet(at_ms - 300_000, gpus=1).bodies(0, 1)
    spool.add(body, 4)
    sender = Sender(url, tmp_path / "token", spool, Notices(lambda _: None))
    sender.start()
    wait_until(lambda: sender.counts.sent_bodies)
    sender.stop(LONGEST_S)
    assert sender.counts.failures == 0


def test_no_one_learns_of_others(up: Tenants) -> None:
    """Who has no token of a tenant is answered as where there is none of that name, by pages, endpoints and refusals alike."""
    paths = [
        "/",
        "/teams",
        "/health",
        "/metrics",
        "/login",
        "/openapi.json",
        "/api/v1/readings?metric=cost",
        "/nothing",
    ]
    for token in ("", "globex", "administrators", "lf_ThisIsNoTokenThatAnybodyHas0123456789"):
        for path in paths:
            for headers in ({}, HTML):
                there, not_there = (
                    up.call(f"/t/{name}{path}", token, headers=dict(headers)) for name in ("acme", "xxxx")
                )
                assert there.status_code == not_there.status_code
                assert there.status_code in ((401, 303) if not token else (404,))
                assert there.text.replace("acme", "xxxx") == not_there.text
                given, other = (
                    {k: v.replace("acme", "xxxx") for k, v in a.headers.items() if k not in ("date", "x-request-id")}
                    for a in (there, not_there)
                )
                assert given == other
        for name in ("acme", "xxxx"):
            answer = up.send(name, Fleet(0), 0, token or "none")
            assert answer.status_code == 404
        for path in ("/", "/api/v1/tenants", "/metrics"):
            assert (up.call(path, token).status_code == 200) == (token == "administrators"), (path, token)
    listed = {one["name"]: one for one in up.call("/api/v1/tenants", "administrators").json()["tenants"]}
    assert sorted(listed) == ["acme", "broken", "globex"]
    assert (listed["acme"]["error"], listed["broken"]["status"]) == (None, "failing")
    assert "acme" in up.call("/", "administrators", headers=HTML).text
    health = up.call("/health")
    assert health.json() == {"status": "degraded", "tenants": 3, "failing": 1}
    assert up.call("/t/acme/", "", headers={"X-Scope-OrgID": "acme"}).status_code == 401


def test_signing_in_finds_the_tenant(up: Tenants) -> None:
    """The one form takes a token and leads to its tenant's pages; the session opens no other's."""
    with httpx.Client(base_url=up.url, headers={**HTML, "Origin": up.url}, timeout=LONGEST_S) as browser:
        to = browser.get("/t/acme/teams?last=1d").headers["location"]
        assert to == "/login?next=%2Ft%2Facme%2Fteams%3Flast%3D1d"
        form = {"token": up.tokens["acme"], "next": "/t/acme/teams?last=1d"}
        signed = browser.post("/login", data=form)
        assert (signed.status_code, signed.headers["location"]) == (303, "/t/acme/teams?last=1d")
        page = browser.get("/t/acme/teams?last=1d")
        assert page.status_code == httpx.codes.OK
        assert browser.get("/t/globex/").headers["location"].startswith("/login")
        assert browser.post("/login", data={**form, "next": "/t/globex/"}).headers["location"] == "/t/acme/"
        key = re.search(r'name="form_key" value="([^"]+)"', browser.get("/t/acme/").text)
        assert key
        view = {"form_key": key[1], "address": "/teams?last=7d", "name": "week"}
        assert browser.post("/t/acme/views", data=view).headers["location"] == "/t/acme/views"
        assert 'href="/t/acme/teams?last=7d"' in browser.get("/t/acme/views").text
        assert browser.post("/t/acme/logout", data={"form_key": key[1]}).headers["location"] == "/login"
        assert browser.get("/t/acme/").status_code == 303


def test_damage_of_one_stops_no_other(up: Tenants) -> None:
    """Books that cannot be opened are answered with why, to who has their token; mended, they are served."""
    answer = up.call("/t/broken/", "broken")
    assert answer.status_code == 503
    assert "manifest" in answer.json()["error"]
    assert up.is_served("acme")


def test_limits_refuse_and_are_counted(up: Tenants) -> None:
    """Too many rows and series are refused with the limit's name and when to come again; a question of another is answered."""
    wide, fleet = Fleet(int(time.time() * 1000) - 600_000, gpus=11), Fleet(int(time.time() * 1000) - 600_000, gpus=2)
    refused = up.send("globex", wide, 0)  # 44 series
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
    assert "40" in refused.json()["error"]
    assert "series" in refused.json()["error"]

    def flood(k: int) -> httpx.Response:
        return up.send("globex", fleet, k)

    with ThreadPoolExecutor(8) as senders:
        answers = senders.map(flood, range(300))
        asked = [up.call("/t/acme/api/v1/readings?metric=utilization", "acme").status_code for _ in range(10)]
        found = list(answers)
    assert asked == [200] * 10
    statuses = {answer.status_code for answer in found}
    assert statuses == {204, 429}
    late = next(answer for answer in found if answer.status_code == 429)
    assert "rows_per_s" in late.json()["error"]
    assert 1 <= int(late.headers["retry-after"]) <= 60
    metrics = up.call("/metrics", "administrators").text
    counts = {
        m[1]: float(m[2])
        for m in re.finditer(r'loadfactor_server_limited_total\{tenant="globex",limit="(\w+)"\} (\S+)', metrics)
    }
    assert counts["series"] == 1
    assert counts["rows_per_s"] == sum(answer.status_code == 429 for answer in found)
    assert 'loadfactor_server_limited_total{limit="series"} 1' in up.call("/t/globex/metrics", "globex").text


def test_names_in_addresses(up: Tenants) -> None:
    """No address that holds a name written otherwise opens books, is answered by a failure, or makes a file."""
    rnd = random.Random(7)
    before = sorted(path.name for path in up.folder.iterdir())
    pieces = [
        "acme",
        "..",
        ".",
        "%2e%2e",
        "%2f",
        "/",
        "//",
        "\\",
        "%5c",
        "%00",
        "ä",
        "%C3%A4",
        "ACME",
        "acme%20",
        "t",
        "%",
        "%zz",
    ]
    pieces += [
        "'",
        '"',
        "<script>",
        ";",
        "@",
        ":",
        "-",
        "a" * 64,
        "acme.toml",
        "administrators",
        "manifest.json",
        "\u202e",
        "~",
    ]
    for _ in range(400):
        name = "".join(rnd.choices(pieces, k=rnd.randint(1, 4)))
        path = f"/t/{name}{rnd.choice(['', '/', '/health', '/api/v1/imports', '/static/x'])}"
        head = f"{rnd.choice(['GET', 'POST', 'DELETE'])} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        head += f"Content-Length: 0\r\nAuthorization: Bearer {up.tokens['globex']}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", up.port)) as line:
            line.sendall(head.encode())
            status = int(line.makefile("rb").readline().split()[1])
        assert status in (303, 400, 404, 405, 429), (path, status)
    assert "Traceback" not in up.log.read_text()
    assert "traceback" not in up.log.read_text()
    assert sorted(path.name for path in up.folder.iterdir()) == before


@pytest.mark.long
def test_a_full_disk_of_one_stops_no_other(up: Tenants, tmp_path: Path) -> None:
    """Its senders are asked for patience and it is given up and opened again; the process and another tenant go on."""
    text, fleet = up.config.read_text(), Fleet(int(time.time() * 1000) - 600_000, gpus=1)
    own = tmp_path / "own.toml"
    own.write_text('[server]\nexit_after = "1s"\n')
    with mounted_disk(tmp_path / "disk", 24) as disk:
        up.tokens["crowded"] = create_token(disk, "everything", None, "", 0)[1]
        up.config.write_text(f'{text}\n[[tenant]]\nname = "crowded"\nstore = "{disk}"\nconfig = "{own}"\n')
        up.reload()
        up.wait_until(lambda: up.is_served("crowded"))
        assert up.send("crowded", fleet, 0).status_code == 204
        with (disk / "other").open("wb") as file, suppress(OSError):
            while True:
                file.write(bytes(2**20))
        up.wait_until(lambda: up.send("crowded", fleet, 1).status_code == 503)
        up.wait_until(
            lambda: '"event": "a tenant is not served", "error": "' in up.log.read_text().split("crowded", 1)[1]
        )
        assert up.send("acme", fleet, 0).status_code == 204
        (disk / "other").unlink()
        up.wait_until(lambda: up.send("crowded", fleet, 2).status_code == 204)
        up.config.write_text(text)
        assert up.reload()["left"] == ["crowded"]
        up.wait_until(lambda: up.call("/t/crowded/health", "crowded").status_code == 404)


def test_a_signal_brings_and_ends_tenants(up: Tenants) -> None:
    """SIGHUP: a tenant comes, one leaves, limits change, and who stays is served all the while."""
    text = up.config.read_text()
    up.tokens["initech"] = up.make_token("initech")
    up.config.write_text(
        text.replace("rows_per_s = 10", "rows_per_s = 1e6")
        + f'\n[[tenant]]\nname = "initech"\nstore = "{up.folder}/initech"\n'
    )
    assert up.reload()["came"] == ["initech"]
    up.wait_until(lambda: up.is_served("initech"))
    assert up.send("initech", Fleet(int(time.time() * 1000) - 600_000, gpus=1), 0).status_code == 204
    up.config.write_text(text)
    assert up.reload()["left"] == ["initech"]
    assert up.call("/t/initech/health", "initech").status_code == 404
    up.config.write_text(text.replace('name = "globex"', 'name = "acme"'))
    assert "acme" in up.reload()["error"]
    assert up.is_served("globex")
    up.config.write_text(text)
    assert up.process
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(LONGEST_S) == 0
