"""Every option of every plan, with numbers that make no sense and with the ends of its range."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

from loadfactor.base.errors import InputError, PlanError
from loadfactor.base.request import Option, make_request, options_of
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.plans import breakeven, own, serve, size, train
from loadfactor.interfaces.render.json import render_json, to_plain
from loadfactor.interfaces.render.terminal import render_text
from loadfactor.planner.economics.request import BreakEvenRequest, OwnRequest
from loadfactor.planner.serving.request import ServingRequest
from loadfactor.planner.sizing.request import SizeRequest
from loadfactor.planner.training.request import TrainingRequest


@dataclass(frozen=True)
class Plan:
    """A command: what it takes, what it builds, and arguments that make sense."""

    request: Callable[..., Any]
    build: Callable[[Any], Document]
    sensible: dict[str, Any]


PLANS = {
    "train": Plan(TrainingRequest, train.build_document, {"model": "llama-3.1-8b", "gpus": 64, "tokens": "15B"}),
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
QUICK = [(name, item) for name, item in NUMBERS if name != "serve"]  # a served day is simulated for seconds


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


@pytest.mark.parametrize(("name", "item"), QUICK, ids=[f"{name} {item.flag}" for name, item in QUICK])
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
        timeout=120,
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
