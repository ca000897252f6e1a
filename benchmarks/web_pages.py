"""How dear is a page? Processor time of `loadfactor serve` for each page of 1,024 GPUs × 30 days, and 50 readers at once.

`page_cpu_s_max` is that of the dearest page, worked out anew over books whose questions are warm, each the least of some rounds;
`page_written_cpu_s_max` that of the first reader after something was imported (of `/quality` with the check of the books),
`page_kept_cpu_s_max` of a reader after that, `first_page_cpu_s` all from the start of the process to its first page.
`page_bytes_gz_max` is the largest page as it is sent, `heat_bytes` the heat map, `script_bytes_gz` all scripts. `readers_wrong`
counts answers to 50 readers at once, beside a writer that imports all the time, that fail, end early, or differ from another of
the same ETag.
"""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from gzip import compress
from pathlib import Path

import httpx

from benchmarks.questions import make_books
from loadfactor import simulator as simulated
from loadfactor.books.books import Books
from loadfactor.interfaces.web.frame import SCRIPTS
from loadfactor.interfaces.web.pages import CHECK, PAGES
from loadfactor.metrics.query.calendar import milliseconds

NAME = "pages"
READERS, ROUNDS = 50, 3
OF_BOOKS = [page.path for page in PAGES if "{" not in page.path and page.answer in ("", CHECK)]
"""Pages that questions answer; the others show what was made beside them."""
BEING_MADE = 'http-equiv="refresh"'
SERVE = "from loadfactor.interfaces.cli import main; main()"


def run(quick: bool) -> dict[str, float]:
    """All figures; `quick` takes 64 GPUs × 7 days."""
    with tempfile.TemporaryDirectory() as name:
        books = make_books(Path(name) / "books", simulated.bench(*((64, 7, 60) if quick else (1024, 30, 30))))
        return measure_pages(books, Path(name))


def measure_pages(books: Books, folder: Path) -> dict[str, float]:
    """The figures of pages of these books; what is imported meanwhile lies in a folder."""
    with books.snapshot() as snapshot:
        team = next(str(key[0]) for key in snapshot.show("cost", "team").arrange("cost", True).keys if key[0])
    paths = [*OF_BOOKS, f"/teams/{team}"]
    writer = _Writer(books, folder)
    with _serve(books.store.folder) as (address, pid):
        client = httpx.Client(base_url=address, headers={"accept": "text/html"}, timeout=600)
        client.get("/")
        first = _read_cpu_s(pid)
        found = {}
        for path in paths:
            found[path] = written, anew, kept, size = _measure(client, pid, path, writer)
            print(
                f"  {path:24s} {anew:6.2f} CPU s, after a write {written:6.2f}, kept {kept:6.2f}, {size:8,d} bytes",
                flush=True,
            )
        heat, scripts = (
            _weigh(client, "/gpus?format=cells"),
            sum(len(compress(client.get(script).content)) for script in SCRIPTS),
        )
        wrong = _count_wrong(address, paths, writer)
    return {
        "first_page_cpu_s": first,
        "page_written_cpu_s_max": max(written for written, _, _, _ in found.values()),
        "page_cpu_s_max": max(anew for _, anew, _, _ in found.values()),
        "page_kept_cpu_s_max": max(kept for _, _, kept, _ in found.values()),
        "page_bytes_gz_max": max(size for _, _, _, size in found.values()),
        "heat_bytes": heat,
        "script_bytes_gz": scripts,
        "readers_wrong": wrong,
    }


class _Writer:
    """Imports another event of the queue each time: of the last instant, so that nothing is booked again."""

    def __init__(self, books: Books, folder: Path) -> None:
        self._books, self._folder, self._number = books, folder / "more", 0
        self._folder.mkdir()
        self._at_ms = milliseconds(books.span[1]) - 1

    def write(self) -> None:
        """The books go on."""
        self._number += 1
        events = f"job_id,at_utc,event,gpus\nanother-{self._number},{self._at_ms},submitted,1\n"
        (self._folder / "queue_events.csv").write_text(events, encoding="utf-8")
        self._books.add("tables", [self._folder])


@contextmanager
def _serve(store: Path) -> Iterator[tuple[str, int]]:
    """The address and the process of a server of these books."""
    command = [sys.executable, "-c", SERVE, "serve", "--store", str(store), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=store.parent) as process:
        assert process.stderr
        line = process.stderr.readline()
        threading.Thread(target=process.stderr.read, daemon=True).start()  # its log
        try:
            yield line.partition(" are at ")[2].partition("/;")[0], process.pid
        finally:
            process.terminate()


def _read_cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _measure(client: httpx.Client, pid: int, path: str, writer: _Writer) -> tuple[float, float, float, int]:
    """Processor seconds of a page after a write, worked out anew, and of the same kept; its bytes as they are sent."""
    writer.write()
    before = _read_cpu_s(pid)
    while BEING_MADE in client.get(path).raise_for_status().text:
        pass
    written = _read_cpu_s(pid) - before
    anew: list[float] = []
    kept: list[float] = []
    for number in range(ROUNDS):
        for took in (anew, kept):
            before = _read_cpu_s(pid)
            answer = client.get(path, params={"again": str(number)})  # names that no page knows are another address
            answer.raise_for_status()
            took.append(_read_cpu_s(pid) - before)
    return written, min(anew), min(kept), _weigh(client, path)


def _weigh(client: httpx.Client, path: str) -> int:
    """Bytes of an answer as they are sent."""
    with client.stream("GET", path) as answer:
        return sum(map(len, answer.iter_raw()))


def _count_wrong(address: str, paths: list[str], writer: _Writer) -> int:
    """Answers to readers at once, beside a writer, that are not whole, or not the same as others of their ETag."""
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            writer.write()

    def read(reader: int) -> list[tuple[str, str, bool]]:
        answers = []
        with httpx.Client(base_url=address, headers={"accept": "text/html"}, timeout=600) as client:
            for path in (paths[reader % len(paths)], "/"):
                answer = client.get(path)
                is_whole = answer.status_code == 200 and answer.text.rstrip().endswith("</html>")
                answers.append((path + answer.headers.get("etag", ""), answer.text, is_whole))
        return answers

    writing = threading.Thread(target=write)
    writing.start()
    with ThreadPoolExecutor(READERS) as pool:
        answers = [answer for answers in pool.map(read, range(READERS)) for answer in answers]
    done.set()
    writing.join()
    first: dict[str, str] = {}
    return sum(not is_whole or first.setdefault(tag, text) != text for tag, text, is_whole in answers)
