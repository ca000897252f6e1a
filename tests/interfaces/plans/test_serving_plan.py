"""`plan serve`: what it prints, what it refuses, and that its numbers hold."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner, Result

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.interfaces.cli import app
from loadfactor.interfaces.functions import Page
from loadfactor.planner.serving.serving_plan import MOST_SIMULATED_STEPS


def ask(*words: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(app, list(words))


@pytest.fixture(scope="session")
def small_page() -> Page:
    """A small plan."""
    return loadfactor.plan_serving(model="llama-3.1-8b", users=2000, price_per_gpu_hour=2)


@pytest.fixture(scope="session")
def plan(small_page: Page) -> dict:  # type: ignore[type-arg]
    """The same plan as data."""
    return json.loads(small_page.to_json())  # type: ignore[no-any-return]


def test_a_plan_adds_up(plan: dict) -> None:  # type: ignore[type-arg]
    """Tokens and time balance exactly, cost follows from replicas and price, and causes multiply to the multiplier."""
    balance, causes = plan["balance"], plan["multiplier"]
    assert balance["prompt_tokens_in"] == balance["prompt_tokens_out"] + balance["prompt_tokens_rejected"]
    assert balance["output_tokens_asked"] == balance["output_tokens_out"] + balance["output_tokens_rejected"]
    assert balance["paid_less_busy_idle_starting_down_ns"] == 0
    assert plan["cost_per_hour"] == plan["gpus"] * 2
    assert causes["multiplier"] == pytest.approx(causes["duty_factor"] * causes["peaks_factor"] * causes["fill_factor"])
    assert sum(h["requests"] for h in plan["hours"]) == plan["total"]["requests"]
    assert sum(h["cost"] for h in plan["hours"]) == pytest.approx(plan["total"]["cost"])
    assert plan["slo"]["kept"]


def test_a_plan_says_its_range(plan: dict, small_page: Page) -> None:  # type: ignore[type-arg]
    """Every plan states between what its numbers lie in four of five cases, and that what this can turn is open."""
    for low, high in (plan["tpot_range"], plan["ttft_range"]):
        assert 0.4 < low < 1 < high < 4
    low, high = plan["cost_per_mtok_range"]
    assert low < plan["total"]["cost_per_mtok"] < high
    fewest, most = plan["replicas_range"]
    assert fewest <= plan["replicas"] <= most
    assert plan["gpus_range"] == [n * plan["gpus"] // plan["replicas"] for n in (fewest, most)]
    assert "in four of five cases" in str(small_page)
    assert ("number of replicas is open" in str(small_page)) == (fewest < most)


def test_more_users_make_tokens_cheaper(plan: dict) -> None:  # type: ignore[type-arg]
    """Cost per token falls from the fewest users to the most, towards the cost at unlimited demand."""
    costs = [point["cost_per_mtok"] for point in plan["crowd"]]
    assert costs[0] > 10 * costs[-1]
    most = plan["crowd"][-1]["replicas"]  # at the most users a fleet is at most one whole replica too large
    assert 1 <= costs[-1] / plan["cost_per_mtok_at_unlimited_demand"] <= most / (most - 1)


def test_traffic_costs_what_it_should(plan: dict) -> None:  # type: ignore[type-arg]
    """Being open 40 % of the time is a factor of exactly 2.5; with mild bursts the benchmark price is paid three to five times."""
    even, part, bursty, wild = plan["traffic"]
    assert part["causes"]["duty_factor"] == pytest.approx(2.5, rel=0.02)
    assert part["multiplier"] / even["multiplier"] == pytest.approx(2.5, rel=0.15)
    assert 3 < bursty["multiplier"] < 5.5
    assert wild["multiplier"] > bursty["multiplier"]


def test_levers_are_compared(plan: dict) -> None:  # type: ignore[type-arg]
    """Weight quantization and better kernels make tokens cheaper and need more demand."""
    effects = {lever["name"]: lever for lever in plan["levers"]}
    for name in ("prefix caching", "weight quantization", "better kernels"):
        assert effects[name]["cost_factor"] < 1
        assert effects[name]["demand_factor"] > 1


def test_the_headline_is_its_table(small_page: Page) -> None:
    """Every cost, share and factor of the headline stands in the first table as it is said."""
    headline = small_page.document.headline
    table = {str(what): value for what, value in small_page.document.sections[0].tables[0].rows}
    said = {
        "cost an hour, every replica up": "{} an hour",
        "cost per million tokens": "{} per million tokens",
        "cost of a token, times the benchmark price": "{} × the benchmark price",
        "requests within the objective": "{} of requests within",
        "duty: a step is running": "busy {} of the time",
        "mean batch": "a batch of {}.",
    }
    for what, words in said.items():
        assert words.format(table[what]) in headline
    causes = next(s for s in small_page.document.sections if s.title.startswith("Why")).tables[0].text_rows()
    assert causes[-1] == ["together: times the benchmark price", table["cost of a token, times the benchmark price"]]


def test_every_heading_says_where_its_numbers_come_from(small_page: Page) -> None:
    """Sections are simulated or by equation, and the one that compares both says so."""
    for section in small_page.document.sections:
        compares = section.title.startswith("Why")
        heading = section.lead if compares else section.title
        labels = [word for word in ("simulated", "by equation") if word in heading]
        assert len(labels) == (2 if compares else 1), section.title


def test_the_function_returns_what_the_command_prints(small_page: Page) -> None:
    """`plan_serving()` takes the options of the command under their names and holds the same numbers."""
    words = ("--model", "llama-3.1-8b", "--users", "2k", "--price-per-gpu-hour", "2", "--json")
    assert ask("plan", "serve", *words).stdout.strip() == small_page.to_json()
    assert small_page.data.currency == "USD"


@pytest.mark.parametrize("users", [2_000, 200_000])
def test_a_given_number_of_replicas_is_kept(users: int) -> None:
    """`--replicas 5` plans five replicas, also where only part of the demand is simulated; each carries its share."""
    plan = loadfactor.plan_serving(model="llama-3.1-8b", users=users, replicas=5).data
    assert plan.replicas == plan.gpus == 5
    assert plan.simulated_replicas / plan.simulated_share == pytest.approx(5)
    assert plan.total.replicas == pytest.approx(plan.simulated_replicas)
    assert [hour.replicas for hour in plan.hours] == pytest.approx([plan.simulated_replicas] * len(plan.hours))


def test_replicas_simulated_and_planned_carry_the_same_load() -> None:
    """Where a share of the demand is simulated, the fleet planned is exactly as many times larger."""
    plan = loadfactor.plan_serving(model="llama-3.1-8b", users=100_000).data
    assert plan.simulated_share < 1
    assert plan.replicas == pytest.approx(plan.simulated_replicas / plan.simulated_share)


@pytest.mark.long
def test_many_slow_replicas_are_simulated_as_fewer() -> None:
    """A fleet whose engines take more steps in a day than there is time for is simulated in part."""
    plan = loadfactor.plan_serving(model="llama-3.1-70b", accelerator="l40s", replicas=400).data
    steps = 400 * 86_400 / plan.chosen.require_capacity().tpot_s
    assert plan.simulated_share == pytest.approx(MOST_SIMULATED_STEPS / steps, rel=0.05)
    assert plan.replicas == 400


def test_only_a_simulation_loads_the_compiler() -> None:
    """Help, equations and the page of a serving plan are there without numba."""
    code = (
        "import sys; from loadfactor.interfaces.plans import serve; from loadfactor.planner.serving import service; "
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "llama-9"), "did you mean"),
        (("--accelerator", "abacus"), "no accelerator"),
        (("--engine", "steam"), "no engine called 'steam'"),
        (("--tpot", "0.1"), "relax them"),
        (("--model", "llama-3.1-405b", "--accelerator", "l4"), "does not fit"),
        (("--trace", "nowhere.csv"), "no such trace"),
        (("--router", "leest-loaded"), "did you mean 'least-loaded'?"),
        (("--prefill-replicas", "1"), "needs --replicas"),
        (("--replicas", "2", "--users", "1e9"), "leave --replicas out"),
        (("--speculate", "many"), "drafted:acceptance"),
        (("--users", "-5"), "--users must be at least 1 and at most 100,000,000,000, got -5"),
    ],
)
def test_mistakes_are_answered_in_one_line(words: tuple[str, ...], message: str) -> None:
    """What cannot be planned is refused before anything is simulated, with what works instead."""
    result = ask("plan", "serve", *words)
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
