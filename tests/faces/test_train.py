"""What people see of the training planner: answers that fit, JSON that programs read, mistakes in one line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadfactor.errors import InputError
from loadfactor.faces.cli import app

PLAN = ["plan", "train", "--model", "llama-3.1-8b", "--accelerator", "h100-sxm", "--tokens", "1e12"]


def run(*arguments: str, columns: int = 80) -> str:
    result = CliRunner(env={"COLUMNS": str(columns), "NO_COLOR": "1"}).invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("columns", [80, 100])
def test_a_plan_fits_the_terminal(columns: int) -> None:
    """The answer names days, dollars, MFU and the layout in its first sentence and keeps within the columns."""
    text = run(*PLAN, "--gpus", "64", columns=columns)
    first = " ".join(text.split("\n\n")[0].split())
    assert "days" in first
    assert "$" in first
    assert "% MFU" in first
    assert max(len(line) for line in text.splitlines()) <= columns


def test_a_plan_as_json_adds_up() -> None:
    """Terms sum to the step, memory parts to the total, and each number of GPUs has its plan."""
    data = json.loads(run(*PLAN, "--gpus", "8,64,512", "--scaling", "weak", "--format", "json"))
    assert [p["gpus"] for p in data["plans"]] == [8, 64, 512]
    for p in data["plans"]:
        best = p["best"]
        assert sum(best["terms"].values()) == pytest.approx(best["step_s"])
        assert sum(best["memory_parts"].values()) == pytest.approx(best["memory_bytes"])
        assert best["fits"]
        assert 0.2 < p["mfu_share"] < 0.75
        assert p["cost"] == pytest.approx(p["gpu_hours"] * p["price_per_gpu_hour"])


def test_a_number_of_gpus_that_cannot_be_is_a_row_with_its_reason() -> None:
    """On the scaling curve an impossible point says why instead of ending the command."""
    data = json.loads(run("plan", "train", "--model", "llama-3.1-70b", "--gpus", "8,64", "--format", "json"))
    assert [p["gpus"] for p in data["plans"]] == [64]
    assert data["refused"][0]["gpus"] == 8
    assert "nothing fits" in data["refused"][0]["reason"]


def test_a_page_and_a_picture_are_written(tmp_path: Path) -> None:
    """The same answer becomes an HTML page and a PNG."""
    for name in ("plan.html", "plan.png"):
        run(*PLAN, "--gpus", "8,64", "--output", str(tmp_path / name))
        assert (tmp_path / name).stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gpus", "many"], "--gpus takes numbers"),
        (["--gpus", "64", "--datatype", "fp4"], "has no known fp4 peak; it has"),
        (["--gpus", "64", "--recompute", "some"], "there are none, selective, full"),
        (["--gpus", "64", "--zero", "4"], "stages 0, 1, 2 and 3"),
        (["--gpus", "64", "--scaling", "odd"], "strong and weak"),
        (["--gpus", "64", "--tokens", "-1"], "--tokens must be positive"),
    ],
)
def test_mistakes_are_said_in_one_line(arguments: list[str], said: str) -> None:
    """A wrong option names itself, its value and what there is."""
    with pytest.raises(InputError, match=said) as caught:
        run(*PLAN, *arguments)
    assert "\n" not in str(caught.value)


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
