"""The rules over dcgm-exporter and kube-state-metrics: each fires on its fault, and on nothing else; a gap is not low."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from tests.interfaces.prometheus_rules.promtool import Story, check_rules, needs_promtool, play

from loadfactor.insight.alerts.rule import Threshold
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.prometheus_rules.dcgm import TRANSLATIONS, UNTRANSLATED
from loadfactor.interfaces.prometheus_rules.files import write_for

MINUTES = 240
BEGINS, KNOWN_BY, ENDS = 100, 215, 239
"""When a fault begins, and when its rule has fired at the latest."""
Course = Sequence[float | None]
GPU = 'UUID="GPU-{n}",Hostname="node-a",namespace="{namespace}",pod="{pod}"'
POD = {"namespace": "vision", "pod": "train-0"}
NOTEBOOK = {"namespace": "vision", "pod": "jupyter-ada"}


def steady(value: float) -> list[float | None]:
    """The same all the time."""
    return [value] * MINUTES


def becomes(value: float, later: float | None, at: int = BEGINS) -> list[float | None]:
    """One value, and another one from a minute on; None is a gap."""
    return [value] * at + [later] * (MINUTES - at)


def gpu(n: int, of: Mapping[str, str] | None = None, **signals: Course) -> dict[str, Course]:
    """The series of a GPU that a pod holds, or nobody: well used and cool where nothing else is said."""
    told: dict[str, Course] = {
        "DCGM_FI_PROF_SM_ACTIVE": steady(0.8), "DCGM_FI_DEV_GPU_UTIL": steady(95), "DCGM_FI_DEV_GPU_TEMP": steady(60),
        "DCGM_FI_DEV_FB_USED": steady(40_000), "DCGM_FI_DEV_FB_FREE": steady(40_000), "DCGM_FI_DEV_XID_ERRORS": steady(0),
    } | signals  # fmt: skip
    labels = GPU.format(n=n, **(of or {"namespace": "", "pod": ""}))
    return {f"{name}{{{labels}}}": values for name, values in told.items()}


def pod(of: Mapping[str, str], gpus: int, phase: str = "Running", since: int = 0) -> dict[str, Course]:
    """A pod that runs, or waits, from a minute on."""
    at = f'namespace="{of["namespace"]}",pod="{of["pod"]}"'
    none: list[float | None] = [None] * since
    left = MINUTES - since
    return {
        f'kube_pod_container_resource_requests{{{at},node="node-a",resource="nvidia_com_gpu"}}': none
        + [float(gpus)] * left,
        f'kube_pod_status_phase{{{at},phase="{phase}"}}': none + [1.0] * left,
        f"kube_pod_start_time{{{at}}}": none + [since * 60.0] * left,
        f"kube_pod_created{{{at}}}": none + [since * 60.0] * left,
    }


def node(ready: Course | None = None, gpus: int = 2) -> dict[str, Course]:
    """A node with two GPUs."""
    told = {
        f'kube_node_status_{what}{{node="node-a",resource="nvidia_com_gpu"}}': steady(gpus)
        for what in ("capacity", "allocatable")
    }
    return {
        **told,
        'kube_node_status_condition{node="node-a",condition="Ready",status="true"}': ready or steady(1),
        'kube_node_spec_unschedulable{node="node-a"}': steady(0),
        'up{job="dcgm-exporter",instance="node-a:9400"}': steady(1),
    }


def work(
    first: Mapping[str, Course], second: Mapping[str, Course] | None = None, of: Mapping[str, str] = POD
) -> dict[str, Course]:
    """A pod with two GPUs that tell this besides what they tell when they are well."""
    return {**node(), **pod(of, 2), **gpu(0, of, **first), **gpu(1, of, **(first if second is None else second))}


def activity(values: Course) -> dict[str, Course]:
    """SM active, with GPU_UTIL beside it, which idles with it."""
    return {
        "DCGM_FI_PROF_SM_ACTIVE": values,
        "DCGM_FI_DEV_GPU_UTIL": [v if v is None else (95 if v > 0 else 0) for v in values],
    }


HEALTHY = work({})
GAP = {
    name: [*values[:BEGINS], *[None] * (MINUTES - BEGINS)] if name.startswith("DCGM") else values
    for name, values in HEALTHY.items()
}
"""All samples of the pod are gone from a minute on."""
LEAK = [40_000.0] * 60 + [40_000.0 + 190 * minute for minute in range(MINUTES - 60)]


@dataclass(frozen=True)
class Fault:
    """Series in which a rule fires, for whom, and series that look alike in which it does not."""

    series: Mapping[str, Course]
    group: Mapping[str, str]
    quiet: Sequence[Mapping[str, Course]] = field(default_factory=tuple)


LOW = activity(becomes(0.8, 0.2))
FAULTS: dict[str, Callable[[], Fault]] = {
    "fleet_utilization_low": lambda: Fault(work(LOW), {}),
    "team_utilization_low": lambda: Fault(work(LOW), {"namespace": "vision"}),
    "job_utilization_low": lambda: Fault(work(LOW), POD),
    "job_idle_from_start": lambda: Fault(work(activity(steady(0))), POD, [work(activity(steady(0)), of=NOTEBOOK)]),
    "job_became_idle": lambda: Fault(work(activity(becomes(0.8, 0))), POD, [work(activity(steady(0)))]),
    "notebook_idle": lambda: Fault(work(activity(steady(0)), of=NOTEBOOK), NOTEBOOK, [work(activity(steady(0)))]),
    "gpus_never_used": lambda: Fault(work({}, activity(steady(0))), POD, [work(activity(steady(0)))]),
    "memory_pressure": lambda: Fault(
        work({"DCGM_FI_DEV_FB_USED": LEAK, "DCGM_FI_DEV_FB_FREE": [80_000 - v for v in LEAK]}, {}), POD | {"UUID": "GPU-0"},
        [work({"DCGM_FI_DEV_FB_USED": steady(78_000), "DCGM_FI_DEV_FB_FREE": steady(2_000)})],
    ),
    "gpu_hot": lambda: Fault(work({"DCGM_FI_DEV_GPU_TEMP": becomes(60, 90)}, {}), {"UUID": "GPU-0"}),
    "gpu_xid": lambda: Fault(
        work({"DCGM_FI_DEV_XID_ERRORS": becomes(0, 79, KNOWN_BY - 5)}, {}), {"UUID": "GPU-0"},
        [work({"DCGM_FI_DEV_XID_ERRORS": becomes(0, 43)}), work({"DCGM_FI_DEV_XID_ERRORS": steady(79)})],
    ),
    "gpu_ecc": lambda: Fault(
        work({"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": becomes(1, 2, KNOWN_BY - 5)}, {}), {"UUID": "GPU-0"},
        [work({"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": steady(2)})],
    ),
    "node_down": lambda: Fault(
        HEALTHY | node(becomes(1, 0)), {"node": "node-a"},
        [HEALTHY | node(becomes(1, 0)) | {'kube_node_spec_unschedulable{node="node-a"}': steady(1)}],
    ),
    "telemetry_lost": lambda: Fault(GAP, POD),
    "gpus_work_unheld": lambda: Fault(node() | gpu(0), {"UUID": "GPU-0"}, [node() | gpu(0, None, **activity(steady(0)))]),
    "gpus_free_while_jobs_wait": lambda: Fault(
        HEALTHY | node(gpus=8) | pod({"namespace": "nlp", "pod": "waits"}, 6, "Pending", BEGINS), {},
        [HEALTHY | node(gpus=8) | pod({"namespace": "nlp", "pod": "waits"}, 7, "Pending", BEGINS)],
    ),
}  # fmt: skip
SHOWN_BY_GAPS = ("telemetry_lost",)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file."""
    path = tmp_path_factory.mktemp("rules") / "dcgm.rules.yml"
    path.write_text(write_for("dcgm", RULES, "USD", "")[0])
    return path


@needs_promtool
def test_every_rule_is_said_or_named(rules: Path) -> None:
    """Prometheus takes the file; a rule that is not in it stands in a comment with the reason."""
    check_rules(rules)
    text = rules.read_text()
    said = {rule["alert"] for rule in yaml.safe_load(text)["groups"][0]["rules"] if "alert" in rule}
    for rule in RULES:
        assert (rule.name in said) != (f"# {rule.name}: not translated." in text)
        assert rule.name in said or rule.name in UNTRANSLATED
    assert said <= {*FAULTS}
    assert said == {rule.name for rule in RULES if rule.name in TRANSLATIONS or isinstance(rule.condition, Threshold)}


@needs_promtool
@pytest.mark.parametrize("name", FAULTS)
def test_a_rule_fires_on_its_fault_alone(name: str, rules: Path, tmp_path: Path) -> None:
    """It fires for the group with the fault, not where all is well or looks alike; a gap fires nothing but lost telemetry."""
    if name not in {rule.name for rule in RULES}:
        pytest.skip("not shipped")
    fault = FAULTS[name]()
    stories = [Story(fault.series, name, {KNOWN_BY: [fault.group]})]
    never = {minute: [] for minute in range(0, ENDS, 7)}
    quiet = [HEALTHY, *fault.quiet, *([] if name in SHOWN_BY_GAPS else [GAP])]
    stories += [Story(series, name, never) for series in quiet]
    play(tmp_path, rules, stories)
