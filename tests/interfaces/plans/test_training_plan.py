"""What people and programs get from the training plan: pages that fit, JSON that adds up, mistakes in one line."""

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.interfaces.cli import app
from loadfactor.interfaces.formats import about_money, number, percent

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
        (["--gpus", "many"], "got many, which is no number"),
        (["--gpus", "64", "--datatype", "fp4"], "has no known fp4 peak; it has"),
        (["--gpus", "64", "--recompute", "some"], "no recompute called 'some'; choose from none, selective, full"),
        (["--gpus", "64", "--zero", "4"], "--zero must be at least 0 and at most 3, got 4"),
        (["--gpus", "64", "--scaling", "odd"], "choose from strong, weak"),
        (["--gpus", "1e30"], "--gpus must be at least 1 and at most 10,000,000, got 1e30"),
        (["--gpus", "64", "--gpu-mtbf-h", "0.05"], "too often for the work to survive"),
        (["--gpus", "64", "--tokens", "-1"], "--tokens must be at least 1 and at most "),
    ],
)
def test_mistakes_are_said_in_one_line(arguments: list[str], said: str) -> None:
    """A wrong option names itself, its value and what there is."""
    with pytest.raises(InputError, match=said) as caught:
        run(*PLAN, *arguments)
    assert "\n" not in str(caught.value)


def test_the_headline_equals_its_table() -> None:
    """Days, cost and MFU of the sentence are those of the main table and of the JSON, rounded to what is known."""
    arguments = [*PLAN, "--gpus", "64"]
    headline = " ".join(run(*arguments).split("\n\n")[0].split())
    row = next(csv.DictReader(io.StringIO(run(*arguments, "--format", "csv"))))
    plan = json.loads(run(*arguments, "--json"))["plans"][0]
    assert (float(row["days"]), float(row["cost"])) == pytest.approx((plan["days"], plan["cost"]))
    said = f"about {number(float(row['days']))} days and {about_money(float(row['cost']))}, at {percent(float(row['MFU']))} MFU"
    assert said in headline


def test_the_function_returns_what_the_command_prints() -> None:
    """loadfactor.plan_training takes what the command takes and has the same JSON."""
    page = loadfactor.plan_training(model="Llama 3.1 8B", gpus=(8, 64), tokens="1T", tp=(1, 2))  # type: ignore[arg-type]
    printed = run(*PLAN, "--gpus", "8,64", "--tp", "1", "--tp", "2", "--json")
    assert json.loads(page.to_json()) == json.loads(printed)


def test_lists_may_be_written_with_commas_or_repeated() -> None:
    """--tp 1,2 and --tp 1 --tp 2 ask the same."""
    assert run(*PLAN, "--gpus", "64", "--tp", "1,2", "--json") == run(
        *PLAN, "--gpus", "64", "--tp", "1", "--tp", "2", "--json"
    )


def test_money_has_a_currency() -> None:
    """Every amount stands beside its currency."""
    data = json.loads(run(*PLAN, "--gpus", "64", "--price-per-gpu-hour", "2", "--json"))
    assert data["currency"] == "USD"
    assert data["price_source"] is None
    assert data["plans"][0]["price_per_gpu_hour"] == 2
