"""Object stores on loopback: S3 as moto answers it in one thread, which is atomic; Azurite; and one that ignores conditions."""

import base64
import hashlib
import hmac
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import httpx
from tests.live.up_process import free_port
from tests.waiting import LONGEST_S, wait_until

AZURITE: Final = Path(__file__).parents[2] / ".azurite-env" / "node_modules" / ".bin" / "azurite-blob"
BUCKET: Final = "books"
MOTO: Final = (
    "import sys; from werkzeug.serving import run_simple; from moto.server import DomainDispatcherApplication, create_backend_app;"
    " run_simple('127.0.0.1', int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)"
)
"""As shipped it answers in threads, and of two conditional puts at once both may be taken."""
# what every Azurite has: https://learn.microsoft.com/azure/storage/common/storage-use-azurite
ACCOUNT: Final = "devstoreaccount1"
KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def serve_s3() -> Iterator[dict[str, str]]:
    """S3 with an empty bucket; the environment that names it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with _running([sys.executable, "-c", MOTO, str(port)], url):
        assert httpx.put(f"{url}/{BUCKET}", timeout=LONGEST_S).is_success
        yield name_s3(url)


def name_s3(url: str) -> dict[str, str]:
    """The environment that names an S3 server."""
    keys = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
    return {**keys, "AWS_ENDPOINT_URL": url}


@contextmanager
def serve_azure(folder: Path) -> Iterator[dict[str, str]]:
    """Azure's blobs with an empty container; the environment that names them."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = [str(AZURITE), "--blobPort", str(port), "--location", str(folder), "--silent", "--skipApiVersionCheck"]
    with _running([*words, "--disableTelemetry"], url):
        at = f"/{ACCOUNT}/{BUCKET}"
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        listed = "".join(f"{name}:{value}\n" for name, value in headers.items())
        signed = hmac.new(
            base64.b64decode(KEY),
            f"PUT{12 * chr(10)}{listed}/{ACCOUNT}{at}\nrestype:container".encode(),
            hashlib.sha256,
        )
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signed.digest()).decode()}"
        made = httpx.put(f"{url}{at}?restype=container", headers=headers, timeout=LONGEST_S)
        assert made.is_success, made.text
        names = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY}
        yield {**names, "AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url}


@contextmanager
def serve_careless() -> Iterator[dict[str, str]]:
    """An S3 that takes every put, whatever its conditions; the environment that names it."""
    server = HTTPServer(("127.0.0.1", 0), _Careless)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield name_s3(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()


class _Careless(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        """Takes it."""
        self._answer(200)

    def do_POST(self) -> None:
        """Removes nothing, and says that it did."""
        self._answer(200, b"<DeleteResult><Deleted><Key>any</Key></Deleted></DeleteResult>")

    def do_GET(self) -> None:
        """Has nothing."""
        empty = b"<ListBucketResult><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"
        self._answer(200, empty) if "list-type" in self.path else self._answer(404)

    def _answer(self, code: int, body: bytes = b"") -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(code)
        self.send_header("ETag", '"always"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:  # type: ignore[override]
        """Says nothing."""


@contextmanager
def _running(command: list[str], url: str) -> Iterator[None]:
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ)
    ) as process:
        try:
            wait_until(lambda: _answers(url) or process.poll() is not None)
            assert process.poll() is None, f"{command[0]} ended"
            yield
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        httpx.get(url, timeout=LONGEST_S)
    except httpx.TransportError:
        return False
    return True
