"""Questions as people type them, and `diagnose`, `waits`, `untagged` and `retag` at the terminal; what cannot be asked."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.books.test_tagging import MAPPING, write_jobs
from tests.commands import Run, make_run

import loadfactor
from loadfactor.books.books import Books
from loadfactor.interfaces.requests import DIMENSIONS as NAMED
from loadfactor.interfaces.requests import BooksRequest
from loadfactor.store.disk import take_lock
from loadfactor.tables.schema import DIMENSIONS


@pytest.fixture
def ask(october: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on the books of three days of eight GPUs: exit code, standard output, standard error."""
    return make_run(capsys, monkeypatch, "--store", october)


def readings(answer: tuple[int, str, str]) -> list[dict[str, object]]:
    code, out, err = answer
    assert (code, err) == (0, "")
    found: list[dict[str, object]] = json.loads(out)
    return found


def test_lists_are_written_with_commas_or_repeated(ask: Run) -> None:
    """`--by a,b`, `--by a --by b` and metrics with commas ask the same; nothing is dropped."""
    once = readings(ask("show", "cost,idle_cost", "--by", "team,day", "--json"))
    again = readings(ask("show", "cost", "idle_cost", "--by", "team", "--by", "day", "--format", "json"))
    assert once == again
    assert set(once[0]["by"]) == {"team", "day"}  # type: ignore[call-overload]
    both = readings(ask("show", "cost", "--where", "team=vision,purpose=training", "--json"))
    assert both == readings(ask("show", "cost", "--where", "team=vision", "--where", "purpose=training", "--json"))


def test_a_comma_in_a_filter_belongs_to_its_value() -> None:
    """A piece without a sign is the rest of the value before it."""
    assert BooksRequest(where="job=a,b,team=c").filters == {"job": "a,b", "team": "c"}  # type: ignore[arg-type]


def test_windows_are_written_as_people_say_them(ask: Run) -> None:
    """A month is its first instant; a length of time ends where the books or the window end."""
    (month,) = readings(ask("show", "cost", "--from", "2026-10", "--to", "2026-11", "--json"))
    assert (month["from"], month["to"]) == ("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z")
    (last,) = readings(ask("show", "cost", "--last", "12h", "--json"))
    assert (last["from"], last["to"]) == ("2026-10-07T18:00:00Z", "2026-10-08T06:00:00Z")
    (before,) = readings(ask("show", "cost", "--last", "1d", "--to", "2026-10-07", "--json"))
    assert (before["from"], before["to"]) == ("2026-10-06T00:00:00Z", "2026-10-07T00:00:00Z")


def test_groups_are_sorted_and_limited(ask: Run) -> None:
    """By a metric or a dimension, either way, as many as asked for."""
    costs = [
        r["value"] for r in readings(ask("show", "cost", "--by", "team", "--sort", "-cost", "--limit", 3, "--json"))
    ]
    assert len(costs) == 3
    assert costs == sorted(costs, reverse=True)  # type: ignore[type-var]
    reverse = [
        r["value"] for r in readings(ask("show", "cost", "--by", "team", "--sort", "cost", "--reverse", "--json"))
    ]
    assert reverse[:3] == costs
    days = [r["by"]["day"] for r in readings(ask("show", "cost", "--by", "day", "--sort", "-day", "--json"))]  # type: ignore[index]
    assert days == sorted(days, reverse=True)


@pytest.mark.parametrize("suffix", [".csv", ".json", ".md", ".html", ".txt"])
def test_an_answer_is_written_by_its_suffix(suffix: str, ask: Run, tmp_path: Path) -> None:
    """`show -o FILE` writes the table or the data; the terminal says where."""
    path = tmp_path / f"answer{suffix}"
    code, out, _ = ask("show", "cost", "--by", "team", "-o", path)
    assert code == 0
    assert str(path) in out.replace("\n", "")
    text = path.read_text()
    assert "vision" in text
    if suffix == ".csv":
        assert {row["team"] for row in csv.DictReader(text.splitlines())} >= {"vision", "speech"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "utilizaton"), "no metric called 'utilizaton'; did you mean 'utilization'?"),
        (("show", "cost", "--by", "tema"), "no dimension called 'tema'; did you mean 'team'?"),
        (("show", "cost", "--where", "team=visoin"), "no team called 'visoin'; did you mean 'vision'?"),
        (("show", "cost", "--where", "taem=vision"), "no dimension called 'taem'; did you mean 'team'?"),
        (("show", "cost", "--basis", "contracts"), "no cost basis called 'contracts'; did you mean 'contracted'?"),
        (("show", "cost", "--format", "jsno"), "no format called 'jsno'; did you mean 'json'?"),
        (("show", "cost", "--by", "team", "--sort", "costs"), "did you mean 'cost'?"),
        (("show", "cost", "--sort", "cost"), "say which with --by"),
        (("show", "cost", "--limit", "0", "--by", "team"), "--limit must be at least 1, got 0"),
        (("show", "cost", "--last", "7 parsecs"), "'7 parsecs' is no length of time; write 90min, 12h, 7d or 4w"),
        (
            ("show", "cost", "--last", "1d", "--from", "2026-10-06"),
            "both say where the window begins; give one of them",
        ),
        (("show", "cost", "--from", "2026-13"), "'2026-13' is no time"),
        (("show", "cost", "--from", "2025-01", "--to", "2025-02"), "they cover 2026-10-05"),
        (("report", "--from", "2027-01"), "they cover 2026-10-05"),
        (("import", "nvidia_smi", "x.csv"), "no source called 'nvidia_smi'; did you mean"),
        (("doctor", "--format", "xml"), "no format called 'xml'"),
    ],
)
def test_a_mistake_gets_the_nearest_on_one_line(words: tuple[str, ...], said: str, ask: Run) -> None:
    """Whatever is mistyped is exit code 2 and one line that helps."""
    code, out, err = ask(*words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.long
def test_doctor_exits_with_1_where_the_books_do_not_balance(ask: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer "no" is exit code 1, in any format."""
    from loadfactor.books.check import Balance

    assert ask("doctor")[0] == 0
    monkeypatch.setattr(Balance, "holds", property(lambda _: False))
    assert ask("doctor")[0] == ask("doctor", "--json")[0] == 1


def test_the_help_names_every_dimension() -> None:
    """What `--by --help` lists is what a question can be split by."""
    assert NAMED.split(", ") == list(DIMENSIONS)


@pytest.mark.long
@pytest.mark.parametrize("asked", [(), ("utilization", "--by", "team"), ("utilization", "--from", "2026-10-05T09:30")])
def test_a_question_imports_nothing_that_it_does_not_ask(asked: tuple[str, ...], ask: Run, october: Path) -> None:
    """Booked hours are answered without what writes, compiles, draws charts, opens connections or reads live batches."""
    assert ask("show", *asked)[0] == 0  # its SQL is compiled now
    needless = (
        *("ibis", "pandas", "pyarrow", "numba", "matplotlib", "plotext", "sqlglot", "loadfactor.books.writing"),
        *(f"loadfactor.store.{name}" for name in ("writer", "live", "live_rows", "importing", "compaction", "repair")),
        *("loadfactor.books.check", "loadfactor.interfaces.charts.terminal", "loadfactor.sources", "urllib.request"),
        "loadfactor.books.charging.bridge",
    )
    assert list_imported(needless, "show", *asked, "--store", str(october)) == "[]\n"


@pytest.mark.long
@pytest.mark.parametrize("asked", [("savings",), ("diagnose",), ("report", "--why")])
def test_what_was_compiled_before_is_asked_without_the_compiler(
    asked: tuple[str, ...], ask: Run, october: Path
) -> None:
    """Levers, diagnoses and reports read SQL that is kept; importing what writes it takes longer than most of their answers."""
    assert ask(*asked)[0] == 0
    assert list_imported(("ibis", "sqlglot", "matplotlib", "pandas"), *asked, "--store", str(october)) == "[]\n"


@pytest.mark.long
@pytest.mark.parametrize("asked", [("report", "--job", "481776"), ("seff", "481776"), ("doctor",)])
def test_arrow_is_used_without_pandas(asked: tuple[str, ...], october: Path) -> None:
    """Arrow imports pandas for its first array where it is installed, in a third of a second; no parameter of SQL does either."""
    assert list_imported(("pandas",), *asked, "--store", str(october)) == "[]\n"


@pytest.mark.long
def test_arrow_without_pandas_gives_a_data_frame_to_who_asks() -> None:
    """After commands were begun, Arrow makes data frames and reads series of pandas, as ever."""
    program = (
        "from loadfactor.interfaces.cli.arrow_alone import leave_pandas_out; leave_pandas_out(); import sys\n"
        "import pyarrow as pa; table = pa.table({'a': [1, None]}); assert 'pandas' not in sys.modules\n"
        "print(table.to_pandas().a.tolist(), pa.array(sys.modules['pandas'].Series([1.5, float('nan')])).to_pylist())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[1.0, nan] [1.5, None]\n"


@pytest.mark.long
def test_pandas_before_arrow_is_there_whole() -> None:
    """A command whose first import of the two is pandas: it imports Arrow, which then finds half of a pandas."""
    program = (
        "from loadfactor.interfaces.cli.arrow_alone import leave_pandas_out; leave_pandas_out()\n"
        "import pandas; print(pandas.Series([1.5]).convert_dtypes(dtype_backend='pyarrow').dtype)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "double[pyarrow]\n"


def list_imported(names: tuple[str, ...], *words: str) -> str:
    """Which of these modules a command imports, as a list in text."""
    program = (
        "import sys; from loadfactor.interfaces.cli import main\n"
        "try: main()\n"
        f"finally: print(sorted(set({names!r}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


TRACE = Path(__file__).resolve().parents[3] / "examples" / "trace.json"
PROMISED = {
    *("trace", "rank", "device", "gpu_span_us", "busy_us", "idle_us", "compute_us", "comm_us", "comm_exposed_us"),
    *("memcpy_exposed_us", "memset_exposed_us", "idle_host_us", "idle_launch_us", "idle_device_us", "idle_unknown_us"),
    *("kernels", "can_judge"),
}


def test_json_has_what_was_promised(run: Run) -> None:
    """Every name of the contract is there; the example waits 90 of 129.99 ms for its data."""
    code, out, _ = run("diagnose", TRACE, "--format", "json")
    found = json.loads(out)
    (trace,) = found["traces"]
    assert code == 0
    assert set(trace) >= PROMISED
    assert (trace["trace"], trace["rank"], trace["device"], trace["can_judge"]) == ("trace.json", 0, 0, True)
    first = found["findings"][0]
    assert {"cause", "class", "share", "sureness", "evidence", "action"} <= set(first)
    assert (first["cause"], first["class"], round(first["share"], 3)) == ("input_pipeline", "I/O", 0.692)


def test_the_page_says_the_cause_first(run: Run) -> None:
    """A person reads the largest cause on top, and what to do."""
    code, out, _ = run("diagnose", TRACE)
    assert code == 0
    assert out.startswith("The GPU waits for data 69 % of the time; look at the data loader.")
    assert "num_workers" in out


def test_a_broken_file_among_others_is_said(run: Run, tmp_path: Path) -> None:
    """One file that cannot be read does not hide the others, and is said; alone it is a mistake in one line."""
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    code, out, _ = run("diagnose", TRACE, broken, "--format", "json")
    judged = {trace["trace"]: trace["can_judge"] for trace in json.loads(out)["traces"]}
    assert (code, judged) == (0, {"trace.json": True, "broken.json": False})
    assert str(broken) in json.loads(out)["traces"][1]["because"][0]
    code, _, said = run("diagnose", broken)
    assert code == 2
    assert len(said.strip().splitlines()) == 1


def test_without_traces_the_fleet_is_diagnosed(run: Run) -> None:
    """Without a trace the books are asked; where there are none, it is said how to begin."""
    code, _, said = run("diagnose")
    assert code == 2
    assert "no books" in said
    assert len(said.strip().splitlines()) == 1


def test_the_same_in_python() -> None:
    """The function takes what the command takes."""
    page = loadfactor.diagnose(trace=[TRACE])
    assert page.data.findings[0].cause == "input_pipeline"
    assert "waits for data" in repr(page)


HOUR = "2026-05-01T{:02d}:00:00Z"


@pytest.fixture(scope="module")
def waiting_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Books of twenty jobs of 8 GPUs that waited 1 to 20 hours, one that was cancelled after two, and one that waits since 22."""
    tables = tmp_path_factory.mktemp("tables")
    events = [f"j{n},{HOUR.format(0)},submitted,8,large,Priority" for n in range(1, 21)]
    events += [f"j{n},{HOUR.format(n)},started,8,large," for n in range(1, 21)]
    events += [f"no,{HOUR.format(0)},submitted,1,small,", f"no,{HOUR.format(2)},cancelled,1,small,"]
    events += [f"me,{HOUR.format(13)},submitted,8,large,Resources"]
    (tables / "queue_events.csv").write_text("job_id,at_utc,event,gpus,queue,reason\n" + "\n".join(events) + "\n")
    device = f"g,n1,{HOUR.format(0)},{HOUR.format(23)}"
    (tables / "devices.csv").write_text(f"device_id,node,from_utc,to_utc\n{device}\n")
    books = Books(tmp_path_factory.mktemp("waits") / "store")
    books.add("tables", [tables])
    return books.store.folder


def test_waits_are_shown_by_queue(run: Run, waiting_store: Path) -> None:
    """In JSON each group has its counts and quantiles with their ends; what is not reached is null."""
    code, out, _ = run("waits", "--by", "queue", "--store", waiting_store, "--json")
    said = json.loads(out)
    assert code == 0
    large, small = said["rows"]
    assert (large["by"], large["waits"], large["started"], large["waiting"]) == ({"queue": "large"}, 21, 20, 1)
    assert (small["cancelled"], small["wait_s_p50"]) == (1, {"value": None, "low": None, "high": None})
    assert large["wait_s_p50"]["low"] < large["wait_s_p50"]["value"] == 11 * 3600 < large["wait_s_p50"]["high"]
    assert said["all"]["waits"] == 22
    assert [r["reason"] for r in said["reasons"]] == ["Priority", "Resources", None]
    assert (said["confidence"], said["window"]["from"]) == (0.95, HOUR.format(0))


def test_a_job_in_the_queue_is_told_what_others_waited(run: Run, waiting_store: Path) -> None:
    """It has waited ten hours: of ten that waited longer, half were started within five more; the page says it is an estimate."""
    code, out, _ = run("waits", "--job", "me", "--store", waiting_store)
    shown = " ".join(out.split())
    assert code == 0
    assert "Job me has waited 10 h for 8 GPUs (Resources). Of 10 waits like it (size 8, queue large" in shown
    assert "half ended in a start within another 5 h" in shown
    assert "An estimate." in shown
    said = json.loads(run("waits", "--job", "me", "--store", waiting_store, "--format", "json")[1])
    assert (said["n"], said["started"], said["waited_s"]) == (10, 10, 36000)
    assert said["rest_s_p50"]["value"] == 5 * 3600


def test_where_nothing_is_known_that_is_said(run: Run, waiting_store: Path) -> None:
    """No job had waited as long as this one, and none was queued in a window of an hour."""
    _, out, _ = run("waits", "--job", "me", "--from", "2026-05-01T12:00Z", "--store", waiting_store)
    assert "nothing can be estimated" in " ".join(out.split())
    _, out, _ = run("waits", "--from", "2026-05-01T20:00Z", "--store", waiting_store)
    assert out.startswith("No job is known to have been queued in that time.")


def test_mistakes_are_one_line(run: Run, waiting_store: Path) -> None:
    """Of jobs, dimensions and filters."""
    for words, said in (
        (("--job", "j3"), "job 'j3' does not wait: it started at 2026-05-01T03:00:00Z"),
        (("--job", "me", "--where", "queue=large"), "--job compares with jobs like it and takes no --where"),
        (("--by", "quue"), "did you mean 'queue'?"),
        (("--where", "queue=lage"), "did you mean 'large'?"),
    ):
        code, out, err = run("waits", *words, "--store", waiting_store)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert said in err


@pytest.fixture
def tagged_store(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Books of three jobs at $2 a GPU-hour: 8 GPU-hours of bob's, 17 of ann's, 28 of eve's; 35 more with an unknown holder."""
    monkeypatch.chdir(tmp_path)
    jobs = write_jobs(tmp_path / "jobs")
    (jobs / "prices.csv").write_text("basis,price_per_gpu_hour\ncontracted,2\n")
    (tmp_path / "mapping.csv").write_text(MAPPING)
    assert run("import", "tables", jobs, "--store", tmp_path / "store")[0] == 0
    return tmp_path / "store"


def test_what_is_untagged_stands_in_order_of_its_cost(run: Run, tagged_store: Path) -> None:
    """By user and team, each with what is missing and the rule that would tag it; shares are of hours and of cost."""
    Path("loadfactor.toml").write_text('[[tag]]\nexperiment = "{comment}"\nproject = "p"\n')
    assert run("retag", "--store", tagged_store)[0] == 0
    code, out, _ = run("untagged", "--store", tagged_store, "--format", "json")
    said = json.loads(out)
    assert code == 0
    assert [(r["by"], r["gpu_hours"], r["cost"], r["jobs"]) for r in said["rows"]] == [
        ({"user": "eve", "team": "vision"}, 28, 56, 1),
        ({"user": "ann", "team": "nlp"}, 17, 34, 1),
    ]
    assert said["rows"][0]["missing"] == ["experiment", "purpose"]
    assert said["rows"][0]["rule"] == ('[[tag]]\nmatch = { user = "eve", team = "vision" }\nexperiment = "NAME"\n')
    assert said["tagged_share"] == pytest.approx(8 / 53)
    assert said["tagged_cost_share"] == pytest.approx(8 / 53)
    assert said["without"]["purpose"] == {"gpu_hours": 53, "cost": 106}
    assert said["unattributed"] == {"gpu_hours": pytest.approx(35), "cost": pytest.approx(70)}
    assert (said["currency"], said["window"]["from"]) == ("USD", "2026-05-01T00:00:00Z")


@pytest.mark.long
def test_a_rule_that_is_suggested_tags_what_it_is_for(run: Run, tagged_store: Path) -> None:
    """Written into loadfactor.toml and applied, nothing of its group is left."""
    for by in ("user,team", "job_name", "job"):
        Path("loadfactor.toml").write_text("")
        run("retag", "--store", tagged_store)
        first = json.loads(run("untagged", "--by", by, "--store", tagged_store, "--json")[1])["rows"][0]
        Path("loadfactor.toml").write_text(first["rule"])
        assert run("retag", "--store", tagged_store)[0] == 0
        left = json.loads(run("untagged", "--by", by, "--store", tagged_store, "--json")[1])["rows"]
        assert first["by"] not in [row["by"] for row in left]


def test_tags_that_untagged_jobs_have_are_pointed_at(run: Run, tagged_store: Path) -> None:
    """The page says which tag could be the experiment, and lists unknown holders apart."""
    _, out, _ = run("untagged", "--store", tagged_store)
    shown = " ".join(out.split())
    assert "53 of 53 held GPU-hours, $106.00, have no experiment" in shown
    assert "{comment}" in shown
    assert "35 GPU-hours ($70.00) were held by nobody knows whom" in shown


@pytest.mark.long
def test_a_mapping_is_tried_and_then_applied(run: Run, tagged_store: Path) -> None:
    """A dry run says the same as the real one; the second real one has nothing to do."""
    words = ("retag", "--mapping", "mapping.csv", "--store", tagged_store)
    _, tried, _ = run(*words, "--dry-run")
    _, done, _ = run(*words)
    assert " ".join(tried.split()).startswith("Would tag 1 allocation, 1 queue event anew; 17 GPU-hours would have")
    assert "Tagged 1 allocation, 1 queue event anew; 17 GPU-hours have another team or experiment." in " ".join(
        done.split()
    )
    assert run(*words)[1].startswith("Nothing to tag anew")


def test_mistakes_in_tagging_are_one_line(run: Run, tagged_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rules, mappings and dimensions; and who else writes is named."""
    (Path("bad.csv")).write_text("user,experiment\n,x\n")
    assert run("retag", "--mapping", "bad.csv", "--store", tagged_store)[0] == 2
    code, _, err = run("untagged", "--by", "usr", "--store", tagged_store)
    assert (code, err) == (2, "loadfactor: no dimension called 'usr'; did you mean 'user'?\n")
    monkeypatch.setattr("loadfactor.store.folder.LONGEST_WAIT_S", 0.1)
    with take_lock(tagged_store / "lock", "{holder}"):
        code, _, err = run("retag", "--store", tagged_store)
    assert code == 1
    assert "another import is writing to" in err
