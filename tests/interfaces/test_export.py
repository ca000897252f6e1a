"""Exports are what the books say, read back by other programs; a rerun writes nothing, and late rows their own day alone."""

import json
import shutil
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot
from tests.commands import Run
from tests.ledger.fleets import HOUR, add, batch
from tests.long import rest_long
from tests.object_stores.servers import BUCKET, serve_s3

from loadfactor.books.books import Books
from loadfactor.interfaces.exports.outputs import STATE
from loadfactor.store.objects import Objects

START = 1_767_225_600_000  # a midnight
DAYS = 3


@pytest.fixture
def books(tmp_path: Path) -> Books:
    """Two GPUs of a team over three days, at a price."""
    books = Books(tmp_path / "books")
    of = {"from_utc": START, "to_utc": START + DAYS * 24 * HOUR}
    items = [
        batch("devices", [{"device_id": g, "node": "n", "accelerator": "h100-sxm", **of} for g in "ab"]),
        batch("allocations", [{"job_id": "j", "team": "vision", "device_id": "a", **of}]),
        batch("prices", [{"basis": "contracted", "price_per_gpu_hour": 2.5, "currency": "USD"}]),
        batch(
            "samples",
            [
                {"device_id": "a", "source": "s", "to_utc": START + n * HOUR // 4, "busy_share": n % 4 / 4}
                for n in range(1, DAYS * 96)
            ],
        ),
    ]
    add(books, items, "all", tmp_path)
    books.compact()
    return books


def read_back(kind: str, output: Path, column: str, name: str = "ledger") -> float:
    """The sum of a column, as another program reads it."""
    folder = output if name == "ledger" else output / name
    sql = f"SELECT * FROM read_{kind}('{folder}/date=*/*.{kind}', hive_partitioning = true)"
    return sum(value or 0 for value in duckdb.sql(sql).to_arrow_table()[column].to_pylist())


def list_files(output: Path) -> dict[str, int]:
    """The files of an export and when they were changed."""
    return {str(path.relative_to(output)): path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_ledger_is_read_back(kind: str, books: Books, run: Run, tmp_path: Path) -> None:
    """Its sums are those of the books; again nothing is written; a late row changes its day alone, and one taken back too."""
    output, store = tmp_path / "out", books.store.folder

    def export() -> dict[str, Any]:
        code, out, err = run("export", "ledger", "--format", kind, "--output", output, "--store", store, "--json")
        assert (code, err) == (0, "")
        (found,) = json.loads(out)["tables"]
        return dict(found)

    def compare() -> None:
        said = {reading.metric: reading.value for reading in books.show(["paid_gpu_hours", "cost"])}
        assert read_back(kind, output, "gpu_s") / 3600 == pytest.approx(said["paid_gpu_hours"], rel=1e-12)
        assert read_back(kind, output, "cost_contracted") == pytest.approx(said["cost"], rel=1e-12)

    first = export()
    assert (first["written"], first["days"]) == (DAYS, DAYS)
    assert first["columns"]["date"] == "DATE"
    compare()
    files = list_files(output)
    assert export()["written"] == 0
    assert list_files(output) == files
    late = {"device_id": "b", "node": "n", "from_utc": START + 30 * HOUR, "to_utc": START + 40 * HOUR}
    add(books, [batch("outages", [late])], "late", tmp_path)
    assert export()["written"] == 1
    compare()
    assert export()["written"] == 0


def test_sums_readings_and_statements_are_what_pages_say(books: Books, run: Run, tmp_path: Path) -> None:
    """Each kept sum has all GPU-seconds, readings are those of `show`, lines of statements sum to what is charged, exactly."""
    where = ("--store", books.store.folder, "--output")
    assert run("export", "sums", *where, tmp_path / "sums")[0] == 0
    paid = books.show(["paid_gpu_hours"])[0].value
    for name in ("ledger_by_team", "ledger_by_device", "ledger_by_job"):
        assert read_back("parquet", tmp_path / "sums", "gpu_s", name) / 3600 == pytest.approx(paid, rel=1e-12)
    assert run("export", "readings", *where, tmp_path / "readings")[0] == 0
    rows = duckdb.sql(f"FROM read_parquet('{tmp_path}/readings/readings/*/*.parquet')").to_arrow_table().to_pylist()
    found = {(row["metric"], row["day"][:10], row["team"]): row["value"] for row in rows if row["values"] is None}
    for reading in books.show(["cost", "utilization"], ("day", "team", "pool", "accelerator")):
        assert found[reading.metric, str(reading.by["day"])[:10], reading.by["team"]] == reading.value
    assert run("export", "statements", *where, tmp_path / "statements")[0] == 0
    parts = f"FROM read_parquet('{tmp_path}/statements/statements/*/*.parquet')"
    lines = duckdb.sql(parts).to_arrow_table().to_pylist()
    charged = sum((line["EffectiveCost"] for line in lines), Decimal(0))
    with books.snapshot() as snapshot:
        assert charged == sum(found.amounts["EffectiveCost"] for found in snapshot.read_statements("2026-01"))
    assert charged == Decimal("360.00")  # 2 GPUs, 72 h, $2.50


@pytest.mark.long
def test_an_export_that_is_killed_goes_on(books: Books, run: Run, tmp_path: Path) -> None:
    """Killed after a day, before the next is noted: the next run writes the rest, and no row is there twice."""
    output = tmp_path / "out"
    script = f"""
import os, signal, sys
from loadfactor.interfaces.exports.outputs import FolderOutput
kept, done = FolderOutput.write_state, []
def write(*given):
    done.append(1)
    if len(done) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    kept(*given)
FolderOutput.write_state = write
sys.argv = ["loadfactor", "export", "ledger", "--store", {str(books.store.folder)!r}, "-o", {str(output)!r}]
from loadfactor.interfaces.cli import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(json.loads((output / STATE).read_text())["tables"]["ledger"]["days"]) == 1
    words = ("export", "ledger", "--store", books.store.folder, "-o", output, "--json")
    assert json.loads(run(*words)[1])["tables"][0]["written"] == DAYS - 1
    assert read_back("parquet", output, "gpu_s") == 2 * DAYS * 24 * 3600


def test_a_new_column_is_added_to_every_day(books: Books, run: Run, tmp_path: Path) -> None:
    """An export of three days was written without `cost_list`: the next run writes all three anew, with it."""
    words = ("export", "ledger", "--store", books.store.folder, "-o", tmp_path / "out", "--json")
    run(*words)
    state = json.loads((tmp_path / "out" / STATE).read_text())
    del state["tables"]["ledger"]["columns"]["cost_list"]
    (tmp_path / "out" / STATE).write_text(json.dumps(state))
    assert json.loads(run(*words)[1])["tables"][0]["written"] == DAYS
    assert read_back("parquet", tmp_path / "out", "gpu_s") == 2 * DAYS * 24 * 3600


def test_refusals_are_a_line(books: Books, run: Run, tmp_path: Path) -> None:
    """A folder of something else, another format in one, a URL of another kind: nothing is written."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    where = ("export", "ledger", "--store", books.store.folder, "--output")
    run(*where, tmp_path / "out")
    for words, expected in (
        ((tmp_path / "other",), "something else"),
        ((tmp_path / "out", "--format", "csv"), "as parquet"),
        (("ftp://host/folder",), "folders, s3://, gs:// and az:// are written"),
    ):
        code, out, err = run(*where, *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert expected in err
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.txt"]


@pytest.mark.long
@pytest.mark.parametrize("kind", rest_long(["parquet", "csv"]))
def test_a_bucket_gets_what_a_folder_gets(
    kind: str, books: Books, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are read back; again nothing is written; a day that changed is replaced; another thing there is left alone."""
    with serve_s3() as names:
        for name, value in names.items():
            monkeypatch.setenv(name, value)
        url, store = f"s3://{BUCKET}/out", books.store.folder

        def export() -> int:
            code, out, err = run("export", "sums", "--format", kind, "--output", url, "--store", store, "--json")
            assert (code, err) == (0, "")
            return sum(table["written"] for table in json.loads(out)["tables"])

        def read_hours() -> float:
            of_table = "ledger_by_team"
            objects = Objects(f"{url}/{of_table}")
            for name, _ in objects.list():
                objects.download(name, tmp_path / "copy" / name)
            ((gpu_hours,),) = duckdb.sql(f"SELECT sum(gpu_s) / 3600 FROM '{tmp_path}/copy/date=*/*.{kind}'").fetchall()
            shutil.rmtree(tmp_path / "copy")
            return float(gpu_hours)

        assert export() > 0
        (paid,) = books.show(["paid_gpu_hours"])
        assert read_hours() == pytest.approx(paid.value, rel=1e-12)
        there = sorted(Objects(url).list())
        assert export() == 0
        assert sorted(Objects(url).list()) == there
        more = {"device_id": "c", "node": "n", "accelerator": "h100-sxm", "from_utc": START, "to_utc": START + 2 * HOUR}
        add(books, [batch("devices", [more])], "more", tmp_path)
        assert 0 < export() < len(there)
        (paid,) = books.show(["paid_gpu_hours"])
        assert read_hours() == pytest.approx(paid.value, rel=1e-12)
        Objects(f"s3://{BUCKET}/other").put("somebody's", b"data")
        code, _, err = run("export", "sums", "--format", kind, "--output", f"s3://{BUCKET}/other", "--store", store)
        assert (code, err.count("something else")) == (2, 1)


def test_the_statements_of_the_docs_run_and_are_read_alike_elsewhere(books: Books, tmp_path: Path, run: Run) -> None:
    """Queries of docs/in-your-warehouse.md run in DuckDB, and warehouses' grammars read them as DuckDB's does; tables as theirs."""
    page = (Path(__file__).parents[2] / "docs" / "in-your-warehouse.md").read_text(encoding="utf-8")
    statements = [block.partition("```")[0] for block in page.split("```sql\n")[1:]]
    queries = [text for text in statements if text.startswith("SELECT")]
    assert len(queries) == 3
    assert run("export", "ledger", "--store", books.store.folder, "--output", tmp_path / "out")[0] == 0
    files = f"read_parquet('{tmp_path}/out/*/*.parquet', hive_partitioning = true)"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW ledger AS SELECT * FROM {files}")
        connection.execute("SET TimeZone = 'UTC'")
        for query in queries:
            connection.execute(query.replace("2026-10-01", "2026-01-01").replace("2026-11-01", "2026-02-01"))
            assert connection.fetchall(), query
        there = {name for (name, *_) in connection.execute(f"DESCRIBE SELECT * FROM {files}").fetchall()}
    for dialect in ("trino", "athena", "bigquery", "snowflake", "databricks"):
        for query in queries:
            assert sqlglot.parse_one(query, read=dialect).sql("duckdb") == sqlglot.parse_one(query, read="duckdb").sql(
                "duckdb"
            )
    (made,) = (sqlglot.parse_one(text, read="athena") for text in statements if text.startswith("CREATE"))
    assert {column.name for column in made.find_all(sqlglot.exp.ColumnDef)} <= there


def test_the_example_for_delta_lake_compiles() -> None:
    """The Python of docs/in-your-warehouse.md is Python; deltalake itself is not installed for tests."""
    page = (Path(__file__).parents[2] / "docs" / "in-your-warehouse.md").read_text(encoding="utf-8")
    (example,) = (block.partition("```")[0] for block in page.split("```py\n")[1:])
    compile(example, "in-your-warehouse.md", "exec")
