"""Every finding and every alert carries one class, and the same cause has the same one wherever it is told."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.commands import Run
from tests.faults.job_scenarios import CAUSES as SICKNESSES
from tests.faults.job_scenarios import make_rows, make_scenario

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.rules import RULES
from loadfactor.insight.causes import CAUSES, Cause, class_of_metric
from loadfactor.insight.diagnosis.finding import CauseFinding
from loadfactor.insight.diagnosis.rules import DIAGNOSES
from loadfactor.interfaces.server.models import describe_shape
from loadfactor.metrics import METRICS
from loadfactor.settings.alerts import AlertTable
from loadfactor.sources.base import Rows, Source

ROOT = Path(__file__).resolve().parents[2]
CLASSES = {
    *("I/O", "model and batch", "precision and kernels", "communication", "scheduling", "hardware", "user error")
}
SAME = {
    "notebook_idle": "idle_notebook",
    "gpus_never_used": "over_allocation",
    "collective_bound": "communication",
    "job_straggler": "straggler",
    "gpu_throttled": "throttling",
    "memory_pressure": "out_of_memory",
    "comm_wait_straggler": "straggler",
    "comm_exposed": "communication",
    "copy_bound": "host_copies",
    "host_bound": "launch_bound",
    "precision_fp32": "no_mixed_precision",
    "start_up": "set_up",
    "input_pipeline": "input_pipeline",
}
"""Rules of alerts and causes in traces, with the cause of jobs that is the same thing."""


def list_classes(found: Any) -> Iterator[list[object]]:
    """Of each object in JSON that names a cause, the classes that it carries."""
    if isinstance(found, dict):
        if "cause" in found and ({"sureness", "jobs"} & set(found)):
            yield [found[name] for name in ("class", "classes", "class_") if name in found]
        for value in found.values():
            yield from list_classes(value)
    elif isinstance(found, list):
        for value in found:
            yield from list_classes(value)


def test_there_are_seven_classes() -> None:
    """The type, its descriptions and the answers of the server know the same seven."""
    assert set(get_args(Cause)) == set(CAUSES) == CLASSES
    assert get_args(describe_shape(CauseFinding).model_fields["class_"].annotation) == get_args(Cause)


def test_a_cause_has_one_class_wherever_it_is_told() -> None:
    """Every declared rule has one of them, and what is the same in alerts, traces and diagnoses has the same one."""
    of_jobs = {rule.cause: rule.class_ for rule in DIAGNOSES}
    of_alerts = {rule.name: rule.cause for rule in RULES}
    # Cause → class of the findings that rules of traces make, as their files say it.
    of_traces: dict[str, str] = {}
    for path in (ROOT / "src/loadfactor/insight/traces").glob("rules.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "TraceFinding":
                said = {item.arg: item.value.value for item in call.keywords if isinstance(item.value, ast.Constant)}
                of_traces[str(said["cause"])] = str(said["class_"])
    assert len(of_traces) == 11
    for known in (of_jobs, of_alerts, of_traces):
        assert set(known.values()) <= CLASSES
    for name, cause in SAME.items():
        assert {**of_alerts, **of_traces}[name] == of_jobs[cause], name


@pytest.mark.long
def test_findings_in_json_carry_one_class(run: Run, tmp_path: Path) -> None:
    """Of jobs with every cause, of their team and the fleet, and of a trace with its job, each finding has exactly one."""
    scenarios = [make_scenario(cause, 40 + n, (cause,)) for n, cause in enumerate(SICKNESSES)]
    rows = [Rows(batch.table, batch.data, "simulated") for batch in make_rows(scenarios)]
    Books.open(tmp_path / "books", create=True).add_rows(
        Source("simulated", lambda _paths: (), lambda _paths, _options: iter(rows)), rows, "scenarios"
    )
    seen: list[list[object]] = []
    for asked in ((), ("--job", "small_batch"), (ROOT / "examples" / "trace.json", "--job", "small_batch")):
        code, out, err = run("diagnose", *asked, "--store", tmp_path / "books", "--format", "json")
        assert code == 0, err
        seen += list_classes(json.loads(out))
    assert len(seen) > len(SICKNESSES)
    assert all(len(classes) == 1 and classes[0] in CLASSES for classes in seen)


@pytest.mark.long
def test_alerts_in_json_carry_one_class(run: Run, simulated_books: Books) -> None:
    """Whatever would have fired in the simulated fleet has one of the seven."""
    code, out, err = run("alerts", "test", "--store", simulated_books.store.folder, "--format", "json")
    assert code in (0, 1), err
    alerts = json.loads(out)["alerts"]
    assert alerts
    assert {alert["cause"] for alert in alerts} <= CLASSES


def test_rules_of_ones_own_have_a_class() -> None:
    """A rule that settings add has the class of its metric, or the one that they say; a class that there is not is refused."""
    assert {class_of_metric(metric.name, metric.topic) for metric in METRICS} <= CLASSES
    hot = AlertTable.model_validate({"name": "hot nodes", "metric": "temperature_c", "by": ("node",), "above": 85.0})
    assert configure(RULES, (hot,))[-1].cause == "hardware"
    said = hot.model_copy(update={"cause": "user error"})
    assert configure(RULES, (said,))[-1].cause == "user error"
    with pytest.raises(InputError, match=r"hot nodes.*cause"):
        configure(RULES, (hot.model_copy(update={"cause": "telemetry"}),))
