"""MFU of jobs, and the waterfall of a fleet, out of real books."""

from math import fsum
from pathlib import Path

import pytest
from tests.ledger.fleets import HOUR, MINUTE, Row, add, batch

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.books.waterfall import ASKED, WaterfallGroup
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.models import network
from loadfactor.insight.savings import find_savings
from loadfactor.interfaces.pages.waterfall import say_useful
from loadfactor.metrics.fullness import DROPS
from loadfactor.planner.training.flops import training_flops_per_token
from loadfactor.settings.config import settings

START = 1_767_225_600_000
HOURS = 10
END = START + 60 * HOURS * MINUTE
FLOPS = training_flops_per_token(network("llama-3.1-8b"), 4096)
PEAK = accelerator("h100-sxm").peak_flops("bf16")
TOML = """
[[network]]
match = { experiment = "ft-*" }
model = "llama-3.1-8b"
sequence_length = 4096
datatype = "bf16"
recompute = "none"
"""


@pytest.fixture(autouse=True)
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with a loadfactor.toml that names the network."""
    monkeypatch.chdir(tmp_path)
    Path("loadfactor.toml").write_text(TOML)
    settings.cache_clear()


def tokens_at(mfu: float, hours: float = HOURS) -> float:
    """Tokens that one GPU trains on in some hours at this MFU."""
    return mfu * PEAK * hours * 3600 / FLOPS


def make_books(
    folder: Path, progress: list[Row], sections: list[Row] | None = None, activity: float = 0.8, samples: bool = True
) -> Books:
    """Four H100, three of them held: by two trained jobs, and one that serves, active 80 %, one hour of ten idle."""
    devices = [
        {"device_id": f"g{k}", "node": "n", "accelerator": "H100", "from_utc": START, "to_utc": END} for k in range(4)
    ]
    jobs = {"train": ("ft-1", "a", "COMPLETED"), "broken": ("ft-2", "b", "FAILED"), "serve": (None, "b", None)}
    held = [
        {"job_id": job, "device_id": f"g{k}", "from_utc": START, "to_utc": END, "experiment_id": of[0], "team": of[1]}
        | {"end_state": of[2]}
        for k, (job, of) in enumerate(jobs.items())
    ]
    seen = [
        {"device_id": f"g{k}", "from_utc": START + (q - 15) * MINUTE, "to_utc": START + q * MINUTE}
        | {"sm_active_share": 0.0 if q <= 60 else activity}
        for k in range(3)
        for q in range(15, 60 * HOURS + 1, 15)
    ]
    books = Books(folder / "store")
    prices = [{"basis": "contracted", "price_per_gpu_hour": 2.0}]
    named = (("devices", devices), ("allocations", held), ("samples", seen if samples else []), ("prices", prices))
    work = (("progress", progress), ("job_sections", sections or []))
    items = [batch(name, rows) for name, rows in (*named, *work)]
    add(books, items, "example", folder)
    return books


def made(job: str, amount: float, unit: str = "train_token", kept: bool = True) -> Row:
    return {"job_id": job, "unit": unit, "amount": amount, "from_utc": START, "to_utc": END, "kept": kept}


@pytest.mark.long
def test_mfu_is_model_flops_over_the_peak_of_held_time(tmp_path: Path) -> None:
    """Tokens × the planner's FLOPs per token ÷ (GPU-seconds × dense bf16 peak); unknown for the job that serves."""
    progress = [made("train", tokens_at(0.4)), made("broken", tokens_at(0.2)), made("serve", 1e6, "output_token")]
    books = make_books(tmp_path, progress)
    names = ("mfu", "hfu", "model_flops", "tokens_per_gpu_s", "cost_per_model_exaflop")
    found = {(r.by["job"], r.metric): r.value for r in books.show(names, "job")}
    assert found["train", "mfu"] == pytest.approx(0.4, rel=1e-12)
    assert found["train", "hfu"] == pytest.approx(0.4, rel=1e-12)
    assert found["train", "model_flops"] == pytest.approx(tokens_at(0.4) * FLOPS, rel=1e-12)
    assert found["train", "tokens_per_gpu_s"] == pytest.approx(tokens_at(0.4) / 36_000, rel=1e-12)
    assert found["train", "cost_per_model_exaflop"] == pytest.approx(20 / (tokens_at(0.4) * FLOPS / 1e18), rel=1e-12)
    assert {found["serve", name] for name in names} == {None}
    teams = {r.by["team"]: (r.value, r.coverage) for r in books.show("mfu", "team")}
    assert teams["b"] == pytest.approx((0.2, 0.5), rel=1e-12)
    (whole,) = books.show("mfu")
    assert (whole.value, whole.coverage) == pytest.approx((0.3, 2 / 3), rel=1e-12)


@pytest.mark.long
def test_lost_work_counts_for_mfu_and_not_for_what_a_useful_operation_costs(tmp_path: Path) -> None:
    """Half of the FLOPs were lost: MFU is that of all of them, and each that was kept costs twice as much."""
    half = tokens_at(0.2)
    books = make_books(tmp_path, [made("train", half), made("train", half, kept=False)])
    mfu, cost = (r.value for r in books.show(("mfu", "cost_per_model_exaflop"), where={"job": "train"}))
    assert mfu == pytest.approx(0.4, rel=1e-12)
    assert cost == pytest.approx(20 / (half * FLOPS / 1e18), rel=1e-12)


@pytest.mark.long
def test_flops_that_a_job_reports_come_first(tmp_path: Path) -> None:
    """Reported FLOPs count in place of those of tokens, alone or beside an amount, and once."""
    flops = 0.5 * PEAK * 36_000
    rows = [made("train", 1.0), made("train", flops, "model_flop")]
    beside = [made("broken", 7.0, unit) | {"model_flops": flops} for unit in ("train_token", "step")]
    found = {r.by["job"]: r.value for r in make_books(tmp_path, [*rows, *beside]).show("mfu", "job")}
    assert (found["train"], found["broken"]) == pytest.approx((0.5, 0.5), rel=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("samples", [0.0, 1e-30])
def test_tokens_of_no_samples_have_no_length(tmp_path: Path, samples: float) -> None:
    """A log that counts tokens and not one sample says nothing of sequences: those of the configuration hold."""
    books = make_books(tmp_path, [made("train", tokens_at(0.4)), made("train", samples, "train_sample")])
    found = {r.by["job"]: r.value for r in books.show("mfu", "job")}
    assert found["train"] == pytest.approx(0.4, rel=1e-12)


@pytest.mark.long
def test_packed_samples_are_tokens(tmp_path: Path) -> None:
    """Samples of a job that reports no tokens are sequence_length tokens each, once [[network]] says that they are packed."""
    rows = [made("broken", 500.0), made("broken", 7.0, "train_sample")]
    rows += [made("train", 1000.0, "train_sample") | {"known_from": "rate"}]
    books = make_books(tmp_path, rows)
    assert {r.by["job"]: r.value for r in books.show("tokens_per_gpu_s", "job")}["train"] is None
    Path("loadfactor.toml").write_text(TOML + "packed = true\n")
    settings.cache_clear()
    found = {(r.metric, r.by["job"]): r for r in books.show(("tokens_per_gpu_s", "mfu"), "job")}
    assert found["tokens_per_gpu_s", "train"].value == pytest.approx(1000 * 4096 / 36_000)
    assert found["tokens_per_gpu_s", "train"].activity_basis == "rate 100%"
    assert found["mfu", "train"].value == pytest.approx(1000 * 4096 * FLOPS / PEAK / 36_000)
    assert (found["tokens_per_gpu_s", "broken"].value, found["tokens_per_gpu_s", "broken"].activity_basis) == (
        500 / 36_000,
        None,
    )


@pytest.mark.long
def test_without_a_network_nothing_is_known(tmp_path: Path) -> None:
    """Tokens of a job whose network nobody names have no FLOPs; a network that there is not is named in the message."""
    Path("loadfactor.toml").write_text("")
    settings.cache_clear()
    books = make_books(tmp_path, [made("train", 1e9)])
    assert {r.value for r in books.show(("mfu", "model_flops"), "job")} == {None}
    assert next(iter(books.show("tokens_per_gpu_s"))).value == pytest.approx(1e9 / 36_000)
    Path("loadfactor.toml").write_text('[[network]]\nmodel = "llama-9"\nsequence_length = 1\n')
    settings.cache_clear()
    with pytest.raises(InputError, match=r"\[\[network\]\].*llama-9"):
        books.show("mfu")


def test_the_waterfall_adds_up_to_what_was_paid(tmp_path: Path) -> None:
    """Of 40 GPU-hours 10 are free, 3 idle, 5.4 not active; FLOPs of the job that serves are unknown and no loss."""
    progress = [
        made("train", tokens_at(0.4)),
        made("train", tokens_at(0.1), kept=False),
        made("broken", tokens_at(0.2)),
    ]
    found = make_books(tmp_path, progress).waterfall("team")
    hours = found.all.gpu_hours
    said = (hours.paid, hours.unallocated, hours.idle, hours.underused, hours.uncounted)
    assert said == pytest.approx((40, 10, 3, 5.4, 7.2), rel=1e-9)
    assert (hours.not_math, hours.lost_work, hours.failed_work, hours.useful) == pytest.approx((7.4, 1, 2, 4), rel=1e-9)
    assert found.all.cost is not None
    for drop in (*(drop.name for drop in DROPS), "useful"):
        assert getattr(found.all.cost, drop) == pytest.approx(2 * getattr(hours, drop), rel=1e-9)
        assert getattr(hours, drop) == pytest.approx(fsum(getattr(g.gpu_hours, drop) for g in found.rows), rel=1e-9)
    spent = [step for step in found.all.steps if step.kind != "level" or step.name == "useful"]
    assert fsum(step.gpu_hours for step in spent) == pytest.approx(40, rel=1e-9)
    assert found.too_many_flops == ()


@pytest.mark.long
def test_the_way_ends_where_nobody_knows_more(tmp_path: Path) -> None:
    """Without a network the way stops at effective and says what would let it go on; without samples at held; with both it ends."""
    Path("loadfactor.toml").write_text("")
    settings.cache_clear()
    books = make_books(tmp_path, [made("train", tokens_at(0.4))])
    found = books.waterfall()
    assert found.all.known_to == "active"
    assert "[[network]]" in (found.all.goes_on or "")
    steps = {step.name: step for step in found.all.steps}
    assert [steps[name].gpu_hours for name in ("uncounted", "not_math", "math", "useful")] == [
        pytest.approx(21.6),
        None,
        None,
        None,
    ]
    text = say_useful(found)
    assert "21.6 were effective, 54.0 %. These cost $43.20 of $80.00" in text
    assert "0.0 %" not in text
    Path("loadfactor.toml").write_text(TOML)
    settings.cache_clear()
    assert books.waterfall().all.known_to == "useful"
    (tmp_path / "unseen").mkdir()
    unseen = make_books(tmp_path / "unseen", [], samples=False).waterfall().all
    assert (unseen.known_to, unseen.steps[-1].gpu_hours) == ("held", None)


@pytest.mark.long
def test_what_is_effective_in_idle_time_is_not_underused_twice(tmp_path: Path) -> None:
    """A job whose activity is always under the threshold: idle all its time, a hundredth of it effective, as metrics say."""
    books = make_books(tmp_path, [], activity=0.01)
    hours = books.waterfall().all.gpu_hours
    said = {r.metric: r.value for r in books.show(("idle_gpu_hours", "underused_gpu_hours", "effective_gpu_hours"))}
    assert (hours.idle, hours.underused) == pytest.approx((said["idle_gpu_hours"], said["underused_gpu_hours"]))
    assert hours.after("active") == pytest.approx(said["effective_gpu_hours"])
    found = find_savings(books)
    assert found.saved_gpu_hours <= found.lost_gpu_hours


@pytest.mark.long
def test_more_flops_than_activity_are_said(tmp_path: Path) -> None:
    """A job with more model FLOPs than it was active for has lost nothing to other instructions, and is named."""
    found = make_books(tmp_path, [made("train", tokens_at(0.95))]).waterfall(["job", "day"])
    assert found.too_many_flops == ("train",)
    assert found.all.gpu_hours.not_math == 0
    assert found.all.gpu_hours.paid == pytest.approx(40, rel=1e-9)


def test_a_waterfall_by_device_is_refused(tmp_path: Path) -> None:
    """Nobody knows what a single GPU made."""
    with pytest.raises(InputError, match="device"):
        make_books(tmp_path, [made("train", 1.0)]).waterfall("device")


@pytest.mark.long
def test_the_cost_of_serving_is_split_over_its_tokens(tmp_path: Path) -> None:
    """A token from a cache counts 0.1, an output token 4: together they cost what the job cost."""
    tokens = {"prompt_token": 1000.0, "cached_prompt_token": 400.0, "output_token": 100.0}
    books = make_books(tmp_path, [made("serve", amount, unit) for unit, amount in tokens.items()])
    names = ("prompt", "cached_prompt", "output")
    found = books.show([*(f"cost_per_million_{name}_tokens" for name in names), "cached_prompt_share"])
    prompt, cached, output, share = (r.value for r in found if isinstance(r.value, float))
    assert (prompt, cached, output) == pytest.approx([20 / 1040 * 1e6 * weight for weight in (1, 0.1, 4)], rel=1e-12)
    assert (600 * prompt + 400 * cached + 100 * output) / 1e6 == pytest.approx(20, rel=1e-12)
    assert share == pytest.approx(0.4)


def lost(share: float, cause: str | None, number: int) -> Row:
    """Tokens of the job that trains, lost, in a stretch of its own."""
    row = made("train", tokens_at(share), kept=False)
    return row | {"cause": cause, "from_utc": START + number * MINUTE}


def section(kind: str, first: int, last: int, job: str = "train", attempt: int = 0) -> Row:
    """From and to this minute of the books."""
    spans = {"from_utc": START + first * MINUTE, "to_utc": START + last * MINUTE}
    return {"job_id": job, "attempt": attempt, "kind": kind, **spans}


def by_cause(group: WaterfallGroup, of: str) -> dict[str | None, float]:
    return {part.cause: part.gpu_hours for part in group.causes if part.of == of}


@pytest.mark.long
def test_lost_work_by_cause(tmp_path: Path) -> None:
    """Of one GPU-hour lost, 0.6 to restarts, 0.1 to preemption, 0.1 to what has another name; of 0.2 nobody knows why."""
    parts = ((0.06, "restart"), (0.01, "preemption"), (0.01, "cosmic rays"), (0.02, None))
    progress = [lost(share, cause, number) for number, (share, cause) in enumerate(parts)]
    found = make_books(tmp_path, [made("train", tokens_at(0.4)), *progress]).waterfall("team")
    team = next(group for group in found.rows if group.by["team"] == "a")
    for group in (found.all, team):
        assert by_cause(group, "lost_work") == pytest.approx(
            {"restart": 0.6, "preemption": 0.1, "other": 0.1, None: 0.2}, rel=1e-9
        )
        assert [part.cost for part in group.causes] == pytest.approx([1.2, 0.2, 0.2, 0.4], rel=1e-9)
    assert team.causes[0].share_of_paid == pytest.approx(0.06, rel=1e-9)
    assert not next(group for group in found.rows if group.by["team"] == "b").causes


@pytest.mark.long
def test_lost_work_of_which_nobody_says_why_has_no_causes(tmp_path: Path) -> None:
    """It is a step of the waterfall, as before, and nothing is said of its parts."""
    found = make_books(tmp_path, [made("train", tokens_at(0.4)), lost(0.1, None, 0)]).waterfall()
    assert found.all.gpu_hours.lost_work == pytest.approx(1, rel=1e-9)
    assert found.all.causes == ()


@pytest.mark.long
def test_sections_are_parts_of_held_time_that_was_not_math(tmp_path: Path) -> None:
    """An instant counts once, for the first kind of several, and only while GPUs are held."""
    sections = [
        section("start_up", 0, 60),
        section("checkpoint", 120, 150),
        section("checkpoint", 120, 140, attempt=1),
        section("data_wait", 140, 170),
        section("evaluation", 60 * HOURS - 10, 60 * HOURS + 30),
        section("compile", 0, 60, job="of another fleet"),
    ]
    books = make_books(tmp_path, [made("train", tokens_at(0.5))], sections)
    found = books.waterfall()
    hours = found.all.gpu_hours
    assert hours.idle + hours.underused + hours.uncounted + hours.not_math == pytest.approx(3 + 5.4 + 14.4 + 2.2)
    known = {"checkpoint": 0.5, "evaluation": 1 / 6, "data_wait": 1 / 3, "start_up": 1.0}
    assert by_cause(found.all, "without_math") == pytest.approx({**known, None: 23.0}, rel=1e-9)
    rows = books.waterfall("hour").rows
    first, third = rows[0], rows[2]
    assert by_cause(first, "without_math") == pytest.approx({"start_up": 1.0, None: 2.0}, rel=1e-9)
    half_an_hour_without_math = {"checkpoint": 0.5 * 3 / 5, "data_wait": 0.5 * 2 / 5}
    assert by_cause(third, "without_math") == pytest.approx({**half_an_hour_without_math, None: 2.0}, rel=1e-9)
    costs = {part.cause: part.cost for part in found.all.causes}
    assert costs == pytest.approx({cause: 2 * spent for cause, spent in {**known, None: 23.0}.items()}, rel=1e-9)


def test_sections_take_no_more_than_there_is(tmp_path: Path) -> None:
    """A job that says it evaluated for ten hours, of which 7.2 were its network's FLOPs, evaluated in the other 2.8."""
    books = make_books(tmp_path, [made("train", tokens_at(0.72))], [section("evaluation", 0, 600)])
    (group,) = (group for group in books.waterfall("job").rows if group.by["job"] == "train")
    parts = by_cause(group, "without_math")
    assert parts["evaluation"] == pytest.approx(2.8, rel=1e-9)
    assert parts[None] == pytest.approx(0, abs=1e-9)


@pytest.mark.long
def test_a_section_holds_all_gpus_of_its_job_as_far_as_they_were_observed(tmp_path: Path) -> None:
    """Two GPUs wait for data for an hour, and one of them is measured: one GPU-hour observed, of a job without known FLOPs."""
    devices = [{"device_id": f"g{k}", "accelerator": "H100", "from_utc": START, "to_utc": END} for k in range(2)]
    held = [{"job_id": "two", "device_id": f"g{k}", "from_utc": START, "to_utc": START + 4 * HOUR} for k in range(2)]
    samples = [
        {"device_id": "g0", "from_utc": START + k * HOUR, "to_utc": START + (k + 1) * HOUR, "sm_active_share": 0.5}
        for k in range(4)
    ]
    rows = (("devices", devices), ("allocations", held), ("samples", samples))
    books = Books(tmp_path / "store")
    items = [*(batch(name, of) for name, of in rows), batch("job_sections", [section("data_wait", 60, 120, "two")])]
    add(books, items, "two", tmp_path)
    found = books.waterfall("job")
    (group,) = (group for group in found.rows if group.by["job"] == "two")
    assert group.gpu_hours.uncounted == pytest.approx(2)
    assert by_cause(group, "without_math") == pytest.approx({"data_wait": 1.0, None: 3.0}, rel=1e-9)


@pytest.mark.long
def test_the_whole_is_one_however_it_is_split(tmp_path: Path) -> None:
    """The first hour is idle, and a tenth of the tokens are from then: they count for the job, which did nothing else in ten hours.

    The page of a report asks by more than the waterfall is split by.
    """
    books = make_books(tmp_path, [made("train", tokens_at(0.4))])
    with books.snapshot() as snapshot:
        whole = snapshot.waterfall(())
        by_hour = snapshot.waterfall(("hour",))
        asked = snapshot.read_waterfall(snapshot.show(ASKED, ("job", "hour", "team")))
    assert whole.all.gpu_hours.useful == pytest.approx(4.0)
    assert by_hour.all.gpu_hours.useful == asked.all.gpu_hours.useful == pytest.approx(4.0)
    assert [row.gpu_hours.useful for row in by_hour.rows] == pytest.approx([0.0, *[0.4] * 9])
