"""Rules of what is known: GPUs of which no samples come any longer, and GPUs at work that nobody holds by any source."""

from typing import Final

import numpy as np

from loadfactor.base.units import S_PER_HOUR, S_PER_MIN
from loadfactor.insight.alerts.rule import (
    Compound,
    Evidence,
    Floats,
    Ints,
    Limit,
    Limits,
    Need,
    Rule,
    Verdicts,
    count_by,
    flatten,
    show,
    show_names,
)

_NODE, _GPU = ("node",), ("node", "device")
_NOW, _WINDOW = float(S_PER_MIN), 10.0 * S_PER_MIN
_UNOBSERVED: Final = Need("unobserved_share", _GPU, _WINDOW)
_HELD: Final = Need("unobserved_share", _GPU, _NOW)
_MEASURED: Final = Need("measured_share", _NODE, float(S_PER_HOUR), _WINDOW)
"""In the hour before: where samples only begin, as when an exporter is installed, none were lost."""
_FEW: Final = 2
"""So few GPUs may have gaps at the same time by chance."""
_UNHELD: Final = Need("unheld_work_share", _GPU, _WINDOW)


def find_lost(evidence: Evidence, limits: Limits) -> Verdicts:
    """Nodes that had samples before, and now none of a GPU that is held, or too few of most of these."""
    share, held = evidence.read(_UNOBSERVED), evidence.read(_HELD)
    nodes, node_of = evidence.groups(_NODE), evidence.parents(_GPU, _NODE)
    is_held = held.is_there & ~np.isnan(held.value) & (node_of >= 0)
    is_lost = is_held & (share.value >= limits["unobserved"])
    had_samples = evidence.read(_MEASURED).value > 0
    worst = _find_most(np.where(is_held, share.value, np.nan), node_of, len(nodes))
    lost, there = (count_by(node_of, len(nodes), of) for of in (is_lost, is_held))
    most = limits["gpus"] * there
    is_bad = (worst >= limits["silent"]) | ((lost > _FEW) & (lost >= most))
    is_clear = (worst < limits["clears_at"]) & (lost < most / 2)

    def explain(step: int, node: int) -> tuple[str, ...]:
        own = np.flatnonzero(is_lost[step] & (node_of[step] == node))
        known = show(1 - share.value[step, own].mean(), "share")
        return (
            f"samples are missing of {lost[step, node]:.0f} of {there[step, node]:.0f} GPUs that are held:"
            f" {_name_gpus(evidence, own)}",
            f"{known} of the last 10 min of these is known; what they do is not low utilization but unknown",
        )

    value = np.where(np.isnan(worst), np.nan, lost)
    return Verdicts(nodes, is_bad & had_samples, is_clear, value, "GPUs", explain)


def find_unheld(evidence: Evidence, limits: Limits) -> Verdicts:
    """Nodes with GPUs that work while allocations, which speak of them, say that nobody holds them."""
    share = evidence.read(_UNHELD)
    nodes, node_of = evidence.groups(_NODE), evidence.parents(_GPU, _NODE)
    is_known = share.is_there & ~np.isnan(share.value) & (node_of >= 0)
    works = is_known & (share.value >= limits["time"])
    most = _find_most(np.where(is_known, share.value, np.nan), node_of, len(nodes))
    count = count_by(node_of, len(nodes), works)

    def explain(step: int, node: int) -> tuple[str, ...]:
        own = np.flatnonzero(works[step] & (node_of[step] == node))
        time = show(share.value[step, own].mean(), "share")
        return (f"{count[step, node]:.0f} GPUs at work that nobody holds, in {time} of the last 10 min: "
                + _name_gpus(evidence, own),)  # fmt: skip

    value = np.where(np.isnan(most), np.nan, count)
    return Verdicts(nodes, count > 0, most <= limits["clears_at"], value, "GPUs", explain)


def _find_most(of: Floats, node_of: Ints, nodes: int) -> Floats:
    """The largest value of each node; NaN where none is known."""
    known = np.flatnonzero(~np.isnan(of))
    most = np.full(len(of) * nodes, -np.inf)
    np.maximum.at(most, flatten(node_of, nodes)[known], of.ravel()[known])
    return np.where(np.isneginf(most), np.nan, most).reshape(len(of), nodes)


def _name_gpus(evidence: Evidence, places: Ints) -> str:
    groups = evidence.groups(_GPU)
    return show_names(groups[place][-1] for place in places.tolist())


TELEMETRY: Final = (
    Rule(
        "telemetry_lost",
        Compound(
            find_lost, (_UNOBSERVED, _HELD, _MEASURED),
            {
                "unobserved": Limit(0.5, "share", "the part of the last 10 minutes that is missing of a GPU", 0.01, 1),
                "gpus": Limit(0.5, "share", "the part of a node's held GPUs, at least three, that miss so much", 0.01, 1),
                "silent": Limit(0.95, "share", "the part that is missing of a GPU alone", 0.01, 1),
                "clears_at": Limit(0.75, "share", "the part at which a GPU is no longer silent", 0.01, 1),
            },
        ),
        _NODE, 5 * S_PER_MIN, "warning", "hardware",
        "Samples of GPUs that are held have stopped: what they do is not known.",
        "Is it the exporter, the network or the node: one GPU, one node, or all of them?",
        "`loadfactor doctor` and the exporter's own log and page on the node; if a GPU alone is silent, `nvidia-smi` there.",
    ),
    Rule(
        "gpus_work_unheld",
        Compound(
            find_unheld, (_UNHELD, Need("measured_share", _NODE, _NOW)),
            {
                "time": Limit(0.5, "share", "the part of the last 10 minutes at work without a holder", 0, 1),
                "clears_at": Limit(0.1, "share", "the part at which it is over", 0, 1),
            },
        ),
        _NODE, 10 * S_PER_MIN, "warning", "user error",
        "GPUs work although the scheduler says that nobody holds them.",
        "Is it user error or scheduling: does somebody work past the scheduler, or did a process outlive its job?",
        "`nvidia-smi` on the node names the processes; `loadfactor show unheld_work_share --by device` since when.",
    ),
)  # fmt: skip
