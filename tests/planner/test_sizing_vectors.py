"""Every golden value about ownership, spot, checkpoints, break-even, queues, staffing, pooling and base-and-peak, by id."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from loadfactor.planner import checkpoint, queueing, staffing
from loadfactor.units import S_PER_DAY, S_PER_HOUR

Inputs = Mapping[str, Any]


def _service_s(v: Inputs) -> float:
    return 1 / v.get("mu", 1)


# id pattern → what this package answers for the vector's inputs
ANSWERS: tuple[tuple[str, Callable[[Inputs], float]], ...] = (
    (r"ckpt\.young\..*", lambda v: checkpoint.young_interval_s(v["delta"], v["M"])),
    (r"ckpt\.daly\..*", lambda v: checkpoint.daly_interval_s(v["delta"], v["M"])),
    (r"ckpt\.eff\..*", lambda v: checkpoint.plan_checkpoints(v["delta"], v["M"], v["R"]).efficiency_share),
    (r"llama3\.mtti_h", lambda _: checkpoint.job_mtbf_s(16_384 * 54 * 24 / 419, 16_384) / S_PER_HOUR),
    (r"llama3\.gpu_mtbf_h", lambda _: checkpoint.job_mtbf_s(16_384 * 54 * 24 / 419, 1) / S_PER_HOUR),
    (r"meta\.mtti_16384_h", lambda _: checkpoint.node_failures_to_mtbf_h(6.5e-3, 2048)),
    (
        r"meta\.ettr",
        lambda v: checkpoint.expected_training_time_ratio(
            v["nodes"], v["rf"], v["u0"] * S_PER_DAY, v["dt"] * S_PER_DAY, v["w"] * S_PER_DAY
        ),
    ),
    (r"mmk\.[\d.]+\.C", lambda v: queueing.erlang_c(v["lam"] * _service_s(v), v["k"])),
    (r"mmk\.[\d.]+\.Wq", lambda v: queueing.mean_wait_s(v["lam"], _service_s(v), v["k"])),
    (r"mmk\.p_wait_gt", lambda v: queueing.wait_longer_share(v["t"], v["lam"], 1.0, v["k"])),
    (r"erlangB\..*", lambda v: queueing.erlang_b(v["a"], v["k"])),
    (r"md1\.Wq", lambda v: queueing.mean_wait_s(v["rho"], 1.0, 1, service_cv2=0)),
    (r"mg1\.Wq\..*", lambda v: queueing.mean_wait_s(v["rho"], 1.0, 1, service_cv2=v["cs2"])),
    (r"kingman", lambda v: queueing.mean_wait_s(v["rho"], 1.0, 1, v["ca2"], v["cs2"])),
    (r"sqrt\.staff\..*", lambda v: staffing.square_root_staffing(v["a"], 0.2)),
    (r"pool\.separate", lambda _: 10 * queueing.servers_for_wait_share(8, 0.2)),
    (r"pool\.shared", lambda _: queueing.servers_for_wait_share(80, 0.2)),
    (
        r"pool\.util_p99\..*",
        lambda v: staffing.utilization_at_quantile(staffing.pooled_cv(v["cv"], v["n"]), 0.99),
    ),
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


@pytest.fixture(scope="module")
def vectors(shared: Path) -> dict[str, dict[str, Any]]:
    """Every golden vector by its id."""
    return {v["id"]: v for v in json.loads((shared / "truth" / "test_vectors.json").read_text())}


@pytest.mark.parametrize(("pattern", "answer"), ANSWERS, ids=[pattern for pattern, _ in ANSWERS])
def test_golden_values(pattern: str, answer: Callable[[Inputs], float], vectors: dict[str, dict[str, Any]]) -> None:
    """Each golden value is reproduced within its own tolerance, and every pattern of the table names at least one."""
    matching = [v for name, v in vectors.items() if re.fullmatch(pattern, name)]
    assert matching
    for vector in matching:
        assert answer(vector["inputs"]) == pytest.approx(vector["expected"], **tolerance(vector)), vector["id"]
