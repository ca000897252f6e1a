"""Every golden value about break-even, queues, staffing, pooling and tiers, by id."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from loadfactor.planner.economics import load_duration as tiers
from loadfactor.planner.economics.breakeven import ApiPrice, MeanRequest, ReplicaCost, find_break_even
from loadfactor.planner.economics.load_duration import load_duration
from loadfactor.planner.sizing import closed_forms as queueing
from loadfactor.planner.sizing import closed_forms as staffing

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
