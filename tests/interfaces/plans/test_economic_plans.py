"""`plan own`, `plan breakeven` and `plan size` in every form, and plans of serving that take their load from a store."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.ledger.fleets import Row, add, batch
from typer.testing import CliRunner

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.catalog.servers import servers
from loadfactor.interfaces.cli import app
from loadfactor.interfaces.render.terminal import render_text
from loadfactor.planner.sizing.cluster import SCHEDULERS
from loadfactor.planner.sizing.cluster.jobs import draw_poisson_jobs
from loadfactor.planner.sizing.request import Scheduler

RUNNER = CliRunner(env={"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"})
DAY = "20x6,40x6,60x4,80x8"


def asked(*arguments: str, code: int = 0) -> str:
    """What the command prints; it must leave with this code."""
    result = RUNNER.invoke(app, ["plan", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def data(*arguments: str, code: int = 0) -> dict[str, Any]:
    """The command's JSON."""
    found: dict[str, Any] = json.loads(asked(*arguments, "--format", "json", code=code))
    return found


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV of 800 jobs of mixed size that keep about 72 GPUs busy."""
    jobs = draw_poisson_jobs(800, 0.01, 1600.0, gpus=(1, 8), gpu_shares=(0.5, 0.5), seed=3)
    path = tmp_path_factory.mktemp("history") / "jobs.csv"
    rows = zip(jobs.submit_s, jobs.gpus, jobs.duration_s, strict=True)
    path.write_text("submit_s,gpus,duration_s\n" + "".join(f"{s:.0f},{g:.0f},{d:.1f}\n" for s, g, d in rows))
    return path


def test_own_names_the_base_and_shows_its_parts() -> None:
    """The day of the textbook with golden prices: own 40 of 80 at $1.86 against $2.95; every part of the year is shown."""
    text = asked("own", "--demand-gpus", DAY, "--rent-price", "2.95")
    for words in (
        "Own 40 GPUs",
        "capital",
        "$81,713",
        "straight line",
        "regret",
        "Load-duration curve",
        "Assumed",
        "PUE 1.3",
    ):
        assert words in text
    assert max(map(len, text.split("\n"))) <= 80
    found = data("own", "--demand-gpus", DAY, "--rent-price", "2.95")
    assert found["cost_per_available_gpu_hour"] == pytest.approx(1.8586, abs=1e-4)
    assert found["owned_gpus"] == 40
    assert found["next_gpu"]["verdict"] == "rent it at peaks"


def test_own_without_demand_or_reason() -> None:
    """Without a demand the floor is given; where renting is cheaper than an always-full owned GPU the answer is not to own."""
    assert "63.0 % of the time" in " ".join(asked("own", "--rent-price", "2.95").split())
    assert asked("own", "--rent-price", "1").startswith("Do not own")
    assert asked("own", "--rent-price", "2", "--demand-gpus", "5x1,0x9").startswith("Rent all of it")


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        (["--gpu-number", "40"], "add it"),
        (["--gpu-number", "60"], "rent it at peaks"),
        (["--gpu-number", "60", "--api-price-per-gpu-hour", "2"], "use the API"),
        (["--gpu-number", "40", "--value-per-gpu-hour", "1.5"], "bring demand first"),
        (["--gpu-number", "81"], "bring demand first"),
        (["--gpu-number", "81", "--growth-percent", "150"], "add it"),
    ],
)
def test_the_marginal_gpu_gets_one_of_four_answers(more: list[str], verdict: str) -> None:
    """Add it, rent it at peaks, use the API, or bring demand first: by its use over its life, its price and its work's worth."""
    found = data("own", "--demand-gpus", DAY, "--rent-price", "2.95", *more)["next_gpu"]
    assert found["verdict"] == verdict
    assert found["sentence"].endswith(f"{verdict}.")


def test_breakeven_floor_never_and_claim() -> None:
    """A floor names requests and users; a price no utilization reaches is a no (exit code 1); the 7B/13B claim is set right."""
    text = asked("breakeven", "--api-price", "0.5,1.5", "--tokens-per-s", "559", "--price-per-gpu-hour", "1.006",
                 "--input-tokens", "500", "--output-tokens", "500", "--peak-ratio", "1")  # fmt: skip
    flat = " ".join(text.split())
    for words in ("Self-host only above 50.0 %", "users", "against the same API", "200 % never", "4 times as much"):
        assert words.lower() in flat.lower()
    assert max(map(len, text.split("\n"))) <= 80
    never = asked("breakeven", "--api-price", "0.2", "--tokens-per-s", "1400", "--price-per-gpu-hour", "1.5", code=1)
    assert "never pays" in never
    found = data("breakeven", "--api", "openai/gpt-4-turbo", "--output-tokens-per-s", "500", "--requests-per-s", "2")
    assert found["demand"]["self_hosting_pays"] is True
    assert (
        found["replica"]["tokens_per_s"] == 3000
    )  # 1,500 tokens in and 300 out, as every plan takes a request by default


@pytest.mark.long  # the page plan-breakeven runs the same simulation in `make test`
def test_breakeven_plans_the_throughput_of_a_network() -> None:
    """With --model the serving planner gives the throughput: a tighter objective saturates lower and so raises the floor."""
    given: dict[str, Any] = {"api": "openai/gpt-4o", "model": "llama-3.1-8b", "accelerator": "h100-sxm"}
    loose, tight = (loadfactor.plan_breakeven(**given, tpot=tpot) for tpot in (100, 10))
    assert 0 < loose.data.floor_share < tight.data.floor_share
    assert "the serving planner" in " ".join(render_text(loose.document).split())


@pytest.mark.long
def test_breakeven_says_where_the_range_of_a_planned_throughput_turns_the_choice() -> None:
    """A floor below 100 % or above it, by the throughput, leaves the choice open; a low one, or a measured one, does not."""
    near = loadfactor.plan_breakeven(model="llama-3.1-8b", api_price=(0.072, 0.072), price_per_gpu_hour=2.95)
    low, high = near.data.throughput_range
    assert near.data.floor_range == (near.data.floor_share / high, near.data.floor_share / low)
    assert near.data.floor_range[0] < near.data.reach_share < near.data.floor_range[1]
    assert near.data.is_open
    assert "The choice is open" in near.headline
    dear = loadfactor.plan_breakeven(model="llama-3.1-8b", api_price=(5.0, 5.0), requests_per_s=10.0)
    assert not dear.data.is_open
    typed = loadfactor.plan_breakeven(tokens_per_s=1000.0, api_price=(1.0, 1.0))
    assert typed.data.floor_range is None
    assert not typed.data.is_open


def test_size_says_smaller_is_cheaper_and_why(history: Path) -> None:
    """A cluster far too large is told so, with the cheapest size, the waits by job size and the marginal GPU."""
    text = asked("size", str(history), "--gpus", "240", "--rent-price", "2.95")
    flat = " ".join(text.split())
    for words in (
        "Smaller is cheaper",
        "on your 240",
        "Waits by job size",
        "M/G/k",
        "give it back",
        "fragmentation",
    ):
        assert words in flat
    assert max(map(len, text.split("\n"))) <= 80
    found = data("size", str(history), "--gpus", "240", "--sizes", "72,80,96,112,128")
    costs = {p["gpus"]: p["cost_per_hour"] for p in found["sizes"]}
    assert set(costs) == {72, 80, 96, 112, 128, 240}
    assert costs[found["cheapest"]["gpus"]] == min(costs.values())
    assert found["smaller_is_cheaper"] is True


def test_the_cost_of_delay_moves_the_size(history: Path) -> None:
    """Where waiting costs ten times as much the cheapest size is larger, where it costs nothing it is the smallest."""
    patient = data("size", str(history), "--delay-cost", "0")["cheapest"]["gpus"]
    normal = data("size", str(history))["cheapest"]["gpus"]
    hasty = data("size", str(history), "--delay-cost", "100")["cheapest"]["gpus"]
    assert patient < normal < hasty


def test_teams_of_the_jobs_are_pooled(history: Path, tmp_path: Path) -> None:
    """Where the jobs name their teams, pooling is judged by the teams' own loads, and clusters apart need more GPUs."""
    rows = history.read_text().splitlines()
    named = [rows[0] + ",team", *(f"{row},{'large' if i % 5 else 'small'}" for i, row in enumerate(rows[1:]))]
    path = tmp_path / "teams.csv"
    path.write_text("\n".join(named) + "\n")
    found = data("size", str(path), "--sizes", "96,112")["staffing"]
    assert (found["teams"], found["teams_are_equal"]) == (2, False)
    assert found["apart_gpus"] > found["erlang_gpus"]


def test_size_of_hours_and_of_state(shared: Path, tmp_path: Path) -> None:
    """An hourly series gives base and peak; the state of a real cluster says why jobs waited beside idle GPUs."""
    hours = tmp_path / "hours.csv"
    hours.write_text(
        "hour,gpus\n" + "".join(f"{h},{g}\n" for h, g in enumerate([20] * 6 + [40] * 6 + [60] * 4 + [80] * 8))
    )
    assert data("size", str(hours), "--price-per-gpu-hour", "1.2", "--rent-price", "3")["keep_gpus"] == 60
    earth = shared / "data" / "jobs" / "helios_earth_vc6YE_cluster_sequence_vc.csv.gz"
    found = data("size", str(earth))["why_idle"]
    assert found["pending_while_idle_share"] == pytest.approx(0.457, abs=0.001)
    assert found["explained_share"] > 0.9


def test_an_owned_gpu_costs_what_its_own_server_does() -> None:
    """Each accelerator of the catalog is owned at its own server's price and power, which a typed one replaces."""
    costs = {
        name: data("own", "--accelerator", name, "--rent-price", "9")
        for name, server in servers().items()
        if server.price
    }
    assert len({found["price_per_gpu_hour"] for found in costs.values()}) == len(costs) > 2
    assert costs["h100-sxm"]["cost_per_available_gpu_hour"] == pytest.approx(1.8586, abs=1e-4)
    typed = data(
        "own", "--accelerator", "l4", "--server-price", "300000", "--server-kw", "10.2", "--rent-price", "2.95"
    )
    assert typed["price_per_gpu_hour"] == costs["h100-sxm"]["price_per_gpu_hour"]


def test_headline_of_owning_equals_its_table() -> None:
    """The GPUs and the cost of the first sentence are those of the mix below it, and of the data."""
    page = loadfactor.plan_ownership(demand_gpus=DAY, committed_price=1.5)
    mix = {row[0]: row for row in page.document.sections[0].tables[0].text_rows()}
    assert f"{mix['together'][3]} an hour" in page.headline
    for name, gpus, *_ in mix.values():
        if not name.startswith(("everything", "together")):
            assert f"{gpus} {name}" in page.headline
    assert f"Own {page.data.owned_gpus} GPUs" in page.headline
    assert page.data.commitment.committed_gpus == sum(u.gpus for u in page.data.mix.uses if u.tier.name == "committed")


def test_headline_of_a_size_equals_its_table(history: Path) -> None:
    """The first sentence recommends the cheapest plan of the page, the first row of its table, with the numbers of the others."""
    page = loadfactor.plan_size(trace=history, gpus=240, sizes="80,96,112")
    rented, best, today = page.document.sections[0].tables[0].text_rows()
    for cell in (f"keep {rented[1]} GPUs, rent", rented[4], f"{best[1]} GPUs", f"{best[2]} full", best[4], today[4]):
        assert cell in page.headline
    costs = [float(row[4].strip("$")) for row in (rented, best, today)]
    assert costs == sorted(costs)
    assert f"keep {page.data.base_gpus} GPUs" in page.document.sections[-1].lead
    waiting = loadfactor.plan_size(trace=history, gpus=240, sizes="80,96,112", rent_price=1000)
    best, *_ = waiting.document.sections[0].tables[0].text_rows()
    today = next(row for row in waiting.document.sections[0].tables[0].text_rows() if row[0] == "today's")
    for cell in (f"{best[1]} GPUs", f"{best[2]} full", best[4], f"your {today[1]}", f"{today[2]} full", today[4]):
        assert cell in waiting.headline
    assert "rent" not in waiting.headline


def test_headline_of_hours_equals_its_table(tmp_path: Path) -> None:
    """Without jobs the GPUs to keep are those of the plan named so in the table."""
    hours = tmp_path / "hours.csv"
    hours.write_text("hour,gpus\n" + "".join(f"{h},{g}\n" for h, g in enumerate([20] * 6 + [40] * 6 + [80] * 12)))
    page = loadfactor.plan_size(trace=hours, price_per_gpu_hour=1.2, rent_price=3)
    rows = {row[0]: row for row in page.document.sections[0].tables[0].text_rows()}
    assert f"Keep {rows['keep the base, rent the peaks'][1]} GPUs" in page.headline


def test_every_scheduler_that_can_be_named_is_known() -> None:
    """The choices of --scheduler are the policies of the simulation."""
    assert get_args(Scheduler) == tuple(SCHEDULERS)


def test_headline_of_a_floor_equals_its_table() -> None:
    """The floor, its requests and its users are said once and shown alike."""
    page = loadfactor.plan_breakeven(api="openai/gpt-4o", tokens_per_s=2000)
    shown = dict(page.document.sections[1].tables[0].text_rows())
    assert f"Self-host only above {shown['utilization floor']}" in page.headline
    assert shown["demand at the floor"] in page.headline
    assert f"about {shown['users at the floor']} users" in page.headline
    assert page.data.sensitivities[0].floor_share == page.data.floor_share


def test_owning_and_sizing_the_same_books_say_one_base(simulated_books: Books) -> None:
    """From one history both plans take one price of a GPU kept, one of a GPU rented, and keep the same number of GPUs."""
    store = str(simulated_books.store.folder)
    own, size = data("own", "--store", store), data("size", "--store", store, "--sizes", "256")
    assert size["price_per_gpu_hour"] == own["cost_per_available_gpu_hour"]
    assert size["base_gpus"] == own["owned_gpus"]
    rents = [
        {a.name: (a.value, a.source) for a in page.document.assumptions}
        for page in (loadfactor.plan_ownership(store=store), loadfactor.plan_size(store=store, sizes="256"))
    ]
    assert rents[0]["rented on demand"] == rents[1]["GPU rented at peaks"]


@pytest.mark.long  # the page plan-breakeven runs the same simulation in `make test`
def test_breakeven_without_arguments_compares_a_network_with_its_own_api() -> None:
    """With nothing given the network of `plan serve` is planned and compared with an API that hosts it, and the page says so."""
    page = loadfactor.plan_breakeven()
    assumed = {a.name: a.value for a in page.document.assumptions}
    assert assumed["network"] == "llama-3.1-70b"
    assert "that host this network" in assumed["API price"]
    assert "llama" in page.data.api


def test_simulated_and_closed_form_losses_are_labelled(history: Path) -> None:
    """What would be turned away is given twice, by Erlang B and as simulated, each under its name."""
    text = " ".join(asked("size", str(history), "--sizes", "96").split())
    assert "by Erlang B" in text
    assert "as simulated" in text


@pytest.mark.long
@pytest.mark.parametrize("name", ["srtf", "srsf", "fair", "preempt"])
def test_schedulers_that_stop_jobs_may_wake_by_the_clock(name: str, history: Path) -> None:
    """A scheduler that wakes every ten minutes makes jobs wait longer than one that acts at once."""
    asked_of = ("size", str(history), "--sizes", "112", "--scheduler", name)
    at_once, clocked = data(*asked_of), data(*asked_of, "--scheduler-interval-s", "600")
    assert clocked["cheapest"]["mean_wait_s"] > at_once["cheapest"]["mean_wait_s"]


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".html", ".png"])
@pytest.mark.parametrize("command", ["own", "breakeven", "size"])
def test_pages_are_written(command: str, suffix: str, history: Path, tmp_path: Path) -> None:
    """Every one of the three writes its page and its picture."""
    path = tmp_path / f"answer{suffix}"
    arguments = {
        "own": ["--demand-gpus", DAY],
        "breakeven": ["--api", "openai/gpt-4o", "--tokens-per-s", "2000"],
        "size": [str(history), "--sizes", "80,96,112"],
    }[command]
    asked(command, *arguments, "--output", str(path))
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["own", "--life-years", "-3"], "--life-years must be at least 0.1 and at most 50, got -3"),
        (["own", "--rent-price", "0"], "--rent-price must be at least 0.0001 and at most 10,000,000, got 0"),
        (["own", "--demand-gpus", "3y2"], "write 20x6"),
        (["own", "--demand-gpus", "0x5"], "0 GPUs in every interval"),
        (["own", "--demand-gpus", "5x5", "--demand", "x.csv"], "not both"),
        (["own", "--accelerator", "abacus"], "no accelerator called"),
        (["own", "--accelerator", "a100-sxm"], "server of a100-sxm is; give --server-price$"),
        (["own", "--accelerator", "gb200-nvl72"], "only a placeholder of a price for gb200-nvl72; give --rent-price"),
        (["own", "--accelerator", "l4"], "server of l4 is; give --server-price and --server-kw"),
        (["breakeven", "--api", "openai/gpt-4o", "--api-price", "1", "--tokens-per-s", "5"], "name the API once"),
        (["breakeven", "--tokens-per-s", "5"], "knows no API; name one"),
        (["breakeven", "--model", "bloom-176b"], "no API that hosts bloom-176b"),
        (["breakeven", "--api-price", "0", "--tokens-per-s", "5"], "price is zero"),
        (
            ["breakeven", "--api-price", "a,b", "--tokens-per-s", "5"],
            "--api-price must be at least 0 and at most 1,000,000,000, got a, which is no number",
        ),
        (["breakeven", "--api", "openai/gpt-4o"], "--tokens-per-s"),
        (
            ["breakeven", "--api", "openai/gpt-4o", "--model", "llama-3.1-8b", "--tpot", "0.01"],
            "even alone; relax them",
        ),
        (["breakeven", "--output-tokens", "0"], "at least one token"),
        (["own", "--life-years", "1000"], "at most 50"),
        (["own", "--demand-gpus", "20x25"], "hours between 0 and 24"),
        (["own", "--demand-gpus", "20x12,40x13"], "has 25 hours, a day has 24"),
        (["own", "--demand-gpus", "20x-6"], "hours between 0 and 24"),
        (["own", "--demand-gpus", "1e30x24"], "GPUs lie between 0 and 10,000,000"),
        (["breakeven", "--api", "openai/gpt-4o", "--tokens-per-s", "5", "--gpus", "0"], "--gpus must be at least 1"),
        (["breakeven", "--api", "nobody/nothing", "--tokens-per-s", "5"], "no token price"),
        (["size", "absent.csv"], "no file"),
        (["size", "HISTORY", "--gpus", "4"], "take 8 or more"),
        (["size", "HISTORY", "--sizes", "4"], "more than any size tried"),
        (["size", "HISTORY", "--sizes", "4,200"], "asks for 8 GPUs"),
        (["size"], "give the demand once"),
        (
            ["size", "HISTORY", "--sizes", "many"],
            "--sizes must be at least 1 and at most 1,000,000, got many, which is no number",
        ),
        (["size", "HISTORY", "--scheduler", "magic"], "choose from slurm, fifo"),
        (["size", "HISTORY", "--delay-cost", "-1"], "--delay-cost must be at least 0"),
    ],
)
def test_impossible_questions_are_refused(arguments: list[str], says: str, history: Path) -> None:
    """A question that cannot be is a user's mistake in one line that names the input and what works."""
    words = [str(history) if a == "HISTORY" else a for a in arguments]
    with pytest.raises(InputError, match=says) as refused:
        asked(*words)
    assert "\n" not in str(refused.value)


START = 1_767_225_600_000
HOUR = 3_600_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that held two H100 for two hours at $2, served 3,600 requests in the first and none in the second."""
    folder = tmp_path_factory.mktemp("served")
    of_gpu = {"node": "n", "from_utc": START, "to_utc": START + 2 * HOUR}
    devices = [{"device_id": f"g{k}", "accelerator": "H100", **of_gpu} for k in range(2)]
    held = [{"job_id": "chat", "device_id": f"g{k}", **of_gpu} for k in range(2)]
    made = {"prompt_token": 1_800_000.0, "output_token": 360_000.0, "request": 3600.0}
    progress: list[Row] = [
        {"job_id": "chat", "replica": "0", "unit": unit, "amount": amount * (hour == 0)}
        | {"from_utc": START + hour * HOUR, "to_utc": START + (hour + 1) * HOUR}
        for unit, amount in made.items()
        for hour in range(2)
    ]
    prices = [{"basis": "contracted", "price_per_gpu_hour": 2.0}]
    books = Books(folder / "store")
    named = (("devices", devices), ("allocations", held), ("progress", progress), ("prices", prices))
    add(books, [batch(name, rows) for name, rows in named], "example", folder)
    return folder / "store"


@pytest.mark.long
def test_break_even_of_a_measured_load(store: Path) -> None:
    """One request/s in the busiest hour saturates a replica of $4 an hour; at 0.5/s it is half full, and the floor is 46 %."""
    page = loadfactor.plan_breakeven(store=store, api_price=(4.0,))
    plan = page.data
    assert (plan.request.input_tokens, plan.request.output_tokens) == (500, 100)
    assert (plan.replica.gpus, plan.replica.cost_per_hour, plan.replica.tokens_per_s) == pytest.approx((2, 4, 600))
    assert (plan.measured_share, plan.floor_share) == pytest.approx((0.5, 4 / 3600 / 0.0024), rel=1e-12)
    assert (plan.demand.requests_per_s, plan.demand.replicas) == pytest.approx((0.5, 1))
    assert (plan.measured.duty_share, plan.measured.counted_share, plan.measured.cost) == pytest.approx((0.5, 1, 8))
    assert plan.self_hosting_pays
    text = " ".join(render_text(page.document, 100).split())
    assert "The measured load lies above the floor." in text
    cheaper = loadfactor.plan_breakeven(store=store, api_price=(3.0,))
    assert not cheaper.data.self_hosting_pays
    assert "lies below the floor" in render_text(cheaper.document, 100)


@pytest.mark.long
def test_a_window_of_the_measured_load(store: Path) -> None:
    """The first hour alone is busy throughout; the last hour has no request; a window needs books, and something in it."""
    plan = loadfactor.plan_breakeven(store=store, api_price=(4.0,), start="2026-01-01", end="2026-01-01T01:00Z").data
    assert (plan.measured.duty_share, plan.measured.requests_per_s, plan.measured_share) == pytest.approx((1, 1, 1))
    assert (plan.measured.span_s, plan.measured.gpu_s, plan.measured.cost) == pytest.approx((3600, 7200, 4))
    half = loadfactor.plan_breakeven(store=store, api_price=(4.0,), last="90min").data.measured
    assert (half.span_s, half.requests, half.duty_share) == pytest.approx((5400, 1800, 1 / 3))
    with pytest.raises(InputError, match="requests of the jobs"):
        loadfactor.plan_breakeven(store=store, api_price=(4.0,), last="1h")
    with pytest.raises(InputError, match="in that time"):
        loadfactor.plan_breakeven(store=store, api_price=(4.0,), start="2027-01")
    with pytest.raises(InputError, match="--last is about the books"):
        loadfactor.plan_breakeven(api_price=(4.0,), last="1h")


@pytest.mark.long
def test_what_is_given_comes_before_what_was_measured(store: Path) -> None:
    """A throughput and a price that are typed in stay; the measured load is held against that throughput."""
    plan = loadfactor.plan_breakeven(store=store, api_price=(4.0,), tokens_per_s=1200, price_per_gpu_hour=1.0).data
    assert (plan.replica.gpus, plan.replica.cost_per_hour, plan.replica.tokens_per_s) == pytest.approx((2, 2, 1200))
    assert plan.measured_share == pytest.approx(0.25, rel=1e-12)


@pytest.mark.long
def test_a_fleet_for_a_measured_load(store: Path) -> None:
    """`plan serve` draws as many requests a day of the measured lengths, and holds the measured load against its layout."""
    page = loadfactor.plan_serving(store=store, job="chat", model="llama-3.1-8b", arrivals="poisson", shape="flat")
    assert page.data.measured.requests_per_day == pytest.approx(43_200)
    assert page.data.price_per_gpu_hour == pytest.approx(2.0)
    assert page.data.total.requests == pytest.approx(43_200, rel=0.05)
    assert page.document.sections[-1].title == "What was measured"


def test_books_without_what_is_needed_are_refused_in_one_line(store: Path, tmp_path: Path) -> None:
    """No such job, a job without a store, and books in which nobody served."""
    with pytest.raises(InputError, match="chat"):
        loadfactor.plan_breakeven(store=store, job="chatt", api_price=(4.0,))
    with pytest.raises(InputError, match="--store"):
        loadfactor.plan_breakeven(job="chat", api_price=(4.0,))
    books = Books(tmp_path / "store")
    devices: list[Row] = [{"device_id": "g", "from_utc": START, "to_utc": START + HOUR}]
    add(books, [batch("devices", devices)], "example", tmp_path)
    with pytest.raises(InputError, match="import serving"):
        loadfactor.plan_breakeven(store=tmp_path / "store", api_price=(4.0,))
