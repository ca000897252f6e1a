"""The closed forms of queueing, staffing and checkpoints agree with each other and refuse what cannot be."""

import pytest

from loadfactor.base.errors import PlanError
from loadfactor.planner.hardware.checkpoint import daly_interval_s, efficiency_share, job_mtbf_s, plan_checkpoints
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
