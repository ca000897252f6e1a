"""Do diagnoses name the cause? Healthy jobs get known causes of lost GPU time, alone and in pairs, with all signals and without.

`diagnosis_top_right`: of jobs with known causes and all signals, those whose first finding is a cause that was put in.
`diagnosis_healthy_false`: of healthy jobs, those of which a cause is told with high or medium sureness. `diagnosis_blind_wrong`:
with GPU_UTIL and memory alone, jobs of which a cause that was not put in is told so. The table is kept in docs/diagnose.md.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

from loadfactor.books.books import Books
from loadfactor.insight.diagnosis.diagnose import diagnose_job
from loadfactor.insight.diagnosis.finding import JobDiagnosis
from loadfactor.insight.diagnosis.read import read_job
from loadfactor.simulator.faults.clinic import CAUSES, Patient, make_patient
from loadfactor.simulator.faults.clinic_rows import make_rows
from loadfactor.sources.base import Rows, Source

NAME = "diagnosis"
BLIND: Final = frozenset({"busy_share", "mem_used_bytes", "mem_total_bytes"})
TOGETHER: Final = 8
Judged = tuple[Patient, JobDiagnosis]


def run(quick: bool) -> dict[str, float]:
    """Shares of jobs that were told rightly and wrongly, with the table printed."""
    alone = [
        make_patient(f"{c}-{n}", 100 * n + i, (c,)) for n in range(1 if quick else 3) for i, c in enumerate(CAUSES)
    ]
    pairs = [] if quick else [make_patient(f"{a}+{b}", 7000 + i, (a, b)) for i, (a, b) in enumerate(list_pairs())]
    healthy = [make_patient(f"healthy-{n}", 900 + n, ()) for n in range(4 if quick else 20)]
    seen = judge([*alone, *pairs, *healthy])
    blind = judge([*alone, *pairs, *healthy], BLIND)
    print(tabulate(seen, blind))
    sick = [each for each in seen if each[0].causes]
    well = [each for each in seen if not each[0].causes]
    return {
        "diagnosis_top_right": sum(is_right(*each) for each in sick) / len(sick),
        "diagnosis_healthy_false": sum(bool(found.findings) for _, found in well) / len(well),
        "diagnosis_blind_wrong": sum(is_wrong(*each) for each in blind) / len(blind),
    }


def list_pairs() -> Iterator[tuple[str, str]]:
    """Every third pair of causes that can be in one job: a notebook does not train, what never works does nothing slowly."""
    apart = {"idle_notebook", "busy_without_work", "wrong_gpu", "over_allocation"}
    pairs = [
        (a, b) for a, b in combinations(CAUSES, 2) if not {a, b} & apart and {a, b} != {"small_batch", "memory_full"}
    ]
    yield from pairs[::3]


def judge(patients: Sequence[Patient], signals: frozenset[str] | None = None) -> list[Judged]:
    """Their diagnoses, from books that hold what was measured: of a few in each, as each job is read beside all others."""
    some, rest = patients[:TOGETHER], patients[TOGETHER:]
    return [*_judge(some, signals), *(judge(rest, signals) if rest else ())]


def _judge(patients: Sequence[Patient], signals: frozenset[str] | None) -> list[Judged]:
    with tempfile.TemporaryDirectory() as folder:
        books = Books.open(Path(folder) / "books", create=True)
        rows = [Rows(batch.table, batch.data, "simulated") for batch in make_rows(patients, signals, signals is None)]
        books.add_rows(Source("simulated", lambda _paths: (), lambda _paths, _options: iter(rows)), rows, "clinic")
        with books.watch() as watched:
            return [(patient, diagnose_job(read_job(watched, patient.name))) for patient in patients]


def is_right(patient: Patient, found: JobDiagnosis) -> bool:
    """Whether the first cause is one that was put in."""
    return bool(found.findings) and found.findings[0].cause in patient.causes


def is_wrong(patient: Patient, found: JobDiagnosis) -> bool:
    """Whether any cause is told that was not put in, with high or medium sureness."""
    return any(finding.cause not in patient.causes and finding.sureness != "low" for finding in found.findings)


def tabulate(seen: Sequence[Judged], blind: Sequence[Judged]) -> str:
    """A table in Markdown: a row for each cause."""
    lines = [
        "| cause | jobs | first cause right | taken for | GPU_UTIL and memory only: right, cannot tell, wrong |",
        "|---|--:|--:|---|---|",
    ]
    for cause in (*CAUSES, "pairs", "healthy"):
        with_all = [each for each in seen if _belongs(each[0], cause)]
        without = [each for each in blind if _belongs(each[0], cause)]
        right = (
            sum(is_right(*each) for each in with_all)
            if cause != "healthy"
            else sum(not f.findings for _, f in with_all)
        )
        taken = Counter(
            f.findings[0].cause if f.findings else "nothing" for p, f in with_all if p.causes and not is_right(p, f)
        )
        taken += Counter(f.findings[0].cause for p, f in with_all if not p.causes and f.findings)
        wrong, told = sum(is_wrong(*each) for each in without), sum(is_right(*each) for each in without)
        names = ", ".join(f"{name} {count}" for name, count in taken.most_common(4)) or "–"
        lines.append(
            f"| {cause} | {len(with_all)} | {right} | {names} | {told}, {len(without) - told - wrong}, {wrong} |"
        )
    return "\n".join(lines)


def _belongs(patient: Patient, cause: str) -> bool:
    if cause == "healthy":
        return not patient.causes
    return len(patient.causes) == 2 if cause == "pairs" else patient.causes == (cause,)
