"""A running server takes a changed configuration at SIGHUP, says what waits for its next start, and nothing of a wrong one."""

import json
import shutil
import signal
import socket
import ssl
import subprocess
import time
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import httpx
from tests.commands import Run
from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.up_process import UpProcess

WRONG = '[[alert]]\nname = "gpu_idle_longer"\nfor = "1h"\n'
RECEIVER = '[[alerts.receiver]]\nkind = "webhook"\nname = "here"\nurl = "http://127.0.0.1:9/"\n'
PROXY = """
[server]
trusted_proxies = ["127.0.0.1"]
user_header = "X-User"
groups_header = "X-Groups"
groups = {ops = "read"}
"""


def reload(up: UpProcess) -> dict[str, Any]:
    """SIGHUP; the line that the server logs of it."""
    assert up.process
    before = len(up.log.read_text())
    up.process.send_signal(signal.SIGHUP)

    def read() -> list[dict[str, Any]]:
        lines = [line for line in up.log.read_text()[before:].splitlines(keepends=True) if line.endswith("\n")]
        return [json.loads(line) for line in lines if '"event": "the configuration' in line]

    up.wait_until(read)
    return read()[-1]


def group(name: str, exporter: FakeDcgmExporter) -> str:
    return f'[[dcgm]]\nname = "{name}"\ntargets = ["{exporter.address}"]\nevery = "1s"\n'


def test_a_signal_reloads_what_can_be(tmp_path: Path, run: Run) -> None:
    """Sources come, stay and go, receivers too; a currency waits for the next start, as `check` says; a mistake changes nothing."""
    config = tmp_path / "loadfactor.toml"
    truth = FleetTruth(gpus=2, began_s=time.time())
    with FakeDcgmExporter(truth) as stays, FakeDcgmExporter(truth) as comes:
        config.write_text(group("stays", stays))
        with UpProcess(tmp_path / "books", config=config) as up:
            names = lambda: {one["name"].removeprefix("dcgm ") for one in up.ask("/health")["sources"]}  # noqa: E731
            up.wait_until(lambda: "stays" in names() and stays.answers)
            check = ("check", "--config", config, "--store")
            assert "nothing differs" in " ".join(run(*check, up.store)[1].split())
            assert json.loads(run(*check, tmp_path / "none", "--json")[1])["reload"] is None
            config.write_text(f'currency = "EUR"\n{group("stays", stays)}{group("comes", comes)}{RECEIVER}')
            asked = json.loads(run(*check, up.store, "--json")[1])["reload"]
            assert (asked["taken"], asked["at_start"]) == (["alerts", "dcgm"], ["currency"])
            line = reload(up)
            assert (line["level"], line["taken"], line["at_next_start"]) == (
                "warning",
                ["alerts", "dcgm"],
                ["currency"],
            )
            up.wait_until(lambda: comes.answers and {"stays", "comes"} <= names())
            up.wait_until(lambda: [one["name"] for one in up.ask("/health")["alerts"]["receivers"]] == ["here"])
            config.write_text(WRONG)
            assert (line := reload(up))["level"] == "error"
            assert "gpu_idle_longer" in line["error"]
            assert {"stays", "comes"} <= names()
            config.write_text(group("comes", comes) + PROXY)
            assert reload(up)["taken"] == [
                "alerts", "dcgm", "server.groups", "server.groups_header", "server.trusted_proxies", "server.user_header"
            ]  # fmt: skip
            by = lambda group: {"X-User": "ann", "X-Groups": group}  # noqa: E731
            asked = [httpx.get(f"{up.url}/api/v1/imports", headers=by(of)).status_code for of in ("ops", "others")]
            assert asked == [200, 403]
            config.write_text(group("comes", comes))
            assert "server.trusted_proxies" in reload(up)["taken"]
            up.wait_until(lambda: "stays" not in names())
            assert up.ask("/health")["alerts"]["error"] is None
            assert up.stop() == 0


def test_a_renewed_certificate_is_served(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """To new connections, after a signal; those that are open go on. Files that are no pair change nothing, and the log says so."""
    names = ("cert.pem", "key.pem")
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=renewed -keyout key.new -out cert.new"
    subprocess.run(words.split(), cwd=tmp_path, check=True, capture_output=True)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def put(*sources: Path) -> None:
        for name, source in zip(names, sources, strict=True):
            shutil.copy(source, tmp_path / name)

    def read(path: Path) -> bytes:
        return ssl.PEM_cert_to_DER_cert(path.read_text())

    put(*certificate)
    config = tmp_path / "loadfactor.toml"
    config.write_text("[server]\n" + "".join(f'tls_{name[:-4]} = "{tmp_path / name}"\n' for name in names))
    up = UpProcess(tmp_path / "books", config=config)
    up.url = f"https://127.0.0.1:{up.port}"

    def presented() -> bytes | None:
        with socket.create_connection(("127.0.0.1", up.port)) as raw, trusting.wrap_socket(raw) as connection:
            return connection.getpeercert(binary_form=True)

    with up:
        kept = HTTPSConnection("127.0.0.1", up.port, context=trusting)

        def answers() -> bool:
            kept.request("GET", "/health")
            answer = kept.getresponse()
            return answer.status == 200 and bool(answer.read())

        assert answers()
        first = kept.sock
        assert presented() == read(certificate[0])
        put(tmp_path / "cert.new", tmp_path / "key.new")
        assert reload(up)["level"] == "info"
        assert presented() == read(tmp_path / "cert.new")
        put(certificate[0], tmp_path / "key.new")  # half renewed
        assert "no certificate with its key" in reload(up)["error"]
        assert presented() == read(tmp_path / "cert.new")
        assert answers()
        assert kept.sock is first
        put(*certificate)
        assert reload(up)["level"] == "info"
        assert presented() == read(certificate[0])
        kept.close()
        assert up.stop() == 0
