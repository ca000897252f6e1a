"""On fleets with known faults the rules for Prometheus fire like loadfactor's own, within one evaluation interval."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from tests.faults.cases import Case, make_case
from tests.faults.healthy import write_settings
from tests.faults.kinds import FAULTS
from tests.real.backfilled import (
    Labels,
    Series,
    add_blocks,
    add_families,
    ask_minutes,
    find_firing,
    find_offset,
    serve_history,
    write_openmetrics,
)
from tests.real.scene_exporters import export_scene, name_pod

from loadfactor.base.quantities import parse_duration_s
from loadfactor.base.units import MS_PER_S
from loadfactor.books.books import Books
from loadfactor.insight.alerts.alert import Alert, Transition
from loadfactor.insight.alerts.judge import MOST_STEPS, STEP_MS, Judge
from loadfactor.insight.alerts.rule import Evidence
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.gauges.rules import tell_rules
from loadfactor.interfaces.prometheus_rules.files import write_for
from loadfactor.settings.config import settings
from loadfactor.tables.schema import DIMENSIONS

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
        add_families(self.series, tell_rules(RULES, self.verdicts, "USD"), self.judged_ms)


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
