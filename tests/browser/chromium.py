"""Debian's Chromium through Playwright, which `make browser` installs into .browser-env, and `loadfactor serve` as a process."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import IO, Any

ENVIRONMENT = Path(__file__).parents[2] / ".browser-env"
INSTALLED = [str(folder) for folder in ENVIRONMENT.glob("lib/python*/site-packages")]
SERVE = "from loadfactor.interfaces.cli import main; main()"
ARGUMENTS = (
    "--no-sandbox",  # CI is root
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


def find_chromium() -> str | None:
    """The program."""
    return shutil.which("chromium")


def list_missing() -> list[str]:
    """What these tests lack."""
    missing = [] if find_chromium() else ["chromium (a Debian package)"]
    return missing if INSTALLED else [*missing, ".browser-env (make browser)"]


@contextmanager
def start_chromium() -> Iterator[Any]:
    """A browser of Playwright, which knows no host but this machine."""
    sys.path[:] = [*(p for p in sys.path if p not in INSTALLED), *INSTALLED]  # behind our own packages
    with import_module("playwright.sync_api").sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        yield browser
        browser.close()


def read_axe() -> str:
    """The script of axe-core (MPL-2.0)."""
    (found,) = ENVIRONMENT.glob("lib/python*/site-packages/axe_playwright_python/axe.min.js")
    return found.read_text(encoding="utf-8")


@contextmanager
def serve(store: Path) -> Iterator[str]:
    """`loadfactor serve` of a store on a port of its own; its address."""
    command = [sys.executable, "-c", SERVE, "serve", "--store", store.name, "--listen", "127.0.0.1:0"]
    with (
        tempfile.TemporaryFile("w+") as log,  # no pipe: nobody reads the lines that it writes of every request
        subprocess.Popen(command, stderr=log, cwd=store.parent) as process,
    ):
        try:
            while not (line := read_line(log)):
                assert process.poll() is None
                time.sleep(0.1)
            assert " are at http://" in line, line
            yield line.partition(" are at ")[2].partition("/;")[0]
        finally:
            process.terminate()


def read_line(log: IO[str]) -> str:
    """The first line of a file that somebody writes; empty where it is not whole yet."""
    text = os.pread(log.fileno(), 10_000, 0).decode()
    return text.partition("\n")[0] if "\n" in text else ""


@dataclass
class Heard:
    """What a page does that no page of ours may: messages on the console, errors, and requests to elsewhere."""

    address: str
    found: list[str] = field(default_factory=list)

    def listen(self, page: Any) -> None:
        """Note it of a page, from now on."""
        page.on("console", lambda message: self.found.append(f"{page.url}: {message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.found.append(f"{page.url}: {error}"))
        page.on("request", lambda request: self._note(page, request.url))

    def _note(self, page: Any, url: str) -> None:
        if not url.startswith((f"{self.address}/", "data:", "blob:")):
            self.found.append(f"{page.url} asks for {url}")
