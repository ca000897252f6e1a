"""Several stores read as one: they add up, names that clash stand with their region, and what cannot be is refused in a line."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from tests.books.conftest import Write
from tests.commands import Run, worked_example
from tests.store.live_batches import START

from loadfactor.base.errors import InputError
from loadfactor.base.paths import list_folders, list_stores
from loadfactor.books.books import Books
from loadfactor.settings.config import settings
from loadfactor.store.federation import name_regions
from loadfactor.store.live import LiveBatch, LiveLog
from loadfactor.store.tokens import TokenFile

METRICS = ("paid_gpu_hours", "effective_gpu_hours", "cost")
QUEUE = "job_id,at_utc,event,gpus\nrun-1,2026-02-28T23:{}:00Z,submitted,8\nrun-1,2026-03-01T00:00:00Z,started,8\n"


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Books of two regions, `eu` and `us`, of fleets that call everything alike; us pays half, and its job waited longer."""
    folder = tmp_path_factory.mktemp("stores")
    for region, price, minutes in (("eu", 8, 55), ("us", 4, 45)):
        tables = worked_example(
            folder / f"of {region}",
            prices=f"basis,price_per_gpu_hour\ncontracted,{price}\n",
            queue_events=QUEUE.format(minutes),
        )
        Books(folder / "stores" / region).add("tables", [tables])
    return folder / "stores"


def _read(run: Run, *words: object) -> tuple[list[dict[str, object]], str]:
    code, out, err = run("show", *words, "--json")
    assert code == 0, err
    return json.loads(out), err


@pytest.mark.parametrize("given", [("eu", "us"), ("*",), ("eu,{}/us",)], ids=["two", "a pattern", "commas"])
def test_stores_add_up_under_their_own_names(regions: Path, run: Run, given: tuple[str, ...]) -> None:
    """GPU-hours and cost are the sums; teams are one, the job that both have is two, and standard error says so."""
    stores = [word for name in given for word in ("--store", f"{regions}/{name.format(regions)}")]
    found, err = _read(run, *METRICS, *stores)
    assert [reading["value"] for reading in found] == pytest.approx([20, 12, 120])
    assert "eu/gpu0 and us/gpu0: 8 GPUs (gpu0, gpu1, gpu2, …), 1 job (run-1)" in err
    by_team, _ = _read(run, "cost", "--by", "team", *stores)
    assert [(of["by"], of["value"]) for of in by_team] == [({"team": "vision"}, pytest.approx(120))]
    by_job, _ = _read(run, "cost", "queue_wait_s_mean", "--by", "job", *stores)
    assert [(of["by"], of["value"]) for of in by_job] == [
        ({"job": f"{region}/run-1"}, pytest.approx(value))
        for region, values in (("eu", (80, 300)), ("us", (40, 900)))
        for value in values
    ]
    (one,), _ = _read(run, "cost", "--where", "job=us/run-1", "--from", "2026-03-01T00:30", *stores)
    assert one["value"] == pytest.approx(24)


def test_quantiles_are_of_the_rows_of_all(regions: Path) -> None:
    """A median of waits lies between those of the regions; it is no mean of theirs."""
    books = Books(f"{regions}/*")
    (median,) = books.show("queue_wait_s_p50")
    assert median.value == pytest.approx(600)
    assert {row.by["size"]: row.waits for row in books.find_waits().rows} == {"8": 2}


def test_reports_of_jobs_and_checks_take_all_stores(regions: Path, run: Run) -> None:
    """A report of a region's job, a check that balances and says which names clash, and statements whose sum is that of both."""
    stores = ("--store", regions / "eu", "--store", regions / "us")
    code, out, _ = run("report", "--job", "us/run-1", *stores, "--json")
    assert (code, json.loads(out)["headline"][:27]) == (0, "Job us/run-1 cost $40.00 fo")
    code, out, _ = run("doctor", *stores, "--json")
    found = json.loads(out)
    assert (code, found["installed_cost"]) == (0, pytest.approx(120))
    assert any("eu/gpu0 and us/gpu0" in finding["what"] for finding in found["findings"])
    code, out, _ = run("chargeback", *stores, "--month", "2026-03", "--json")
    found = json.loads(out)
    assert (code, found["statements"][0]["by"]["team"], found["totals"]["EffectiveCost"]["charged"]) == (
        0,
        "vision",
        "120.00",
    )


def test_live_rows_and_books_without_any_are_among_them(regions: Path, tmp_path: Path) -> None:
    """Rows that were acknowledged and not flushed count in the store that took them; a store without imports adds nothing."""
    live = tmp_path / "live"
    device = {"device_id": ["gpu0"], "from_utc": [START], "to_utc": [START + 3_600_000]}
    shutil.copytree(regions / "eu", live)
    with LiveLog.open(live) as log:
        log.acknowledge([LiveBatch("test", "devices", pa.table(device), "")])
    empty = Books(tmp_path / "empty")
    empty.add("tables", [worked_example(tmp_path / "tables")])
    empty.forget(1)
    (alone,) = Books(live).show("paid_gpu_hours")
    (joint,) = Books(f"{live},{regions / 'us'},{empty.store.folder}").show("paid_gpu_hours")
    assert alone.value == pytest.approx(11)
    assert joint.value == pytest.approx(21)


def test_what_cannot_be_read_as_one_is_refused(regions: Path, tmp_path: Path, run: Run, write: Write) -> None:
    """A store twice, a copy, another currency and no store: a line that says which, and what to do."""
    eu, copy = regions / "eu", tmp_path / "copy"
    shutil.copytree(eu, copy)
    (tmp_path / "link").symlink_to(eu)
    write('currency = "EUR"\n')
    Books(tmp_path / "euros").add("tables", [worked_example(tmp_path / "tables")])
    write("")
    for other, said in (
        (eu, "given twice"),
        (tmp_path / "link", "given twice"),
        (copy, "copy is a copy of eu"),
        (tmp_path / "euros", "different currencies (eu in USD, euros in EUR)"),
        (tmp_path / "none", "no books in"),
        (tmp_path / "x*", "no folder fits"),
    ):
        code, _, err = run("show", "cost", "--store", eu, "--store", other)
        assert (code, said in err, err.count("\n")) == (2, True, 1), err
    for words in (
        ("import", "tables", tmp_path / "tables"),
        ("forget", "1"),
        ("compact",),
        ("repair",),
        ("retag",),
        ("backup", tmp_path / "to"),
        ("ledger", "book", "--all"),
        ("chargeback", "--month", "2026-03", "--close", "--yes"),
        ("alerts", "silence", "idle", "--for", "2h", "--reason", "x"),
        ("token", "create", "--name", "x"),
        ("up", "--listen", "127.0.0.1:0"),
    ):
        code, _, err = run(*words, "--store", eu, "--store", regions / "us")
        assert (code, "read as one and not written to; name one of them" in err, err.count("\n")) == (2, True, 1), err


def test_the_same_bill_in_two_stores_is_refused(tmp_path: Path) -> None:
    """It would be charged twice."""
    from tests.books.charging.gpu_bills import line, write_bill

    bill = write_bill(tmp_path / "bill.csv", [line("n1", 0, 24, "100")])
    for region in ("eu", "us"):
        Books(tmp_path / region).add("focus", [bill])
    with pytest.raises(InputError, match=r"have imported the same bill .*charged twice"):
        Books(f"{tmp_path}/eu,{tmp_path}/us").chargeback()


def test_regions_are_called_by_what_differs_in_their_paths(tmp_path: Path) -> None:
    """The last parts that are all different, and a folder whose own name has a comma is one store."""
    assert name_regions([Path("/a/x/b"), Path("/b/y/b")]) == ("x", "y")
    (tmp_path / "a,b").mkdir()
    assert list_stores(tmp_path / "a,b") == (tmp_path / "a,b",)


def test_digests_and_tokens_of_all_lie_in_a_folder_of_their_own(
    regions: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `local_folder` names one a digest over both is sent once, and a server of both asks for a token; else it says so."""
    stores = ("--store", regions / "eu", "--store", regions / "us")
    for name in ("beside", "sent"):
        (tmp_path / name).mkdir()
    digest = f'[[digest]]\nname = "all"\nevery = "week"\nfolder = "{tmp_path}/sent"\n'
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loadfactor.toml").write_text(digest)
    code, _, err = run("digest", "all", "--send", *stores)
    assert (code, "local_folder" in err) == (2, True)
    (tmp_path / "loadfactor.toml").write_text(f'local_folder = "{tmp_path}/beside"\n{digest}')
    settings.cache_clear()
    for _ in range(2):
        assert run("digest", "all", "--send", *stores)[0] == 0
    assert len([path for path in (tmp_path / "sent").rglob("*") if path.is_file()]) == 1
    place = Books(f"{regions}/*").store.place
    assert run("token", "create", "--read", "--store", tmp_path / "beside")[0] == 0
    assert len(TokenFile(place.beside).list()) == 1
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    here = list_folders(Path(f"{regions}/eu,s3://gpus/books"))
    assert (here[0], here[1].parent) == (regions / "eu", tmp_path / "loadfactor")
