"""Do diagnoses name the cause? Healthy jobs get known causes of lost GPU time, alone and in pairs, with all signals and without.

`diagnosis_top_right`: of jobs with known causes and all signals, those whose first finding is a cause that was put in.
`diagnosis_healthy_false`: of healthy jobs, those of which a cause is told with high or medium sureness. `diagnosis_blind_wrong`:
with GPU_UTIL and memory alone, jobs of which a cause that was not put in is told so; `diagnosis_amd_wrong` the same of GPUs that
have no profiling counters. The table is kept in docs/diagnose.md.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

from tests.faults.job_scenarios import CAUSES, JobScenario, make_rows, make_scenario

from loadfactor.books.books import Books
from loadfactor.insight.diagnosis.diagnose import diagnose_job
from loadfactor.insight.diagnosis.diagnosed_job import read_jobs
from loadfactor.insight.diagnosis.finding import JobDiagnosis
from loadfactor.sources.base import Rows, Source

NAME = "diagnosis"
BLIND: Final = frozenset({"busy_share", "mem_used_bytes", "mem_total_bytes"})
PLAIN: Final = BLIND | {"power_w", "throttle_mask"}
TOGETHER: Final = 8
Judged = tuple[JobScenario, JobDiagnosis]


def run(quick: bool) -> dict[str, float]:
    """Shares of jobs that were told rightly and wrongly, with the table printed."""
    times, well_ones = (1, 4) if quick else (6, 60)
    made = [make_scenario(f"{c}-{n}", 1000 * n + i, (c,)) for i, c in enumerate(CAUSES) for n in range(times)]
    if not quick:
        made += [make_scenario(f"{a}+{b}", 7000 + i, (a, b)) for i, (a, b) in enumerate(list_pairs())]
    made += [make_scenario(f"healthy-{n}", 9000 + n, ()) for n in range(well_ones)]
    whole = [each for each in made if each.shape.has_profiling]
    fewer = [each for n, each in enumerate(whole) if quick or n % 2 == 0]
    seen = {
        "all": judge(whole),
        "plain": judge(fewer, PLAIN, with_nodes=True),
        "blind": judge(fewer, BLIND),
        "amd": judge([each for each in made if not each.shape.has_profiling]),
    }
    print(tabulate(seen))
    sick = [each for each in seen["all"] if each[0].causes]
    well = [each for each in seen["all"] if not each[0].causes]
    return {
        "diagnosis_top_right": sum(is_right(*each) for each in sick) / len(sick),
        "diagnosis_healthy_false": sum(is_wrong(*each) for each in well) / len(well),
        "diagnosis_blind_wrong": sum(is_wrong(*each) for each in seen["blind"]) / len(seen["blind"]),
        "diagnosis_amd_wrong": sum(is_wrong(*each) for each in seen["amd"]) / max(len(seen["amd"]), 1),
    }


def list_pairs() -> Iterator[tuple[str, str]]:
    """Every second pair of causes that can be in one job: only training has several, and what never works does nothing slowly."""
    apart = {"idle_notebook", "few_requests", "busy_without_work", "wrong_gpu", "over_allocation"}
    pairs = [
        (a, b) for a, b in combinations(CAUSES, 2) if not {a, b} & apart and {a, b} != {"small_batch", "memory_full"}
    ]
    yield from pairs[::2]


def judge(
    scenarios: Sequence[JobScenario], signals: frozenset[str] | None = None, with_nodes: bool | None = None
) -> list[Judged]:
    """Their diagnoses, from books that hold what was measured: of a few in each, as each job is read beside all others."""
    has_nodes = signals is None if with_nodes is None else with_nodes
    groups = [scenarios[first : first + TOGETHER] for first in range(0, len(scenarios), TOGETHER)]
    return [each for group in groups for each in _judge(group, signals, has_nodes)]


def _judge(scenarios: Sequence[JobScenario], signals: frozenset[str] | None, with_nodes: bool) -> list[Judged]:
    with tempfile.TemporaryDirectory() as folder:
        books = Books.open(Path(folder) / "books", create=True)
        rows = [Rows(batch.table, batch.data, "simulated") for batch in make_rows(scenarios, signals, with_nodes)]
        books.add_rows(Source("simulated", lambda _paths: (), lambda _paths, _options: iter(rows)), rows, "scenarios")
        with books.watch() as watched:
            read = read_jobs(watched, [scenario.name for scenario in scenarios])
            return [(scenario, diagnose_job(job)) for scenario, job in zip(scenarios, read, strict=True)]


def is_right(scenario: JobScenario, found: JobDiagnosis) -> bool:
    """Whether the first cause is one that was put in, or nothing is told of a healthy job."""
    if not scenario.causes:
        return not found.findings
    return bool(found.findings) and found.findings[0].cause in scenario.causes


def is_wrong(scenario: JobScenario, found: JobDiagnosis) -> bool:
    """Whether any cause is told that was not put in, with high or medium sureness."""
    return any(finding.cause not in scenario.causes and finding.sureness != "low" for finding in found.findings)


def tabulate(seen: Mapping[str, Sequence[Judged]]) -> str:
    """A table in Markdown: a row for each cause."""
    lines = [
        "| cause | jobs | first right | taken for | no profiling counters | GPU_UTIL and memory | MI300X |",
        "|---|--:|--:|---|---|---|---|",
    ]
    for cause in (*CAUSES, "pairs", "healthy", ""):
        of = {name: [each for each in found if _belongs(each[0], cause)] for name, found in seen.items()}
        right = sum(is_right(*each) for each in of["all"])
        taken = Counter(f.findings[0].cause if f.findings else "nothing" for p, f in of["all"] if not is_right(p, f))
        names = ", ".join(f"{name} {count}" for name, count in taken.most_common(4)) or "–"
        without = " | ".join(_count(of[name]) for name in ("plain", "blind", "amd"))
        lines.append(f"| {cause or 'all of them'} | {len(of['all'])} | {right} | {names} | {without} |")
    return "\n".join(lines)


def _count(found: Sequence[Judged]) -> str:
    """Right, nothing told of a job that has a cause, and wrong in anything that is told."""
    wrong = [is_wrong(*each) for each in found]
    right = sum(is_right(*each) and not w for each, w in zip(found, wrong, strict=True))
    return f"{right}, {len(found) - right - sum(wrong)}, {sum(wrong)}"


def _belongs(scenario: JobScenario, cause: str) -> bool:
    if not cause:
        return True
    if cause == "healthy":
        return not scenario.causes
    return len(scenario.causes) == 2 if cause == "pairs" else scenario.causes == (cause,)
