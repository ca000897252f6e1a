"""Bad requests to `loadfactor up`: a clear status, nothing stored, bounded memory, and the next request is served."""

import gzip
import json
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from tests.live.scrapes import Fleet
from tests.live.test_kills import NO_CONTENT, ROUNDS
from tests.live.up_process import UpProcess
from tests.sources.prometheus.sender import SentSeries, pack_request, pack_snappy, pack_varint
from tests.waiting import LONGEST_S

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.interfaces.server.run import LEAST_FILES

BEGAN_MS = int(time.time() * 1000) // MS_PER_HOUR * MS_PER_HOUR - 2 * MS_PER_HOUR
LABEL_VALUES = 1_000_000 if ROUNDS >= 200 else 50_000
MIB, GIB = 1 << 20, 1 << 30
MOST_RSS = 2 * GIB


def read_rss(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    """One server for all of it."""
    with UpProcess(tmp_path_factory.mktemp("bad") / "books") as server:
        yield server


@pytest.fixture(autouse=True)
def alive(up: UpProcess) -> Iterator[None]:
    """After every test it answers, within its memory."""
    yield
    assert up.ask("/health")["status"] in ("ok", "degraded")  # what was refused or skipped may be missed by somebody
    assert up.process
    assert read_rss(up.process.pid) < MOST_RSS


GPU = {"__name__": "DCGM_FI_DEV_GPU_TEMP", "gpu": "0", "UUID": "GPU-1", "Hostname": "n", "job": "dcgm"}
GOOD = pack_request([SentSeries(GPU, [(BEGAN_MS, 40.0)])])
BAD = {
    "no snappy": b"\xff" * 100,
    "empty": b"",
    "text": b"<html>hello</html>",
    "cut off": GOOD[: len(GOOD) // 2],
    "snappy of noise": pack_snappy(random.Random(1).randbytes(1000)),
    "says four gigabytes": pack_varint(2**32 - 1) + b"\x00" * 100,
    "unpacks to a gigabyte": pack_varint(GIB) + b"\xfe\xff\xff" * 1000,
    "a length beyond the end": pack_snappy(b"\x0a\xff\xff\xff\x7f"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_refused(up: UpProcess, name: str) -> None:
    """With 400, or 413 where it is too large."""
    if name == "empty":
        assert up.write(BAD[name]) in (400, NO_CONTENT)  # a request without series is none that is wrong
    else:
        assert up.write(BAD[name]) in (400, 413)


def test_odd_series_are_notes_and_a_refused_request_degrades_the_server(up: UpProcess) -> None:
    """An odd series next to others is answered 204; /health names it as a note, /metrics counts it by reason."""
    week_ms = int(time.time() * 1000) + 7 * 24 * MS_PER_HOUR
    odd = [
        SentSeries({**GPU, "x": "y" * MIB}, [(BEGAN_MS, 1.0)]),
        SentSeries({**GPU, **{f"l{i}": "v" for i in range(1000)}}, [(BEGAN_MS, 1.0)]),
        SentSeries({"__name__": "kube_node_labels", **{f"l{i}": "v" for i in range(2000)}}, [(BEGAN_MS, 1.0)]),
        SentSeries({"job": "x"}, [(BEGAN_MS, 1.0)] * 2),
        SentSeries({**GPU, "gpu": "1"}, [(2**62, 1.0), (0, 1.0)]),
    ]
    assert up.write(pack_request(odd)) == NO_CONTENT
    assert up.write(pack_request([SentSeries(GPU, [(week_ms, 1.0)])])) == NO_CONTENT  # held until then
    assert up.write(b"no request") == 400
    lines = httpx.get(f"{up.url}/metrics", timeout=LONGEST_S).text.splitlines()
    start = "loadfactor_server_skipped_total{"
    counted = {line.split('"')[1]: float(line.split()[-1]) for line in lines if line.startswith(start)}
    assert counted == {"long_labels": 1, "many_labels": 1, "no_name": 2, "no_instant": 2}
    (source,) = [source for source in up.ask("/health")["sources"] if source["name"] == "remote_write"]
    assert source["status"] == "degraded"
    for words in ("hours ahead", "a request was refused"):
        assert words in source["error"]
    notes = [reason["cause"] for reason in up.ask("/health")["reasons"] if reason["severity"] == "note"]
    for words in ("with longer labels than are read", "DCGM_FI_DEV_GPU_TEMP{"):
        assert any(words in note for note in notes), notes
    assert not any("without a name" in note for note in notes)  # no decoder reads such series


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_of_a_gigabyte_is_refused_before_it_is_there(up: UpProcess, chunked: bool) -> None:
    """413, long before the end."""
    head = "POST /api/v1/write HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Encoding: snappy\r\n"
    head += "Transfer-Encoding: chunked\r\n\r\n" if chunked else f"Content-Length: {GIB}\r\n\r\n"
    piece = b"100000\r\n" + bytes(MIB) + b"\r\n" if chunked else bytes(MIB)
    with socket.create_connection(("127.0.0.1", up.port), timeout=LONGEST_S) as s:
        s.sendall(head.encode())
        for _ in range(64):
            s.sendall(piece)
        assert s.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.long
def test_a_gzip_bomb_is_refused(up: UpProcess) -> None:
    """An upload that unpacks to nine gigabytes gets 413."""
    bomb = gzip.compress(bytes(64 * MIB)) * 144
    question = {"source": "tables", "filename": "samples.csv.gz"}
    answer = httpx.post(f"{up.url}/api/v1/imports", params=question, content=bomb, timeout=2 * LONGEST_S)
    assert answer.status_code == 413, answer.text


@pytest.mark.long
def test_many_label_values_fill_no_memory(up: UpProcess) -> None:
    """Series that come once each, of metrics that nobody understands, are taken or refused, and not remembered for ever."""
    assert up.process
    for first in range(0, LABEL_VALUES, 10_000):
        some = [
            SentSeries({"__name__": "http_requests", "path": f"/{i}"}, [(BEGAN_MS, 1.0)])
            for i in range(first, first + 10_000)
        ]
        assert up.write(pack_request(some)) in (NO_CONTENT, 413, 429)
    assert up.ask("/health")["lag_s"] >= 0


def test_what_is_no_http_is_a_line_of_the_log(up: UpProcess) -> None:
    """The log is JSON, what libraries write of themselves too."""
    with socket.create_connection(("127.0.0.1", up.port), timeout=LONGEST_S) as there:
        there.sendall(b"hello\r\n\r\n")
        while there.recv(1000):
            pass
    lines = [line for line in up.log.read_text().splitlines() if "Invalid HTTP" in line]
    assert [json.loads(line)["message"] for line in lines] == ["Invalid HTTP request received."]


def test_nothing_of_all_that_was_stored(up: UpProcess) -> None:
    """No sample is in the books after what came so far."""
    up.wait_until_booked()
    assert Books.open(up.store, create=True).table("samples").count().execute() == 0


@pytest.mark.long
def test_ninety_six_files_are_enough(tmp_path: Path) -> None:
    """Beside connections that wait, with as few open files as may be: what is acknowledged is kept, and questions are answered."""
    with UpProcess(tmp_path / "books", within=("prlimit", f"--nofile={LEAST_FILES}")) as server, ExitStack() as idle:
        for n in range(100):
            there = idle.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            there.sendall(b"GET / HTTP/1.1\r\n")
            gpu = GPU | {"UUID": f"GPU-{n}"}
            assert server.write(pack_request([SentSeries(gpu, [(BEGAN_MS, 40.0)])])) == NO_CONTENT
            assert server.ask("/health")["status"] == "ok"
        server.wait_until_booked()
        assert len(server.readings("paid_gpu_hours", "device")) == 100


@pytest.mark.long
def test_fewer_files_are_one_line(tmp_path: Path) -> None:
    """The server does not begin what it could not go on with."""
    with pytest.raises(AssertionError, match="at most 48 files may be open, and at least 96 are needed"):
        UpProcess(tmp_path / "books", within=("prlimit", "--nofile=48")).start()


def test_duplicates_and_disorder_count_once(up: UpProcess) -> None:
    """Scrapes that come twice, mixed and backwards are taken, and each sample is in the books once."""
    fleet = Fleet(BEGAN_MS, gpus=4)
    order = [k for k in range(40) for _ in range(2)]
    random.Random(1).shuffle(order)
    bodies = [body for k in order for body in fleet.bodies(k)]
    assert {up.write(body) for body in bodies} == {NO_CONTENT}
    up.wait_until_booked()
    rows = Books(up.store).table("samples").execute().sort_values(["device_id", "to_utc"])
    expected = [(f"GPU-{gpu:08x}-0000-4000-8000-000000000000", fleet.at_ms(k)) for gpu in range(4) for k in range(40)]
    assert list(zip(rows["device_id"], rows["to_utc"], strict=True)) == expected
