"""`plan serve` and `validate serve` at the terminal: what they print, what they refuse, and that the numbers hold."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from loadfactor.errors import InputError
from loadfactor.faces.cli import app


def ask(*words: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(app, list(words))


@pytest.fixture(scope="session")
def plan() -> dict:  # type: ignore[type-arg]
    """A small plan as data."""
    result = ask(
        "plan", "serve", "--model", "llama-3.1-8b", "--users", "2000", "--price-per-gpu-hour", "2", "--format", "json"
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def test_a_plan_adds_up(plan: dict) -> None:  # type: ignore[type-arg]
    """Tokens and time balance exactly, dollars follow from replicas and price, and causes multiply to the multiplier."""
    balance, causes = plan["balance"], plan["multiplier"]
    assert balance["prompt_tokens_in"] == balance["prompt_tokens_out"] + balance["prompt_tokens_rejected"]
    assert balance["output_tokens_asked"] == balance["output_tokens_out"] + balance["output_tokens_rejected"]
    assert balance["paid_less_busy_idle_starting_down_ns"] == 0
    assert plan["cost_per_hour"] == plan["gpus"] * 2
    assert causes["multiplier"] == pytest.approx(causes["duty_factor"] * causes["peaks_factor"] * causes["fill_factor"])
    assert sum(h["requests"] for h in plan["hours"]) == plan["total"]["requests"]
    assert sum(h["cost"] for h in plan["hours"]) == pytest.approx(plan["total"]["cost"])
    assert plan["slo"]["kept"]


def test_the_crowd_makes_tokens_cheaper(plan: dict) -> None:  # type: ignore[type-arg]
    """Cost per token falls from the smallest crowd to the largest, towards the cost at unlimited demand."""
    costs = [point["cost_per_mtok"] for point in plan["crowd"]]
    assert costs[0] > 10 * costs[-1]
    assert costs[-1] == pytest.approx(plan["cost_per_mtok_at_unlimited_demand"], rel=0.1)


def test_traffic_costs_what_it_should(plan: dict) -> None:  # type: ignore[type-arg]
    """Being open 40 % of the time is a factor of exactly 2.5; with mild bursts the benchmark price is paid three to five times."""
    even, part, bursty, wild = plan["traffic"]
    assert part["causes"]["duty_factor"] == pytest.approx(2.5, rel=0.02)
    assert part["multiplier"] / even["multiplier"] == pytest.approx(2.5, rel=0.15)
    assert 3 < bursty["multiplier"] < 5.5
    assert wild["multiplier"] > bursty["multiplier"]


def test_levers_are_compared(plan: dict) -> None:  # type: ignore[type-arg]
    """Narrower weights and better kernels make tokens cheaper and need a larger crowd."""
    effects = {lever["name"]: lever for lever in plan["levers"]}
    for name in ("prefix caching", "narrower weights", "better kernels"):
        assert effects[name]["cost_factor"] < 1
        assert effects[name]["demand_factor"] > 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "llama-9"), "did you mean"),
        (("--accelerator", "abacus"), "no accelerator"),
        (("--engine", "steam"), "no engine"),
        (("--tpot", "0.1"), "relax them"),
        (("--model", "llama-3.1-405b", "--accelerator", "l4"), "does not fit"),
        (("--trace", "nowhere.csv"), "no such trace"),
        (("--router", "mail"), "--router mail is not known"),
        (("--speculate", "many"), "drafted:acceptance"),
        (("--users", "-5"), "must be positive"),
    ],
)
def test_mistakes_are_answered_in_one_line(words: tuple[str, ...], message: str) -> None:
    """What cannot be planned is refused before anything is simulated, with what works instead."""
    result = ask("plan", "serve", *words)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_validation_prints_the_agreed_schema() -> None:
    """Without a file the sweeps that come with the package are predicted; groups and overall have the agreed fields."""
    data = json.loads(ask("validate", "serve", "--format", "json").stdout)
    fields = {"system", "backend", "model", "rows", "skipped"}
    fields |= {f"{x}_mean_abs_error" for x in ("tpot", "ttft", "throughput", "speedup")}
    assert set(data) == {"groups", "overall", "rows"}
    assert all(fields <= set(group) for group in (*data["groups"], data["overall"]))
    assert data["overall"]["rows"] == len(data["rows"])
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


def test_the_published_sweeps_are_predicted(shared: Path) -> None:
    """Against 1,661 rows on H100 and B200: time per token and throughput to 15 %, TTFT of single requests to 25 %."""
    sweeps = shared / "truth" / "serving_concurrency_sweeps_from_silicon_sample.csv"
    configs = shared / "data" / "model_configs"
    data = json.loads(
        ask("validate", "serve", "--rows", str(sweeps), "--model-config", str(configs), "--format", "json").stdout
    )
    assert data["overall"]["rows"] == 1661
    assert data["overall"]["tpot_mean_abs_error"] < 0.12
    assert data["overall"]["throughput_mean_abs_error"] < 0.125
    alone = [abs(r["ttft_error"]) for r in data["rows"] if r["concurrency"] == 1]
    assert sum(alone) / len(alone) < 0.25
    for system in ("h100_sxm", "b200_sxm"):
        errors = [abs(r["tpot_error"]) for r in data["rows"] if r["system"] == system]
        assert sum(errors) / len(errors) < 0.15
