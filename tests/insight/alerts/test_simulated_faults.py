"""Do all rules together tell of the faults of simulated fleets, and of nothing else? `benchmarks/alerts.py` asks many more."""

from pathlib import Path

import pytest
from tests.faults.cases import Case, make_case
from tests.long import rest_long

from loadfactor.books.books import Books
from loadfactor.insight.alerts.judge import replay
from loadfactor.insight.alerts.rules import RULES
from loadfactor.sources.base import Rows, Source

SIMULATED = Source("simulated", lambda _paths: (), lambda _paths, _options: ())  # type: ignore[arg-type,return-value]


def make_books(folder: Path, case: Case) -> Books:
    books = Books.open(folder / "books", create=True)
    for name, batches in (("first", case.rows()), ("late", case.late_rows())):
        books.add_rows(SIMULATED, (Rows(batch.table, batch.data) for batch in batches), name)
    return books


@pytest.mark.parametrize(
    ("kinds", "spoilt"),
    rest_long(
        [
            (("collective_bound", "gpu_hot", "gpu_ecc", "job_became_idle"), {"has_gaps": True, "is_late": True}),
            (("pcie_saturated", "memory_pressure", "gpu_xid", "node_down"), {}),
            (("job_straggler", "gpu_throttled", "notebook_idle", "telemetry_lost"), {"is_late": True}),
            ((), {}),
        ]
    ),
    ids=lambda value: "+".join(value) or "healthy",
)
def test_faults_are_told_and_nothing_else(tmp_path: Path, kinds: tuple[str, ...], spoilt: dict[str, bool]) -> None:
    """Several faults in one fleet, also with gaps and late samples: each is told, and each alert tells of something that was so."""
    case = make_case(4, kinds, **spoilt)
    scene = case.scene
    alerts = replay(make_books(tmp_path, case), RULES, (scene.at_ms(0), scene.at_ms(scene.minutes)))
    explained = [case.explain(a.rule, a.by, a.start_ms, a.end_ms) for a in alerts]
    assert [a for a, of in zip(alerts, explained, strict=True) if not of] == []
    told = [expected for of in explained for expected in of]
    assert [e.rule for e in case.expected if e.is_certain and e not in told] == []


@pytest.mark.long
def test_without_signals_rules_are_silent(tmp_path: Path) -> None:
    """GPU_UTIL and memory alone: full links, waiting and heat cannot be told, and nothing is."""
    case = make_case(4, ("pcie_saturated", "collective_bound", "gpu_hot"), missing="GPU_UTIL and memory only")
    scene = case.scene
    alerts = replay(make_books(tmp_path, case), RULES, (scene.at_ms(0), scene.at_ms(scene.minutes)))
    assert [a for a in alerts if not case.explain(a.rule, a.by, a.start_ms, a.end_ms)] == []
