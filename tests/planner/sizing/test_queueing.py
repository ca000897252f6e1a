"""The closed forms of queueing, staffing, break-even and tiers agree with each other and with every golden value."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from loadfactor.base.errors import PlanError
from loadfactor.planner.economics import load_duration as tiers
from loadfactor.planner.economics.breakeven import ApiPrice, MeanRequest, ReplicaCost, find_break_even
from loadfactor.planner.economics.load_duration import load_duration
from loadfactor.planner.hardware.checkpoint import daly_interval_s, efficiency_share, job_mtbf_s, plan_checkpoints
from loadfactor.planner.sizing import closed_forms as queueing
from loadfactor.planner.sizing import closed_forms as staffing
from loadfactor.planner.sizing.closed_forms import (
    erlang_b,
    erlang_c,
    halfin_whitt_waiting_share,
    pooled_cv,
    queue_wait,
    servers_for_wait_share,
    square_root_staffing,
    stranded_share,
)


def test_exact_staffing_is_the_first_size_that_holds() -> None:
    """The size found lets at most the share wait, and one server fewer does not."""
    for load in (0.3, 7.0, 55.5, 400.0):
        for share in (0.05, 0.5, 0.9):
            servers = servers_for_wait_share(load, share)
            assert erlang_c(load, servers) <= share
            assert servers - 1 <= load or erlang_c(load, servers - 1) > share


def test_square_root_staffing_meets_the_exact_minimum() -> None:
    """At P(wait) ≤ 0.2 the square-root law equals the exact Erlang minimum from 10 to 10,000 servers."""
    for load in (10, 100, 1_000, 10_000):
        assert square_root_staffing(load, 0.2) == servers_for_wait_share(load, 0.2)


def test_quantile_inverts_the_tail() -> None:
    """The wait at quantile q is exceeded by exactly 1 − q of the arrivals."""
    for quantile in (0.6, 0.9, 0.99):
        wait = queue_wait(9.5, 1.0, 10, service_cv2=4)
        assert wait.longer_share(wait.quantile_s(quantile)) == pytest.approx(1 - quantile)


def test_constant_arrivals_and_service_never_wait() -> None:
    """With no variation at all nobody waits."""
    assert queue_wait(9, 1.0, 10, arrival_cv2=0, service_cv2=0).mean_s == 0
    assert queue_wait(9, 1.0, 10, arrival_cv2=0, service_cv2=0).longer_share(0.1) == 0


def test_an_overfull_queue_names_the_size_that_drains() -> None:
    """A load that never drains is refused with the smallest size that would do."""
    with pytest.raises(PlanError, match="take 9 or more"):
        queue_wait(8, 1.0, 8)
    with pytest.raises(PlanError, match="take 8 or more"):
        erlang_c(7.5, 7)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: erlang_b(-1, 2), "offered load"),
        (lambda: erlang_b(1, -2), "number of servers"),
        (lambda: queue_wait(-1, 1, 2).mean_s, "arrival rate"),
        (lambda: queue_wait(1, 0, 2).mean_s, "service time"),
        (lambda: queue_wait(1, 1, 2, service_cv2=-1).mean_s, "squared coefficient"),
        (lambda: queue_wait(1, 1, 2).quantile_s(1.0), "quantile"),
        (lambda: servers_for_wait_share(5, 0), "may wait"),
        (lambda: square_root_staffing(5, 1.5), "may wait"),
        (lambda: halfin_whitt_waiting_share(-0.1), "safety factor"),
        (lambda: pooled_cv(0.5, 0), "at least 1 team"),
        (lambda: pooled_cv(0.5, 2, 2), "correlation"),
        (lambda: stranded_share(0, 1), "at least 1 GPU"),
        (lambda: job_mtbf_s(-5, 8), "50000"),
        (lambda: daly_interval_s(-1, 100), "checkpoint"),
        (lambda: plan_checkpoints(1, 100, -1), "restart"),
        (lambda: plan_checkpoints(1, 100, 1, interval_s=-4), "interval"),
    ],
)
def test_impossible_inputs_name_themselves(call: object, says: str) -> None:
    """An input that cannot be is refused in one line that names it."""
    with pytest.raises(PlanError, match=says) as refused:
        call()  # type: ignore[operator]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("checkpoint_s", "mtbf_h"), [(60, 24), (120, 7.9), (300, 3), (60, 4)])
def test_daly_is_the_numeric_optimum(checkpoint_s: float, mtbf_h: float) -> None:
    """Daly's interval is at most half a second from the best of a fine scan."""
    mtbf_s = mtbf_h * 3600
    daly = daly_interval_s(checkpoint_s, mtbf_s)
    scan = [daly + step / 20 for step in range(-400, 401)]
    best = max(scan, key=lambda interval: efficiency_share(interval, checkpoint_s, mtbf_s, 600))
    assert best == pytest.approx(daly, abs=0.5)


def test_checkpoints_that_cannot_help() -> None:
    """A job that fails faster than it restarts keeps nothing, without overflow; free checkpoints lose only restarts."""
    assert plan_checkpoints(60, 0.5, 600).efficiency_share == 0
    assert plan_checkpoints(0, 1000, 0).efficiency_share == 1


Inputs = Mapping[str, Any]
FOLDER = Path(__file__).parents[2] / "vectors"
VECTORS: dict[str, dict[str, Any]] = {
    vector["id"]: vector
    for name in ("economics", "queueing")
    for vector in json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
}


def _service_s(v: Inputs) -> float:
    return 1 / v.get("mu", 1)


def _floor(v: Inputs) -> float:
    price = ApiPrice(v["api_usd_per_M"], v["api_usd_per_M"])
    return find_break_even(ReplicaCost(v["gpu_usd_h"], v["tps"]), price, MeanRequest(1, 1)).floor_share


# id pattern → what this package answers for the vector's inputs
ANSWERS: tuple[tuple[str, Callable[[Inputs], float]], ...] = (
    (r"breakeven\..*", _floor),
    (r"newsvendor\.q\..*", lambda v: tiers.own_for_normal_demand(v["mu"], v["sd"], v["c"], v["p"])[0]),
    (r"newsvendor\.cost\..*", lambda v: tiers.own_for_normal_demand(v["mu"], v["sd"], v["c"], v["p"])[1]),
    (r"ldc\.optimal", lambda v: tiers.choose_owned_gpus(load_duration(v["hourly"]), v["c"], v["p"])),
    (r"mmk\.[\d.]+\.C", lambda v: queueing.erlang_c(v["lam"] * _service_s(v), v["k"])),
    (r"mmk\.[\d.]+\.Wq", lambda v: queueing.queue_wait(v["lam"], _service_s(v), v["k"]).mean_s),
    (r"mmk\.p_wait_gt", lambda v: queueing.queue_wait(v["lam"], 1.0, v["k"]).longer_share(v["t"])),
    (r"erlangB\..*", lambda v: queueing.erlang_b(v["a"], v["k"])),
    (r"md1\.Wq", lambda v: queueing.queue_wait(v["rho"], 1.0, 1, service_cv2=0).mean_s),
    (r"mg1\.Wq\..*", lambda v: queueing.queue_wait(v["rho"], 1.0, 1, service_cv2=v["cs2"]).mean_s),
    (r"kingman", lambda v: queueing.queue_wait(v["rho"], 1.0, 1, v["ca2"], v["cs2"]).mean_s),
    (r"sqrt\.staff\..*", lambda v: staffing.square_root_staffing(v["a"], 0.2)),
    (r"pool\.separate", lambda _: 10 * queueing.servers_for_wait_share(8, 0.2)),
    (r"pool\.shared", lambda _: queueing.servers_for_wait_share(80, 0.2)),
    (r"pool\.util_p99\..*", lambda v: staffing.utilization_at_quantile(staffing.pooled_cv(v["cv"], v["n"]), 0.99)),
    (r"pool\.cv\.corr", lambda v: staffing.pooled_cv(v["cv"], v["n"], v["rho"])),
    (r"frag\.5of8", lambda v: staffing.stranded_share(v["G"], v["j"])),
)


def tolerance(vector: Mapping[str, Any]) -> dict[str, float]:
    """The vector's own tolerance as pytest.approx understands it; tighter than or as stated."""
    words = vector["tolerance"].split()
    if words[0] == "rel":
        return {"rel": float(words[1]), "abs": 0.0}
    if words[0] == "abs":
        return {"rel": 0.0, "abs": float(words[1].rstrip(";"))}
    return {"rel": 1e-9, "abs": 0.0}


@pytest.mark.parametrize(("pattern", "answer"), ANSWERS, ids=[pattern for pattern, _ in ANSWERS])
def test_golden_values(pattern: str, answer: Callable[[Inputs], float]) -> None:
    """Each golden value is reproduced within its own tolerance, and every pattern of the table names at least one."""
    matching = [v for name, v in VECTORS.items() if re.fullmatch(pattern, name)]
    assert matching
    for vector in matching:
        assert answer(vector["inputs"]) == pytest.approx(vector["expected"], **tolerance(vector)), vector["id"]


def test_every_vector_is_answered() -> None:
    """No golden value of these files is left out."""
    assert set(VECTORS) == {name for name in VECTORS for pattern, _ in ANSWERS if re.fullmatch(pattern, name)}


def test_the_values_are_those_published_beside_the_checkout(shared: Path) -> None:
    """Inputs, expected values and tolerances are those of the collection they were typed from."""
    published = {v["id"]: v for v in json.loads((shared / "truth" / "test_vectors.json").read_text(encoding="utf-8"))}
    for name, vector in VECTORS.items():
        for key in ("inputs", "expected", "tolerance"):
            assert vector[key] == published[name][key], name
