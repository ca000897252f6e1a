"""Plans of training and serving, and every option of every plan with numbers that make no sense."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from tests.long import rest_long
from tests.waiting import LONGEST_S
from typer.testing import CliRunner, Result

import loadfactor
from loadfactor.base.errors import InputError, PlanError
from loadfactor.base.request import Option, make_request, options_of
from loadfactor.catalog.prices import gpu_hour_price
from loadfactor.interfaces.cli import app
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.formats import about_money, number, percent
from loadfactor.interfaces.functions import Page
from loadfactor.interfaces.plans import breakeven, own, rl, serve, size, train
from loadfactor.interfaces.render.json import render_json, to_plain
from loadfactor.interfaces.render.terminal import render_text
from loadfactor.planner.economics.request import BreakEvenRequest, OwnRequest
from loadfactor.planner.reinforcement.request import RlRequest
from loadfactor.planner.serving.fleet_size import MOST_SIMULATED_STEPS
from loadfactor.planner.serving.request import ServingRequest
from loadfactor.planner.sizing.request import SizeRequest
from loadfactor.planner.training.request import TrainingRequest

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


@pytest.mark.long
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


@pytest.mark.long
def test_the_headline_equals_its_table() -> None:
    """Days, cost and MFU of the sentence are those of the main table and of the JSON, rounded to what is known."""
    arguments = [*PLAN, "--gpus", "64"]
    headline = " ".join(run(*arguments).split("\n\n")[0].split())
    row = next(csv.DictReader(io.StringIO(run(*arguments, "--format", "csv"))))
    plan = json.loads(run(*arguments, "--json"))["plans"][0]
    assert (float(row["days"]), float(row["cost"])) == pytest.approx((plan["days"], plan["cost"]))
    time = f"about {number(float(row['days']))} days ({plan['distance']})"
    assert f"{time} and {about_money(float(row['cost']))}, at {percent(float(row['MFU']))} MFU" in headline


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


def test_ranges_hold_the_listed_price_and_a_replaced_batch_is_said() -> None:
    """The cost at the ends of the price printed lies inside the range; a batch that GPUs made another one says so."""
    page = loadfactor.plan_training(model="llama-3.1-8b", gpus=(15_625,), tokens=1e12)
    (one,) = page.data.plans
    listed = gpu_hour_price("h100-sxm")
    assert listed is not None
    low, high = one.cost_range
    assert low < one.gpu_hours * listed.low < one.cost < one.gpu_hours * listed.high < high
    said = {a.name: f"{a.value}, {a.source}" for a in page.document.assumptions}
    assert said["batch"].startswith("15,625 sequences, 128M tokens, in place of about 4.19M tokens")
    usual = loadfactor.plan_training(model="llama-3.1-8b", gpus=(64,), tokens=1e12)
    assert "in place of" not in {a.name: a.source for a in usual.document.assumptions}["batch"]


def test_money_has_a_currency() -> None:
    """Every amount stands beside its currency."""
    data = json.loads(run(*PLAN, "--gpus", "64", "--price-per-gpu-hour", "2", "--json"))
    assert data["currency"] == "USD"
    assert data["price_source"] is None
    assert data["plans"][0]["price_per_gpu_hour"] == 2


def ask(*words: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(app, list(words))


@pytest.fixture(scope="session")
def small_page() -> Page:
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
        "cost of a token, times that on a replica always full": "{} times what they cost on a replica that is always full",
        "requests within the objective": "{} of requests within",
        "duty: a step is running": "busy {} of the time",
        "mean batch": "a batch of {} (",
    }
    for what, words in said.items():
        assert words.format(table[what]) in headline
    causes = next(s for s in small_page.document.sections if s.title.startswith("Why")).tables[0].text_rows()
    assert causes[-1] == [
        "together: times a token on a replica always full",
        table["cost of a token, times that on a replica always full"],
    ]


def test_every_heading_says_where_its_numbers_come_from(small_page: Page) -> None:
    """Sections are simulated or by equation, and the one that compares both says so."""
    for section in small_page.document.sections:
        compares = section.title.startswith("Why")
        heading = section.lead if compares else section.title
        labels = [word for word in ("simulated", "by equation") if word in heading]
        assert len(labels) == (2 if compares else 1), section.title


@pytest.mark.long
def test_the_function_of_serving_returns_what_the_command_prints(small_page: Page) -> None:
    """`plan_serving()` takes the options of the command under their names and holds the same numbers."""
    words = ("--model", "llama-3.1-8b", "--users", "2k", "--price-per-gpu-hour", "2", "--json")
    assert ask("plan", "serve", *words).stdout.strip() == small_page.to_json()
    assert small_page.data.currency == "USD"


@pytest.mark.long
def test_a_fleet_is_planned_without_a_price() -> None:
    """Where nobody knows what a GPU-hour costs, everything but money is as with any price, and money is unknown, not nothing."""
    page, priced = (
        loadfactor.plan_serving(model="gpt-oss-20b", accelerator="gh200", users=2000, price_per_gpu_hour=price)
        for price in (None, 3.0)
    )
    plan, other = page.data, priced.data
    assert "no price of a GPU-hour is known (--price-per-gpu-hour)" in page.headline
    assert (plan.layout, plan.replicas, plan.multiplier) == (other.layout, other.replicas, other.multiplier)
    assert plan.efficient_requests_per_day == other.efficient_requests_per_day
    assert [e.cost_factor for e in plan.levers] == [e.cost_factor for e in other.levers]
    known = json.loads(page.to_json())
    costs = (known["cost_per_hour"], known["total"]["cost_per_mtok"], known["crowd"][0]["cost_per_mtok"])
    assert costs == (None, None, None)
    assert other.crowd[0].cost_per_mtok == 3.0 * plan.crowd[0].gpu_hours_per_mtok
    assert "$" not in repr(page)


@pytest.mark.long
@pytest.mark.parametrize("users", rest_long((200_000, 2_000)))
def test_a_given_number_of_replicas_is_kept(users: int) -> None:
    """`--replicas 5` plans five replicas, also where only part of the demand is simulated; each carries its share."""
    plan = loadfactor.plan_serving(model="llama-3.1-8b", users=users, replicas=5).data
    assert plan.replicas == plan.gpus == 5
    assert plan.simulated_replicas / plan.simulated_share == pytest.approx(5)
    assert plan.total.replicas == pytest.approx(plan.simulated_replicas)
    assert [hour.replicas for hour in plan.hours] == pytest.approx([plan.simulated_replicas] * len(plan.hours))


@pytest.mark.long
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


@dataclass(frozen=True)
class Plan:
    """A command: what it takes, what it builds, and arguments that make sense."""

    request: Callable[..., Any]
    build: Callable[[Any], Document]
    sensible: dict[str, Any]


PLANS = {
    "train": Plan(TrainingRequest, train.build_document, {"model": "llama-3.1-8b", "gpus": 64, "tokens": "15B"}),
    "rl": Plan(RlRequest, rl.build_document, {"model": "qwen3-0.6b", "gpus": 2, "prompts": 4, "framework": "nemo"}),
    "serve": Plan(ServingRequest, serve.build_document, {"model": "llama-3.1-8b", "users": 200}),
    "size": Plan(SizeRequest, size.build_document, {}),
    "own": Plan(
        OwnRequest,
        own.build_document,
        {"demand_gpus": "20x6,40x6,60x4,80x8", "spot_price": 1.5, "committed_price": 1.9, "growth_percent": 20},
    ),
    "breakeven": Plan(
        BreakEvenRequest, breakeven.build_document, {"tokens_per_s": 1e4, "api_price": "0.15,0.6", "requests_per_s": 3}
    ),
}
NUMBERS = [
    (name, item) for name, plan in PLANS.items() for item in options_of(plan.request) if item.kind in (int, float)
]
IDS = [f"{name} {item.flag}" for name, item in NUMBERS]
SENSELESS = ("nan", "inf", "-inf", "1e300", "-1e300", "abc", float("nan"), float("-inf"), 10**400, -(10**400), True, {})
MAY_BE_NEGATIVE = ("change_share", "break_even_yearly_change_share")
ENDED = [
    pytest.param(name, item, marks=[pytest.mark.long] * (item.field in ("ttft", "tpot")), id=f"{name} {item.flag}")
    for name, item in NUMBERS
    if name != "serve"  # a served day is simulated for seconds; so are those that a break-even plans for an objective
]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty jobs of an afternoon."""
    path = tmp_path_factory.mktemp("jobs") / "jobs.csv"
    rows = [f"{400 * i},{(1, 2, 8)[i % 3]},{1800 + 7 * i}" for i in range(60)]
    path.write_text("\n".join(["submit_s,gpus,duration_s", *rows]))
    return path


@pytest.mark.parametrize(("name", "item"), NUMBERS, ids=IDS)
def test_what_makes_no_sense_is_refused_with_the_range(name: str, item: Option) -> None:
    """NaN, infinities, huge numbers and words are refused in one line that names the option and its range."""
    assert "at most" in item.limits.words or "below" in item.limits.words
    assert "at least" in item.limits.words or "above" in item.limits.words
    for value in SENSELESS:
        with pytest.raises(InputError) as refused:
            make_request(PLANS[name].request, PLANS[name].sensible | {item.field: value})
        said = str(refused.value)
        assert said.startswith(f"{item.flag} must be {item.limits.words}, got ")
        assert "\n" not in said
        assert len(said) < 250


@pytest.mark.long
@pytest.mark.parametrize(("name", "item"), ENDED)
def test_the_ends_of_a_range_give_a_finite_answer_or_a_reason(
    name: str, item: Option, jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At both ends of its range an option gives an answer without NaN, infinity or a negative amount, or says why there is none."""
    plan, limits = PLANS[name], item.limits
    monkeypatch.setattr(
        "loadfactor.interfaces.render.json.isfinite", lambda _: True
    )  # keep what JSON would write as null
    for end in (limits.at_least, limits.at_most):
        if end is None:
            continue
        given = _fit(name, item, plan.sensible | {item.field: end}, jobs)
        with suppress(PlanError):
            document = plan.build(make_request(plan.request, given))
            for key, value in _numbers(to_plain(document.data)):
                assert isfinite(value), key
                assert value >= 0 or key in MAY_BE_NEGATIVE, key
            assert render_text(document)
            assert render_json(document)


def _fit(name: str, item: Option, given: dict[str, Any], jobs: Path) -> dict[str, Any]:
    """The arguments without what excludes the option."""
    if item.field == "users" and name in ("own", "size"):
        return {item.field: given[item.field]}
    if name == "size":
        return given | {"trace": jobs}
    excluded = {"output_tokens_per_s": "tokens_per_s", "ttft": "tokens_per_s", "tpot": "tokens_per_s"}.get(item.field)
    if name == "breakeven" and excluded:
        given = {key: value for key, value in given.items() if key != excluded}
        return given if item.field == "output_tokens_per_s" else given | {"model": "llama-3.1-8b"}
    return given


def _numbers(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _numbers(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _numbers(inner, key)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield key, value


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["own", "--life-years", "1e9"], "--life-years must be at least 0.1 and at most 50, got 1e9"),
        (["train", "-m", "llama-3.1-8b", "-g", "1e8"], "--gpus must be at least 1 and at most 10,000,000, got 1e8"),
        (["serve", "--speculate", "3:nan"], "--speculate 3:nan: speculation drafts 0 to 100 tokens"),
        (["breakeven", "--api-price", "-1"], "--api-price must be at least 0 and at most 1,000,000,000, got -1"),
    ],
)
def test_the_command_exits_with_two_and_one_line(words: list[str], says: str) -> None:
    """On the command line a senseless number is the user's mistake, in one line on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", "from loadfactor.interfaces.cli import main; main()", "plan", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tokens": 1e18, "gpus": 64}, "days on 64 GPUs, more than 100,000; give more --gpus or fewer --tokens"),
        ({"gpus": 10_000_000}, "too often for the work to survive"),
        ({"gpus": ()}, "--gpus needs a value"),
    ],
)
def test_a_training_run_without_an_end_is_refused(given: dict[str, Any], says: str) -> None:
    """Numbers that make sense alone and none together are refused with what to change."""
    with pytest.raises(InputError, match=says):
        train.build_document(make_request(TrainingRequest, PLANS["train"].sensible | given))


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["0,8,3600", "20,8,3600", "40,8,7200"], "3 jobs submitted within 40 s tell too little to size a cluster"),
        (["0,8,9e6", "4000,8,9e6"], "give a history that is longer than its jobs"),
        (["0,8,3600", "1e9,8,3600"], "were submitted over 31.7 years, more than 10"),
        (["0,8,3600", "9000,nan,3600"], "row 3: gpus must be a number at least 0.001 and at most 1,000,000, got nan"),
        (["0,8,3600", "9000,8,-1"], "row 3: duration_s must be a number at least 0.001"),
        (["0,8,3600", "inf,8,60"], "row 3: submit_s must be a number at least -100,000,000,000"),
    ],
)
def test_a_history_that_tells_too_little_is_refused(rows: list[str], says: str, tmp_path: Path) -> None:
    """A size is not made up from a few jobs within seconds, nor from numbers that make no sense."""
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(["submit_s,gpus,duration_s", *rows]))
    with pytest.raises(InputError, match=says):
        size.build_document(make_request(SizeRequest, {"trace": path}))


def test_engines_have_the_same_names_in_both_plans() -> None:
    """`plan serve` and `plan breakeven` take the same names of engines."""
    of = {
        name: next(i for i in options_of(PLANS[name].request) if i.field == "engine") for name in ("serve", "breakeven")
    }
    assert of["serve"].choices == of["breakeven"].choices


def test_reinforcement_learning_takes_its_lengths_from_a_trace(tmp_path: Path) -> None:
    """Azure's columns: three answers of 100, 200 and 600 tokens are 300 on average, the longest 600; without any it is one line."""
    trace = tmp_path / "trace.csv"
    rows = [f"2023-11-16 18:15:4{n}.0000000,400,{tokens}" for n, tokens in enumerate((100, 200, 600))]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows, ""]))
    page = loadfactor.plan_reinforcement(model="qwen3-0.6b", gpus=2, prompts=4, trace=trace)
    assert page.data.response_mean == pytest.approx(300, rel=0.01)
    assert 500 < page.data.response_longest <= 600
    assert "300 tokens on average" in " ".join(repr(page).split())
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    with pytest.raises(InputError):
        loadfactor.plan_reinforcement(model="qwen3-0.6b", gpus=2, prompts=4, trace=trace)
