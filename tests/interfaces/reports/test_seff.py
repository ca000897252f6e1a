"""One job in ten lines: by its id in Slurm, from books or a server, with what is not known said, and users who opted out."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.commands import Run
from tests.interfaces.server.conftest import serve

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.collect.http_fetch import FetchError
from loadfactor.interfaces.cli.server_answer import fetch_answer
from loadfactor.interfaces.reports.seff import build_page, build_seff, read_answer
from loadfactor.interfaces.requests import SeffRequest
from loadfactor.settings.config import settings

TABLES = {
    "devices": "device_id,node,accelerator,from_utc,to_utc\n"
    + "".join(f"g{n},n{n // 2},h100-sxm,2026-10-05T00:00Z,2026-10-06T00:00Z\n" for n in range(4)),
    "prices": "basis,price_per_gpu_hour\ncontracted,2\n",
    "allocations": "job_id,job_number,attempt,device_id,user,team,from_utc,to_utc,end_state,tags\n"
    + "".join(
        f'70,70,0,g{n},ann,vision,2026-10-05T01:00Z,2026-10-05T02:00Z,preempted,"{{""job_name"": ""train""}}"\n'
        f'70,70,1,g{n},ann,vision,2026-10-05T03:00Z,2026-10-05T05:00Z,completed,"{{""job_name"": ""train""}}"\n'
        for n in (0, 1)
    )
    + "80_1,81,,g2,bob,vision,2026-10-05T01:00Z,2026-10-05T03:00Z,failed,\n"
    + "80_2,82,,g3,bob,vision,2026-10-05T01:00Z,2026-10-05T02:00Z,completed,\n"
    + "90+0,90,,g2,cyd,speech,2026-10-05T10:00Z,,,\n90+1,91,,g3,cyd,speech,2026-10-05T10:00Z,,,\n",
    "samples": "device_id,to_utc,sm_active_share,mem_used_bytes,mem_total_bytes\n"
    + "".join(
        f"g{n},2026-10-05T{at // 60:02}:{at % 60:02}Z,{0.5 if n == 0 else 0},60,80\n"
        for n in (0, 1)
        for at in range(61, 301)
    ),
    "queue_events": "job_id,at_utc,event,gpus\n99,2026-10-05T04:00Z,submitted,1\n",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of two attempts on two GPUs, one of them idle; two tasks of an array and a het job without samples; one that waits."""
    folder = tmp_path_factory.mktemp("seff")
    for name, text in TABLES.items():
        (folder / f"{name}.csv").write_text(text)
    Books(folder / "books").add("tables", [folder / f"{name}.csv" for name in TABLES])
    return folder / "books"


@pytest.fixture
def opted_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Settings in which everybody whose name begins with b opted out."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loadfactor.toml").write_text('[notices]\nopt_out = ["b*"]\n')
    settings.cache_clear()
    yield
    monkeypatch.undo()
    settings.cache_clear()


def test_a_job_is_said_in_ten_lines(store: Path, run: Run) -> None:
    """Two GPUs for three hours at $2: one half active, one idle, which is the finding; the wait between is not held."""
    code, out, _ = run("seff", "70", "--store", store)
    assert (code, 5 <= len(out.strip().splitlines()) <= 25) == (0, True)
    (job,) = json.loads(run("seff", "70", "--store", store, "--json")[1])["jobs"]
    exact = {
        name: job[name]
        for name in ("name", "user", "team", "state", "attempts", "nodes", "gpus", "wall_s", "gpu_hours")
    }
    assert list(exact.values()) == ["train", "ann", "vision", "completed", 2, 1, 2.0, 10800.0, 6.0]
    known = [
        job[name]
        for name in ("cost", "utilization", "idle_gpu_hours", "idle_cost", "effective_gpu_hours", "mem_utilization")
    ]
    assert known == pytest.approx([12, 0.25, 3, 6, 1.5, 0.75])
    assert job["loss"] == {"name": "idle", "gpu_hours": pytest.approx(3), "cost": pytest.approx(6)}
    for words in (
        "train",
        "ann / vision",
        "completed, 2 attempts",
        "2 × h100-sxm on 1 node",
        "3 h,",
        "25.0 %",
        "$12.00",
        "idle, $6.00",
    ):
        assert words in out, words


@pytest.mark.long
def test_an_array_and_a_het_job_are_their_parts(store: Path, run: Run) -> None:
    """`80` are its tasks, `81` is the raw number of the first, `80_2.batch` a step of the second; without samples that is said."""
    for given, jobs in (("80", ["80_1", "80_2"]), ("81", ["80_1"]), ("80_2.batch", ["80_2"]), ("90", ["90+0", "90+1"])):
        assert [of["job"] for of in json.loads(run("seff", given, "--store", store, "--json")[1])["jobs"]] == jobs
    out = run("seff", "80", "--store", store)[1]
    assert "Job 80: 2 parts, 3 GPU-hours, $6.00." in out
    out = run("seff", "80_1", "--store", store)[1]
    assert "nothing was sampled while it held GPUs" in out
    assert "running" in run("seff", "90+0", "--store", store)[1]
    assert "loadfactor waits --job 99" in run("seff", "99", "--store", store)[2].replace("\n", " ")
    code, _, err = run("seff", "7", "--store", store)
    assert (code, err.count("\n"), "no job called '7'" in err) == (2, 1, True)


@pytest.mark.long
@pytest.mark.usefixtures("opted_out")
def test_a_notice_leaves_out_who_opted_out_and_never_fails(store: Path, run: Run) -> None:
    """Bob's job prints nothing as a notice, and all of it else; a job that nobody knows prints nothing; ann's has no commands."""
    assert run("seff", "80_1", "--notice", "--store", store) == (0, "", "")
    assert "bob" in run("seff", "80_1", "--store", store)[1]
    assert run("seff", "7", "--notice", "--store", store)[:2] == (0, "")
    code, out, _ = run("seff", "70", "--notice", "--store", store)
    assert (code, "idle, $6.00" in out, "loadfactor" in out) == (0, True, False)


@pytest.mark.long
def test_a_server_says_the_same(store: Path) -> None:
    """The page from a server is that of its books, and so is the answer in Python."""
    with serve(Books(store)) as client:
        request = SeffRequest(job="70", server="http://127.0.0.1")
        answer = read_answer(fetch_answer("/api/v1/seff", "jobs", {"job": "70"}, None, client))
        page = build_seff(answer, request)
        assert page == build_seff(build_page(SeffRequest(job="70", store=store)).data, request)
        assert loadfactor.seff(job="70", store=store).data == answer
        assert client.get("/api/v1/seff?job=7").status_code == 400


def answer_always(status: int, body: str) -> httpx.Client:
    """A client whose server answers everything like this."""
    return httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(status, text=body)))


@pytest.mark.parametrize(
    ("status", "body", "kind", "line"),
    [
        (401, '{"error": "a token is needed"}', FetchError, "http://s: a token is needed; give a token that may read"),
        (400, '{"error": "no job called 7"}', InputError, "http://s: no job called 7"),
        (200, "<html>", FetchError, "http://s does not answer as `loadfactor up` does"),
        (200, '{"rows": []}', FetchError, "http://s: OK"),
    ],
)
def test_server_that_refuses_is_said_in_one_line(status: int, body: str, kind: type[Exception], line: str) -> None:
    """401 asks for --token-file; a page of something else is no answer of `loadfactor up`."""
    with pytest.raises(kind, match=line) as refused:
        fetch_answer("http://s/api/v1/seff", "jobs", {"job": "7"}, None, answer_always(status, body))
    assert "\n" not in str(refused.value)
