"""Validations of serving, of training, and of a run of the books beside the plan for it."""

import csv
import io
import json
from math import fsum
from pathlib import Path
from typing import get_args

import pytest
from tests.commands import Run
from tests.ledger.fleets import Row, add, batch
from typer.testing import CliRunner, Result

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.constants import read_serving_errors
from loadfactor.catalog.engines import list_engine_constants, list_factors
from loadfactor.catalog.models import network
from loadfactor.interfaces.cli import app
from loadfactor.interfaces.formats import percent
from loadfactor.planner.hardware.distance import Distance
from loadfactor.planner.training.flops import training_flops_per_token
from loadfactor.planner.validation.request import ServingValidationRequest
from loadfactor.planner.validation.serving import validate_serving
from loadfactor.settings.config import settings


def ask(*words: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(app, list(words))


@pytest.mark.long
def test_validation_prints_the_agreed_schema() -> None:
    """Without a file the sweeps that come with the package are predicted; groups and overall have the agreed fields."""
    data = json.loads(ask("validate", "serve", "--format", "json").stdout)
    fields = {"system", "backend", "model", "rows", "skipped"}
    fields |= {f"{x}_mean_abs_error" for x in ("tpot", "ttft", "throughput", "speedup")}
    assert set(data) == {"groups", "sources", "overall", "rows"}
    assert all(fields <= set(group) for group in (*data["groups"], data["overall"]))
    assert data["overall"]["rows"] == sum(row["skipped"] is None for row in data["rows"])
    assert data["overall"]["tpot_mean_abs_error"] < 0.15


def test_unknown_models_are_skipped_with_a_reason_or_read_from_a_folder(tmp_path: Path) -> None:
    """A model the catalog does not know is skipped; with its config.json in the folder it is predicted."""
    rows = tmp_path / "rows.csv"
    head = "model,system,backend,isl,osl,tp,concurrency,tpot_ms,ttft_ms\n"
    rows.write_text(
        head + "acme/Tiny-1B-FP8,h100_sxm,vllm,512,128,1,8,4,40\nacme/x,abacus,vllm,5,5,1,1,1,1\n", encoding="utf-8"
    )
    data = json.loads(ask("validate", "serve", "--rows", str(rows), "--format", "json").stdout)
    assert data["overall"]["skipped"] == 2
    assert "--model-config" in data["rows"][0]["skipped"]
    assert "no accelerator" in data["rows"][1]["skipped"]
    config = {
        "model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 4, "intermediate_size": 5632, "vocab_size": 32000, "max_position_embeddings": 8192,
    }  # fmt: skip
    (tmp_path / "acme--Tiny-1B_config.json").write_text(json.dumps(config), encoding="utf-8")
    data = json.loads(
        ask("validate", "serve", "--rows", str(rows), "--model-config", str(tmp_path), "--format", "json").stdout
    )
    assert data["rows"][0]["skipped"] is None
    assert data["rows"][0]["predicted_tpot_s"] > 0


def is_dense(model: str) -> bool:
    """Whether a network of the sample has no experts."""
    return "Llama-3.1" in model or "Qwen3-32B" in model


def test_stated_ranges_hold_four_of_five_rows() -> None:
    """The range that others give holds 80 % of the rows of what is left out, on average, within a tenth."""
    errors = read_serving_errors()
    for word in get_args(Distance):
        for quantity in ("tpot", "tokens_per_s", "ttft"):
            assert 0.75 < errors.covered_shares[word][quantity] < 0.9
    said = ask("validate", "serve", "--about").stdout
    assert "Each source left out in turn" in said


def test_every_serving_constant_says_what_it_means_and_where_it_is_from() -> None:
    """Fewer values than the 55 of before, each with a meaning, a prior and its source."""
    constants = list_engine_constants()["constant"]
    assert sum(1 + len(list_factors(one)) for one in constants.values()) < 55
    for one in constants.values():
        assert one["meaning"]
        assert one["source"]
        assert 0.2 < one["value"] / one["prior"] < 5


@pytest.mark.long
def test_sources_say_how_wrong_they_are_in_and_out_of_the_fit(tmp_path: Path) -> None:
    """A source of the fit has its errors of both; one that nobody fitted has what is measured here, and its share in the range."""
    data = validate_serving(ServingValidationRequest())
    known = {one.source: one for one in read_serving_errors().sources}
    for one in data.sources:
        assert (one.in_fit, one.left_out) == (
            known[one.source].in_fit[one.quantity],
            known[one.source].left_out[one.quantity],
        )
    rows = tmp_path / "rows.csv"
    head = "model,system,backend,backend_version,isl,osl,tp,concurrency,tpot_ms,ttft_ms\n"
    run = "llama-3.1-8b,h200_sxm,vllm,0.99.0,1024,256,1,{},{},{}\n"
    rows.write_text(head + run.format(8, 8, 60), encoding="utf-8")
    near_ms = 1e3 * (validate_serving(ServingValidationRequest(rows=rows)).rows[0].predicted_tpot_s or 0.0)
    rows.write_text(head + run.format(8, near_ms, 60) + run.format(16, 900, 9), encoding="utf-8")
    mine = validate_serving(ServingValidationRequest(rows=rows))
    assert {row.distance for row in mine.rows} == {"never seen"}
    found = {one.quantity: one for one in mine.sources}
    assert found["tpot"].source == "h200-sxm vllm 0.99.0"
    assert found["tpot"].in_fit is None
    assert found["tpot"].range_coverage == 0.5
    errors = [abs(row.tpot_error) for row in mine.rows if row.tpot_error is not None]
    assert found["tpot"].left_out == pytest.approx(sum(errors) / 2)


def test_a_measurement_counts_once(tmp_path: Path) -> None:
    """A row that is another's under a second name or spelling of the layout, or with fewer digits, is left out and says so;
    another measurement is not.
    """
    rows = tmp_path / "rows.csv"
    head = "model,system,backend,isl,osl,tp,moe_ep,concurrency,tpot_ms,ttft_ms\n"
    run = "deepseek-ai/DeepSeek-{},b200_sxm,sglang,1024,1024,{},8,16,{},{}\n"
    first, renamed, respelled = (
        run.format("R1", 8, 11.04, 319.8),
        run.format("V3", 8, 11.04, 319.8),
        run.format("V3", 64, 11.036, 319.82),
    )
    rows.write_text(head + first + renamed + respelled + run.format("V3", 8, 11.04, 320.1), encoding="utf-8")
    data = validate_serving(ServingValidationRequest(rows=rows))
    same = "the same measurement under another name as line 2"
    assert [row.skipped for row in data.rows] == [None, same, same, None]


def test_runs_with_drafts_are_predicted_with_them(tmp_path: Path) -> None:
    """TensorRT-LLM 1.2.0rc6.post3 was an image of runs with multi-token prediction alone: their rows are predicted with three
    drafted tokens a step, and a row that says what it drafted is believed.
    """
    rows = tmp_path / "rows.csv"
    head = "model,system,backend,backend_version,precision,isl,osl,tp,concurrency,tpot_ms,ttft_ms,drafted\n"
    run = "deepseek-ai/DeepSeek-R1,b200_sxm,trtllm,{},fp8,1024,1024,8,8,{},150,{}\n"
    rows.write_text(
        head
        + run.format("1.2.0rc6.post3", 6.82, "")
        + run.format("1.2.0rc6.post3", 11.1, 0)
        + run.format("1.2.0rc6.post2", 11.2, "")
        + run.format("1.2.0rc6.post2", 7.1, 3),
        encoding="utf-8",
    )
    unsaid, none, plain, said = (
        row.predicted_tpot_s or 0.0 for row in validate_serving(ServingValidationRequest(rows=rows)).rows
    )
    assert 0.5 < unsaid / none < 0.9
    assert plain == none
    assert said == unsaid


@pytest.mark.long
def test_the_published_sweeps_are_predicted(shared: Path) -> None:
    """Against 1,512 measurements (1,661 rows) on H100 and B200: time per token and throughput to 12 %, TTFT under load to
    30 %, of one request to 25 %; dense networks on TensorRT-LLM to 10 %.
    """
    sweeps = shared / "truth" / "serving_concurrency_sweeps_from_silicon_sample.csv"
    configs = shared / "data" / "model_configs"
    data = json.loads(
        ask("validate", "serve", "--rows", str(sweeps), "--model-config", str(configs), "--format", "json").stdout
    )
    assert data["overall"]["rows"] == 1512
    assert data["overall"]["tpot_mean_abs_error"] < 0.12
    assert data["overall"]["throughput_mean_abs_error"] < 0.125
    assert data["overall"]["ttft_mean_abs_error"] < 0.30
    dense = [abs(r["tpot_error"]) for r in data["rows"] if r["backend"] == "trtllm" and is_dense(r["model"])]
    assert sum(dense) / len(dense) < 0.10
    alone = [abs(r["ttft_error"]) for r in data["rows"] if r["concurrency"] == 1]
    assert sum(alone) / len(alone) < 0.25
    for system in ("h100_sxm", "b200_sxm"):
        errors = [abs(r["tpot_error"]) for r in data["rows"] if r["system"] == system]
        assert sum(errors) / len(errors) < 0.15


def test_a_file_that_is_no_text_is_refused_in_one_line(tmp_path: Path) -> None:
    """A binary file, or a broken gzip, is no CSV of measurements."""
    for content in (b"\xd0\xff\x00", b"\x1f\x8bbroken"):
        (tmp_path / "rows.csv").write_bytes(content)
        with pytest.raises(InputError, match=r"rows\.csv is (not a CSV|a truncated gzip) file"):
            validate_serving(ServingValidationRequest(rows=tmp_path / "rows.csv"))


def run(*arguments: str, columns: int = 80) -> str:
    result = CliRunner(env={"COLUMNS": str(columns), "NO_COLOR": "1"}).invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.long
def test_validation_of_the_published_tables_needs_no_file() -> None:
    """Without --rows the retyped tables are compared, and the JSON has exactly the promised keys."""
    data = json.loads(run("validate", "train", "--format", "json"))
    keys = ["file", "rows", "skipped", "mean_abs_error", "median_abs_error", "max_abs_error", "bias"]
    keys += ["regret_mean", "regret_max", "rank_correlation", "in_fit", "left_out", "range_coverage"]
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


@pytest.mark.long
def test_the_headline_equals_its_table() -> None:
    """The sentence counts and averages what the last line of the table of errors does."""
    headline = " ".join(run("validate", "train", "--brief").split("\n\n")[0].split())
    *files, last = csv.DictReader(io.StringIO(run("validate", "train", "--format", "csv")))
    assert last["file"] == "all"
    mean, median, worst = (percent(float(last[name])) for name in ("mean error", "median", "max"))
    said = f"{last['numbers']} measured numbers in {len(files)} files are predicted within {mean} on average"
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


@pytest.mark.long
def test_without_a_network_the_option_is_named(run: Run, store: Path) -> None:
    """Nobody says the model: --model and [[network]] are named, and the option is enough."""
    Path("loadfactor.toml").write_text("")
    settings.cache_clear()
    code, _, err = run("validate", "train", "--job", "ft", "--store", store)
    assert (code, "--model" in err, "[[network]]" in err) == (2, True, True)
    options = ("--model", "llama-3.1-8b", "--seq", "4096", "--datatype", "bf16")
    assert run("validate", "train", "--job", "ft", "--store", store, *options)[0] == 0
