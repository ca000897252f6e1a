"""On fleets with known faults the rules for Prometheus fire like loadfactor's own, within one evaluation interval."""

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from tests.faults.cases import Case, make_case
from tests.faults.healthy import write_settings
from tests.faults.kinds import FAULTS
from tests.faults.scene import Job, Scene, measure
from tests.real.components import Component, write_scrapes

from loadfactor.base.quantities import parse_duration_s
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_MIN, MS_PER_S, PERCENT, S_PER_MIN
from loadfactor.books.books import Books
from loadfactor.insight.alerts.alert import Alert, Transition
from loadfactor.insight.alerts.judge import MOST_STEPS, STEP_MS, Judge, judge_rule
from loadfactor.insight.alerts.rule import Evidence
from loadfactor.insight.alerts.rules import RULES
from loadfactor.insight.alerts.rules.hardware import is_planned
from loadfactor.interfaces.gauges.exposition import MetricFamily
from loadfactor.interfaces.gauges.rules import tell_rules
from loadfactor.interfaces.prometheus_rules.files import write_for
from loadfactor.settings.config import settings
from loadfactor.tables.schema import DIMENSIONS

Labels = tuple[tuple[str, str], ...]
Series = dict[tuple[str, Labels], dict[int, float]]
"""Values by name and labels, and by time in ms."""
SHORT_LOOKBACK = "59s"
"""Blocks have no marks of series that ended: what has no sample in this minute is not there."""


def add_families(series: Series, families: Iterable[MetricFamily], at_ms: int) -> None:
    """Keep the samples of a scrape."""
    for family in families:
        for labels, value in family.samples:
            series.setdefault((family.name, tuple(sorted(labels.items()))), {})[at_ms] = value


def write_openmetrics(series: Series, path: Path) -> None:
    """The series as OpenMetrics with times."""
    by_name: dict[str, list[tuple[Labels, dict[int, float]]]] = {}
    for (name, labels), values in series.items():
        by_name.setdefault(name, []).append((labels, values))
    with path.open("w") as file:
        for name, rows in by_name.items():
            file.write(f"# TYPE {name} gauge\n")
            for labels, values in rows:
                inside = ",".join(f'{key}="{_escape(value)}"' for key, value in labels)
                file.writelines(f"{name}{{{inside}}} {v!r} {at / MS_PER_S:.3f}\n" for at, v in sorted(values.items()))
        file.write("# EOF\n")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def add_blocks(folder: Path, *arguments: str) -> None:
    """Have promtool write blocks into the database in this folder, where it runs."""
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", *arguments, *(["data"] if "openmetrics" in arguments else [])],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def serve_history(folder: Path) -> Iterator[Component]:
    """A Prometheus that scrapes nothing and has the blocks in this folder."""
    config = (
        write_scrapes(folder / "config", {}) if not (folder / "config").exists() else folder / "config" / "scrapes.yml"
    )
    arguments = [
        f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn",
        "--storage.tsdb.retention.time=100y", f"--query.lookback-delta={SHORT_LOOKBACK}",
    ]  # fmt: skip
    with Component(folder, "prometheus", arguments, "--web.listen-address=", "/-/ready") as server:
        yield server


def find_offset(server: Component, recorded: str, at_ms: int) -> int:
    """How long after full minutes a series was recorded, ms: promtool evaluates a group at a moment that its file and name tell."""
    asked = {"query": f"{recorded}[1h]", "time": str(at_ms / MS_PER_S)}
    found = httpx.get(f"{server.url}/api/v1/query", params=asked, timeout=60).json()["data"]["result"]
    return round(float(found[0]["values"][0][0]) * MS_PER_S) % MS_PER_MIN


def ask_minutes(
    server: Component, expression: str, span: tuple[int, int], offset_ms: int = 0
) -> dict[Labels, set[int]]:
    """At which minutes of a span, in ms, an expression answers, so long after them, by labels."""
    start, end = (str((at + offset_ms) / MS_PER_S) for at in span)
    asked = {"query": expression, "start": start, "end": end, "step": str(S_PER_MIN)}
    answer = httpx.post(f"{server.url}/api/v1/query_range", data=asked, timeout=120)
    assert answer.status_code == httpx.codes.OK, f"{expression}: {answer.text}"
    found: dict[Labels, set[int]] = {}
    for one in answer.json()["data"]["result"]:
        labels = tuple(sorted((k, v) for k, v in one["metric"].items() if k not in ("__name__", "rule")))
        found.setdefault(labels, set()).update(round(float(at) * MS_PER_S) - offset_ms for at, _ in one["values"])
    return found


def find_firing(active: Mapping[Labels, set[int]], for_s: float) -> dict[Labels, list[int]]:
    """When a rule begins to fire whose expression answers at these minutes: each time it has done so for long enough."""
    found: dict[Labels, list[int]] = {}
    for labels, minutes in active.items():
        begun = fired = -1
        for at in sorted(minutes):
            if at - MS_PER_MIN not in minutes:
                begun, fired = at, -1
            if fired < 0 and at - begun >= for_s * MS_PER_S:
                fired = at
                found.setdefault(labels, []).append(at)
    return found


FREE: dict[str, str] = {}


def export_scene(scene: Scene) -> Series:
    """Everything that the two exporters tell: a pod is a job, a namespace is a team."""
    return {**_export_gpus(scene), **_export_pods(scene), **_export_nodes(scene)}


def name_pod(job: Job) -> dict[str, str]:
    """A job as a pod."""
    return {"namespace": job.team, "pod": job.job_id}


def _export_gpus(scene: Scene) -> Series:
    said = measure(scene)
    free = said["mem_total_bytes"] - said["mem_used_bytes"]
    signals = {
        "DCGM_FI_PROF_SM_ACTIVE": said["sm_active_share"],
        "DCGM_FI_DEV_GPU_UTIL": np.round(said["busy_share"] * PERCENT),
        "DCGM_FI_DEV_FB_USED": said["mem_used_bytes"] / BYTES_PER_MIB,
        "DCGM_FI_DEV_FB_FREE": free / BYTES_PER_MIB,
        "DCGM_FI_DEV_GPU_TEMP": said["temperature_c"],
        "DCGM_FI_DEV_XID_ERRORS": _read_xids(scene),
    }
    series, holders = Series(), scene.holders()
    for place, gpu in enumerate(scene.fleet):
        for minute in np.flatnonzero(~scene.lost[place]).tolist():
            holder = int(holders[place, minute])
            pod = name_pod(scene.jobs[holder]) if holder >= 0 else FREE
            labels = _sort(UUID=gpu.device, Hostname=gpu.node, gpu=gpu.device[-1], **pod)
            for name, values in signals.items():
                series.setdefault((name, labels), {})[scene.at_ms(minute + 1)] = float(values[place, minute])
    return series


def _read_xids(scene: Scene) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The last XID of each GPU: 0 before the first."""
    last = np.zeros(scene.sm.shape)
    for event in sorted(scene.events, key=lambda event: event.minute):
        if event.kind == "xid":
            last[event.gpu, max(event.minute, 0) :] = float(event.detail.partition(":")[0])
    return last


def _export_pods(scene: Scene) -> Series:
    series = Series()
    for job in scene.jobs:
        minutes = range(*job.within(scene.minutes))
        nodes = {scene.fleet[place].node for place in job.gpus}
        _add(series, "kube_pod_start_time", name_pod(job), minutes, scene.at_ms(job.from_min) / MS_PER_S, scene)
        _add(series, "kube_pod_status_phase", name_pod(job) | {"phase": "Running"}, minutes, 1.0, scene)
        for node in nodes:
            gpus = sum(scene.fleet[place].node == node for place in job.gpus)
            labels = name_pod(job) | {"node": node, "resource": "nvidia_com_gpu"}
            _add(series, "kube_pod_container_resource_requests", labels, minutes, float(gpus), scene)
    return series


def _export_nodes(scene: Scene) -> Series:
    series = Series()
    for node in sorted({gpu.node for gpu in scene.fleet}):
        gpus = float(len(scene.gpus_of(node)))
        for minute in range(scene.minutes):
            out = [o.reason for o in scene.outages if o.node == node and o.minutes[0] <= minute < o.minutes[1]]
            failed = any(not is_planned(reason) for reason in out)
            ready = {"node": node, "condition": "Ready", "status": "true"}
            now = range(minute, minute + 1)
            _add(series, "kube_node_status_condition", ready, now, 0.0 if failed else 1.0, scene)
            _add(series, "kube_node_spec_unschedulable", {"node": node}, now, float(bool(out) and not failed), scene)
            for name in ("capacity", "allocatable"):
                _add(series, f"kube_node_status_{name}", {"node": node, "resource": "nvidia_com_gpu"}, now, gpus, scene)
    return series


def _add(series: Series, name: str, labels: dict[str, str], minutes: range, value: float, scene: Scene) -> None:
    values = series.setdefault((name, _sort(**labels)), {})
    values.update((scene.at_ms(minute + 1), value) for minute in minutes)


def _sort(**labels: str) -> Labels:
    return tuple(sorted(labels.items()))


SHIPPED = {rule.name: rule for rule in RULES}
KINDS = [kind for kind in FAULTS if kind in SHIPPED]
SEED = 3


def make_books(folder: Path, case: Case) -> Books:
    """The books of a case."""
    (folder / "loadfactor.toml").write_text(write_settings(case.scene))
    settings.cache_clear()
    (folder / "tables").mkdir(parents=True)
    for batch in case.rows():
        pq.write_table(batch.data, folder / "tables" / f"{batch.table}.parquet")
    books = Books(folder / "books")
    books.add("tables", [folder / "tables"])
    return books


class TellingJudge(Judge):
    """Keeps what `/metrics` would tell of the rules after every step."""

    def __init__(self, judged_ms: int) -> None:
        super().__init__(RULES, judged_ms)
        self.series = Series()

    def _judge(self, evidence: Evidence) -> Iterator[Transition]:
        yield from super()._judge(evidence)
        verdicts = {rule.name: judge_rule(rule, evidence) for rule in RULES}
        for step, at_ms in enumerate(evidence.at_ms.tolist()):
            told = {name: of.pick(step) for name, of in verdicts.items()}
            add_families(self.series, tell_rules(RULES, told, "USD"), at_ms)


def judge_minutes(books: Books, case: Case) -> tuple[list[Alert], Series]:
    """What fires in the time of a scene, and what `/metrics` tells of the rules in every minute of it."""
    end = case.scene.at_ms(case.scene.minutes)
    judge, fired = TellingJudge(case.scene.start_ms), dict[str, Alert]()
    with books.watch() as watched:
        while judge.judged_ms < end:
            for told in judge.step(watched, min(end, judge.judged_ms + MOST_STEPS * STEP_MS)):
                fired[told.alert.fingerprint] = told.alert
    return list(fired.values()), judge.series


def name_group(alert: Alert) -> Labels:
    """The group of an alert as labels."""
    return tuple(sorted((DIMENSIONS.get(by, by), name) for by, name in alert.by.items()))


def read_alerts(text: str) -> list[dict[str, Any]]:
    """The alerting rules of a file."""
    return [rule for rule in yaml.safe_load(text)["groups"][0]["rules"] if "alert" in rule]


def read_for_s(rule: dict[str, Any]) -> float:
    """For how long its expression has to answer, seconds."""
    return parse_duration_s(rule["for"].replace("m", "min")) if rule["for"] != "0m" else 0.0


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of the case, and of nobody else afterwards."""
    monkeypatch.chdir(tmp_path)
    yield
    settings.cache_clear()


@pytest.mark.parametrize("kinds", [(kind,) for kind in KINDS], ids="+".join)
def test_own_rules_fire_like_ours(kinds: Sequence[str], tmp_path: Path) -> None:
    """What fires here fires in Prometheus, for the same groups and no others, within a minute."""
    case = make_case(SEED, kinds)
    alerts, series = judge_minutes(make_books(tmp_path, case), case)
    assert any(alert.rule in kinds for alert in alerts)
    write_openmetrics(series, tmp_path / "history.om")
    add_blocks(tmp_path, "openmetrics", "history.om")
    span = (case.scene.start_ms, case.scene.start_ms + case.scene.minutes * STEP_MS)
    text = write_for("loadfactor", RULES, "USD", "")[0]
    with serve_history(tmp_path) as prometheus:
        for rule in read_alerts(text):
            found = find_firing(ask_minutes(prometheus, rule["expr"], span), read_for_s(rule))
            ours: dict[Labels, list[int]] = {}
            for alert in sorted((a for a in alerts if a.rule == rule["alert"]), key=lambda a: a.fired_ms or 0):
                assert alert.fired_ms is not None
                ours.setdefault(name_group(alert), []).append(alert.fired_ms)
            assert {*found} == {*ours}, rule["alert"]
            for group, times in found.items():
                assert abs(times[0] - ours[group][0]) <= STEP_MS, (rule["alert"], group)


AGAINST_DCGM = (
    "fleet_utilization_low", "team_utilization_low", "job_utilization_low", "job_idle_from_start", "job_became_idle",
    "notebook_idle", "gpus_never_used", "memory_pressure", "gpu_hot", "gpu_xid", "node_down", "gpus_work_unheld",
)  # fmt: skip
"""Rules that say the same of these series. What has no such series (events, prices) or another group (nodes) is left out."""


RECORDED = "recorded.yml"
"""Without its folder: promtool evaluates a group at a second of the minute that is hashed of this path. At the last one,
SHORT_LOOKBACK would find nothing."""


def record_history(folder: Path, text: str, span: tuple[int, int]) -> None:
    """Have promtool write what is recorded into the database, after what it is made of."""
    left = {rule["record"]: rule for rule in yaml.safe_load(text)["groups"][0]["rules"] if "record" in rule}
    while left:
        ready = [rule for rule in left.values() if not any(name in rule["expr"] for name in left)]
        assert ready, "series are recorded out of each other"
        (folder / RECORDED).write_text(
            yaml.safe_dump({"groups": [{"name": "recorded", "interval": "1m", "rules": ready}]})
        )
        with serve_history(folder) as prometheus:
            start, end = (str(at // MS_PER_S) for at in span)
            url = ("--url", prometheus.url, "--start", start, "--end", end, "--eval-interval", "1m")
            add_blocks(folder, "rules", *url, "--output-dir", "recorded", RECORDED)
        for block in (folder / "recorded").iterdir():  # a running server may compact what is written beside it
            block.rename(folder / "data" / block.name)
        for rule in ready:
            del left[rule["record"]]


def name_dcgm_group(alert: Alert, case: Case) -> Labels:
    """The group of an alert as these series have it."""
    pods = {job.job_id: name_pod(job) for job in case.scene.jobs}
    labels: dict[str, str] = {}
    for by, name in alert.by.items():
        labels |= pods[name] if by == "job" else {{"team": "namespace", "device": "UUID"}.get(by, by): name}
    return tuple(sorted(labels.items()))


@pytest.mark.parametrize("kinds", [(kind,) for kind in AGAINST_DCGM], ids="+".join)
def test_rules_over_dcgm_exporter_fire_like_ours(kinds: Sequence[str], tmp_path: Path) -> None:
    """Out of what dcgm-exporter and kube-state-metrics tell, the rule of a fault fires for the same groups within a minute."""
    case = make_case(SEED, kinds)
    alerts, _ = judge_minutes(make_books(tmp_path, case), case)
    write_openmetrics(export_scene(case.scene), tmp_path / "history.om")
    add_blocks(tmp_path, "openmetrics", "history.om")
    span = (case.scene.at_ms(1), case.scene.at_ms(case.scene.minutes))
    text = write_for("dcgm", RULES, "USD", "")[0]
    record_history(tmp_path, text, span)
    nodes = {gpu.device: gpu.node for gpu in case.scene.fleet}
    with serve_history(tmp_path) as prometheus:
        offset_ms = find_offset(prometheus, "loadfactor:gpu_activity:ratio", span[1])
        for rule in read_alerts(text):
            if rule["alert"] not in kinds:
                continue
            found = find_firing(ask_minutes(prometheus, rule["expr"], span, offset_ms), read_for_s(rule))
            if rule["alert"] == "gpus_work_unheld":  # by GPU, as ours is by node
                found = {(("node", nodes[dict(labels)["UUID"]]),): times for labels, times in found.items()}
            ours: dict[Labels, int] = {}
            for alert in sorted((a for a in alerts if a.rule == rule["alert"]), key=lambda a: a.fired_ms or 0):
                ours.setdefault(name_dcgm_group(alert, case), alert.fired_ms or 0)
            assert ours
            assert {*found} == {*ours}, rule["alert"]
            for group, times in found.items():
                assert abs(times[0] - ours[group]) <= STEP_MS, (
                    rule["alert"],
                    group,
                    (times[0] - ours[group]) / STEP_MS,
                )
