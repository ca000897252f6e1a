"""What people and programs get from the training validations: errors of published and of own measurements."""

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadfactor.base.errors import InputError
from loadfactor.interfaces.cli import app
from loadfactor.interfaces.formats import percent


def run(*arguments: str, columns: int = 80) -> str:
    result = CliRunner(env={"COLUMNS": str(columns), "NO_COLOR": "1"}).invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_validation_of_the_published_tables_needs_no_file() -> None:
    """Without --rows the retyped tables are compared, and the JSON has exactly the promised keys."""
    data = json.loads(run("validate", "train", "--format", "json"))
    keys = ["file", "rows", "skipped", "mean_abs_error", "median_abs_error", "max_abs_error", "bias"]
    keys += ["regret_mean", "regret_max", "rank_correlation"]
    assert set(data) == {"files", "rows"}
    assert all(list(f) == keys for f in data["files"])
    sc21 = next(f for f in data["files"] if "sc21_table1" in f["file"])
    assert sc21["rows"] == 10
    assert sc21["mean_abs_error"] <= 0.034
    assert sc21["max_abs_error"] <= 0.08


def test_your_own_measurements_are_read_and_odd_rows_skipped_with_the_reason(tmp_path: Path) -> None:
    """Columns are recognised by their names, unknown ones ignored, and a row that lacks something says what."""
    (tmp_path / "mine.csv").write_text(
        "mood,model,seq,gpus,gpu,tp,pp,micro_batch,global_batch,tokens_per_s_per_gpu\n"
        "fine,llama-3.1-8b,8192,64,H100,1,1,1,128,9000\n"
        "fine,llama-3.1-8b,8192,64,abacus,1,1,1,128,9000\n"
        "fine,llama-3.1-8b,8192,64,H100,1,3,1,128,9000\n"
        "fine,llama-3.1-8b,8192,64,H100,1,1,1,100,9000\n"
        "fine,llama-3.1-8b,8192,64,H100,1,1,1,128,\n"
    )
    data = json.loads(run("validate", "train", "--rows", str(tmp_path / "mine.csv"), "--format", "json"))
    assert data["files"][0]["rows"] == 5
    assert data["files"][0]["skipped"] == 4
    reasons = " ".join(r["skipped"] for r in data["rows"] if r["skipped"])
    for word in ("abacus", "is not the 64 GPUs", "no multiple of data ranks", "no iteration time"):
        assert word in reasons
    assert abs(next(r for r in data["rows"] if not r["skipped"])["error"]) < 0.6


def test_validation_at_80_columns() -> None:
    """The tables of errors keep within a narrow terminal."""
    text = run("validate", "train")
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_mfu_table_says_which_row_does_not_follow() -> None:
    """GPT-3's printed 21.3 % does not follow from its own formula, and the sentence says so."""
    data = json.loads(run("validate", "mfu", "--format", "json"))
    assert [c["model"] for c in data["claims"] if not c["follows"]] == ["GPT-3"]
    text = " ".join(run("validate", "mfu").split())
    assert "GPT-3 does not: printed 21.3 %, its inputs give 20.2 %" in text


def test_missing_files_are_named(tmp_path: Path) -> None:
    """A path that is not there, or a folder without measurements, is the user's mistake."""
    with pytest.raises(InputError, match=r"does not exist"):
        run("validate", "train", "--rows", str(tmp_path / "no.csv"))
    with pytest.raises(InputError, match=r"holds no \.csv"):
        run("validate", "train", "--rows", str(tmp_path))


def test_the_headline_equals_its_table() -> None:
    """The sentence counts and averages what the last line of the table of errors does."""
    headline = " ".join(run("validate", "train", "--brief").split("\n\n")[0].split())
    last = list(csv.DictReader(io.StringIO(run("validate", "train", "--format", "csv"))))[-1]
    assert last["file"] == "all"
    mean, median, worst = (percent(float(last[name])) for name in ("mean error", "median", "max"))
    said = f"{last['numbers']} measured numbers in 3 files are predicted within {mean} on average"
    assert headline == f"{said} (median {median}, worst {worst})."


def test_the_mfu_headline_equals_its_table() -> None:
    """The papers that the sentence names as following are those of the table."""
    headline = " ".join(run("validate", "mfu", "--brief").split("\n\n")[0].split())
    rows = list(csv.DictReader(io.StringIO(run("validate", "mfu", "--format", "csv"))))
    assert headline.startswith(", ".join(row["model"] for row in rows if row["verdict"] == "follows"))
    odd = next(row for row in rows if row["verdict"] != "follows")
    printed, given = (percent(float(odd[name])) for name in ("published", "recomputed"))
    assert f"{odd['model']} does not: printed {printed}, its inputs give {given}" in headline


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("seq", "-1", "seq must be a whole number at least 1 and at most 10,000,000, got -1"),
        ("hidden", "abc", "hidden must be a whole number at least 1"),
        ("heads", "0", "heads must be a whole number at least 1"),
        ("layers", "1e9", "layers must be a whole number at least 1 and at most 10,000, got 1e9"),
        ("iteration_s", "inf", "iteration_s must be a number at least 1e-06"),
        ("scale_out_gb_per_s", "-5", "scale_out_gb_per_s must be a number at least 1e-06"),
        ("params_b", "many", "params_b must be a number at least 1e-06"),
    ],
)
def test_a_file_in_which_no_row_can_be_compared_is_a_no(column: str, value: str, says: str, tmp_path: Path) -> None:
    """A senseless cell is named with its column and range; where that leaves no row, the command ends with 1."""
    row = {
        "layers": "24",
        "hidden": "2048",
        "heads": "16",
        "seq": "2048",
        "gpus": "8",
        "gpu": "a100-sxm",
        "tp": "1",
        "pp": "1",
        "micro_batch": "1",
        "global_batch": "64",
        "iteration_s": "2.5",
        column: value,
    }
    path = tmp_path / "mine.csv"
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    done = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["validate", "train", "--rows", str(path)])
    assert done.exit_code == 1
    assert "No row could be compared" in done.stdout
    assert says in done.stdout
