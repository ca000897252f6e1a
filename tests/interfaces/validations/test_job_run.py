"""`validate train --job`: a run of the books beside the plan for it, and where its time went."""

import json
from math import fsum
from pathlib import Path

import pytest
from tests.commands import Run
from tests.ledger.fleets import Row, add, batch

from loadfactor.books.books import Books
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.models import network
from loadfactor.planner.training.flops import training_flops_per_token
from loadfactor.settings.config import settings

START = 1_767_225_600_000
HOURS = 10
TOKENS = 64 * 4096
STEPS = ((600, 900, True), (18_900, 100, False), (21_900, 600, True))
"""Second of the run, steps of 20 s from there on, and whether they were kept."""
SECTIONS = (("start_up", 0, 300), ("checkpoint", 18_600, 18_900))


def at(second: int) -> int:
    return START + 1000 * second


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight H100 for ten hours: a start, steps, a checkpoint, lost steps, a gap, steps, and a rest."""
    monkeypatch.chdir(tmp_path)
    Path("loadfactor.toml").write_text(
        '[[network]]\nmodel = "llama-3.1-8b"\nsequence_length = 4096\ndatatype = "bf16"\n'
    )
    settings.cache_clear()
    of_gpu = {"node": "n", "from_utc": START, "to_utc": at(3600 * HOURS)}
    devices = [{"device_id": f"g{k}", "accelerator": "H100", **of_gpu} for k in range(8)]
    held = [{"job_id": "ft", "device_id": f"g{k}", **of_gpu} for k in range(8)]
    progress: list[Row] = [
        {"job_id": "ft", "unit": unit, "amount": float(steps * each), "kept": kept}
        | {"from_utc": at(begun), "to_utc": at(begun + 20 * steps)}
        for begun, steps, kept in STEPS
        for unit, each in (("step", 1), ("train_token", TOKENS))
    ]
    sections = [
        {"job_id": "ft", "kind": kind, "from_utc": at(begun), "to_utc": at(ended)} for kind, begun, ended in SECTIONS
    ]
    books = Books(tmp_path / "store")
    named = (("devices", devices), ("allocations", held), ("progress", progress), ("job_sections", sections))
    add(books, [batch(name, rows) for name, rows in named], "example", tmp_path)
    return tmp_path / "store"


def test_where_the_time_of_a_run_went(run: Run, store: Path) -> None:
    """Planned, slower, lost, sections, before, between and after add up to what was held; MFU is that of the FLOP count."""
    code, out, err = run("validate", "train", "--job", "ft", "--store", store, "--format", "json")
    assert code == 0, err
    said = json.loads(out)
    assert said["run"]["gpus"] == 8
    assert said["run"]["step_s"] == pytest.approx(20)
    time = {part["name"]: part["seconds"] for part in said["time"]}
    assert fsum(time.values()) == pytest.approx(36_000)
    planned = said["plan"]["step_s"] * 1500
    assert time["kept steps as planned"] == pytest.approx(planned)
    assert time["kept steps slower than planned"] == pytest.approx(30_000 - planned)
    assert time["steps that were lost"] == pytest.approx(2000)
    of_rest = {"checkpoint": 300, "start up": 300, "before the first step": 300, "between steps": 1000}
    assert {name: time[name] for name in of_rest} == pytest.approx(of_rest)
    assert time["after the last step"] == pytest.approx(2100)
    flops = TOKENS / 20 * training_flops_per_token(network("llama-3.1-8b"), 4096)
    assert said["mfu_share"] == pytest.approx(flops / 8 / accelerator("h100-sxm").peak_flops("bf16"))
    assert said["plan"]["global_batch"] == 64


def test_a_person_reads_the_run_beside_its_plan(run: Run, store: Path) -> None:
    """The page names the job, its step, the plan's, and the layout; a layout that is given is the plan's."""
    _, out, _ = run("validate", "train", "--job", "ft", "--store", store, "--tp", "8", "--micro-batch", "1")
    text = " ".join(out.split())
    assert "A step of job ft takes 20 s, by plan" in text
    assert "TP8" in text
    assert "before the first step" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--job", "tf"), "tf"),
        (("--tp", "2"), "--job"),
        (("--job", "ft", "--seq", "5000"), "--seq"),
        (("--job", "ft", "--rows", "x.csv"), "not both"),
    ],
)
def test_what_a_plan_lacks_is_said_in_one_line(run: Run, store: Path, arguments: tuple[str, ...], says: str) -> None:
    """Another job, options of a job without one, a length that divides no step, and files beside a job."""
    code, _, err = run("validate", "train", "--store", store, *arguments)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert says in err


def test_without_a_network_the_option_is_named(run: Run, store: Path) -> None:
    """Nobody says the model: --model and [[network]] are named, and the option is enough."""
    Path("loadfactor.toml").write_text("")
    settings.cache_clear()
    code, _, err = run("validate", "train", "--job", "ft", "--store", store)
    assert (code, "--model" in err, "[[network]]" in err) == (2, True, True)
    options = ("--model", "llama-3.1-8b", "--seq", "4096", "--datatype", "bf16")
    assert run("validate", "train", "--job", "ft", "--store", store, *options)[0] == 0
