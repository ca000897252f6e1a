"""Rules for Prometheus over loadfactor's own metrics and dcgm-exporter's, checked and played through promtool."""

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.long import rest_long

from loadfactor.base.units import S_PER_MIN
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.rule import Rule, Threshold
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.gauges.rules import CONDITION, name_labels, name_watched
from loadfactor.interfaces.prometheus_rules.dcgm import TRANSLATIONS, UNTRANSLATED
from loadfactor.interfaces.prometheus_rules.files import list_own_rules, write_for
from loadfactor.settings.alerts import AlertTable

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="not installed: prometheus (Debian package)"
)


@dataclass(frozen=True)
class Story:
    """Series by minute ("" for the start, then a value or `_` for nothing), and at which minutes the alert fires for whom."""

    series: Mapping[str, Sequence[float | None]]
    alert: str
    firing: Mapping[int, Sequence[Mapping[str, str]]]


def check_rules(path: Path) -> str:
    """What `promtool check rules` says; asserts that it takes them."""
    done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def play(folder: Path, rules: Path, stories: Sequence[Story]) -> None:
    """Play the stories; asserts that ALERTS fires at these minutes, for these groups and nobody else."""
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": _write(values)} for name, values in story.series.items()],
            "promql_expr_test": [
                {
                    "expr": f"count by ({', '.join(sorted(groups[0])) if groups else ''})"
                    f'(ALERTS{{alertname="{story.alert}",alertstate="firing"}})',
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": _selector(group), "value": 1} for group in groups],
                }
                for minute, groups in story.firing.items()
            ],
        }
        for story in stories
    ]
    content: dict[str, Any] = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    path = folder / "stories.yml"
    path.write_text(yaml.safe_dump(content))
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _write(values: Sequence[float | None]) -> str:
    """The values of a series; one that is not scraped any more is marked as gone, as a scrape does."""
    before = [None, *values[:-1]]
    pairs = zip(before, values, strict=True)
    return " ".join(repr(now) if now is not None else "_" if last is None else "stale" for last, now in pairs)


def _selector(group: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{value}"' for name, value in group.items())
    return f"{{{inside}}}"


SETTLE = 20
"""Minutes before and between the parts of a story."""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file."""
    path = tmp_path_factory.mktemp("rules") / "loadfactor.rules.yml"
    path.write_text(write_for("loadfactor", RULES, "USD", "")[0])
    return path


def levels(rule: Rule) -> tuple[str, float | None, float, float]:
    """The gauge of a rule, and values of it that are clear of the limit, beyond it, and between both."""
    condition = rule.condition
    if not isinstance(condition, Threshold):
        return CONDITION, None, 1.0, 0.5
    away = 0.01 * abs(condition.limit) * (1 if condition.side == "below" else -1)
    between = (condition.limit + condition.clears_at) / 2
    return name_watched(rule, "USD"), condition.clears_at + away, condition.limit - away, between


@needs_promtool
def test_prometheus_takes_them(rules: Path) -> None:
    """Every rule is in the file, with severity, cause, meaning, questions and its runbook."""
    assert f"SUCCESS: {len(RULES)} rules found" in check_rules(rules)
    written = {one["alert"]: one for one in yaml.safe_load(rules.read_text())["groups"][0]["rules"]}
    assert list(written) == [rule.name for rule in RULES]
    for rule in RULES:
        one = written[rule.name]
        assert one["labels"] == {"severity": rule.severity, "cause": rule.cause}
        assert one["annotations"]["summary"] == rule.meaning
        assert one["annotations"]["ask_first"] == rule.ask_first
        assert one["annotations"]["runbook_url"] == f"docs/alerts.md#{rule.name}"


@pytest.mark.long
@needs_promtool
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_fires_stays_and_ends(rule: Rule, rules: Path, tmp_path: Path) -> None:
    """Beyond its limit for long enough it fires; it stays where the value is not clear yet, and ends where it is."""
    gauge, clear, bad, between = levels(rule)
    held = max(int(rule.for_s // S_PER_MIN) - 1, 0)  # after the first evaluation
    by = {name: f"some {name}" for name in name_labels(rule)}
    labels = ",".join(f'{name}="{value}"' for name, value in {"rule": rule.name, **by}.items())
    series = f"{gauge}{{{labels}}}"
    course = [*[clear] * SETTLE, *[bad] * (held + SETTLE), *[between] * SETTLE, *[clear] * SETTLE]
    fires, stays = SETTLE + held, 2 * SETTLE + held
    told: dict[int, list[dict[str, str]]] = {
        0: [],
        SETTLE - 1: [],
        fires: [by],
        stays + 5: [by],
        stays + SETTLE + 6: [],
    }
    if held:
        told[fires - 1] = []
    hardly = [*[clear] * SETTLE, *[bad] * max(held - 1, 0), *[clear] * (2 * SETTLE)]
    unknown: list[float | None] = [*[clear] * SETTLE, *[None] * (held + SETTLE)]
    stays_clear = [between] * (held + 2 * SETTLE)
    never = {minute: [] for minute in range(0, held + 2 * SETTLE, 5)}
    stories = [Story({series: course}, rule.name, told)]
    stories += [Story({series: other}, rule.name, never) for other in (hardly, unknown, stays_clear)]
    play(tmp_path, rules, stories)


@needs_promtool
def test_rules_of_the_settings_are_written(tmp_path: Path) -> None:
    """A rule that settings change, switch off or add is so in the file, whatever its words are."""
    tables = (
        AlertTable(rule="fleet_utilization_low", below="40 %", **{"for": "2h"}),
        AlertTable(rule="team_utilization_low", enabled=False),
        AlertTable(
            name='hot" or vector(1) # {{ .x }}', metric="temperature_c", by=("node",), above="75 °C", window="10min",
            meaning='{{ query "up" }} "quoted"\nsecond line', ask_first="why: # not?",
        ),
    )  # fmt: skip
    path = tmp_path / "rules.yml"
    path.write_text(write_for("loadfactor", configure(RULES, tables), "USD", "https://docs.example/lf/")[0])
    check_rules(path)
    written = {one["alert"]: one for one in yaml.safe_load(path.read_text())["groups"][0]["rules"]}
    assert written["fleet_utilization_low"]["for"] == "119m"
    assert "< 0.4\n" in written["fleet_utilization_low"]["expr"]
    assert (
        written["fleet_utilization_low"]["annotations"]["runbook_url"]
        == "https://docs.example/lf/alerts.md#fleet_utilization_low"
    )
    assert "team_utilization_low" not in written
    added = written['hot" or vector(1) # {{ .x }}']
    assert (
        'loadfactor_watched_10m_node_temperature_celsius{rule="hot\\" or vector(1) # {{ .x }}"} > 75' in added["expr"]
    )
    assert added["annotations"]["summary"].startswith('{{ "{{" }} query "up" }}')
    assert "\n" not in added["annotations"]["summary"]


def test_a_condition_that_promql_cannot_say_is_named() -> None:
    """The file says of each such rule that it asks loadfactor, and why."""
    (own,) = list_own_rules([rule for rule in RULES if not isinstance(rule.condition, Threshold)][:1], "USD") or [None]
    if own is None:
        pytest.skip("all rules are thresholds")
    text = write_for("loadfactor", RULES, "USD", "")[0]
    for rule in RULES:
        if not isinstance(rule.condition, Threshold):
            assert f"# {rule.name}: PromQL cannot say this condition" in text


def test_a_limit_without_hysteresis_is_one_comparison() -> None:
    """Where a rule is clear at its limit there is nothing to stay for."""
    rule = RULES[0]
    assert isinstance(rule.condition, Threshold)
    bare = replace(rule, condition=replace(rule.condition, clears_at=rule.condition.limit))
    assert "ALERTS" not in write_for("loadfactor", [bare], "USD", "")[0].split("groups:")[1]


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
def dcgm_rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "dcgm.rules.yml"
    path.write_text(write_for("dcgm", RULES, "USD", "")[0])
    return path


@needs_promtool
def test_every_rule_is_said_or_named(dcgm_rules: Path) -> None:
    """Prometheus takes the file; a rule that is not in it stands in a comment with the reason."""
    check_rules(dcgm_rules)
    text = dcgm_rules.read_text()
    said = {rule["alert"] for rule in yaml.safe_load(text)["groups"][0]["rules"] if "alert" in rule}
    for rule in RULES:
        assert (rule.name in said) != (f"# {rule.name}: not translated." in text)
        assert rule.name in said or rule.name in UNTRANSLATED
    assert said <= {*FAULTS}
    assert said == {rule.name for rule in RULES if rule.name in TRANSLATIONS or isinstance(rule.condition, Threshold)}


@pytest.mark.long
@needs_promtool
@pytest.mark.parametrize("name", rest_long(FAULTS))
def test_a_rule_fires_on_its_fault_alone(name: str, dcgm_rules: Path, tmp_path: Path) -> None:
    """It fires for the group with the fault, not where all is well or looks alike; a gap fires nothing but lost telemetry."""
    if name not in {rule.name for rule in RULES}:
        pytest.skip("not shipped")
    fault = FAULTS[name]()
    stories = [Story(fault.series, name, {KNOWN_BY: [fault.group]})]
    never = {minute: [] for minute in range(0, ENDS, 7)}
    quiet = [HEALTHY, *fault.quiet, *([] if name in SHOWN_BY_GAPS else [GAP])]
    stories += [Story(series, name, never) for series in quiet]
    play(tmp_path, dcgm_rules, stories)
