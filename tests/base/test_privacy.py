"""Books that keep users as pseudonyms: no file of them names anybody, rules still know people by their names."""

import json
import stat
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.books.test_tagging import quote_cell
from tests.commands import Run
from tests.torture.bench import ask
from tests.torture.fleet import WORK, at

from loadfactor.base.errors import InputError
from loadfactor.base.privacy import PSEUDONYM, Pseudonyms, make_key, mask_rows, read_key, reveal_rows
from loadfactor.books.books import Books
from loadfactor.store.live import LiveBatch, LiveLog, OriginState, ReceivedBody

NAME = "alice"
RULES = '[[tag]]\nmatch = { user = "ali*" }\nexperiment = "{user}-notes"\n'
START_MS = 1_777_593_600_000


def settings(key: Path) -> str:
    return f'[privacy]\nusers = "pseudonyms"\nkey_file = "{key}"\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a key, settings that ask for pseudonyms, and rows that name somebody wherever rows can."""
    monkeypatch.chdir(tmp_path)
    make_key(tmp_path / "key")
    (tmp_path / "loadfactor.toml").write_text(settings(tmp_path / "key") + RULES)
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    tags = quote_cell(json.dumps({"comment": f"run by {NAME}", "job_name": f"{NAME}_x", "account": NAME}))
    (jobs / "allocations.csv").write_text(
        "job_id,device_id,team,user,from_utc,to_utc,tags,queue\n"
        f"{NAME} python 77,g0,{NAME},{NAME},{at(1)},{at(9)},{tags},q-{NAME}\n"
    )
    (jobs / "queue_events.csv").write_text(
        f"job_id,at_utc,event,gpus,team,user,reason\n8,{at(2)},submitted,1,{NAME},{NAME},held by {NAME}\n"
    )
    (jobs / "progress.csv").write_text(f"job_id,from_utc,to_utc,unit,amount\n{NAME} python 77,{at(1)},{at(2)},step,5\n")
    (jobs / "devices.csv").write_text(f"device_id,from_utc,to_utc\ng0,{at(0)},\n")
    (jobs / "samples.csv").write_text("\n".join(line for line in WORK["samples"] if not line.startswith(("g1", "g2"))))
    return tmp_path


def holds_name(folder: Path) -> list[str]:
    """The files of a folder in which the name stands, compressed columns read."""
    found = [p.name for p in folder.rglob("*") if p.is_file() and NAME.encode() in p.read_bytes()]
    said = json.dumps(ask(folder), default=str)
    return [*found, *(["a table"] if NAME in said else [])]


@pytest.mark.long
def test_no_file_of_the_books_names_anybody(here: Path) -> None:
    """Neither columns nor tags, reasons, job ids and progress; the pseudonym is the same everywhere, and joins what it joined."""
    books = Books(here / "store")
    books.add("tables", [here / "jobs"])
    key = read_key(here / "key")
    who = key.mask(NAME)
    assert holds_name(here / "store") == []
    (row,) = books.table("allocations").to_pyarrow().to_pylist()
    assert (row["user"], row["team"], row["job_id"]) == (who, who, f"{who} python 77")
    assert row["experiment_id"] == f"{who}-notes"
    assert json.loads(row["tags"])["comment"] == f"run by {who}"
    readings = books.show(["cost_per_step", "allocated_gpu_hours"], by="job")
    assert f"{who} python 77" in [keys[0] for keys in readings.keys]
    assert key.reveal(books.table("progress").to_pyarrow()["job_id"][0].as_py().split()[0]) == NAME


def test_live_rows_and_what_waits_to_become_rows_name_nobody(here: Path) -> None:
    """Batches are masked, bodies and states sealed; both are what they were to who reads them."""
    books = Books(here / "store")
    row = {"job_id": f"{NAME} x 1", "device_id": "g0", "user": NAME}
    row |= {"from_utc": START_MS, "to_utc": START_MS + 3_600_000}
    body = ReceivedBody("o", "remote_write", 5, f'gpu{{user="{NAME}"}}'.encode())
    with LiveLog.open(here / "store", entry=books.store.entry) as log:
        log.acknowledge([LiveBatch("dcgm", "allocations", pa.Table.from_pylist([row]), "x")])
        log.book(OriginState("o", 0, f"state of {NAME}".encode()), 0, [])
        log.keep([body]).result()
        assert [b for _, b in log.received()] == [body]
        assert log.states()["o"].content == f"state of {NAME}".encode()
        assert holds_name(here / "store") == []
        books.flush()
    assert holds_name(here / "store") == []


@pytest.mark.long
def test_retagging_knows_names_and_masks_those_that_entered_before(here: Path) -> None:
    """What was imported with names becomes what importing it with pseudonyms makes; then no file names anybody any more."""
    Path("loadfactor.toml").write_text("")
    books = Books(here / "store")
    books.add("tables", [here / "jobs"])
    assert holds_name(here / "store")
    Path("loadfactor.toml").write_text(settings(here / "key") + RULES)
    books.retag()
    anew = Books(here / "anew")
    anew.add("tables", [here / "jobs"])
    assert ask(here / "store") == ask(here / "anew")
    assert holds_name(here / "store") == []
    assert books.retag().rows == {}


@pytest.mark.long
def test_without_the_key_nothing_enters(here: Path) -> None:
    """An import is refused; what is in the books can still be asked."""
    books = Books(here / "store")
    books.add("tables", [here / "jobs"])
    (here / "key").rename(here / "away")
    with pytest.raises(InputError, match=r"the key of pseudonyms .* cannot be read"):
        Books(here / "store").add("tables", [here / "jobs"])
    assert Books(here / "store").show("allocated_gpu_hours")[0].value == 8


def test_who_has_the_key_turns_pseudonyms_back(run: Run, here: Path) -> None:
    """`pseudonym of` and `pseudonym reveal` are each other's opposite; a foreign one is refused in one line."""
    _, out, _ = run("pseudonym", "of", NAME, "--key-file", here / "key", "--json")
    (one,) = json.loads(out)["pseudonyms"]
    _, out, _ = run("pseudonym", "reveal", one["pseudonym"], "--key-file", here / "key", "--json")
    assert json.loads(out)["pseudonyms"] == [one]
    assert run("pseudonym", "make-key", here / "other")[0] == 0
    code, _, err = run("pseudonym", "reveal", one["pseudonym"], "--key-file", here / "other")
    assert code == 2
    assert "is no pseudonym of this key" in err


KEY, OTHER = Pseudonyms(b"k" * 64), Pseudonyms(b"o" * 64)


def test_who_used_a_served_model_is_masked() -> None:
    """Also in the names of its team, feature and API key; the key turns them back."""
    names = {"user": NAME, "team": f"with {NAME}", "api_key": f"{NAME}/laptop", "feature": f"of {NAME}", "model": "m"}
    rows = pa.Table.from_pylist([names])
    masked = mask_rows(KEY, "served_requests", rows)
    assert NAME not in str(masked.to_pylist())
    assert reveal_rows(KEY, "served_requests", masked).to_pylist() == [names]


@given(st.text(min_size=1, max_size=40))
def test_a_name_becomes_one_text_that_only_its_key_turns_back(name: str) -> None:
    """Always the same one, a word of letters and digits; masking it again changes nothing."""
    masked = KEY.mask(name)
    assert masked == Pseudonyms(b"k" * 64).mask(name)
    assert PSEUDONYM.fullmatch(masked)
    assert KEY.reveal(masked) == name
    assert KEY.mask(masked) == masked
    assert OTHER.reveal(masked) is None
    assert OTHER.mask(name) != masked


@pytest.mark.parametrize("text", ["p-", "p-abc", "p-" + "a" * 30, "alice", "P-" + "A" * 30, ""])
def test_what_only_looks_like_a_pseudonym_is_none(text: str) -> None:
    """It is a name like others."""
    assert KEY.reveal(text) is None


@given(st.binary(max_size=200))
def test_sealed_bytes_are_opened_by_their_key(content: bytes) -> None:
    """What was never sealed comes back as it is; another key is refused."""
    prefix = KEY.seal(b"x").split(b"\0")[0] + b"\0"
    assume(not content.startswith(prefix))
    sealed = KEY.seal(content)
    assert KEY.open(sealed) == content
    assert KEY.open(content) == content
    if content:
        assert content not in sealed.removeprefix(prefix) or len(content) < 4
        with pytest.raises(InputError, match="sealed with another key"):
            OTHER.open(sealed)


def test_a_key_is_made_once_and_kept_from_others(tmp_path: Path) -> None:
    """Its file is for its owner alone; it is not replaced, and is refused where others may read it."""
    path = tmp_path / "key"
    make_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_key(path).reveal(read_key(path).mask("ann")) == "ann"
    with pytest.raises(InputError, match="is there already"):
        make_key(path)
    path.chmod(0o640)
    with pytest.raises(InputError, match="chmod 600"):
        read_key(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read"), ("", "is no key"), ("loadfactor-key-1 AAAA", "is no key"), ("ä", "cannot be read")],
)
def test_without_its_key_nothing_is_masked(tmp_path: Path, content: str | None, said: str) -> None:
    """A missing or broken key is refused with what makes one."""
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content, encoding="utf-8")
        path.chmod(0o600)
    with pytest.raises(InputError, match=said):
        read_key(path)
    with pytest.raises(InputError, match="key_file under"):
        read_key(None)
